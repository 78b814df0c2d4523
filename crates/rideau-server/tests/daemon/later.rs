//! Answers that come later, and asks that are repeated.

use crate::server::{CONFIG, Server, until};
use crate::wire::Wire;

/// Every way to ask, and something of the same that is held meanwhile.
const ASKS: [&str; 3] = ["TAKE one", "LOCK key", "REG.ASK few"];

fn release(wire: &mut Wire, ticket: &str) {
    assert_eq!(wire.ask(&format!("RELEASE {ticket}")).text(), "OK");
}

#[test]
fn a_later_answer_is_fetched_with_await() {
    let server = Server::start();
    for ask in ASKS {
        let (mut holder, mut next) = (server.connect(), server.connect());
        let held = holder.ask(ask).ticket();
        let ticket = next.ask(&format!("{ask} ASYNC WAIT 20000")).ticket();
        assert_eq!(next.ask("HELD").at(0).at(3).text(), "waits");
        next.send(&format!("AWAIT {ticket} 20000"));
        server.until_waiting(1);
        release(&mut holder, &held);
        let answer = next.read();
        assert_eq!(
            (answer.word().as_str(), answer.ticket()),
            ("go", ticket.clone())
        );
        assert_eq!(
            holder.ask(&format!("{ask} WAIT 0")).word(),
            "timeout",
            "{ask} is held"
        );
        assert_eq!(
            next.ask(&format!("AWAIT {ticket}")),
            answer,
            "as often as wanted"
        );
        release(&mut next, &ticket);
        assert_eq!(holder.ask(&format!("{ask} WAIT 0")).word(), "go");
    }
}

#[test]
fn an_answer_that_came_before_await_is_kept() {
    let server = Server::start();
    let (mut holder, mut next) = (server.connect(), server.connect());
    let held = holder.ask("TAKE one").ticket();
    let ticket = next.ask("TAKE one ASYNC WAIT 20000").ticket();
    release(&mut holder, &held);
    until("it is held", || next.ask("HELD").at(0).at(3).text() == "m1");
    let answer = next.ask(&format!("AWAIT {ticket}"));
    assert_eq!(answer.ticket(), ticket);
    assert_eq!(answer.at(2).text(), "m1");
}

#[test]
fn a_later_answer_is_pushed_to_clients_that_understand_pushes() {
    let server = Server::start();
    for ask in ASKS {
        let (mut holder, mut next) = (server.connect3(), server.connect3());
        let held = holder.ask(ask).ticket();
        let ticket = next.ask(&format!("{ask} ASYNC WAIT 20000")).ticket();
        release(&mut holder, &held);
        let push = next.push();
        assert_eq!(
            (push.word().as_str(), push.ticket()),
            ("rideau:go", ticket.clone())
        );
        let repeated = push.parts().iter().filter(|part| part.text() == ticket);
        assert_eq!(repeated.count(), 1, "{push}");
        assert_eq!(
            holder.ask(&format!("{ask} WAIT 0")).word(),
            "timeout",
            "{ask} is held"
        );
        release(&mut next, &ticket);
    }
}

#[test]
fn a_client_that_is_pushed_an_answer_may_also_await_it() {
    let server = Server::start();
    for ask in ASKS {
        let (mut holder, mut next) = (server.connect3(), server.connect3());
        let held = holder.ask(ask).ticket();
        let ticket = next.ask(&format!("{ask} ASYNC WAIT 20000")).ticket();
        next.send(&format!("AWAIT {ticket} 20000"));
        server.until_waiting(1);
        release(&mut holder, &held);
        assert_eq!(next.read().ticket(), ticket);
        assert_eq!(next.ask("HELD").parts().len(), 1, "{ask} is held");
        assert_eq!(
            holder.ask(&format!("{ask} WAIT 0")).word(),
            "timeout",
            "{ask} is held"
        );
        release(&mut next, &ticket);
    }
}

#[test]
fn a_no_comes_later_too() {
    let server = Server::start();
    let (mut two, mut three) = (server.connect(), server.connect3());
    let held = two.ask("TAKE one").ticket();
    let ticket = two.ask("TAKE one ASYNC WAIT 20").ticket();
    let no = two.ask(&format!("AWAIT {ticket} 20000"));
    assert_eq!(no.word(), "timeout");
    assert_eq!(
        two.ask(&format!("AWAIT {ticket}")),
        no,
        "as often as wanted"
    );
    assert_eq!(two.ask("HELD").parts().len(), 1, "it waits no more");
    release(&mut two, &ticket);
    two.ask(&format!("AWAIT {ticket}"))
        .is_error(&format!("STALE ticket \"{ticket}\" was released"));
    let ticket = three.ask("TAKE one ASYNC WAIT 20").ticket();
    let push = three.push();
    assert_eq!(
        (push.word().as_str(), push.at(1).text()),
        ("rideau:timeout", ticket.clone())
    );
    assert_eq!(three.ask("HELD").parts().len(), 0);
    // Most clients drop pushes that they do not know.
    assert_eq!(three.ask(&format!("AWAIT {ticket}")).word(), "timeout");
    assert_eq!(three.ask(&format!("CANCEL {ticket}")).int(), 0);
    three
        .ask(&format!("AWAIT {ticket}"))
        .is_error(&format!("STALE ticket \"{ticket}\" was refused"));
    release(&mut two, &held);
}

#[test]
fn an_answer_is_told_again_and_again_until_its_lease_ends() {
    let server = Server::start();
    for ask in ASKS {
        for mut next in [server.connect(), server.connect3()] {
            let mut holder = server.connect();
            let held = holder.ask(ask).ticket();
            let ticket = next.ask(&format!("{ask} ASYNC WAIT 20000")).ticket();
            release(&mut holder, &held);
            let told = next.ask(&format!("AWAIT {ticket} 20000"));
            assert_eq!(
                (told.word().as_str(), told.ticket()),
                ("go", ticket.clone())
            );
            // From any connection, and as often as wanted.
            for wire in [&mut holder, &mut next] {
                assert_eq!(wire.ask(&format!("AWAIT {ticket}")), told, "{ask}");
            }
            assert_eq!(next.ask(&format!("CANCEL {ticket}")).int(), 0);
            assert_eq!(next.ask(&format!("AWAIT {ticket} 0")), told, "{ask}");
            release(&mut next, &ticket);
            next.ask(&format!("AWAIT {ticket}"))
                .is_error(&format!("STALE ticket \"{ticket}\" was released"));
        }
    }
}

#[test]
fn an_ask_that_is_answered_at_once_can_be_awaited_too() {
    let server = Server::start();
    for ask in ASKS {
        for mut wire in [server.connect(), server.connect3()] {
            // The first starts what there is to be had.
            let first = wire.ask(ask).ticket();
            release(&mut wire, &first);
            let told = wire.ask(&format!("{ask} ASYNC WAIT 20000"));
            assert_eq!(told.word(), "go", "{ask}");
            let ticket = told.ticket();
            assert_eq!(wire.ask(&format!("AWAIT {ticket}")), told, "{ask}");
            release(&mut wire, &ticket);
            // An ask without ASYNC has the answer.
            let ticket = wire.ask(ask).ticket();
            let no = wire.ask(&format!("AWAIT {ticket}"));
            assert!(
                no.to_string().contains("AWAIT is for asks with ASYNC"),
                "{no}"
            );
            release(&mut wire, &ticket);
        }
    }
}

/// How many refusals the server keeps of one holder.
const REFUSED_MAX: usize = 1024;

/// The ticket of a take that waits shortly. A server that is kept from running for that long
/// refuses it at once.
fn take_later(wire: &mut Wire) -> String {
    loop {
        let answer = wire.ask("TAKE one ASYNC WAIT 1");
        if answer.word() == "await" {
            return answer.ticket();
        }
        assert_eq!(answer.word(), "timeout");
    }
}

#[test]
fn the_last_noes_of_a_holder_are_kept_and_count_for_nothing() {
    let server = Server::with(&format!("[limits]\nheld_max = 8\n{CONFIG}"));
    let mut wire = server.connect();
    wire.ask("TAKE one").ticket();
    let mut refused = Vec::new();
    for _ in 0..=REFUSED_MAX {
        let ticket = take_later(&mut wire);
        assert_eq!(wire.ask(&format!("AWAIT {ticket} 20000")).word(), "timeout");
        refused.push(ticket);
    }
    let first = &refused[0];
    wire.ask(&format!("AWAIT {first}"))
        .is_error(&format!("STALE ticket \"{first}\" was refused"));
    for ticket in &refused[1..] {
        assert_eq!(wire.ask(&format!("AWAIT {ticket}")).word(), "timeout");
    }
    assert_eq!(wire.ask("HELD").parts().len(), 1);
}

#[test]
fn a_stale_ticket_says_why_it_is_and_does_not_guess() {
    let (server, other) = (Server::start(), Server::start());
    let (mut wire, mut stranger) = (server.connect(), other.connect());
    let ticket = wire.ask("LOCK key").ticket();
    for verb in ["RELEASE", "AWAIT"] {
        stranger.ask(&format!("{verb} {ticket}")).is_error(&format!(
            "STALE ticket \"{ticket}\" was not given by this server"
        ));
    }
    release(&mut wire, &ticket);
    // More end than are remembered.
    for _ in 0..300 {
        let later = wire.ask("LOCK key").ticket();
        release(&mut wire, &later);
    }
    wire.ask(&format!("RELEASE {ticket}"))
        .is_error(&format!("STALE ticket \"{ticket}\" ended more than"));
    let lease = wire.ask("REG.ASK few").ticket();
    let mut operator = server.connect();
    let session = operator.ask("SESSION OPEN TTL 60000").at(0).text();
    let held = operator.ask("LOCK key").ticket();
    assert_eq!(operator.ask("SESSION CLOSE FAIL").int(), 1);
    wire.ask(&format!("RELEASE {held}")).is_error(&format!(
        "STALE ticket \"{held}\" was taken back when its session was closed as failed"
    ));
    wire.ask(&format!("RELEASE {session}"))
        .is_error("WRONGTYPE");
    release(&mut wire, &lease);
}

#[test]
fn a_cancelled_ask_is_out_of_the_line() {
    let server = Server::start();
    for mut wire in [server.connect(), server.connect3()] {
        let held = wire.ask("TAKE one").ticket();
        let first = wire.ask("TAKE one ASYNC WAIT 20000").ticket();
        let second = wire.ask("TAKE one ASYNC WAIT 20000").ticket();
        assert_eq!(wire.ask(&format!("CANCEL {first}")).int(), 1);
        assert_eq!(wire.ask(&format!("CANCEL {first}")).int(), 0);
        release(&mut wire, &held);
        wire.ask(&format!("AWAIT {first}")).is_error("STALE");
        until("the second has it", || {
            wire.ask("HELD").at(0).at(3).text() == "m1"
        });
        release(&mut wire, &second);
    }
}

#[test]
fn a_cancel_ends_the_await_of_another_connection() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    let held = one.ask("TAKE one").ticket();
    let ticket = one.ask("TAKE one ASYNC WAIT 20000").ticket();
    two.send(&format!("AWAIT {ticket} 20000"));
    server.until_waiting(1);
    assert_eq!(one.ask(&format!("CANCEL {ticket}")).int(), 1);
    assert_eq!(two.read().word(), "cancelled");
    assert_eq!(one.ask("POOL.STAT one").field("waiting").int(), 0);
    release(&mut one, &held);
}

#[test]
fn a_client_that_goes_takes_its_later_asks_along() {
    let server = Server::start();
    let mut holder = server.connect();
    let held = holder.ask("TAKE one").ticket();
    let mut gone = server.connect();
    gone.ask("TAKE one ASYNC WAIT 20000").ticket();
    gone.ask("ASK desk ASYNC WAIT 20000").ticket();
    gone.ask("LOCK key ASYNC WAIT 20000").ticket();
    gone.reset();
    until("no command waits", || {
        holder.ask("POOL.STAT one").field("waiting").int() == 0
            && holder.ask("LEN desk").to_string() == "[0 0]"
            && holder.ask("LOCK.STAT key").field("held").int() == 0
    });
    release(&mut holder, &held);
    assert_eq!(holder.ask("TAKE one WAIT 0").word(), "go");
}

#[test]
fn the_same_name_is_answered_with_the_same_grant() {
    let server = Server::start();
    for ask in ["TAKE two", "LOCK key PER 9", "REG.ASK few"] {
        let mut wire = server.connect();
        let first = wire.ask(&format!("{ask} ID name"));
        let again = wire.ask(&format!("{ask} ID name"));
        assert_eq!(first.ticket(), again.ticket());
        assert_eq!(first, again);
        assert_eq!(wire.ask("HELD").parts().len(), 1);
        release(&mut wire, &first.ticket());
        let other = wire.ask(&format!("{ask} ID name"));
        assert_ne!(
            other.ticket(),
            first.ticket(),
            "what is over is not repeated"
        );
        release(&mut wire, &other.ticket());
    }
}

#[test]
fn a_name_belongs_to_the_connection_that_gave_it() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    let first = one.ask("TAKE two ID name").ticket();
    let second = two.ask("TAKE two ID name").ticket();
    assert_ne!(first, second);
}

#[test]
fn a_name_of_an_ask_that_waits_is_answered_with_its_ticket() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.ask("TAKE one").ticket();
    let first = wire.ask("TAKE one ASYNC WAIT 20000 ID name");
    let again = wire.ask("TAKE one ASYNC WAIT 20000 ID name");
    assert_eq!(first, again);
    assert_eq!(wire.ask("POOL.STAT one").field("waiting").int(), 1);
}
