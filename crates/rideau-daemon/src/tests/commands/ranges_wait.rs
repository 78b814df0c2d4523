//! Waiting for values: in turn, and in the background.

use crate::tests::commands::peer::Peer;
use crate::tests::commands::ranges::{TEXT, ask, reserve, stat, until};
use crate::tests::commands::server::Server;

/// All values of a range, and their tickets.
fn fill(peer: &mut Peer, line: &str, count: usize) -> Vec<(String, String)> {
    let all = (0..count).map(|_| reserve(peer, line));
    all.map(|(value, ticket, _)| (value, ticket)).collect()
}

fn blocked(peer: &mut Peer, count: usize) {
    let line = format!("blocked_clients:{count}");
    until(|| peer.say("INFO clients").contains(&line));
}

#[test]
fn waiting_asks_are_served_in_the_order_in_which_they_came() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let held = fill(&mut peer, "RESERVE office TTL 60000", 7);
    let mut waiters = Vec::new();
    for count in 1..=3 {
        let mut waiter = server.connect();
        waiter.send(&["RESERVE", "office", "WAIT", "25000"]);
        blocked(&mut peer, count);
        waiters.push(waiter);
    }
    // The second goes away, and no other waits for it.
    drop(waiters.remove(1));
    blocked(&mut peer, 2);
    assert_eq!(peer.say(&format!("RELEASE {}", held[4].1)), "+OK");
    let first = format!("[go, {}, ", held[4].0);
    assert!(waiters[0].hear().starts_with(&first));
    assert_eq!(ask(&mut peer, "RESERVE office")[..3], ["none", "0", "7"]);
    // What runs out goes to a waiting ask as well.
    assert!(
        peer.say(&format!("REFRESH {} TTL 1", held[2].1))
            .starts_with("[ok")
    );
    let second = format!("[go, {}, ", held[2].0);
    assert!(waiters[1].hear().starts_with(&second));
}

#[test]
fn an_ask_that_is_answered_later_is_awaited_or_cancelled_by_its_ticket() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let held = fill(&mut peer, "RESERVE office TTL 60000", 7);
    let mut asker = server.connect();
    let [word, ticket] = &ask(&mut asker, "RESERVE office WAIT 25000 ASYNC TTL 40000")[..] else {
        panic!("no ticket");
    };
    assert_eq!(word, "await");
    let [_, other] = &ask(&mut asker, "RESERVE office WAIT 25000 ASYNC")[..] else {
        panic!("no ticket");
    };
    assert_eq!(asker.say(&format!("CANCEL {other}")), "1");
    let waits = asker.say(&format!("AWAIT {ticket} 1"));
    assert!(waits.starts_with("[timeout"), "{waits}");
    peer.say(&format!("RELEASE {}", held[5].1));
    let got = ask(&mut asker, &format!("AWAIT {ticket} 20000"));
    assert_eq!(got.len(), 8, "{got:?}");
    assert_eq!([&got[0], &got[1], &got[2]], ["go", ticket, &held[5].0]);
    // It is held for a time, and outlives the connection.
    drop(asker);
    until(|| peer.say("INFO clients").contains("connected_clients:1"));
    assert_eq!(stat(&mut peer, "office", "reserved"), "7");
    assert!(
        peer.say(&format!("REFRESH {} TTL 1000", got[3]))
            .starts_with("[ok")
    );
    assert_eq!(peer.say(&format!("RELEASE {}", got[3])), "+OK");
    let refused = peer.say("RESERVE office COUNT 2 ASYNC");
    assert!(
        refused.contains("COUNT and ASYNC cannot be combined"),
        "{refused}"
    );
}

#[test]
fn a_value_that_goes_with_its_holder_does_so_when_it_was_told_later() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let held = fill(&mut peer, "RESERVE number", 3);
    let mut asker = server.connect();
    let ticket = ask(&mut asker, "RESERVE number WAIT 25000 ASYNC")[1].clone();
    peer.say(&format!("RELEASE {}", held[0].1));
    assert_eq!(ask(&mut asker, &format!("AWAIT {ticket} 20000"))[0], "go");
    assert_eq!(stat(&mut peer, "number", "free"), "0");
    drop(asker);
    until(|| stat(&mut peer, "number", "free") == "1");
    let short = ask(&mut peer, "RESERVE office ASYNC");
    let got = ask(&mut peer, &format!("AWAIT {} 20000", short[1]));
    assert_eq!(got[2], "10.20.0.1");
    assert_eq!(peer.say(&format!("RELEASE {}", short[1])), "+OK");
    assert_eq!(stat(&mut peer, "office", "reserved"), "0");
}

#[test]
fn many_are_released_of_one_range_only() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for range in ["office", "guests"] {
        reserve(&mut peer, &format!("RESERVE {range} TTL 60000 KEY gw:1"));
    }
    assert_eq!(peer.say("RANGE.RELEASE KEYPREFIX gw: IN guests"), "1");
    assert_eq!(stat(&mut peer, "office", "reserved"), "1");
    let unknown = peer.say("RANGE.RELEASE KEYPREFIX gw: IN nowhere");
    assert!(unknown.contains("NOSUCH range"), "{unknown}");
    assert_eq!(peer.say("RANGE.RELEASE KEYPREFIX gw:"), "1");
}

#[test]
fn parts_of_ranges_are_counted_by_their_values() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    reserve(&mut peer, "RESERVE 10.20.0.5 TTL 60000");
    let counted = peer.say("RANGE.COUNT 10.20.0.4-10.21.0.0");
    assert_eq!(
        counted,
        "[base, 10.20.0.4, size, 5, free, 4, quarantined, 0, held, 1]"
    );
    let quarantined = peer.say("RANGE.COUNT 0-109");
    assert!(
        quarantined.contains("free, 3, quarantined, 10"),
        "{quarantined}"
    );
}
