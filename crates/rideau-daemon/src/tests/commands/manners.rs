//! How connections and sessions end, and which answers a client wants.

use crate::tests::commands::peer::Peer;
use crate::tests::commands::server::Server;

const CONFIG: &str = r#"
[regulator.size]
valve = { kind = "open", max = 1 }
[pool.cad]
member = { list = ["A"] }
[lock."*"]
"#;

fn ticket(answer: &str) -> String {
    answer
        .split(", ")
        .nth(1)
        .unwrap()
        .trim_end_matches(']')
        .into()
}

/// A number of `INFO stats`.
fn stat(peer: &mut Peer, name: &str) -> String {
    let info = peer.say("INFO stats");
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {info}"));
    line.trim_start_matches(':').into()
}

#[test]
fn a_session_ends_as_its_last_connection_does() {
    let server = Server::start(CONFIG);
    let mut eyes = server.connect();
    let end = |words: &[&str]| {
        let mut peer = server.connect();
        peer.say("SESSION OPEN");
        assert!(peer.say("LOCK key").starts_with("[go, "));
        for line in words {
            peer.say(line);
        }
    };
    for (words, reason) in [
        (&["QUIT"][..], "reclaims_quit"),
        (&["SESSION DETACH"][..], "reclaims_quit"),
        (&[][..], "reclaims_disconnect"),
    ] {
        let before: u32 = stat(&mut eyes, reason).parse().unwrap();
        end(words);
        while stat(&mut eyes, reason) != (before + 1).to_string() {
            std::thread::yield_now();
        }
        assert_eq!(stat(&mut eyes, "reclaims_ttl"), "0", "{words:?}");
    }
    let mut peer = server.connect();
    peer.say("SESSION OPEN TTL 30");
    peer.say("LOCK key");
    peer.say("QUIT");
    while stat(&mut eyes, "reclaims_ttl") != "1" {
        std::thread::yield_now();
    }
}

#[test]
fn answers_that_are_not_wanted_do_not_come() {
    let server = Server::start(CONFIG);
    let mut peer = server.connect();
    for words in [
        &["CLIENT", "REPLY", "OFF"][..],
        &["PING", "1"],
        &["NONSENSE"],
        &["LOCK", "a", "PER", "2"],
        &["CLIENT", "REPLY", "SKIP"],
        &["PING", "2"],
    ] {
        peer.send(words);
    }
    assert_eq!(peer.say("CLIENT REPLY ON"), "+OK");
    assert_eq!(peer.say("LOCK.STAT a"), "[held, 1, waiting, 0]");
}

#[test]
fn a_skip_is_for_one_answer() {
    let server = Server::start(CONFIG);
    let mut peer = server.connect();
    peer.send(&["CLIENT", "REPLY", "SKIP"]);
    peer.send(&["PING", "1"]);
    assert_eq!(peer.say("PING 2"), "2");
    // One after the other skips two.
    for words in [
        &["CLIENT", "REPLY", "SKIP"][..],
        &["CLIENT", "REPLY", "SKIP"],
        &["PING", "3"],
    ] {
        peer.send(words);
    }
    assert_eq!(peer.say("PING 4"), "4");
    peer.send(&["CLIENT", "REPLY", "SKIP"]);
    assert_eq!(peer.say("CLIENT REPLY ON"), "+OK");
    assert!(peer.say("CLIENT REPLY MAYBE").starts_with("-ERR "));
}

#[test]
fn the_answer_of_a_command_that_waits_is_skipped_too() {
    let server = Server::start(CONFIG);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let held = ticket(&other.say("LOCK a"));
    peer.send(&["CLIENT", "REPLY", "SKIP"]);
    peer.send(&["LOCK", "a", "WAIT", "9000"]);
    while other.say("LOCK.STAT a") != "[held, 1, waiting, 1]" {
        std::thread::yield_now();
    }
    assert_eq!(other.say(&format!("RELEASE {held}")), "+OK");
    assert_eq!(peer.say("PING x"), "x");
    assert_eq!(peer.say("LOCK.STAT a"), "[held, 1, waiting, 0]");
}

#[test]
fn all_answers_come_again_after_a_reset() {
    let server = Server::start(CONFIG);
    let mut peer = server.connect();
    peer.send(&["CLIENT", "REPLY", "OFF"]);
    assert_eq!(peer.say("RESET"), "+RESET");
}

#[test]
fn a_lease_can_be_renewed_before_its_grant_was_heard() {
    let server = Server::start(CONFIG);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let held = ticket(&other.say("REG.ASK size"));
    let asked = ticket(&peer.say("REG.ASK size WAIT 9000 ASYNC"));
    let no = peer.say(&format!("REG.CONTINUE {asked}"));
    assert!(
        no.starts_with("-NOTHELD ") && no.contains("still waits"),
        "{no}"
    );
    assert_eq!(other.say(&format!("REG.DONE {held}")), "+OK");
    // The answer is there, and has not been fetched.
    let renewed = loop {
        let answer = peer.say(&format!("REG.CONTINUE {asked}"));
        if !answer.starts_with("-NOTHELD ") {
            break answer;
        }
    };
    assert_eq!(renewed.matches(", ").count(), 3, "{renewed}");
    assert!(renewed.starts_with(&format!("[go, {asked}, ")), "{renewed}");
    // It can be fetched all the same.
    let told = peer.say(&format!("AWAIT {asked}"));
    assert!(told.starts_with(&format!("[go, {asked}, ")), "{told}");
}
