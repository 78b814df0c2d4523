//! Looking at very many things: it is done away from the thread that serves others, and
//! shows the same.

use std::sync::atomic::Ordering;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;
use crate::tests::commands::users::{hash, login};

/// More than are looked at on the thread of the client.
const MANY: usize = 1100;

fn config() -> String {
    format!(
        "[user.anna]\npassword = '{}'\nallow = [\"@all\", \"@admin\"]\nwaiting_max = 0\n\
         [lock.\"*\"]\n[pool.cad]\nmember = {{ list = [\"A\"] }}\n",
        hash()
    )
}

fn lock_many(peer: &mut Peer) {
    for number in 0..MANY {
        peer.send(&["LOCK", &format!("key-{number}")]);
    }
    for _ in 0..MANY {
        assert!(peer.hear().starts_with("[go, "));
    }
}

#[test]
fn a_user_that_may_not_wait_may_look() {
    let server = Server::start(&config());
    let mut anna = login(&server, "anna");
    lock_many(&mut anna);
    for line in [
        "SHOW HOLDERS",
        "SHOW CLIENTS",
        "SHOW SESSIONS",
        "SHOW LOCKS",
        "INFO",
        "CLIENT LIST",
        "SESSION LS",
        "LOCK.LS",
        "EXPLAIN key-7",
        "HELD",
    ] {
        let said = anna.say(line);
        assert!(!said.starts_with('-'), "{line}: {said}");
    }
    assert_eq!(server.daemon.counts.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn many_things_are_shown_as_few_are() {
    let server = Server::start(&config());
    let mut anna = login(&server, "anna");
    let few = anna.say("LOCK.LS");
    assert_eq!(few, "[]");
    lock_many(&mut anna);
    let holders = anna.ask(&["SHOW", "HOLDERS", "COUNT", "100000"]);
    assert_eq!(rows(&holders).len(), MANY);
    assert_eq!(cell(&holders, 0, "name"), "key-0");
    assert_eq!(
        cell(&holders, MANY - 1, "name"),
        format!("key-{}", MANY - 1)
    );
    let listed = text(&anna.ask(&["LOCK.LS", "key-109", "COUNT", "10000"]));
    assert!(
        listed.starts_with("[[key-109, 1], [key-1090, 1]"),
        "{listed}"
    );
    let held = text(&anna.ask(&["HELD"]));
    assert!(held.starts_with("[[lock, key-1099,"), "{}", &held[..40]);
    let explained = anna.say("EXPLAIN key-7");
    assert!(explained.contains("key-7"), "{explained}");
    let no = anna.say("EXPLAIN d-777");
    assert!(no.starts_with("-NOSUCH thing"), "{no}");
    let wrong = anna.say("INFO nonsense");
    assert!(wrong.starts_with("-ERR INFO has no section"), "{wrong}");
}

#[test]
fn what_a_holder_of_many_things_held_is_free_when_it_ends() {
    let server = Server::start(&config());
    for end in ["QUIT", "SESSION CLOSE", "gone"] {
        let mut anna = login(&server, "anna");
        let mut other = login(&server, "anna");
        if end == "SESSION CLOSE" {
            anna.say("SESSION OPEN TTL 600000");
        }
        lock_many(&mut anna);
        let said = match end {
            "gone" => String::new(),
            end => anna.say(end),
        };
        match end {
            "QUIT" => assert_eq!(said, "+OK"),
            "SESSION CLOSE" => assert_eq!(said, MANY.to_string()),
            _ => drop(anna),
        }
        while text(&other.ask(&["LOCK.LS", "key"])) != "[]" {}
        assert!(other.say("LOCK key-0").starts_with("[go, "), "{end}");
        assert_eq!(other.say("UNLOCK key-0"), "+OK");
    }
}
