//! Holders that outlive a connection, or span several.

use crate::server::{Server, until};
use crate::wire::Wire;

const SPARE: &str = r#"
[pool.spare]
member = { list = ["first", "second"] }
max = 1
queue = { kind = "never" }
"#;

fn open(wire: &mut Wire, options: &str) -> String {
    let opened = wire.ask(&format!("SESSION OPEN {options}"));
    let id = opened.at(0).text();
    assert!(id.starts_with("s-"), "{opened}");
    id
}

fn sessions(wire: &mut Wire) -> usize {
    wire.ask("SESSION LS").parts().len()
}

#[test]
fn a_session_that_is_not_renewed_expires_and_gives_all_back() {
    let server = Server::with(SPARE);
    let mut holder = server.connect();
    let id = open(&mut holder, "TTL 100 NAME job");
    let ticket = holder.ask("TAKE spare").ticket();
    let mut next = server.connect();
    // A session without a word is as good as dead: its member is replaced.
    assert_eq!(next.ask("TAKE spare WAIT 20000").at(2).text(), "second");
    next.ask(&format!("RELEASE {ticket}")).is_error("STALE");
    next.ask(&format!("SESSION RENEW {id}"))
        .is_error("NOSUCH session");
    next.ask(&format!("SESSION ATTACH {id}"))
        .is_error("NOSUCH session");
    assert_eq!(sessions(&mut next), 0);
}

#[test]
fn a_client_that_stays_in_a_session_that_expired_is_told_so() {
    let server = Server::start();
    let mut holder = server.connect();
    open(&mut holder, "TTL 20");
    until("it expired", || sessions(&mut server.connect()) == 0);
    for ask in [
        "TAKE one",
        "LOCK key",
        "REG.ASK few",
        "ASK desk ASYNC",
        "LOCK key WAIT 10",
    ] {
        holder.ask(ask).is_error("NOSUCH session");
    }
    assert_eq!(
        server.connect().ask("LOCK key").word(),
        "go",
        "nothing is lost"
    );
    assert_eq!(holder.ask("SESSION DETACH").text(), "OK");
    assert_eq!(holder.ask("TAKE one").word(), "go");
}

#[test]
fn a_renewed_session_lives_on() {
    let server = Server::start();
    let mut holder = server.connect();
    let id = open(&mut holder, "TTL 3600000");
    holder.ask("TAKE one").ticket();
    assert_eq!(holder.ask("SESSION RENEW").int(), 3_600_000);
    holder.reset();
    server.until_alone();
    let mut other = server.connect();
    assert_eq!(other.ask(&format!("SESSION RENEW {id}")).int(), 3_600_000);
    assert_eq!(other.ask("TAKE one WAIT 0").word(), "timeout");
    assert_eq!(other.ask(&format!("SESSION ATTACH {id}")).text(), "OK");
    assert_eq!(other.ask("HELD").at(0).at(3).text(), "m1");
}

#[test]
fn a_session_spans_connections_and_ends_with_the_last() {
    let server = Server::with(SPARE);
    let (mut one, mut two) = (server.connect(), server.connect());
    let id = open(&mut one, "");
    assert_eq!(two.ask(&format!("SESSION ATTACH {id}")).text(), "OK");
    let ticket = one.ask("TAKE spare").ticket();
    assert_eq!(two.ask("HELD").at(0).at(2).text(), ticket);
    let mut observer = server.connect();
    one.reset();
    until("one of two is left", || {
        observer.ask("SESSION LS").at(0).at(2).int() == 1
    });
    assert_eq!(two.ask("HELD").parts().len(), 1, "the session goes on");
    assert_eq!(two.ask("TAKE spare WAIT 0").word(), "timeout");
    drop(two);
    assert_eq!(observer.ask("TAKE spare WAIT 20000").word(), "go");
    assert_eq!(sessions(&mut observer), 0);
}

#[test]
fn a_release_within_a_session_is_not_foreign() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    let id = open(&mut one, "");
    two.ask(&format!("SESSION ATTACH {id}"));
    let ticket = one.ask("TAKE one").ticket();
    assert_eq!(two.ask(&format!("RELEASE {ticket}")).text(), "OK");
    let list = one.ask("CLIENT LIST").text();
    assert!(!list.contains("pooled-client"), "{list}");
}

#[test]
fn grace_lets_a_client_come_back() {
    let server = Server::start();
    let mut holder = server.connect();
    let id = open(&mut holder, "GRACE 3600000");
    holder.ask("TAKE one").ticket();
    drop(holder);
    server.until_alone();
    let mut again = server.connect();
    assert_eq!(again.ask("TAKE one WAIT 0").word(), "timeout");
    assert_eq!(again.ask(&format!("SESSION ATTACH {id}")).text(), "OK");
    assert_eq!(again.ask("HELD").parts().len(), 1);
    assert_eq!(again.ask("SESSION CLOSE").int(), 1);
    assert_eq!(again.ask("TAKE one").word(), "go");
}

#[test]
fn grace_ends() {
    let server = Server::start();
    let mut holder = server.connect();
    open(&mut holder, "GRACE 50");
    holder.ask("TAKE one").ticket();
    drop(holder);
    assert_eq!(server.connect().ask("TAKE one WAIT 20000").word(), "go");
}

#[test]
fn a_renewal_from_outside_does_not_make_an_empty_session_immortal() {
    let server = Server::start();
    let mut holder = server.connect();
    let id = open(&mut holder, "GRACE 300");
    holder.ask("TAKE one").ticket();
    drop(holder);
    server.until_alone();
    let mut other = server.connect();
    assert_eq!(other.ask(&format!("SESSION RENEW {id}")).int(), -1);
    assert_eq!(other.ask("TAKE one WAIT 20000").word(), "go");
}

#[test]
fn close_is_a_goodbye_and_close_fail_a_crash() {
    for (close, lent) in [("", "first"), ("FAIL", "second")] {
        let server = Server::with(SPARE);
        let mut holder = server.connect();
        let id = open(&mut holder, "");
        holder.ask("TAKE spare").ticket();
        let mut other = server.connect();
        assert_eq!(other.ask(&format!("SESSION CLOSE {id} {close}")).int(), 1);
        assert_eq!(other.ask("TAKE spare WAIT 20000").at(2).text(), lent);
        other
            .ask(&format!("SESSION CLOSE {id}"))
            .is_error("NOSUCH session");
        assert_eq!(holder.ask("HELD").parts().len(), 0);
    }
}

#[test]
fn a_client_back_in_its_session_gets_the_same_grant_for_the_same_name() {
    let server = Server::start();
    let mut holder = server.connect();
    let id = open(&mut holder, "GRACE 3600000");
    let ticket = holder.ask("TAKE one ID order-7").ticket();
    // Its answer may never have arrived: it asks again.
    holder.reset();
    server.until_alone();
    let mut again = server.connect();
    again.ask(&format!("SESSION ATTACH {id}"));
    let repeated = again.ask("TAKE one ID order-7");
    assert_eq!(repeated.ticket(), ticket);
    assert_eq!(repeated.at(2).text(), "m1");
    assert_eq!(again.ask("HELD").parts().len(), 1);
}

#[test]
fn there_are_as_many_sessions_as_the_config_allows() {
    let server = Server::with("[limits]\nsessions_max = 2\n");
    let mut wires = [server.connect(), server.connect(), server.connect()];
    open(&mut wires[0], "");
    let id = open(&mut wires[1], "");
    wires[2]
        .ask("SESSION OPEN")
        .is_error("BUSY limits.sessions_max (2) reached");
    assert_eq!(wires[2].ask(&format!("SESSION CLOSE {id}")).int(), 0);
    open(&mut wires[2], "");
}

#[test]
fn the_earlier_of_ttl_and_grace_ends_a_session() {
    let long = 3_600_000;
    let server = Server::start();
    // Its time is up while it is alone, and would have had more grace,
    let mut holder = server.connect();
    open(&mut holder, &format!("TTL 300 GRACE {long}"));
    holder.ask("TAKE one").ticket();
    drop(holder);
    let mut next = server.connect();
    let taken = next.ask("TAKE one WAIT 20000").ticket();
    next.ask(&format!("RELEASE {taken}"));
    // and while its connection is there.
    let mut holder = server.connect();
    open(&mut holder, &format!("TTL 300 GRACE {long}"));
    holder.ask("TAKE one").ticket();
    let taken = next.ask("TAKE one WAIT 20000").ticket();
    next.ask(&format!("RELEASE {taken}"));
    drop(holder);
    // Its grace is over, and it would have had more time.
    let mut holder = server.connect();
    open(&mut holder, &format!("TTL {long} GRACE 50"));
    holder.ask("TAKE one").ticket();
    drop(holder);
    let taken = next.ask("TAKE one WAIT 20000").ticket();
    next.ask(&format!("RELEASE {taken}"));
    // Without a grace of its own only its time counts.
    let mut holder = server.connect();
    let id = open(&mut holder, &format!("TTL {long}"));
    holder.ask("TAKE one").ticket();
    drop(holder);
    until("it is alone", || {
        next.ask("CLIENT LIST").text().lines().count() == 1
    });
    assert_eq!(next.ask("TAKE one WAIT 100").word(), "timeout");
    assert_eq!(next.ask(&format!("SESSION ATTACH {id}")).text(), "OK");
    assert_eq!(next.ask("HELD").parts().len(), 1);
}

#[test]
fn fences_of_locks_grow_over_restarts_and_clocks_that_were_set_back() {
    let folder = Server::start();
    let path = folder.folder().join("kept");
    let config = format!("[store]\npath = \"{}\"\n[lock.\"*\"]\n", path.display());
    let mut last = 0;
    for end in [Server::kill, Server::ask_to_stop].iter().cycle().take(6) {
        let mut server = Server::with(&config);
        let mut wire = server.connect();
        for _ in 0..3 {
            let lock = wire.ask("LOCK key");
            let fence = lock.at(4).int();
            assert!(fence > last, "{fence} after {last}");
            assert!(fence < 1 << 53, "{fence}");
            last = fence;
            wire.ask(&format!("RELEASE {}", lock.ticket()));
        }
        drop(wire);
        end(&server);
        server.ended();
    }
    // More starts than the clock has had time for: the clock is behind by hours now, as
    // if it had been set back.
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    assert!(last > clock.unwrap().as_micros() as i64);
}
