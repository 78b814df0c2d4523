//! Commands that wait, and what stands behind them.

use std::time::{Duration, Instant};

use crate::server::{Server, until};
use crate::wire::Wire;

#[test]
fn a_client_that_goes_away_while_it_waits_gives_its_place_up() {
    let server = Server::start();
    for (take, waiting) in [("TAKE one", "POOL.STAT one"), ("LOCK key", "LOCK.STAT key")] {
        for end in [drop, Wire::reset] {
            let (mut holder, mut gone) = (server.connect(), server.connect());
            let held = holder.ask(take).ticket();
            gone.send(&format!("{take} WAIT 20000"));
            server.until_waiting(1);
            let mut next = server.connect();
            next.send(&format!("{take} WAIT 20000"));
            server.until_waiting(2);
            end(gone);
            until("one waits", || {
                holder.ask(waiting).field("waiting").int() == 1
            });
            holder.ask(&format!("RELEASE {held}"));
            let held = next.read().ticket();
            // Its end may be seen late, and the next round does not wait for it.
            next.ask(&format!("RELEASE {held}"));
        }
    }
}

#[test]
fn a_client_that_goes_away_with_more_behind_its_wait_gives_its_place_up_too() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("TAKE one").ticket();
    let mut gone = server.connect();
    gone.send("TAKE one WAIT 20000");
    for _ in 0..100 {
        gone.send("PING behind");
    }
    server.until_waiting(1);
    drop(gone);
    until("no command waits", || {
        holder.ask("POOL.STAT one").field("waiting").int() == 0
    });
}

#[test]
fn commands_behind_one_that_waits_answer_in_order() {
    let server = Server::start();
    let (mut holder, mut wire) = (server.connect(), server.connect());
    let held = holder.ask("TAKE one").ticket();
    wire.send("PING before");
    wire.send("TAKE one WAIT 20000");
    wire.send("PING between");
    wire.send("TAKE one WAIT 0");
    wire.send("LOCK key");
    assert_eq!(wire.read().text(), "before");
    server.until_waiting(1);
    assert!(wire.is_silent(), "what stands behind waits too");
    assert_eq!(holder.ask("LOCK.STAT key").field("held").int(), 0);
    holder.ask(&format!("RELEASE {held}"));
    assert_eq!(wire.read().word(), "go");
    assert_eq!(wire.read().text(), "between");
    assert_eq!(wire.read().word(), "timeout");
    assert_eq!(wire.read().word(), "go");
}

#[test]
fn a_waiting_client_that_can_be_told_is_told_each_second() {
    let server = Server::start();
    let mut holder = server.connect();
    let held = holder.ask("TAKE one").ticket();
    let mut wire = server.connect3();
    wire.send("TAKE one WAIT 20000");
    let mut before = 0;
    for _ in 0..2 {
        let push = wire.push();
        assert_eq!(push.word(), "rideau:waiting");
        assert_eq!(push.at(1).text(), "one");
        let waited = push.at(2).int();
        assert!(waited >= before + 900_000, "{waited} after {before}");
        before = waited;
    }
    holder.ask(&format!("RELEASE {held}"));
    assert_eq!(wire.read().word(), "go");
}

#[test]
fn a_waiting_client_that_cannot_be_told_hears_only_the_answer() {
    let server = Server::start();
    let (mut holder, mut wire) = (server.connect(), server.connect());
    holder.ask("TAKE one").ticket();
    assert_eq!(wire.ask("TAKE one WAIT 1500").word(), "timeout");
    assert!(wire.pushes.is_empty());
}

#[test]
fn a_wait_of_zero_answers_at_once() {
    let server = Server::start();
    let (mut holder, mut wire) = (server.connect(), server.connect());
    for take in ["TAKE one", "LOCK key", "REG.ASK few", "ASK desk"] {
        if !take.starts_with("ASK") {
            holder.ask(take).ticket();
        }
        let no = wire.ask(&format!("{take} WAIT 0"));
        assert_eq!(no.word(), "timeout", "{no}");
        assert!(no.at(1).int() < 1_000_000, "{no}");
    }
}

#[test]
fn a_client_that_does_not_say_how_long_waits_two_seconds() {
    let server = Server::start();
    let (mut holder, mut wire) = (server.connect(), server.connect());
    holder.ask("TAKE one").ticket();
    let since = Instant::now();
    let no = wire.ask("TAKE one");
    assert_eq!(no.word(), "timeout");
    let waited = no.at(1).int();
    assert!((2_000_000..10_000_000).contains(&waited), "{no}");
    assert!(since.elapsed() >= Duration::from_secs(2));
}

#[test]
fn no_client_waits_longer_than_the_config_allows() {
    let server = Server::start();
    let mut wire = server.connect();
    let no = wire.ask("TAKE one WAIT 30001");
    no.is_error("ERR WAIT takes milliseconds from 0 to 30000, not \"30001\".");
    assert_eq!(wire.ask("TAKE one WAIT 30000").word(), "go");
}

#[test]
fn waits_end_in_the_order_they_began() {
    let server = Server::start();
    let mut holder = server.connect();
    let mut held = holder.ask("TAKE one").ticket();
    let mut line: Vec<Wire> = Vec::new();
    for number in 1..=10 {
        let mut wire = server.connect();
        wire.send("TAKE one WAIT 30000");
        server.until_waiting(number);
        line.push(wire);
    }
    for mut wire in line {
        holder.ask(&format!("RELEASE {held}"));
        held = wire.read().ticket();
        holder = wire;
    }
}

#[test]
fn a_lock_without_a_wait_never_waits() {
    let server = Server::start();
    let (mut holder, mut wire) = (server.connect(), server.connect());
    holder.ask("LOCK key").ticket();
    for (line, why) in [
        ("LOCK key", "1 of 1 unit is held; WAIT waits for one"),
        ("LOCK key PER 0", "1 of 0 units is held; WAIT waits for one"),
    ] {
        let no = wire.ask(line);
        assert_eq!(
            (no.word().as_str(), no.at(2).text()),
            ("full", why.into()),
            "{line}"
        );
    }
}
