//! Users see the names that they may use, and no others.

use std::sync::OnceLock;

use rideau_config::password::Hash;

use crate::tests::commands::peer::{Peer, rows, text};
use crate::tests::commands::server::Server;

/// `shop` may look at everything of its own; `ops` may do anything anywhere.
fn server() -> Server {
    static HASH: OnceLock<String> = OnceLock::new();
    let hash = HASH.get_or_init(|| Hash::of(b"secret").unwrap().as_str().into());
    Server::start(&format!(
        r#"
[user.shop]
password = '{hash}'
allow = ["@all"]
on = ["pool:pg-*", "broker:work", "lock:shop/*"]

[user.ops]
password = '{hash}'
allow = ["@admin"]

[pool.pg-1]
group = "pg"
member = {{ list = ["A"] }}
queue = "never"

[pool.secret]
group = "pg"
member = {{ list = ["B"] }}
queue = "never"

[broker.work]
[broker.hidden]
[regulator.hush]
valve = {{ kind = "open", max = 1 }}
[lock."shop/*"]
[lock."*"]
"#
    ))
}

fn login(server: &Server, user: &str) -> Peer {
    let mut peer = server.connect();
    assert_eq!(peer.say(&format!("AUTH {user} secret")), "+OK");
    peer
}

fn names(peer: &mut Peer, what: &str) -> String {
    rows(&peer.ask(&["SHOW", what])).join("\n")
}

#[test]
fn tables_have_no_names_that_one_may_not_use() {
    let server = server();
    let (mut shop, mut ops) = (login(&server, "shop"), login(&server, "ops"));
    for line in ["TAKE pg-1", "TAKE secret", "LOCK shop/1", "LOCK private"] {
        assert!(ops.say(line).starts_with("[go, "), "{line}");
    }
    for line in ["TAKE pg-1 WAIT 1", "TAKE secret WAIT 1"] {
        assert!(ops.say(line).starts_with("[timeout, "), "{line}");
    }
    let all = [
        "POOLS",
        "GROUPS",
        "BROKERS",
        "REGULATORS",
        "LOCKS",
        "HOLDERS",
        "REFUSALS",
        "EVENTS",
    ];
    for what in all {
        let (seen, whole) = (names(&mut shop, what), names(&mut ops, what));
        for hidden in ["secret", "hidden", "hush", "private", "@pg", "[*, "] {
            assert!(!seen.contains(hidden), "{what}: {seen}");
        }
        assert!(whole.len() >= seen.len(), "{what}");
    }
    assert_eq!(rows(&shop.ask(&["SHOW", "POOLS"])).len(), 1);
    assert_eq!(rows(&ops.ask(&["SHOW", "POOLS"])).len(), 2);
    assert_eq!(rows(&shop.ask(&["SHOW", "LOCKS"])).len(), 1);
    assert_eq!(rows(&shop.ask(&["SHOW", "HOLDERS"])).len(), 2);
    let info = shop.say("INFO");
    assert!(info.contains("pool_pg-1:"), "{info}");
    for hidden in ["secret", "hidden", "hush"] {
        assert!(!info.contains(hidden), "{info}");
    }
    assert_eq!(shop.say("LOCK.LS"), "[[shop/1, 1]]");
    assert!(shop.say("LOCK.STAT private").starts_with("-NOPERM "));
}

#[test]
fn what_one_may_not_use_is_explained_as_if_it_were_not_there() {
    let server = server();
    let (mut shop, mut ops) = (login(&server, "shop"), login(&server, "ops"));
    ops.say("TAKE secret");
    ops.say("TAKE secret WAIT 1");
    for word in [
        "secret",
        "pool:secret",
        "@pg",
        "hidden",
        "broker:hidden",
        "hush",
        "private",
        "d-1",
    ] {
        let (no, yes) = (
            shop.say(&format!("EXPLAIN {word}")),
            ops.say(&format!("EXPLAIN {word}")),
        );
        assert!(no.starts_with("-NOSUCH thing"), "{word}: {no}");
        assert!(
            yes.starts_with('=') || !yes.starts_with('-'),
            "{word}: {yes}"
        );
    }
    for word in ["pg-1", "pool:pg-1", "work", "lock:shop/1"] {
        let yes = text(&shop.ask(&["EXPLAIN", word]));
        assert!(!yes.starts_with('-'), "{word}: {yes}");
    }
}

#[test]
fn events_are_told_to_users_who_may_know_of_them() {
    let server = server();
    let (mut shop, mut ops) = (login(&server, "shop"), login(&server, "ops"));
    assert!(shop.say("SUBSCRIBE rideau:events:pool").starts_with('['));
    assert_eq!(ops.say("POOL.PAUSE secret"), "+OK");
    assert_eq!(ops.say("POOL.PAUSE pg-1"), "+OK");
    let told = shop.hear();
    assert!(told.contains("pg-1") && !told.contains("secret"), "{told}");
}

#[test]
fn strangers_neither_see_nor_end_what_the_operator_has() {
    let server = Server::start("[lock.\"*\"]\n");
    let (mut operator, mut stranger) = (server.operator(), server.stranger());
    let held = operator.say("LOCK k");
    let ticket = held
        .split(", ")
        .find(|word| word.starts_with("l-"))
        .unwrap();
    let session = operator.say("SESSION OPEN TTL 600000");
    let session = session.trim_matches(['[', ']']).split(", ").next().unwrap();
    let mut other = server.stranger();
    let own = other.say("LOCK mine");
    for line in ["SHOW HOLDERS", "SHOW SESSIONS", "SESSION LS"] {
        let said = stranger.say(line);
        assert!(!said.contains(ticket) && !said.contains(session), "{said}");
    }
    let said = stranger.say(&format!("RELEASE {ticket}"));
    assert!(
        said.starts_with("-STALE") || said.starts_with("-NO"),
        "{said}"
    );
    let said = stranger.say(&format!("SESSION ATTACH {session}"));
    assert!(said.starts_with('-'), "{said}");
    assert!(operator.say("SHOW HOLDERS").contains(ticket));
    // What strangers have belongs to all strangers.
    assert!(stranger.say("SHOW HOLDERS").contains("mine"));
    let own = own.split(", ").find(|word| word.starts_with("l-")).unwrap();
    assert_eq!(stranger.say(&format!("RELEASE {own}")), "+OK");
}

#[test]
fn strangers_do_not_hear_what_was_changed_or_who_logged_in() {
    let server = Server::start("[pool.p]\nmember = { list = [\"a\", \"b\"] }\n");
    let (mut operator, mut stranger) = (server.operator(), server.stranger());
    assert_eq!(operator.say("CONFIG SET pool.p.max 1"), "+OK");
    operator.say("POOL.PAUSE p");
    let seen = operator.say("SHOW EVENTS");
    assert!(seen.contains("pool.p.max"), "{seen}");
    let seen = stranger.say("SHOW EVENTS");
    assert!(!seen.contains("pool.p.max"), "{seen}");
    assert!(seen.contains("paused"), "{seen}");
}
