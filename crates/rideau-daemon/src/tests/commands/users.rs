//! Who may do what, while the config changes.

use std::sync::OnceLock;

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;

/// The hash of the password of all users.
pub(crate) fn hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| Hash::of(b"secret").unwrap().as_str().into())
}

/// A config with these users, each with what it may do.
fn config(users: &[(&str, &str)]) -> String {
    let hash = hash();
    let mut text = String::new();
    for (name, allow) in users {
        text += &format!("[user.{name}]\npassword = '{hash}'\nallow = [{allow}]\n\n");
    }
    text + "[pool.cad]\nmember = { list = [\"A\", \"B\"] }\n\n[lock.\"*\"]\n"
}

pub(crate) fn login(server: &Server, user: &str) -> Peer {
    let mut peer = server.connect();
    assert_eq!(peer.say(&format!("AUTH {user} secret")), "+OK");
    peer
}

const OPS: (&str, &str) = ("ops", "\"@admin\"");

#[test]
fn a_user_who_may_do_less_may_do_less_from_the_next_command_on() {
    let server = Server::start(&config(&[OPS, ("anna", "\"@all\"")]));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    assert!(anna.say("TAKE cad").starts_with("[go, "));
    let less = config(&[OPS, ("anna", "\"show\"")]);
    ops.ask(&["CONFIG", "APPLY", &less]);
    assert_eq!(
        anna.say("TAKE cad"),
        "-NOPERM user anna may not use TAKE: add \"take\" to its allow list."
    );
    let pools = anna.ask(&["SHOW", "POOLS"]);
    assert_eq!(cell(&pools, 0, "held"), "1", "what it has it keeps");
}

#[test]
fn a_user_who_is_no_more_loses_its_connections_and_sessions() {
    let server = Server::start(&config(&[OPS, ("anna", "\"@all\"")]));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    anna.say("SESSION OPEN TTL 600000");
    anna.say("TAKE cad");
    let mut waiting = login(&server, "anna");
    waiting.say("TAKE cad");
    waiting.send(&["TAKE", "cad", "WAIT", "20000"]);
    while cell(&ops.ask(&["SHOW", "POOLS"]), 0, "waiting") != "1" {}
    ops.ask(&["CONFIG", "APPLY", &config(&[OPS])]);
    assert_eq!(anna.next(), None);
    let said = waiting.hear();
    assert!(said.starts_with("-NOAUTH user anna was removed"), "{said}");
    assert_eq!(waiting.next(), None);
    while cell(&ops.ask(&["SHOW", "POOLS"]), 0, "held") != "0" {}
    assert!(rows(&ops.ask(&["SHOW", "SESSIONS"])).is_empty());
}

#[test]
fn with_new_users_connected_clients_have_to_log_in() {
    let server = Server::start(&config(&[]));
    let mut peer = server.connect();
    peer.ask(&["CONFIG", "APPLY", &config(&[OPS])]);
    let said = peer.say("SHOW POOLS");
    assert_eq!(
        said,
        "-NOAUTH authentication required: send AUTH user password."
    );
    assert_eq!(peer.say("AUTH ops secret"), "+OK");
    let events = peer.ask(&["SHOW", "EVENTS"]);
    assert_eq!(cell(&events, 0, "kind"), "login");
    assert_eq!(cell(&events, 1, "text"), "apply: + user.ops");
}

#[test]
fn tickets_of_others_are_not_shown_in_full() {
    let server = Server::start(&config(&[OPS, ("anna", "\"@all\""), ("bert", "\"@all\"")]));
    let mut anna = login(&server, "anna");
    let Value::Array(taken) = anna.ask(&["TAKE", "cad"]) else {
        panic!("no member");
    };
    let ticket = text(&taken[1]);
    let shown = |peer: &mut Peer| cell(&peer.ask(&["SHOW", "HOLDERS"]), 0, "ticket");
    assert_eq!(shown(&mut anna), ticket);
    assert_eq!(shown(&mut login(&server, "ops")), ticket);
    let mut bert = login(&server, "bert");
    assert_eq!(shown(&mut bert), format!("{}…", &ticket[..10]));
    let said = bert.say(&format!("EXPLAIN {ticket}"));
    assert!(said.starts_with("-NOSUCH thing"), "{said}");
}

#[test]
fn operators_commands_are_not_for_every_user() {
    let server = Server::start(&config(&[OPS, ("anna", "\"@all\"")]));
    let mut anna = login(&server, "anna");
    for (line, right) in [
        ("CONFIG GET *", "config"),
        ("POOL.ADD x y", "pool"),
        ("POOL.DEL cad", "pool"),
        ("POOL.SET cad MAX 1", "pool"),
        ("POOL.RECYCLE cad", "pool"),
        ("MONITOR", "monitor"),
        ("SHOW CONFIG", "config"),
        ("CLIENT LIST", "client"),
    ] {
        let said = anna.say(line);
        let end = format!("add \"{right}\" to its allow list.");
        assert!(said.starts_with("-NOPERM user anna may not "), "{said}");
        assert!(said.ends_with(&end), "{said}");
    }
    let mut ops = login(&server, "ops");
    let shown = ops.say("SHOW CONFIG");
    assert!(
        shown.contains("pool.cad.max") && !shown.contains("argon2"),
        "{shown}"
    );
}

#[test]
fn limits_count_for_connections_that_are_there() {
    let server = Server::start(&config(&[]));
    let mut peer = server.connect();
    peer.say("CONFIG SET limits.frame_max 1KiB limits.password_checks_max 7");
    let limits = peer.ask(&["SHOW", "LIMITS", "password_checks_max"]);
    assert_eq!(rows(&limits), ["[password_checks_max, 7, 0, 0, ]"]);
    let said = text(&peer.ask(&["PING", &"x".repeat(2000)]));
    assert!(said.starts_with("-ERR "), "{said}");
    assert_eq!(peer.next(), None);
    let mut peer = server.connect();
    let limits = peer.ask(&["SHOW", "LIMITS", "frame_max"]);
    assert_eq!(rows(&limits), ["[frame_max, 1024, nil, 1, bytes]"]);
}
