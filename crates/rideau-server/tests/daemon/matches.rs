//! Matches: what one party does, the other hears.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::server::{Server, until};
use crate::wire::{Value, Wire};

/// A match of two connections, and the ticket of each.
fn matched(server: &Server, mut ask: Wire, mut offer: Wire) -> [(Wire, String); 2] {
    ask.send("ASK desk VALUE ask WAIT 20000");
    server.until_waiting(1);
    let offered = offer.ask("OFFER desk VALUE offer");
    let asked = ask.read();
    assert_eq!(offered.at(2).text(), "ask");
    assert_eq!(asked.at(2).text(), "offer");
    let lead = asked.at(3).int();
    assert!(
        lead > 0 && offered.at(3).int() == -lead,
        "{asked} {offered}"
    );
    [(ask, asked.ticket()), (offer, offered.ticket())]
}

#[test]
fn a_last_word_is_pushed_to_the_other_party() {
    let server = Server::start();
    let [(mut ask, asked), (mut offer, offered)] =
        matched(&server, server.connect3(), server.connect3());
    assert_eq!(ask.ask(&format!("DONE {asked} thanks")).text(), "OK");
    let push = offer.push();
    assert_eq!(push.to_string(), format!(">[rideau:done {offered} thanks]"));
    assert_eq!(ask.ask("HELD").parts().len(), 0);
    assert_eq!(offer.ask(&format!("DONE {offered}")).text(), "OK");
    assert_eq!(ask.ask("PING").text(), "PONG");
    assert!(
        ask.pushes.is_empty(),
        "a party that has gone is told no more"
    );
}

#[test]
fn a_last_word_without_words_is_a_null() {
    let server = Server::start();
    let [(mut ask, asked), (mut offer, _)] = matched(&server, server.connect3(), server.connect3());
    ask.ask(&format!("DONE {asked}"));
    assert_eq!(offer.push().at(2), &Value::Null);
}

#[test]
fn a_last_word_may_be_any_bytes() {
    let server = Server::start();
    let [(mut ask, asked), (mut offer, offered)] =
        matched(&server, server.connect(), server.connect());
    let payload = b"\x00\xff\r\n$-1\r\n";
    ask.ask_words(&[b"DONE", asked.as_bytes(), payload]);
    let end = offer.ask(&format!("AWAIT.END {offered}"));
    assert_eq!(end.at(1), &Value::Text(payload.into()));
}

#[test]
fn the_end_of_a_match_is_awaited_on_both_protocols() {
    let server = Server::start();
    for wires in [
        (server.connect(), server.connect3()),
        (server.connect3(), server.connect()),
    ] {
        let [(mut ask, asked), (mut offer, offered)] = matched(&server, wires.0, wires.1);
        offer.send(&format!("AWAIT.END {offered} 20000"));
        server.until_waiting(1);
        ask.ask(&format!("DONE {asked} bye"));
        assert_eq!(offer.read().to_string(), "[done bye]");
        assert_eq!(offer.ask("HELD").parts().len(), 0);
    }
}

#[test]
fn a_party_that_dies_is_down() {
    let server = Server::start();
    for end in [drop, Wire::reset] {
        let [(ask, _), (mut offer, offered)] =
            matched(&server, server.connect(), server.connect3());
        end(ask);
        let push = offer.push();
        assert_eq!(
            push.to_string(),
            format!(">[rideau:down {offered} disconnect]")
        );
        assert_eq!(
            offer.ask(&format!("AWAIT.END {offered}")).to_string(),
            "[down disconnect]"
        );
    }
    let [(mut ask, _), (mut offer, offered)] =
        matched(&server, server.connect(), server.connect3());
    ask.ask("QUIT");
    assert_eq!(
        offer.push().to_string(),
        format!(">[rideau:down {offered} quit]")
    );
}

#[test]
fn a_party_that_died_before_it_was_told_is_down_too() {
    let server = Server::start();
    let mut ask = server.connect();
    ask.ask("ASK desk ASYNC WAIT 20000").ticket();
    let mut offer = server.connect3();
    let offered = offer.ask("OFFER desk").ticket();
    ask.reset();
    // Its ask may end before its connection is seen to.
    let said = offer.push().to_string();
    let words = ["disconnect", "cancel"];
    let mut known = words
        .map(|word| format!(">[rideau:down {offered} {word}]"))
        .into_iter();
    assert!(known.any(|known| known == said), "{said}");
}

#[test]
fn a_client_that_goes_away_while_it_waits_meets_no_offer() {
    let server = Server::start();
    for end in [drop, Wire::reset] {
        let mut gone = server.connect();
        gone.send("ASK desk WAIT 20000");
        server.until_waiting(1);
        end(gone);
        let mut offer = server.connect();
        until("it is out of the line", || {
            offer.ask("LEN desk").at(0).int() == 0
        });
        assert_eq!(offer.ask("OFFER desk NB").word(), "retry");
    }
}

#[test]
fn dynamic_asks_wait_in_the_background() {
    let server = Server::start();
    let mut ask = server.connect();
    let ticket = ask.ask("ASK desk DYN VALUE ask WAIT 20000");
    assert_eq!(ticket.word(), "await");
    let mut offer = server.connect();
    assert_eq!(offer.ask("OFFER desk DYN").word(), "go");
    assert_eq!(ask.ask(&format!("AWAIT {}", ticket.ticket())).word(), "go");
}

#[test]
fn a_match_is_told_again_until_its_end_is_told() {
    let server = Server::start();
    for (mut ask, mut offer) in [
        (server.connect(), server.connect3()),
        (server.connect3(), server.connect()),
    ] {
        let asked = ask.ask("ASK desk ASYNC WAIT 20000").ticket();
        ask.ask(&format!("AWAIT.END {asked}"))
            .is_error("NOTHELD \"");
        let offered = offer.ask("OFFER desk VALUE worker").ticket();
        let told = ask.ask(&format!("AWAIT {asked} 20000"));
        assert_eq!(
            (told.word().as_str(), told.at(2).text()),
            ("go", "worker".into())
        );
        offer.ask(&format!("DONE {offered} bye"));
        assert_eq!(
            ask.ask(&format!("AWAIT {asked}")),
            told,
            "it has not ended it"
        );
        let end = ask.ask(&format!("AWAIT.END {asked} 20000"));
        assert_eq!(end.to_string(), "[done bye]");
        for verb in ["AWAIT", "AWAIT.END"] {
            ask.ask(&format!("{verb} {asked}")).is_error("STALE");
        }
        // A client that was answered at once has the answer.
        ask.ask("ASK desk ASYNC WAIT 20000").ticket();
        let offered = offer.ask("OFFER desk").ticket();
        let no = offer.ask(&format!("AWAIT {offered}")).to_string();
        assert!(
            no.contains("AWAIT.END waits for the end of the match"),
            "{no}"
        );
    }
}

/// An ask that would have met a cancelled offer is told of another offer, or of
/// none.
#[test]
fn a_cancelled_offer_is_never_matched() {
    const OFFERERS: usize = 3;
    const OFFERS: usize = 700;
    let server = Server::start();
    let left = AtomicUsize::new(OFFERERS);
    let (met, cancelled) = thread::scope(|scope| {
        let offer = |number: usize| {
            let (server, left) = (&server, &left);
            scope.spawn(move || {
                let cancelled = offer_and_cancel(server.connect(), number * OFFERS, OFFERS);
                left.fetch_sub(1, Ordering::Relaxed);
                cancelled
            })
        };
        let offerers: Vec<_> = (0..OFFERERS).map(offer).collect();
        let mut asker = server.connect();
        let mut met = HashSet::new();
        while left.load(Ordering::Relaxed) > 0 {
            let told = asker.ask("ASK desk NB");
            if told.word() == "go" {
                met.insert(told.at(2).text());
                asker.ask(&format!("RELEASE {}", told.ticket()));
            }
        }
        let cancelled = offerers.into_iter().flat_map(|one| one.join().unwrap());
        (met, cancelled.collect::<HashSet<_>>())
    });
    assert_eq!(met.intersection(&cancelled).next(), None);
    assert_eq!(
        met.len() + cancelled.len(),
        OFFERERS * OFFERS,
        "each is one of both"
    );
    assert!(!cancelled.is_empty());
}

/// Offer so often, and cancel at once. Says which offers were cancelled in time.
fn offer_and_cancel(mut wire: Wire, first: usize, count: usize) -> Vec<String> {
    let mut cancelled = Vec::new();
    for value in (first..first + count).map(|number| number.to_string()) {
        let told = wire.ask(&format!("OFFER desk ASYNC VALUE {value} WAIT 20000"));
        let ticket = told.ticket();
        if wire.ask(&format!("CANCEL {ticket}")) == Value::Int(1) {
            cancelled.push(value);
            continue;
        }
        // It was matched, and says so.
        assert_eq!(wire.ask(&format!("AWAIT {ticket} 20000")).word(), "go");
        wire.ask(&format!("RELEASE {ticket}"));
    }
    cancelled
}
