//! Members that connections bring, and that go with them.

use crate::server::{Server, until};
use crate::wire::Wire;

fn offer(wire: &mut Wire, value: &str) -> String {
    let ticket = wire.ask(&format!("POOL.OFFER brought {value}")).text();
    assert!(ticket.starts_with("o-"), "{ticket}");
    ticket
}

#[test]
fn what_one_brings_another_takes() {
    let server = Server::start();
    let (mut bringer, mut taker) = (server.connect(), server.connect());
    taker.send("TAKE brought WAIT 20000");
    server.until_waiting(1);
    offer(&mut bringer, "gpu-1");
    let taken = taker.read();
    assert_eq!(taken.at(2).text(), "gpu-1");
    assert_eq!(
        server.connect().ask("TAKE brought WAIT 0").word(),
        "timeout"
    );
    taker.ask(&format!("RELEASE {}", taken.ticket()));
    assert_eq!(taker.ask("TAKE brought").at(2).text(), "gpu-1");
}

#[test]
fn several_waiting_clients_get_one_each() {
    let server = Server::start();
    let mut takers: Vec<Wire> = (0..8).map(|_| server.connect()).collect();
    takers
        .iter_mut()
        .for_each(|taker| taker.send("TAKE brought WAIT 20000"));
    server.until_waiting(8);
    let mut bringer = server.connect();
    let mut brought: Vec<String> = (0..8).map(|number| format!("gpu-{number}")).collect();
    for value in &brought {
        offer(&mut bringer, value);
    }
    let mut taken: Vec<String> = takers
        .iter_mut()
        .map(|taker| taker.read().at(2).text())
        .collect();
    taken.sort();
    brought.sort();
    assert_eq!(taken, brought);
}

#[test]
fn an_idle_member_vanishes_with_its_connection() {
    let server = Server::start();
    for end in [drop, Wire::reset] {
        let mut bringer = server.connect();
        offer(&mut bringer, "gpu-1");
        let mut taker = server.connect();
        let ticket = taker.ask("TAKE brought").ticket();
        taker.ask(&format!("RELEASE {ticket}"));
        assert_eq!(taker.ask("POOL.STAT brought").field("idle").int(), 1);
        end(bringer);
        until("it is gone", || {
            taker.ask("POOL.STAT brought").field("idle").int() == 0
        });
        assert_eq!(taker.ask("TAKE brought WAIT 0").word(), "timeout");
    }
}

#[test]
fn a_withdrawn_member_is_not_lent_again() {
    let server = Server::start();
    let mut wire = server.connect();
    let ticket = offer(&mut wire, "gpu-1");
    assert_eq!(wire.ask(&format!("POOL.WITHDRAW {ticket}")).text(), "OK");
    assert_eq!(wire.ask("TAKE brought WAIT 50").word(), "timeout");
    wire.ask(&format!("POOL.WITHDRAW {ticket}"))
        .is_error("STALE");
}

#[test]
fn the_holder_of_a_member_whose_owner_is_gone_is_told() {
    let server = Server::start();
    let (mut bringer, mut taker) = (server.connect(), server.connect());
    offer(&mut bringer, "gpu-1");
    let ticket = taker.ask("TAKE brought WAIT 20000").ticket();
    bringer.reset();
    until("it is taken back", || taker.ask("HELD").parts().is_empty());
    taker
        .ask("TAKE brought WAIT 50")
        .is_error(&format!("LOST {ticket}=died: "));
    taker.ask(&format!("RELEASE {ticket}")).is_error(&format!(
        "STALE ticket \"{ticket}\" was lost when the member ended by itself"
    ));
    assert_eq!(taker.ask("TAKE brought WAIT 50").word(), "timeout");
    offer(&mut taker, "gpu-2");
    assert_eq!(taker.ask("TAKE brought WAIT 20000").at(2).text(), "gpu-2");
}

#[test]
fn a_member_survives_the_crash_of_its_holder() {
    let server = Server::start();
    let mut bringer = server.connect();
    offer(&mut bringer, "gpu-1");
    for end in [drop, Wire::reset] {
        let mut taker = server.connect();
        assert_eq!(taker.ask("TAKE brought WAIT 20000").at(2).text(), "gpu-1");
        end(taker);
    }
    let mut taker = server.connect();
    let taken = taker.ask("TAKE brought WAIT 20000");
    assert_eq!(taken.at(2).text(), "gpu-1", "its owner still offers it");
    taker.ask(&format!("RELEASE {} FAIL", taken.ticket()));
    assert_eq!(taker.ask("TAKE brought WAIT 20000").at(2).text(), "gpu-1");
}

#[test]
fn a_pool_with_a_list_takes_no_offers() {
    let server = Server::start();
    let mut wire = server.connect();
    wire.ask("POOL.OFFER one m2")
        .is_error("WRONGTYPE pool one takes no offers");
    assert_eq!(wire.ask("HELD").parts().len(), 0);
}

#[test]
fn a_pool_without_offers_starts_nothing_and_stops_in_silence() {
    let server = Server::with("[pool.desk]\nmember = \"offered\"\nmax = 8\n");
    let mut wire = server.connect();
    let stat = wire.ask("POOL.STAT desk");
    assert_eq!(stat.at(6).text(), "starting");
    assert_eq!(stat.at(7).int(), 0);
    let said = server.stop();
    assert!(!said.contains("could not be started"), "{said}");
}
