//! Keys keep the rules of the config: how many there may be, how long they are
//! known, where asks wait for them, and what is counted of the asks.

use crate::tests::commands::peer::{Peer, cell};
use crate::tests::commands::server::Server;

const RULES: &str = r#"
[lock."few/*"]
keys_max = 2
queue = { kind = "timeout", timeout = "10s", max = 1 }

[lock."brief/*"]
idle_forget = "100ms"

[lock."impatient/*"]
queue = { kind = "timeout", timeout = "20ms" }

[lock."*"]
queue = { kind = "timeout", timeout = "10s", max = 2 }
"#;

fn ticket(answer: &str) -> String {
    let mut words = answer.split(", ");
    assert_eq!(words.next(), Some("[go"), "{answer}");
    words.next().unwrap().into()
}

/// What `SHOW LOCKS` says of a rule.
fn shown(peer: &mut Peer, row: usize, column: &str) -> String {
    cell(&peer.ask(&["SHOW", "LOCKS"]), row, column)
}

#[test]
fn a_key_more_than_a_rule_allows_is_refused_and_counted() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    let first = ticket(&peer.say("LOCK few/1"));
    ticket(&peer.say("LOCK few/2"));
    let no = peer.say("LOCK few/3");
    let text = "-BUSY lock.\"few/*\".keys_max (2) reached: release some keys or raise it.";
    assert_eq!(no, text);
    assert_eq!(peer.say("LOCK few/3 WAIT 1000"), text);
    assert_eq!(peer.say("LOCK few/3 WAIT 1000 ASYNC"), text);
    ticket(&peer.say("LOCK few/2 PER 2"));
    ticket(&peer.say("LOCK many/1"));
    assert_eq!(shown(&mut peer, 0, "known"), "2");
    assert_eq!(shown(&mut peer, 0, "keys_refused"), "3");
    assert_eq!(peer.say(&format!("RELEASE {first}")), "+OK");
    ticket(&peer.say("LOCK few/3"));
    assert_eq!(shown(&mut peer, 0, "known"), "2", "few/1 made room");
}

#[test]
fn one_unit_is_said_to_be_one() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    ticket(&peer.say("LOCK many/1"));
    let value = cell(&peer.ask(&["SHOW", "HOLDERS"]), 0, "value");
    assert!(value.starts_with("1 unit, fence "), "{value}");
}

#[test]
fn all_keys_together_have_a_limit_that_can_be_changed() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    assert_eq!(peer.say("CONFIG SET limits.keys_max 3"), "+OK");
    for key in ["few/1", "few/2", "x"] {
        ticket(&peer.say(&format!("LOCK {key}")));
    }
    let text = "-BUSY limits.keys_max (3) reached: release some keys or raise it.";
    assert_eq!(peer.say("LOCK y"), text);
    let limits = peer.say("INFO limits");
    assert!(
        limits.contains("keys_max:max=3,now=3,refused=1"),
        "{limits}"
    );
    assert_eq!(peer.say("CONFIG SET limits.keys_max 4"), "+OK");
    ticket(&peer.say("LOCK y"));
}

#[test]
fn a_thousand_keys_in_turn_are_no_more_than_a_rule_allows() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    for key in 0..1_000 {
        let held = ticket(&peer.say(&format!("LOCK few/{key}")));
        assert_eq!(peer.say(&format!("RELEASE {held}")), "+OK");
    }
    assert_eq!(shown(&mut peer, 0, "keys_refused"), "0");
}

#[test]
fn a_key_that_is_not_held_is_forgotten_after_its_time() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    for key in ["brief/1", "long/1"] {
        let held = ticket(&peer.say(&format!("LOCK {key}")));
        assert_eq!(peer.say(&format!("RELEASE {held}")), "+OK");
    }
    // It does at last, or the test hangs.
    while shown(&mut peer, 1, "known") != "0" {
        std::thread::yield_now();
    }
    assert_eq!(
        shown(&mut peer, 3, "known"),
        "1",
        "ten seconds are not over"
    );
}

#[test]
fn each_rule_has_a_queue_of_its_own() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    for key in ["few/1", "impatient/1", "other"] {
        ticket(&peer.say(&format!("LOCK {key}")));
    }
    assert!(
        peer.say("LOCK few/1 WAIT 9000 ASYNC")
            .starts_with("[await, ")
    );
    let no = peer.say("LOCK few/1 WAIT 9000");
    assert!(no.starts_with("[full, "), "one may wait: {no}");
    for _ in 0..2 {
        assert!(
            peer.say("LOCK other WAIT 9000 ASYNC")
                .starts_with("[await, ")
        );
    }
    let no = peer.say("LOCK other WAIT 9000");
    assert!(no.starts_with("[full, "), "two may wait: {no}");
    let no = peer.say("LOCK impatient/1 WAIT 9000");
    assert!(no.starts_with("[timeout, "), "20 ms is all: {no}");
}

#[test]
fn a_changed_queue_holds_for_asks_that_wait_already() {
    let server = Server::start(RULES);
    let (mut peer, mut other) = (server.connect(), server.connect());
    ticket(&peer.say("LOCK few/1"));
    other.send(&["LOCK", "few/1", "WAIT", "9000"]);
    while peer.say("LOCK.STAT few/1") != "[held, 1, waiting, 1]" {
        std::thread::yield_now();
    }
    let set = ["CONFIG", "SET", "lock.\"few/*\".queue.timeout", "20ms"];
    assert_eq!(crate::tests::commands::peer::text(&peer.ask(&set)), "+OK");
    let no = other.hear();
    assert!(no.starts_with("[timeout, "), "{no}");
}

#[test]
fn grants_and_refusals_after_a_wait_are_counted_too() {
    let server = Server::start(RULES);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let held = ticket(&peer.say("LOCK impatient/1"));
    assert!(peer.say("LOCK impatient/1").starts_with("[full, "));
    assert!(
        peer.say("LOCK impatient/1 WAIT 5000")
            .starts_with("[timeout, ")
    );
    assert_eq!(peer.say(&format!("RELEASE {held}")), "+OK");
    ticket(&peer.say("LOCK impatient/1 WAIT 5000"));
    let numbers = |peer: &mut Peer, row| {
        let columns = ["acquired", "full", "timeout"];
        columns.map(|column| shown(peer, row, column))
    };
    assert_eq!(numbers(&mut peer, 2), ["2", "1", "1"]);
    // One that waits in fact, and is granted.
    let held = ticket(&peer.say("LOCK other"));
    other.send(&["LOCK", "other", "WAIT", "9000"]);
    while peer.say("LOCK.STAT other") != "[held, 1, waiting, 1]" {
        std::thread::yield_now();
    }
    assert_eq!(peer.say(&format!("RELEASE {held}")), "+OK");
    ticket(&other.hear());
    assert_eq!(numbers(&mut peer, 3), ["2", "0", "0"]);
}

#[test]
fn a_change_of_rules_keeps_what_was_counted() {
    let server = Server::start(RULES);
    let mut peer = server.connect();
    ticket(&peer.say("LOCK few/1"));
    let set = ["CONFIG", "SET", "lock.\"few/*\".keys_max", "9"];
    assert_eq!(crate::tests::commands::peer::text(&peer.ask(&set)), "+OK");
    assert_eq!(shown(&mut peer, 0, "acquired"), "1");
    assert_eq!(shown(&mut peer, 0, "keys_max"), "9");
}
