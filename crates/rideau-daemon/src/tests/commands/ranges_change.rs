//! Ranges themselves, as operators see and change them.

use rideau_resp::Value;

use crate::tests::commands::peer::{cell, text};
use crate::tests::commands::ranges::{TEXT, ask, reserve, stat};
use crate::tests::commands::server::Server;

#[test]
fn ranges_come_grow_drain_and_go_and_the_config_knows() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let keys = "values = [\"5000-5001\"]\nstart = \"free\"";
    assert_eq!(text(&peer.ask(&["RANGE.ADD", "more", keys])), "+OK");
    let there = text(&peer.ask(&["RANGE.ADD", "more", keys]));
    assert!(
        there.starts_with("-ERR there is a range more already"),
        "{there}"
    );
    let (value, ticket, _) = reserve(&mut peer, "RESERVE more TTL 60000");
    assert_eq!(value, "5000");
    let grown = peer.ask(&[
        "RANGE.SET",
        "more",
        "VALUES",
        "[\"5000-5003\"]",
        "TTL",
        "5m",
    ]);
    assert_eq!(text(&grown), "+OK");
    assert_eq!(stat(&mut peer, "more", "size"), "4");
    let less = peer.ask(&["RANGE.SET", "more", "VALUES", "[\"5002-5003\"]"]);
    assert_eq!(text(&less), "+OK");
    assert_eq!(
        ask(&mut peer, "LOOKUP 5000")[4],
        "reserved",
        "no holder loses one"
    );
    let overlap = text(&peer.ask(&["RANGE.ADD", "twice", "values = [\"5003\"]"]));
    assert!(overlap.contains("has values of range `more`"), "{overlap}");

    let held = peer.say("RANGE.REMOVE more");
    assert!(
        held.starts_with("-ERR 1 values of range more are held"),
        "{held}"
    );
    assert_eq!(peer.say("RANGE.DRAIN more"), "+OK");
    assert_eq!(stat(&mut peer, "more", "draining"), "1");
    assert!(peer.say("RESERVE more").starts_with("-NOSUCH range"));
    let back = peer.say("CONFIG ROLLBACK");
    assert!(back.contains("the range is draining"), "{back}");
    assert_eq!(peer.say(&format!("RELEASE {ticket}")), "+OK");
    assert!(peer.say("RANGE.STAT more").starts_with("-NOSUCH range"));
    assert!(peer.say("CONFIG ROLLBACK").contains("range.more"));
    assert_eq!(stat(&mut peer, "more", "size"), "2");
    assert_eq!(peer.say("RANGE.REMOVE more"), "+OK");
}

#[test]
fn a_config_counts_as_a_whole_or_not_at_all() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (value, ..) = reserve(&mut peer, "RESERVE office TTL 60000");
    // Two ranges change their values with each other at once.
    let swapped = TEXT
        .replace("10.21.0.0-10.21.0.1", "X")
        .replace("10.20.0.0/29", "10.21.0.0-10.21.0.1")
        .replace("skip = [\"10.20.0.0\"]\n", "")
        .replace('X', "10.20.0.2-10.20.0.7");
    assert!(peer.ask(&["CONFIG", "APPLY", &swapped]) != Value::Null);
    assert_eq!(stat(&mut peer, "guests", "size"), "10");
    assert_eq!(ask(&mut peer, &format!("LOOKUP {value}"))[4], "reserved");
    let plan = text(&peer.ask(&["CONFIG", "PLAN", TEXT]));
    assert!(plan.contains("range.office.values"), "{plan}");
    let bad = swapped.replace("hold = \"connection\"", "hold = \"conection\"");
    let said = text(&peer.ask(&["CONFIG", "APPLY", &bad]));
    assert!(
        said.contains("`hold` cannot be \"conection\"; did you mean \"connection\"?"),
        "{said}"
    );
    assert_eq!(stat(&mut peer, "guests", "size"), "10");
}

#[test]
fn rights_hold_for_ranges() {
    let text = format!(
        "{TEXT}
[user.default]
uids = [1]
allow = [\"@all\"]
[user.dhcp]
password = '{}'
allow = [\"reserve\", \"lookup\"]
on = [\"range:office\"]
",
        hash("secret")
    );
    let server = Server::start(&text);
    let mut peer = server.connect();
    assert!(peer.say("RESERVE office").starts_with("-NOAUTH"));
    assert_eq!(peer.say("AUTH dhcp secret"), "+OK");
    let (value, ..) = reserve(&mut peer, "RESERVE office KEY mine");
    for (line, error) in [
        (
            "RESERVE guests",
            "-NOPERM user dhcp may not use range guests",
        ),
        (
            "RESERVE office PREFER guests",
            "-NOPERM user dhcp may not use range guests",
        ),
        (
            "RESERVE 10.20.0.0-10.21.0.1",
            "-NOPERM user dhcp may not use \"10.20.0.0-10.21.0.1\"",
        ),
        (
            "LOOKUP 2001:db8::",
            "-NOPERM user dhcp may not use \"2001:db8::\"",
        ),
        (
            "REFRESH 10.20.0.1",
            "-NOPERM user dhcp may not use REFRESH: add \"update\"",
        ),
        ("RELEASE 10.20.0.1", "-ERR "),
        (
            "RELEASE 10.21.0.1",
            "-NOPERM user dhcp may not use \"10.21.0.1\"",
        ),
        (
            "RANGE.DRAIN office",
            "-NOPERM user dhcp may not use RANGE.DRAIN: add \"range\"",
        ),
    ] {
        let said = peer.say(line);
        assert!(said.starts_with(error), "{line}: {said}");
    }
    assert_eq!(ask(&mut peer, &format!("LOOKUP {value}"))[4], "reserved");
}

fn hash(password: &str) -> String {
    let hash = rideau_config::password::Hash::of(password.as_bytes());
    hash.unwrap().as_str().to_owned()
}

#[test]
fn operators_see_ranges_in_all_the_usual_places() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (value, ticket, fence) = reserve(&mut peer, "RESERVE office TTL 60000 KEY k");
    let table = peer.ask(&["SHOW", "RANGES", "office"]);
    for (column, wanted) in [
        ("name", "office"),
        ("base", "10.20.0.0"),
        ("used", "14 %"),
        ("free", "6"),
        ("reserved", "1"),
        ("given", "1"),
        ("class", "memory"),
        ("hold", "lease"),
        ("state", "ok"),
    ] {
        assert_eq!(cell(&table, 0, column), wanted, "{column}");
    }
    let info = peer.say("INFO ranges");
    assert!(info.contains("range_office:base=10.20.0.0,"), "{info}");
    assert!(info.contains("range_store:memory"), "{info}");
    for word in [value.as_str(), &ticket] {
        let said = peer.say(&format!("EXPLAIN {word}"));
        let wanted = format!("{value} of range office is reserved with the fence {fence}");
        assert!(said.contains(&wanted), "{said}");
    }
    assert!(
        peer.say("EXPLAIN office")
            .contains("has 7 values from 10.20.0.0 on: 6 are free")
    );
    assert!(
        peer.say("EXPLAIN 10.20.0.3")
            .contains("is free: it is not held")
    );
    let page = ask(&mut peer, "RANGE.LS office COUNT 10");
    assert!(
        page[1].starts_with(&format!("[[{value}, office, reserved, ")),
        "{page:?}"
    );
    assert!(peer.say("RANGE.MEM").contains("records, 1, record_bytes, "));
    let limits = peer.ask(&["SHOW", "LIMITS", "reservations_max"]);
    assert_eq!(cell(&limits, 0, "now"), "1");
    assert_eq!(peer.say("RANGE.DEBUG 1"), "+OK");
}

#[test]
fn limits_turn_away_and_are_counted() {
    let text = format!(
        "[limits]\nreservations_max = 1\nranges_max = 4\nrange_keys_max = 1\n\
         range_data_max = \"10B\"\n{TEXT}"
    );
    let server = Server::start(&text);
    let mut peer = server.connect();
    reserve(&mut peer, "RESERVE office TTL 60000");
    for (words, error, name) in [
        (
            vec!["RESERVE", "office"],
            "-BUSY limits.reservations_max (1) reached",
            "reservations_max",
        ),
        (
            vec!["RANGE.ADD", "x", "values = [\"9\"]"],
            "-BUSY limits.ranges_max",
            "ranges_max",
        ),
        (
            vec!["CLAIM", "10.20.0.3", "KEY", "a", "KEY", "b"],
            "-ERR a reservation has at most 1 keys",
            "range_keys_max",
        ),
        (
            vec!["CLAIM", "10.20.0.3", "DATA", "elevenbytes"],
            "-ERR the data of a reservation has at most 10 bytes",
            "range_data_max",
        ),
    ] {
        let said = crate::tests::commands::peer::text(&peer.ask(&words));
        assert!(said.starts_with(error), "{words:?}: {said}");
        let limits = peer.ask(&["SHOW", "LIMITS", name]);
        assert_eq!(cell(&limits, 0, "refused"), "1", "{name}");
    }
}

#[test]
fn what_happens_to_values_is_told_to_watchers() {
    let server = Server::start(TEXT);
    let mut watcher = server.connect();
    let mut peer = server.connect();
    assert_eq!(
        watcher.say("RANGE.WATCH office"),
        "[subscribe, rideau:ranges:office, 1]"
    );
    assert_eq!(
        watcher.say("SUBSCRIBE rideau:ranges:guests"),
        "[subscribe, rideau:ranges:guests, 2]"
    );
    reserve(&mut peer, "RESERVE number");
    let (_, ticket, fence) = reserve(&mut peer, "RESERVE office TTL 60000");
    peer.say(&format!("RELEASE {ticket}"));
    for what in ["reserved", "released"] {
        let heard = watcher.hear();
        assert!(
            heard.starts_with("[message, rideau:ranges:office, {"),
            "{heard}"
        );
        assert!(heard.contains(&format!("\"what\":\"{what}\"")), "{heard}");
        assert!(heard.contains("\"value\":\"10.20.0.1\""), "{heard}");
        assert!(heard.contains(&format!("\"fence\":{fence}")), "{heard}");
    }
}
