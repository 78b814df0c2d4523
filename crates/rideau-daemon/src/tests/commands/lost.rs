//! A holder that has lost something is told at its next ask, once.

use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

const PLACES: &str = r#"
[pool.one]
member = { list = ["m1", "m2"] }

[lock."*"]
"#;

fn take(peer: &mut Peer) -> String {
    match peer.ask(&["TAKE", "one"]) {
        Value::Array(parts) => text(&parts[1]),
        other => panic!("{}", text(&other)),
    }
}

/// The pool is removed, and so is all that is held of it.
fn remove(server: &Server) {
    assert_eq!(server.operator().say("POOL.DEL one NOW"), "+OK");
    while !server.daemon.lease_table.all().is_empty() {
        std::thread::yield_now();
    }
}

/// The next answer; pushes may come before it.
fn say(peer: &mut Peer, line: &str) -> String {
    peer.send(&line.split(' ').collect::<Vec<_>>());
    loop {
        let heard = peer.hear();
        if !heard.starts_with('>') {
            return heard;
        }
    }
}

#[test]
fn a_loss_is_told_once_and_not_where_it_does_not_belong() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let server = Server::start(PLACES);
        let (mut peer, mut other) = (server.connect(), server.connect());
        peer.say(hello);
        let (first, second) = (take(&mut peer), take(&mut peer));
        remove(&server);
        // Clients send these by themselves.
        assert_eq!(say(&mut peer, "PING"), "+PONG");
        assert!(!say(&mut peer, hello).starts_with('-'));
        assert_eq!(say(&mut peer, "CLIENT SETNAME a"), "+OK");
        assert_eq!(say(&mut peer, "HELD"), "[]");
        assert!(
            other.say("LOCK k").starts_with("[go, "),
            "it has lost nothing"
        );
        assert_eq!(other.say("UNLOCK k"), "+OK");
        let lost = say(&mut peer, "LOCK k");
        let fields = lost
            .strip_prefix("-LOST ")
            .and_then(|rest| rest.split_once(": "));
        let mut fields: Vec<_> = fields.unwrap().0.split(' ').map(str::to_owned).collect();
        fields.sort();
        let mut both = [first, second].map(|ticket| format!("{ticket}=revoke"));
        both.sort();
        assert_eq!(fields, both, "{lost}");
        assert!(lost.contains("was revoked by an operator"), "{lost}");
        assert!(
            say(&mut peer, "LOCK k").starts_with("[go, "),
            "it is told once"
        );
        assert!(!server.daemon.lease_table.has_untold());
    }
}

#[test]
fn a_client_that_names_the_ticket_is_told_by_that() {
    let server = Server::start(PLACES);
    let mut peer = server.connect();
    let ticket = take(&mut peer);
    remove(&server);
    let no = say(&mut peer, &format!("RELEASE {ticket}"));
    assert!(no.contains("was revoked by an operator"), "{no}");
    assert!(
        say(&mut peer, "LOCK k").starts_with("[go, "),
        "it has been told"
    );
    assert!(!server.daemon.lease_table.has_untold());
}

#[test]
fn a_client_in_the_session_is_told() {
    let server = Server::start(PLACES);
    let (mut opener, mut other) = (server.connect(), server.connect());
    let Value::Array(session) = opener.ask(&["SESSION", "OPEN", "TTL", "60000"]) else {
        panic!("no session");
    };
    let ticket = take(&mut opener);
    drop(opener);
    remove(&server);
    assert_eq!(
        other.say(&format!("SESSION ATTACH {}", text(&session[0]))),
        "+OK"
    );
    let lost = other.say("LOCK k");
    assert!(
        lost.starts_with(&format!("-LOST {ticket}=revoke: ")),
        "{lost}"
    );
}

#[test]
fn a_loss_that_no_client_is_told_of_is_forgotten() {
    let server = Server::start(PLACES);
    let mut peer = server.connect();
    take(&mut peer);
    remove(&server);
    assert!(server.daemon.lease_table.has_untold());
    drop(peer);
    while server.daemon.lease_table.has_untold() {
        std::thread::yield_now();
    }
}
