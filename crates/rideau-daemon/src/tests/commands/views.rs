//! Views: values of whatever ranges that are counted under one name.

use std::fs;

use rideau_config::password::Hash;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::ranges::{ask, reserve, stat, until};
use crate::tests::commands::server::Server;

/// Between the two ranges of addresses four belong to none.
const TEXT: &str = "\
[store]
kind = \"memory\"

[range.office]
values = [\"10.20.0.0-10.20.0.7\"]
start = \"free\"

[range.guests]
values = [\"10.20.0.12-10.20.0.19\"]
start = \"free\"

[range.old]
values = [\"100-109\"]

[view.floor]
values = [\"10.20.0.0/28\", \"10.20.0.4-10.20.0.13\"]

[view.archive]
values = [\"103-106\", \"100-104\", \"900\"]
";

/// What a view or a range counts: size, free, quarantined, held.
fn counted(peer: &mut Peer, name: &str) -> [u64; 4] {
    let all = ask(peer, &format!("RANGE.COUNT {name}"));
    let number = |state| {
        let at = all.iter().position(|key| key == state).unwrap();
        all[at + 1].parse().unwrap()
    };
    ["size", "free", "quarantined", "held"].map(number)
}

#[test]
fn a_view_counts_over_two_ranges_and_the_hole_between_them() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(
        peer.say("RANGE.COUNT floor"),
        "[base, 10.20.0.0, size, 12, free, 12, quarantined, 0, held, 0]"
    );
    let (_, first, _) = reserve(&mut peer, "RESERVE office TTL 60000");
    let (_, second, _) = reserve(&mut peer, "RESERVE 10.20.0.5 TTL 60000");
    reserve(&mut peer, "RESERVE 10.20.0.13 TTL 60000");
    // The view does not count this one: the range goes further than the view.
    reserve(&mut peer, "RESERVE 10.20.0.19 TTL 60000");
    assert_eq!(counted(&mut peer, "floor"), [12, 9, 0, 3]);
    assert_eq!(peer.say(&format!("RELEASE {first}")), "+OK");
    assert_eq!(counted(&mut peer, "floor"), [12, 10, 0, 2]);
    // A value that lost its holder has had one.
    assert!(peer.say(&format!("CANCEL {second}")).starts_with("[ok"));
    assert_eq!(stat(&mut peer, "office", "detached"), "1");
    assert_eq!(counted(&mut peer, "floor"), [12, 10, 0, 2]);
}

#[test]
fn a_view_counts_what_is_quarantined_until_it_is_held() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(counted(&mut peer, "archive"), [7, 0, 7, 0]);
    let adopted = ask(&mut peer, "WRITE 104 TTL 60000");
    assert_eq!(adopted[0], "ok", "{adopted:?}");
    assert_eq!(counted(&mut peer, "archive"), [7, 0, 6, 1]);
    assert_eq!(
        peer.say(&format!("RELEASE 104 FENCE {}", adopted[2])),
        "+OK"
    );
    assert_eq!(counted(&mut peer, "archive"), [7, 1, 6, 0]);
}

#[test]
fn a_range_is_counted_by_its_name_and_a_view_is_seen_by_it() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    reserve(&mut peer, "RESERVE guests TTL 60000");
    assert_eq!(counted(&mut peer, "guests"), [8, 7, 0, 1]);
    let wanted = "[name, floor, base, 10.20.0.0, size, 12, free, 11, quarantined, 0, held, 1]";
    assert_eq!(peer.say("RANGE.INFO floor"), wanted);
    assert_eq!(peer.say("RANGE.STAT floor"), wanted);
    assert_eq!(
        peer.say("RANGE.INFO guests"),
        peer.say("RANGE.STAT guests"),
        "of a range it is what it was"
    );
    assert!(!peer.say("RANGE.STAT").contains("floor"));
}

#[test]
fn nothing_can_be_had_of_a_view_and_nothing_ends_with_it() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let before = peer.say("RANGE.STAT");
    let refused = "-ERR floor is a view, which only counts: name a range";
    for line in [
        "RESERVE floor",
        "RESERVE office,floor",
        "RESERVE office PREFER floor",
        "RESERVE floor WAIT 1000",
        "RESERVE floor ASYNC",
        "RANGE.DRAIN floor",
        "RANGE.REMOVE floor",
        "RANGE.SET floor TTL 5m",
        "RANGE.LS floor",
        "RANGE.WATCH floor",
        "RANGE.RELEASE KEYPREFIX k IN floor",
    ] {
        let said = peer.say(line);
        assert!(said.starts_with(refused), "{line}: {said}");
    }
    for (line, error) in [
        ("RANGE.COUNT nothing", "-NOSUCH range \"nothing\""),
        ("RANGE.INFO nothing", "-NOSUCH range \"nothing\""),
        ("RANGE.COUNT 9-1", "-ERR \"9-1\" is not a set of values"),
        ("RANGE.INFO", "-ERR wrong number of arguments"),
        ("RANGE.COUNT floor more", "-ERR"),
    ] {
        let said = peer.say(line);
        assert!(said.starts_with(error), "{line}: {said}");
    }
    let taken = text(&peer.ask(&["RANGE.ADD", "floor", "values = [\"7000\"]"]));
    assert!(taken.contains("`floor` has the name of a range"), "{taken}");
    assert_eq!(peer.say("RANGE.STAT"), before, "nothing has changed");
}

#[test]
fn a_reload_changes_adds_and_removes_views_and_no_holder_is_affected() {
    let server = Server::of_file(TEXT);
    let mut peer = server.connect();
    let (value, ticket, _) = reserve(&mut peer, "RESERVE office TTL 60000");
    let text = TEXT
        .replace(
            "\"10.20.0.0/28\", \"10.20.0.4-10.20.0.13\"",
            "\"10.20.0.0/31\"",
        )
        .replace("view.archive", "view.stairs");
    let plan = crate::tests::commands::peer::text(&peer.ask(&["CONFIG", "PLAN", &text]));
    for path in ["view.archive", "view.stairs", "view.floor.values"] {
        assert!(plan.contains(path), "no {path} in {plan}");
    }
    let means = "It only counts: no value and no holder is affected.";
    assert_eq!(plan.matches(means).count(), 3, "{plan}");
    fs::write(server.file(), &text).unwrap();
    let reloaded = peer.say("CONFIG RELOAD");
    assert!(reloaded.contains("view.stairs"), "{reloaded}");
    assert_eq!(counted(&mut peer, "floor"), [2, 1, 0, 1]);
    assert_eq!(counted(&mut peer, "stairs"), [7, 0, 7, 0]);
    assert!(peer.say("RANGE.COUNT archive").starts_with("-NOSUCH"));
    assert_eq!(ask(&mut peer, &format!("LOOKUP {value}"))[4], "reserved");
    assert_eq!(peer.say(&format!("RELEASE {ticket}")), "+OK");
    assert_eq!(counted(&mut peer, "floor"), [2, 2, 0, 0]);
}

#[test]
fn a_view_is_set_and_read_as_any_other_key() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let path = "view.floor.values";
    let seen = peer.say(&format!("CONFIG GET {path}"));
    assert!(seen.contains("[\"10.20.0.0/28\", "), "{seen}");
    peer.ask(&["CONFIG", "SET", path, "[\"10.20.0.0\"]"]);
    assert_eq!(counted(&mut peer, "floor"), [1, 1, 0, 0]);
    let reversed = text(&peer.ask(&["CONFIG", "SET", path, "[\"10.20.0.9-10.20.0.1\"]"]));
    assert!(reversed.contains("the last value is before"), "{reversed}");
    assert_eq!(counted(&mut peer, "floor"), [1, 1, 0, 0]);
    let limits = peer.ask(&["SHOW", "LIMITS", "views_max"]);
    assert_eq!(cell(&limits, 0, "max"), "256");
    assert_eq!(cell(&limits, 0, "now"), "2");
}

#[test]
fn a_view_goes_on_counting_when_its_ranges_come_and_go() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let keys = "values = [\"10.20.0.8-10.20.0.11\"]\nstart = \"free\"";
    assert_eq!(text(&peer.ask(&["RANGE.ADD", "hole", keys])), "+OK");
    assert_eq!(counted(&mut peer, "floor"), [16, 16, 0, 0]);
    for range in ["hole", "office", "guests"] {
        assert_eq!(peer.say(&format!("RANGE.REMOVE {range}")), "+OK");
    }
    until(|| counted(&mut peer, "floor") == [0; 4]);
    let table = peer.ask(&["SHOW", "VIEWS", "floor"]);
    assert_eq!(cell(&table, 0, "used"), "0 %");
}

#[test]
fn views_are_shown_as_a_table() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for _ in 0..3 {
        reserve(&mut peer, "RESERVE office TTL 60000");
    }
    let table = peer.ask(&["SHOW", "VIEWS"]);
    assert_eq!(
        rows(&table),
        [
            "[archive, 103-106 100-104 900, 7, 0, 7, 0, 100 %]",
            "[floor, 10.20.0.0/28 10.20.0.4-10.20.0.13, 12, 9, 0, 3, 25 %]",
        ]
    );
    for (column, wanted) in [("quarantined", "7"), ("held", "0"), ("used", "100 %")] {
        assert_eq!(cell(&table, 0, column), wanted, "{column}");
    }
    assert_eq!(rows(&peer.ask(&["SHOW", "VIEWS", "nothing"])).len(), 0);
}

#[test]
fn a_user_who_may_use_all_ranges_of_a_view_may_count_it_and_no_other_sees_it() {
    let hash = Hash::of(b"secret").unwrap();
    let text = format!(
        "{TEXT}
[user.clerk]
password = '{}'
allow = [\"show\", \"reserve\"]
on = [\"range:office\", \"range:old\"]
",
        hash.as_str()
    );
    let server = Server::start(&text);
    let mut peer = server.connect();
    assert!(peer.say("RANGE.COUNT archive").starts_with("-NOAUTH"));
    assert_eq!(peer.say("AUTH clerk secret"), "+OK");
    assert_eq!(counted(&mut peer, "archive"), [7, 0, 7, 0]);
    for (line, name) in [
        ("RANGE.COUNT floor", "floor"),
        ("RANGE.INFO floor", "floor"),
        ("RANGE.INFO nothing", "nothing"),
        ("RANGE.COUNT guests", "guests"),
    ] {
        let said = peer.say(line);
        let no = format!("-NOPERM user clerk may not use range {name}: ");
        assert!(said.starts_with(&no), "{line}: {said}");
    }
    let seen = rows(&peer.ask(&["SHOW", "VIEWS"]));
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].starts_with("[archive, "), "{seen:?}");
}
