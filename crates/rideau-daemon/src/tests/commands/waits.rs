//! A wait that a command names is kept by the default queue, and a command that
//! names a longer one than the queue allows is told so.

use crate::tests::commands::peer::{Peer, cell};
use crate::tests::commands::server::Server;

const PLACES: &str = r#"
[server]
wait_default = "20s"

[lock."capped/*"]
queue = { kind = "paced", wait_cap = "5s" }

[lock."*"]

[pool.licence]
member = { list = ["A"] }

[pool.capped]
member = { list = ["A"] }
queue = { wait_cap = "5s" }

[broker.capped]
asks = { wait_cap = "5s" }

[regulator.capped]
queue = { kind = "paced", wait_cap = "5s" }
valve = { kind = "open", max = 1 }
"#;

/// The row of its pool, for they are sorted by name.
const LICENCE: usize = 1;

/// The ticket of a client that has it, or waits for it.
fn ticket(answer: &str) -> String {
    let mut words = answer.trim_matches(['[', ']']).split(", ");
    assert!(matches!(words.next(), Some("go" | "await")), "{answer}");
    words.next().unwrap().into()
}

/// Peers that wait for a licence, in this order.
fn line(server: &Server, words: &[&str], len: usize) -> Vec<Peer> {
    let mut look = server.connect();
    let mut join = |before: usize| {
        let mut peer = server.connect();
        peer.send(words);
        // It waits at last, or the test hangs.
        while cell(&look.ask(&["SHOW", "POOLS"]), LICENCE, "waiting") == before.to_string() {
            std::thread::yield_now();
        }
        peer
    };
    (0..len).map(&mut join).collect()
}

#[test]
fn a_take_that_names_its_wait_stays_when_others_are_shed() {
    let server = Server::start(PLACES);
    let mut holder = server.connect();
    let held = ticket(&holder.say("TAKE licence"));
    let told = line(&server, &["TAKE", "licence", "WAIT", "25000"], 5);
    let mut plain = server.connect();
    let no = plain.say("TAKE licence");
    assert!(no.starts_with("[shed, "), "five wait, and it waited: {no}");
    assert_eq!(holder.say(&format!("RELEASE {held}")), "+OK");
    // Each gives it to the next when it goes.
    for mut peer in told {
        ticket(&peer.hear());
    }
}

#[test]
fn a_lone_take_without_a_wait_is_not_shed() {
    let server = Server::start(PLACES);
    let mut holder = server.connect();
    let held = ticket(&holder.say("TAKE licence"));
    let lone = line(&server, &["TAKE", "licence"], 1);
    // Longer than the law lets one wait beyond the protected number.
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(holder.say(&format!("RELEASE {held}")), "+OK");
    for mut peer in lone {
        ticket(&peer.hear());
    }
}

#[test]
fn a_wait_over_the_cap_is_answered_with_the_cap_again_and_again() {
    let server = Server::start(PLACES);
    let (mut holder, mut peer) = (server.connect(), server.connect());
    ticket(&holder.say("LOCK capped/1"));
    ticket(&holder.say("TAKE capped"));
    ticket(&holder.say("REG.ASK capped"));
    for command in [
        "LOCK capped/1",
        "TAKE capped",
        "ASK capped",
        "REG.ASK capped",
    ] {
        let long = format!("{command} WAIT 9000 ASYNC ID {}", command.len());
        let told = peer.say(&long);
        let wanted = format!("[await, {}, 5000]", ticket(&told));
        assert_eq!(told, wanted, "{command}");
        assert_eq!(peer.say(&long), wanted, "{command}");
        let short = peer.say(&format!("{command} WAIT 4000 ASYNC"));
        assert_eq!(short, format!("[await, {}]", ticket(&short)), "{command}");
    }
}
