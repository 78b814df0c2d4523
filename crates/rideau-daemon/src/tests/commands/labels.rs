//! Everything that a client names has a length and an alphabet.

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

const TEXT: &str = r#"
[pool.brought]
[pool.cad]
member = { list = ["A"] }
[broker.work]
[regulator.crew]
valve = { kind = "open", max = 9 }
[lock."*"]
[store]
kind = "memory"
[range.lab]
values = ["1-9"]
start = "free"
"#;

/// Every place of a name, with `?` for the name.
const PLACES: &[&str] = &[
    "LOCK ?",
    "LOCK k NOTE ?",
    "LOCK k ID ?",
    "TAKE cad NOTE ?",
    "TAKE cad ID ?",
    "TAKE cad FLOW ?",
    "ASK work NB FLOW ?",
    "OFFER work NB ID ?",
    "REG.ASK crew NOTE ?",
    "POOL.OFFER brought ?",
    "RESERVE lab KEY ?",
    "RESERVE lab UNIQUE ?",
    "RESERVE lab ID ?",
    "RESERVE lab SET ? content",
    "RESERVE lab NOTE ?",
    "CLAIM 5 KEY ?",
    "UPDATE 9 SET ? content",
    "UPDATE 9 UNSET ?",
    "UPDATE 9 KEY ?",
    "WRITE 9 UNIQUE ?",
    "SESSION OPEN NAME ?",
    "CLIENT SETNAME ?",
    "CLIENT SETINFO LIB-NAME ?",
    "CLIENT SETINFO LIB-VER ?",
    "HELLO 2 SETNAME ?",
    "HELLO 2 AUTH ? secret",
    "AUTH ? secret",
    "SUBSCRIBE rideau:events:pool:?",
    "PSUBSCRIBE ?",
    "LOCK.STAT ?",
    "TAKE ?",
    "TAKE @?",
    "POOL.OFFER ? value",
    "POOL.ADD ? max=1",
    "POOL.DEL ?",
    "POOL.SET ? MAX 1",
    "POOL.PAUSE ?",
    "POOL.RESUME ?",
    "POOL.RECYCLE ?",
    "POOL.STAT ?",
    "POOL.LOAD ?",
    "ASK ? NB",
    "OFFER ? NB",
    "LEN ?",
    "REG.ASK ?",
    "REG.UPDATE ? 1",
    "APP.GET ?",
    "APP.STAT ?",
    "APP.LOG ?",
    "APP.RESTART ?",
    "APP.SET ? MAX 1",
    "APP.SPAWN ?",
    "APP.TRIAL ? ACCEPT",
    "RESERVE ?",
    "RESERVE lab,?",
    "RESERVE lab PREFER ?",
    "RANGE.ADD ? values=[\"20\"]",
    "RANGE.SET ? TTL 1s",
    "RANGE.DRAIN ?",
    "RANGE.REMOVE ?",
    "RANGE.STAT ?",
    "RANGE.INFO ?",
    "RANGE.COUNT ?",
    "RANGE.LS ?",
    "RANGE.WATCH ?",
    "RANGE.RELEASE KEYPREFIX a IN ?",
];

fn ask(peer: &mut Peer, place: &str, name: &str) -> Value {
    let place: Vec<_> = place.split(' ').collect();
    let words: Vec<_> = place.iter().map(|word| word.replace('?', name)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    peer.ask(&words)
}

#[test]
fn no_name_is_long_or_has_control_characters() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("CLAIM 9");
    let long = "x".repeat(100_000);
    for place in PLACES {
        for bad in [
            "a\nINFO forged",
            "a\r\nb",
            "\u{1b}[2Ja",
            "a\u{0}",
            "\u{7f}",
            "\u{9b}31m",
            "a\u{2028}b",
            "a\u{202e}b",
            &long,
        ] {
            let said = text(&ask(&mut peer, place, bad));
            let is_said = said.contains(" bytes") && said.contains("without");
            assert!(
                said.starts_with("-ERR ") && is_said && said.len() < 300,
                "{place} {bad:?}: {said}"
            );
        }
    }
    assert_eq!(peer.say("HELD"), "[]");
    let shown = text(&peer.ask(&["SHOW", "SESSIONS"]));
    assert_eq!(shown.matches('[').count(), 2, "{shown}");
}

#[test]
fn a_config_names_nothing_that_a_client_could_not_say() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for kind in ["pool", "broker", "lock", "user"] {
        let config = format!("{TEXT}[{kind}.\"a\u{202e}b\"]\n");
        let said = text(&peer.ask(&["CONFIG", "APPLY", &config]));
        assert!(said.contains("letters that names cannot have"), "{said}");
    }
}

#[test]
fn no_name_makes_a_long_event() {
    let hash = Hash::of(b"secret").unwrap();
    let config = format!(
        "[user.anna]\npassword = '{}'\nallow = [\"@all\", \"@admin\"]\non = [\"pool:a\"]\n{TEXT}",
        hash.as_str()
    );
    let server = Server::start(&config);
    let mut anna = server.connect();
    anna.say("AUTH anna secret");
    let long = "x".repeat(1 << 19);
    for place in [
        "TAKE ?",
        "APP.GET ?",
        "POOL.STAT ?",
        "RESERVE ?",
        "POOL.SET a ? 1",
    ] {
        ask(&mut anna, place, &long);
    }
    anna.ask(&["CONFIG", "SET", &format!("pool.cad.{long}"), "1"]);
    for event in server.daemon.events.newest(100) {
        assert!(event.text.len() < 8192, "{} bytes", event.text.len());
    }
}

#[test]
fn names_that_clients_have_are_good() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for (place, name) in [
        ("LOCK ?", "tenant/42:größe 日本"),
        ("LOCK a NOTE ?", "nightly export, 3 of 7"),
        ("LOCK b ID ?", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        ("TAKE cad FLOW ?", "10.0.0.7"),
        ("CLIENT SETNAME ?", "orders@web-1"),
        ("CLIENT SETNAME ?", ""),
        ("CLIENT SETINFO LIB-NAME ?", "redis-py(abc_v1)"),
        (
            "CLIENT SETINFO LIB-NAME ?",
            "jedis(spring-data-redis_v3.2.0;lettuce)",
        ),
        ("CLIENT SETINFO LIB-VER ?", "6.4.0-beta+1"),
        ("RESERVE lab KEY ?", "aa:bb:cc:dd:ee:ff|1"),
        ("RESERVE lab SET ? x", "größe in m"),
        ("SESSION OPEN NAME ?", "Anna's job"),
    ] {
        let said = text(&ask(&mut peer, place, name));
        assert!(!said.starts_with('-'), "{place} {name}: {said}");
    }
}

#[test]
fn payloads_are_any_bytes() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let odd = "a\r\n\u{1b}[2J\u{0}b";
    let said = text(&peer.ask(&["RESERVE", "lab", "DATA", odd, "SET", "f", odd]));
    let value = said
        .strip_prefix("[go, ")
        .and_then(|rest| rest.split(',').next());
    let value = value.unwrap_or_else(|| panic!("{said}"));
    let seen = text(&peer.ask(&["LOOKUP", value]));
    assert_eq!(seen.matches(odd).count(), 2, "{seen:?}");
    peer.send(&["ASK", "work", "VALUE", odd, "WAIT", "20000"]);
    let met = text(&other.ask(&["OFFER", "work", "WAIT", "20000"]));
    assert!(met.contains(odd), "{met:?}");
    // A table shows them in one line.
    let shown = text(&other.ask(&["SHOW", "HOLDERS"]));
    assert!(shown.contains("a\\r\\n\\u{1b}[2J\\u{0}b"), "{shown:?}");
}
