//! What is granted in the very moment in which its user loses the right to it.

use std::sync::atomic::Ordering;

use rideau_config::password::Hash;
use rideau_config::{Config, User};

use super::panics::{Place, Wire, until};
use crate::state::end::EndReason;
use crate::state::ticket::Ticket;

/// `anna`, who may do this.
fn anna(hash: &Hash, allow: &str) -> String {
    let hash = hash.as_str();
    format!("[user.anna]\npassword = '{hash}'\nallow = {allow}\n")
}

fn users(text: &str) -> Vec<User> {
    let config = Config::parse(text, "test.toml", &|_| None);
    config.expect("it is a config").users
}

fn login(place: &Place) -> Wire {
    let mut wire = place.connect();
    assert_eq!(wire.ask("AUTH anna secret"), "+OK");
    wire
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_in_the_moment_of_a_change_goes_back() {
    let hash = Hash::of(b"secret").expect("there is memory");
    let much = anna(&hash, "[\"lock\", \"await\"]");
    let little = users(&anna(&hash, "[\"await\"]"));
    let no = "-NOPERM user anna may not use LOCK: add \"lock\" to its allow list.";
    let place = Place::new(&much).await;
    let daemon = &place.daemon;
    let (mut holder, mut waiter) = (login(&place), login(&place));
    for is_async in [false, true] {
        let held = holder.array("LOCK k");
        assert_eq!(held[0], "go", "{is_async}");
        let ticket = Ticket::parse(held[1].as_bytes()).expect("it is a ticket");
        let begun = match is_async {
            true => waiter.array("LOCK k WAIT 30000 ASYNC"),
            false => {
                waiter.send("LOCK k WAIT 30000");
                Vec::new()
            }
        };
        until("no command waits", || {
            daemon.counts.waiting.load(Ordering::Relaxed) == 1
        })
        .await;
        // No client is told of the change, so it is the grant that has to look.
        daemon.set_users_unseen(little.clone());
        let released = daemon.release(ticket, None, EndReason::Released);
        assert!(released.is_ok(), "{is_async}");
        let said = match is_async {
            true => waiter.ask(&format!("AWAIT {} 30000", begun[1])),
            false => waiter.line(),
        };
        assert_eq!(said, no, "{is_async}");
        daemon.set_users_unseen(users(&much));
        // The lock is free again.
        let free = holder.array("LOCK k WAIT 30000");
        assert_eq!(free[0], "go", "{is_async}");
        assert_eq!(holder.ask("UNLOCK k"), "+OK");
    }
}

/// A password check takes a while. A client is let in as the user is by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_was_being_checked_has_the_rights_of_now() {
    let hash = Hash::of(b"secret").expect("there is memory");
    let other = Hash::of(b"other").expect("there is memory");
    let much = anna(&hash, "[\"lock\"]");
    let place = Place::new(&much).await;
    let daemon = &place.daemon;
    let wrong = "-WRONGPASS the user or the password is wrong.";
    for (after, said) in [
        (anna(&hash, "[\"info\"]"), "+OK"),
        (anna(&other, "[\"lock\"]"), wrong),
        (much.replace("anna", "bert"), wrong),
    ] {
        daemon.set_users_unseen(users(&much));
        let mut wire = place.connect();
        let mut turns = Vec::new();
        while let Some(turn) = daemon.password_checks.try_take() {
            turns.push(turn);
        }
        let before = daemon.counts.checks_delayed.load(Ordering::Relaxed);
        wire.send("AUTH anna secret");
        until("no check waits for its turn", || {
            daemon.counts.checks_delayed.load(Ordering::Relaxed) > before
        })
        .await;
        daemon.set_users_unseen(users(&after));
        drop(turns);
        assert_eq!(wire.line(), said, "{after}");
        let no = wire.ask("LOCK k");
        assert!(no.starts_with("-NO"), "{no}");
    }
}

/// A table of very many things takes a while. It is not told to a user whose rights were
/// changed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_being_made_is_not_told_by_the_rights_of_before() {
    let hash = Hash::of(b"secret").expect("there is memory");
    let much = anna(&hash, "[\"lock\", \"show\"]");
    let narrow = format!("{much}on = [\"lock:a\"]\n");
    let place = Place::new(&much).await;
    let mut wire = login(&place);
    (0..1100).for_each(|number| wire.send(&format!("LOCK key-{number}")));
    // Each answer has eight lines.
    (0..8 * 1100).for_each(|_| drop(wire.line()));
    let client = place.daemon.clients.all().pop().expect("it is there");
    let card = client.card.lock().clone();
    let is_being_made = card.name.lock();
    wire.send("SHOW CLIENTS");
    while client.commands.load(Ordering::Relaxed) < 1102 {
        std::thread::yield_now();
    }
    place.daemon.set_users_unseen(users(&narrow));
    drop(is_being_made);
    let said = wire.line();
    assert!(said.starts_with("-BUSY what this user may see"), "{said}");
}
