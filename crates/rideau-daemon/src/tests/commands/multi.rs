//! Commands between `MULTI` and `EXEC`.

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

const PLACES: &str = r#"
[store]
kind = "memory"

[pool.one]
member = { list = ["m1"] }
queue = { kind = "never" }

[pool.two]
member = { list = ["m1", "m2"] }

[broker.desk]
asks = { kind = "never" }
offers = { kind = "never" }

[regulator.few]
queue = { kind = "never" }
valve = { kind = "open", max = 1 }

[range.office]
values = ["10.20.0.1-10.20.0.1"]
start = "free"

[lock."*"]
"#;

/// Queue lines behind `MULTI`, and execute them.
fn exec(peer: &mut Peer, lines: &[&str]) -> Vec<String> {
    assert_eq!(peer.say("MULTI"), "+OK");
    for line in lines {
        assert_eq!(peer.say(line), "+QUEUED", "{line}");
    }
    match peer.ask(&["EXEC"]) {
        Value::Array(answers) => answers.iter().map(text).collect(),
        other => panic!("{}", text(&other)),
    }
}

fn word(answer: &str) -> &str {
    answer.trim_matches(['[', ']']).split(", ").next().unwrap()
}

#[test]
fn queued_commands_are_executed_in_order() {
    let server = Server::start(PLACES);
    for hello in ["HELLO 2", "HELLO 3"] {
        let (mut peer, mut other) = (server.connect(), server.connect());
        peer.say(hello);
        assert_eq!(peer.say("MULTI"), "+OK");
        for line in ["LOCK k", "LOCK k", "UNLOCK k", "ECHO last"] {
            assert_eq!(peer.say(line), "+QUEUED");
        }
        // Nothing of it has happened yet.
        assert_eq!(word(&other.say("LOCK k")), "go");
        assert_eq!(other.say("UNLOCK k"), "+OK");
        let Value::Array(answers) = peer.ask(&["EXEC"]) else {
            panic!("no answers");
        };
        let answers: Vec<_> = answers.iter().map(text).collect();
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert_eq!([word(&answers[0]), word(&answers[1])], ["go", "full"]);
        assert_eq!(answers[2..], ["+OK", "last"]);
        assert_eq!(exec(&mut peer, &[]), [""; 0], "there may be none");
        assert_eq!(peer.say("PING"), "+PONG");
    }
}

#[test]
fn nothing_waits_behind_multi() {
    let server = Server::start(PLACES);
    let (mut holder, mut peer) = (server.connect(), server.connect());
    for line in ["LOCK k", "TAKE one", "REG.ASK few", "RESERVE office"] {
        assert_eq!(word(&holder.say(line)), "go", "{line}");
    }
    let asked = peer.say("TAKE one ASYNC WAIT 20000");
    let ticket = asked.trim_matches(['[', ']']).split(", ").nth(1).unwrap();
    let lines = [
        "LOCK k WAIT 20000",
        "TAKE one WAIT 20000",
        "TAKE one",
        "REG.ASK few WAIT 20000",
        "RESERVE office WAIT 20000",
        "ASK desk WAIT 20000",
        "OFFER desk",
        &format!("AWAIT {ticket} 20000"),
        "LOCK k ASYNC WAIT 20000",
    ];
    let answers = exec(&mut peer, &lines);
    let words: Vec<_> = answers.iter().map(|answer| word(answer)).collect();
    let expected = [
        "full", "timeout", "timeout", "timeout", "none", "retry", "retry", "timeout", "await",
    ];
    assert_eq!(words, expected, "{answers:?}");
    // Outside it waits as ever.
    assert_eq!(peer.say(&format!("CANCEL {ticket}")), "1");
    peer.send(&["TAKE", "one", "WAIT", "20000"]);
    drop(holder);
    assert_eq!(word(&peer.hear()), "go");
}

#[test]
fn an_error_while_queueing_executes_nothing() {
    let server = Server::start(PLACES);
    for wrong in [
        "LOK k",
        "LOCK",
        "AUTH anna secret",
        "HELLO 3",
        "SUBSCRIBE rideau:events",
        "MONITOR",
        "CLIENT REPLY OFF",
    ] {
        let mut peer = server.connect();
        assert_eq!(peer.say("MULTI"), "+OK");
        assert_eq!(peer.say("LOCK k"), "+QUEUED");
        let no = peer.say(wrong);
        assert!(no.starts_with('-'), "{wrong}: {no}");
        assert_eq!(peer.say("LOCK k"), "+QUEUED", "{wrong}");
        let no = peer.say("EXEC");
        assert!(no.starts_with("-EXECABORT "), "{wrong}: {no}");
        assert_eq!(peer.say("HELD"), "[]", "{wrong}");
        let no = peer.say("EXEC");
        assert!(no.starts_with("-ERR EXEC without MULTI"), "{wrong}: {no}");
        assert_eq!(exec(&mut peer, &["PING"]), ["+PONG"], "{wrong}");
    }
}

#[test]
fn an_error_while_executing_ends_nothing() {
    let server = Server::start(PLACES);
    let mut peer = server.connect();
    let answers = exec(
        &mut peer,
        &["TAKE nope", "RELEASE x", "LOCK k PER x", "LOCK k"],
    );
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| answer.split(' ').next().unwrap())
        .collect();
    assert_eq!(codes[..3], ["-NOSUCH", "-NOSUCH", "-ERR"], "{answers:?}");
    assert_eq!(word(&answers[3]), "go");
}

#[test]
fn what_is_queued_can_be_discarded() {
    let server = Server::start(PLACES);
    let mut peer = server.connect();
    for (end, said) in [("DISCARD", "+OK"), ("RESET", "+RESET")] {
        assert_eq!(peer.say("MULTI"), "+OK");
        assert_eq!(peer.say("LOCK k"), "+QUEUED");
        assert_eq!(peer.say(end), said);
        assert_eq!(peer.say("HELD"), "[]");
        for end in ["EXEC", "DISCARD"] {
            let no = peer.say(end);
            assert!(no.starts_with(&format!("-ERR {end} without MULTI")), "{no}");
        }
    }
    // As Redis has it, these do not spoil what is queued.
    peer.say("MULTI");
    for line in ["MULTI", "WATCH k"] {
        let no = peer.say(line);
        assert!(no.starts_with("-ERR "), "{no}");
    }
    assert_eq!(peer.say("PING"), "+QUEUED");
    assert_eq!(peer.say("EXEC"), "[+PONG]");
    let no = peer.say("WATCH k");
    assert!(no.contains("LOCK key"), "{no}");
    assert_eq!(peer.say("UNWATCH"), "+OK");
    assert_eq!(peer.say("MULTI"), "+OK");
    assert_eq!(peer.say("QUIT"), "+OK");
    assert_eq!(peer.next(), None);
}

#[test]
fn a_client_that_wants_no_answers_gets_none() {
    let server = Server::start(PLACES);
    let mut peer = server.connect();
    peer.send(&["CLIENT", "REPLY", "OFF"]);
    for line in [&["MULTI"][..], &["LOCK", "k"], &["ECHO", "no"], &["EXEC"]] {
        peer.send(line);
    }
    assert_eq!(peer.say("CLIENT REPLY ON"), "+OK");
    assert!(peer.say("LOCK.STAT k").starts_with("[held, 1, "));
    peer.say("MULTI");
    peer.say("ECHO yes");
    peer.send(&["EXEC"]);
    assert_eq!(peer.hear(), "[yes]");
}

/// `anna`, who may do this; and `ops`, who may do anything.
fn users(hash: &Hash, allow: &str) -> String {
    let hash = hash.as_str();
    format!(
        "{PLACES}[user.anna]\npassword = '{hash}'\nallow = [{allow}]\n[user.ops]\n\
         password = '{hash}'\nallow = [\"@admin\"]\n"
    )
}

#[test]
fn rights_count_when_a_command_is_queued_and_when_it_is_executed() {
    let hash = Hash::of(b"secret").unwrap();
    let server = Server::start(&users(&hash, "\"lock\", \"held\""));
    let (mut anna, mut ops) = (server.connect(), server.connect());
    let no = anna.say("MULTI");
    assert!(no.starts_with("-NOAUTH "), "{no}");
    assert!(anna.say("EXEC").starts_with("-ERR EXEC without MULTI"));
    assert_eq!(anna.say("AUTH anna secret"), "+OK");
    assert_eq!(ops.say("AUTH ops secret"), "+OK");
    anna.say("MULTI");
    let no = anna.say("TAKE one");
    assert!(no.starts_with("-NOPERM "), "{no}");
    assert!(anna.say("EXEC").starts_with("-EXECABORT "));
    anna.say("MULTI");
    assert_eq!(anna.say("LOCK k"), "+QUEUED");
    assert_eq!(anna.say("HELD"), "+QUEUED");
    let mut apply = |config: String| {
        let applied = ops.ask(&["CONFIG", "APPLY", &config]);
        assert!(!matches!(applied, Value::Error(_)), "{applied:?}");
    };
    apply(users(&hash, "\"held\""));
    let said = anna.say("EXEC");
    assert!(
        said.starts_with("[-NOPERM ") && said.ends_with(", []]"),
        "{said}"
    );
    // A login that has lapsed executes nothing.
    anna.say("MULTI");
    assert_eq!(anna.say("HELD"), "+QUEUED");
    apply(users(&Hash::of(b"other").unwrap(), "\"held\""));
    let said = anna.say("EXEC");
    assert!(said.starts_with("-EXECABORT "), "{said}");
}

#[test]
fn the_queue_has_an_end() {
    let server = Server::start("[limits]\nframe_max = \"1KiB\"\n[lock.\"*\"]\n");
    let mut peer = server.connect();
    let long = "x".repeat(600);
    peer.say("MULTI");
    assert_eq!(peer.ask(&["ECHO", &long]), Value::Simple("QUEUED".into()));
    let no = text(&peer.ask(&["ECHO", &long]));
    assert!(
        no.starts_with("-BUSY ") && no.contains("limits.frame_max"),
        "{no}"
    );
    assert!(peer.say("EXEC").starts_with("-EXECABORT "));

    let server = Server::start("[lock.\"*\"]\n");
    let mut peer = server.connect();
    peer.say("MULTI");
    for _ in 0..4096 {
        assert_eq!(peer.say("PING"), "+QUEUED");
    }
    let no = peer.say("PING");
    assert!(no.starts_with("-BUSY 4096 commands"), "{no}");
    assert!(peer.say("EXEC").starts_with("-EXECABORT "));
    // What it had of the room that all share is free again.
    assert_eq!(server.daemon.input.used(), 0);
}

#[test]
fn the_answers_of_one_exec_have_an_end() {
    let server = Server::start("[limits]\noutput_max = \"1KiB\"\n[lock.\"*\"]\n");
    let mut peer = server.connect();
    let long = "x".repeat(600);
    peer.say("MULTI");
    for _ in 0..3 {
        peer.ask(&["ECHO", &long]);
    }
    assert_eq!(peer.say("LOCK k"), "+QUEUED");
    let Value::Array(answers) = peer.ask(&["EXEC"]) else {
        panic!("no answers");
    };
    let answers: Vec<_> = answers.iter().map(text).collect();
    assert_eq!(answers[..2], [&*long; 2]);
    for left_out in &answers[2..] {
        assert!(
            left_out.starts_with("-BUSY limits.output_max (1024 bytes) reached"),
            "{left_out}"
        );
    }
    assert_eq!(peer.say("HELD"), "[]");
}
