//! Pools that come, change and go at run time.

use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;

const TEXT: &str = "[lock.\"*\"]\n";
const KEYS: &str = "member = { list = [\"A\", \"B\"] }";

fn take(peer: &mut Peer, pool: &str) -> String {
    let Value::Array(taken) = peer.ask(&["TAKE", pool]) else {
        panic!("no member");
    };
    text(&taken[1])
}

#[test]
fn a_pool_is_added_changed_and_removed_and_the_config_knows() {
    let server = Server::start(TEXT);
    let mut peer = server.operator();
    assert_eq!(text(&peer.ask(&["POOL.ADD", "cad", KEYS])), "+OK");
    assert!(peer.say("TAKE cad").starts_with("[go, g-"));
    let added = format!("{TEXT}\n[pool.cad]\n{KEYS}\n");
    assert_eq!(peer.say("CONFIG TEXT"), added);

    assert_eq!(
        peer.say("POOL.SET cad MAX 1 LEAK_AFTER 5s QUEUE.MAX 7"),
        "+OK"
    );
    let values = peer.say("CONFIG GET pool.cad.max pool.cad.leak_after pool.cad.queue.max");
    let wanted = "[pool.cad.max, 1, pool.cad.leak_after, \"5s\", pool.cad.queue.max, 7]";
    assert_eq!(values, wanted);

    assert_eq!(peer.say("POOL.DEL cad"), "+OK");
    assert!(peer.say("TAKE cad").starts_with("-NOSUCH pool"));
    assert_eq!(peer.say("CONFIG TEXT"), TEXT);
    let history = peer.ask(&["CONFIG", "HISTORY"]);
    assert_eq!(rows(&history).len(), 4);
    let events = peer.ask(&["SHOW", "EVENTS"]);
    let texts: Vec<_> = (0..5).map(|row| cell(&events, row, "text")).collect();
    assert_eq!(texts[0], "pool cad was removed");
    assert_eq!(texts[1], "pool.del: - pool.cad");
    assert_eq!(texts[3], "pool cad was added");
    assert_eq!(texts[4], "pool.add: + pool.cad");
}

#[test]
fn a_pool_that_is_wrong_is_not_added() {
    let server = Server::start("[limits]\nnames_max = 2\n[lock.\"*\"]\n");
    let mut peer = server.connect();
    for (name, keys, error) in [
        ("cad", "mx = 1", "-CONFIG 1:1 unknown key `mx`"),
        ("cad", "member = {", "-CONFIG 1:"),
        (
            "c d",
            KEYS,
            "-CONFIG 1:1 the name \"c d\" has letters that names cannot have",
        ),
        (
            "cad",
            "like = 'x'",
            "-CONFIG 1:1 a pool that is added on its own is like no other",
        ),
    ] {
        let said = text(&peer.ask(&["POOL.ADD", name, keys]));
        assert!(said.starts_with(error), "{keys}: {said}");
    }
    assert_eq!(text(&peer.ask(&["POOL.ADD", "cad", KEYS])), "+OK");
    let said = text(&peer.ask(&["POOL.ADD", "more", KEYS]));
    assert_eq!(
        said,
        "-BUSY limits.names_max (2) reached: remove some names or raise it."
    );
    peer.say("CONFIG SET limits.names_max 9");
    let said = text(&peer.ask(&["POOL.ADD", "cad", KEYS]));
    assert_eq!(
        said,
        "-ERR there is a pool cad already: POOL.SET changes it, POOL.DEL removes it."
    );
    let limits = peer.ask(&["SHOW", "LIMITS", "names_max"]);
    assert_eq!(rows(&limits), ["[names_max, 9, 2, 1, ]"]);
}

#[test]
fn what_is_not_there_is_not_changed() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.ask(&["POOL.ADD", "cad", KEYS]);
    let none = "-NOSUCH pool \"cam\": SHOW POOLS lists them, POOL.ADD adds one.";
    for (line, error) in [
        ("POOL.DEL cam", none),
        ("POOL.SET cam MAX 1", none),
        ("POOL.RECYCLE cam", none),
        (
            "POOL.DEL cad SOON",
            "-ERR POOL.DEL takes GRACEFUL ms or NOW, not \"SOON\".",
        ),
        (
            "POOL.DEL cad GRACEFUL",
            "-ERR GRACEFUL needs milliseconds, and nothing follows.",
        ),
        (
            "POOL.SET cad MAXX 1",
            "-CONFIG there is no key `maxx`; did you mean `max`?",
        ),
        (
            "POOL.SET cad MAX 1 INIT",
            "-ERR POOL.SET needs a value, and nothing follows.",
        ),
        (
            "POOL.RECYCLE cad UNDER 1",
            "-ERR POOL.RECYCLE does not know \"UNDER\". It takes pool [OVER ms].",
        ),
    ] {
        assert_eq!(peer.say(line), error);
    }
}

#[test]
fn a_pool_that_goes_at_once_takes_its_members_back() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("HELLO 3");
    peer.ask(&["POOL.ADD", "cad", KEYS]);
    let ticket = take(&mut peer, "cad");
    assert_eq!(peer.say("POOL.DEL cad NOW"), "+OK");
    assert_eq!(peer.hear(), format!(">[rideau:revoked, {ticket}, removed]"));
    let stale = peer.say(&format!("RELEASE {ticket}"));
    assert!(stale.contains("was revoked by an operator"), "{stale}");
}

#[test]
fn a_pool_that_goes_slowly_lets_its_holders_finish() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.ask(&["POOL.ADD", "cad", "member = { list = [\"A\"] }"]);
    let ticket = take(&mut peer, "cad");
    other.send(&["TAKE", "cad", "WAIT", "10000"]);
    while cell(&peer.ask(&["SHOW", "POOLS"]), 0, "waiting") != "1" {}
    assert_eq!(peer.say("POOL.DEL cad GRACEFUL 60000"), "+OK");
    let refused = other.hear();
    assert!(refused.starts_with("[closed, "), "{refused}");
    assert_eq!(peer.say(&format!("RELEASE {ticket}")), "+OK");
}

#[test]
fn members_are_replaced() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.ask(&["POOL.ADD", "cad", KEYS]);
    let ticket = take(&mut peer, "cad");
    assert_eq!(peer.say("POOL.RECYCLE cad OVER 0"), "+OK");
    let place = server.daemon.catalog.load().pools["cad"].clone();
    assert_eq!(place.pool.stats().generation, 1);
    peer.say(&format!("RELEASE {ticket}"));
    let events = peer.ask(&["SHOW", "EVENTS"]);
    let text = "all members of pool cad are replaced at once";
    assert_eq!(cell(&events, 0, "text"), text);
}

#[test]
fn a_refused_take_names_the_holder_and_no_number_that_is_not_shown() {
    let server = Server::start("[pool.one]\nmember = { list = [\"CAD-001\"] }\n");
    let (mut anna, mut bert) = (server.connect(), server.connect());
    anna.say("CLIENT SETNAME anna");
    anna.say("TAKE one NOTE nightly");
    let no = bert.say("TAKE one WAIT 1");
    assert!(no.contains("anna \"nightly\" has held one for "), "{no}");
}

#[test]
fn a_value_that_was_never_held_is_taken_without_a_wait() {
    let server = Server::start(
        "[group.all]\n[pool.cad]\ngroup = \"all\"\nmember = { list = [\"A\", \"B\", \"C\"] }\n",
    );
    let mut peer = server.connect();
    assert!(peer.say("TAKE cad WAIT 0").contains(", A, "));
    peer.say("MULTI");
    peer.say("TAKE cad");
    assert!(peer.say("EXEC").contains(", B, "));
    assert!(peer.say("TAKE @all WAIT 0").contains(", C, "));
    for target in ["cad", "@all"] {
        let no = peer.say(&format!("TAKE {target} WAIT 0"));
        assert!(no.starts_with("[timeout, "), "{no}");
    }
    let other = Server::start("[pool.cad]\nmember = { list = [\"A\"] }\n");
    let mut peer = other.connect();
    peer.say("POOL.PAUSE cad");
    let no = peer.say("TAKE cad WAIT 0");
    assert!(no.starts_with("[timeout, "), "{no}");
}
