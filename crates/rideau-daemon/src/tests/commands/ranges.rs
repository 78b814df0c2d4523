//! Values of ranges, as a Redis client asks for them.

use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, rows, text};
use crate::tests::commands::server::Server;

pub(crate) const TEXT: &str = "\
[store]
kind = \"memory\"

[range.office]
values = [\"10.20.0.0/29\"]
skip = [\"10.20.0.0\"]
start = \"free\"
detach = \"1h\"

[range.guests]
values = [\"10.21.0.0-10.21.0.1\", \"2001:db8::/126\"]
start = \"free\"

[range.number]
values = [\"1-3\"]
start = \"free\"
hold = \"connection\"

[range.old]
values = [\"100-199\"]
";

/// The elements of an answer, as texts.
fn parts(value: &Value) -> Vec<String> {
    let Value::Array(parts) = value else {
        panic!("no array: {}", text(value));
    };
    parts.iter().map(text).collect()
}

pub(crate) fn ask(peer: &mut Peer, line: &str) -> Vec<String> {
    let words: Vec<_> = line.split(' ').collect();
    parts(&peer.ask(&words))
}

pub(crate) fn stat(peer: &mut Peer, range: &str, name: &str) -> String {
    let all = ask(peer, &format!("RANGE.STAT {range}"));
    let at = all.iter().position(|key| key == name).unwrap();
    all[at + 1].clone()
}

/// A value of a range: itself, its ticket and its fence.
pub(crate) fn reserve(peer: &mut Peer, line: &str) -> (String, String, String) {
    let got = ask(peer, line);
    assert_eq!(got[0], "go", "{line}: {got:?}");
    (got[1].clone(), got[2].clone(), got[6].clone())
}

#[test]
fn a_value_is_reserved_seen_renewed_and_given_back() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let got = ask(
        &mut peer,
        "RESERVE office TTL 3600000 KEY mac:aa DATA laptop-7",
    );
    assert_eq!(got.len(), 7);
    assert_eq!((got[0].as_str(), got[1].as_str()), ("go", "10.20.0.1"));
    assert!(got[2].starts_with("v-"), "{got:?}");
    let left: u64 = got[3].parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!((got[4].as_str(), got[5].as_str()), ("primary", "0"));
    let fence = &got[6];

    let seen = ask(&mut peer, "LOOKUP 10.20.0.1");
    assert_eq!(seen[0], "10.20.0.1");
    assert_eq!(seen[1], "[mac:aa]");
    assert_eq!(seen[2], "[data, laptop-7]");
    assert_eq!(seen[4..8], ["reserved", "rideau", fence, "office"]);
    let by_key = peer.ask(&["LOOKUP", "KEY", "mac:aa"]);
    assert_eq!(parts(&by_key).len(), 1);
    assert_eq!(peer.say("LOOKUP KEY nobody"), "[]");
    assert_eq!(ask(&mut peer, "LOOKUP 10.20.0.2")[4], "free");

    let renewed = ask(
        &mut peer,
        &format!("REFRESH 10.20.0.1 FENCE {fence} TTL 7200000"),
    );
    assert_eq!((renewed[0].as_str(), &renewed[2]), ("ok", fence));
    let left: u64 = renewed[1].parse().unwrap();
    assert!(left > 7_000_000, "{left}");
    let batch = format!("REFRESH {} TTL 9000 10.20.0.3 FENCE 1 KEY mac:aa", got[2]);
    let batch = ask(&mut peer, &batch);
    assert!(batch[0].starts_with("[ok, "), "{batch:?}");
    assert!(batch[1].starts_with("[notheld, NOTHELD "), "{batch:?}");
    assert!(
        batch[2].starts_with("[error, ERR "),
        "a key brings no fence: {batch:?}"
    );

    assert_eq!(peer.say(&format!("RELEASE 10.20.0.1 FENCE {fence}")), "+OK");
    assert_eq!(stat(&mut peer, "office", "free"), "7");
    let said = peer.say(&format!("RELEASE {}", got[2]));
    assert!(said.starts_with("-NOTHELD "), "it is free: {said}");
}

#[test]
fn what_is_advised_for_a_range_that_is_used_up_is_not_as_it_is() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(ask(&mut peer, "RESERVE number COUNT 3")[0], "go");
    let said = peer.say("EXPLAIN number");
    let advice = "RANGE.SET number ttl 30m, it is 1h now;";
    assert!(said.contains(advice), "{said}");
    assert_eq!(peer.say("RANGE.SET number ttl 90s"), "+OK");
    let said = peer.say("EXPLAIN number");
    let advice = "RANGE.SET number ttl 45s, it is 90s now;";
    assert!(said.contains(advice), "{said}");
}

#[test]
fn a_client_that_lost_a_value_cannot_touch_what_its_next_holder_has() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (value, old_ticket, old) = reserve(&mut peer, "RESERVE office TTL 60000");
    assert_eq!(peer.say(&format!("RELEASE {old_ticket}")), "+OK");
    let (again, ticket, new) = reserve(&mut peer, "RESERVE office TTL 60000");
    assert_eq!(value, again);
    assert!(old.parse::<u64>().unwrap() < new.parse::<u64>().unwrap());
    for line in [
        format!("RELEASE {value} FENCE {old}"),
        format!("RELEASE {old_ticket}"),
        format!("REFRESH {value} FENCE {old}"),
        format!("REFRESH {old_ticket}"),
        format!("UPDATE {value} FENCE {old} DATA mine"),
        format!("WRITE {old_ticket} DATA mine"),
        format!("CANCEL {value} FENCE {old}"),
    ] {
        let said = peer.say(&line);
        assert!(said.starts_with("-STALE "), "{line}: {said}");
    }
    let seen = ask(&mut peer, &format!("LOOKUP {value}"));
    assert_eq!((seen[2].as_str(), &seen[6]), ("[]", &new));
    assert_eq!(peer.say(&format!("RELEASE {ticket}")), "+OK");
}

#[test]
fn what_is_preferred_less_is_given_only_when_nothing_else_is_free() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let line = "RESERVE 10.21.0.0/31 PREFER 2001:db8::/127 PREFER office TTL 60000";
    let mut tiers = Vec::new();
    for _ in 0..5 {
        let got = ask(&mut peer, line);
        tiers.push(format!("{} {}", got[1], got[4]));
    }
    assert_eq!(
        tiers,
        [
            "10.21.0.0 primary",
            "10.21.0.1 primary",
            "2001:db8:: secondary",
            "2001:db8::1 secondary",
            "10.20.0.1 third"
        ]
    );
    let none = peer.say("RESERVE 10.21.0.0/31");
    let expected = "[none, 0, 2, 0 of 2 values are free, busy, nil, d-";
    assert!(none.starts_with(expected), "{none}");
    let hinted = ask(&mut peer, "RESERVE office HINT 10.20.0.5");
    assert_eq!(hinted[1], "10.20.0.5");
    let elsewhere = ask(&mut peer, "RESERVE office HINT 2001:db8::2");
    assert_eq!(elsewhere[1], "10.20.0.2", "a hint is no way around");
}

#[test]
fn several_are_had_at_once_or_none_unless_some_will_do() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let got = ask(&mut peer, "RESERVE office COUNT 5 TTL 60000");
    assert_eq!(got.len(), 6);
    assert!(got[5].starts_with("[10.20.0.5, v-"), "{got:?}");
    let none = peer.say("RESERVE office COUNT 5");
    assert!(none.starts_with("[none, 2, 7, "), "{none}");
    let some = ask(&mut peer, "RESERVE office COUNT 5 PARTIAL");
    assert_eq!(some.len(), 3, "{some:?}");
}

#[test]
fn a_repeated_ask_gets_the_same_answer() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for option in ["ID order-7", "UNIQUE serial:9"] {
        let line = format!("RESERVE office TTL 60000 {option}");
        let first = reserve(&mut peer, &line);
        assert_eq!(reserve(&mut peer, &line), first, "{option}");
        assert_eq!(reserve(&mut server.connect(), &line), first, "{option}");
    }
    assert_eq!(stat(&mut peer, "office", "reserved"), "2");
    let held = reserve(&mut peer, "RESERVE number ID mine");
    assert_eq!(reserve(&mut peer, "RESERVE number ID mine"), held);
    let mut other = server.connect();
    let moved = reserve(&mut other, "RESERVE number ID mine");
    assert_eq!((&moved.0, &moved.2), (&held.0, &held.2));
    drop(peer);
    until(|| other.say("HELD").contains(&moved.1));
    let seen = ask(&mut other, &format!("LOOKUP {}", moved.0));
    assert_eq!(seen[4], "reserved", "it went to the last ask");
}

#[test]
fn fields_are_merged_replaced_and_taken_away() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (value, ticket, _) = reserve(&mut peer, "RESERVE office SET port 7 SET switch a KEY k1");
    let told = peer.say(&format!(
        "UPDATE {ticket} SET port 8 UNSET switch DATA x KEY k2"
    ));
    assert!(
        told.ends_with(", reserved, [port, 7, switch, a]]"),
        "{told}"
    );
    let seen = ask(&mut peer, &format!("LOOKUP {value}"));
    assert_eq!(seen[1..3], ["[k1, k2]", "[port, 8, data, x]"]);
    peer.say(&format!("WRITE {ticket} DATA y"));
    let seen = ask(&mut peer, &format!("LOOKUP {value}"));
    assert_eq!(seen[1..3], ["[k1, k2]", "[data, y]"]);
    assert_eq!(seen[9], "2", "it was changed twice");

    let bulk = peer.say("RANGE.RELEASE FIELD data y");
    assert_eq!(bulk, "1");
    reserve(&mut peer, "RESERVE office KEY gw1:a");
    reserve(&mut peer, "RESERVE office KEY gw1:b");
    reserve(&mut peer, "RESERVE office KEY gw2:a");
    assert_eq!(peer.say("RANGE.RELEASE KEYPREFIX gw1:"), "2");
    assert_eq!(stat(&mut peer, "office", "reserved"), "1");
}

#[test]
fn a_certain_value_is_claimed_and_a_taken_one_is_not() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let got = ask(&mut peer, "CLAIM 10.20.0.4 TTL 60000 DATA printer");
    assert_eq!((got[0].as_str(), got[1].as_str()), ("go", "10.20.0.4"));
    assert_eq!(got[7], "free");
    assert_eq!(peer.say("CLAIM 10.20.0.4"), "[taken, reserved]");
    let told = ask(&mut peer, &format!("CANCEL {}", got[2]));
    assert_eq!(told[0], "ok");
    assert_eq!(ask(&mut peer, "LOOKUP 10.20.0.4")[4], "detached");
    assert_eq!(peer.say("CLAIM 10.20.0.4"), "[taken, detached]");
    assert_eq!(stat(&mut peer, "office", "detached"), "1");
    assert_eq!(peer.say("RELEASE 10.20.0.4"), "+OK");
    assert_eq!(stat(&mut peer, "office", "free"), "7");
}

#[test]
fn unknown_holders_are_waited_for_and_may_claim_their_values() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(stat(&mut peer, "old", "quarantined"), "100");
    let none = peer.say("RESERVE old");
    assert!(
        none.starts_with("[none, 0, 100, 100 are quarantined for "),
        "{none}"
    );
    assert!(none.contains(": EXPLAIN old says why, busy, "), "{none}");
    assert_eq!(ask(&mut peer, "LOOKUP 150")[4], "quarantined");
    let told = peer.say("WRITE 150 DATA mine TTL 60000");
    assert!(told.ends_with(", quarantined, []]"), "{told}");
    assert_eq!(stat(&mut peer, "old", "quarantined"), "99");
    assert_eq!(stat(&mut peer, "old", "reserved"), "1");
    let free = peer.say("WRITE 10.20.0.1 DATA mine");
    assert!(free.starts_with("-NOTHELD "), "{free}");
    let claimed = peer.say("WRITE 10.20.0.1 DATA mine CLAIM");
    assert!(claimed.ends_with(", free, []]"), "{claimed}");
}

/// What is wrong, and how it is told.
const WRONG: &[(&str, &str)] = &[
    (
        "RESERVE 99999",
        "-NOSUCH value \"99999\": it is outside every range",
    ),
    ("RESERVE offfice", "-NOSUCH range \"offfice\""),
    ("RESERVE office,", "-NOSUCH range \"\""),
    (
        "RESERVE 10.20.0.9-10.20.0.1",
        "-ERR \"10.20.0.9-10.20.0.1\" is not a set of values: the last value is before the first",
    ),
    (
        "RESERVE 10.20.0.1-7",
        "-ERR \"10.20.0.1-7\" is not a set of values",
    ),
    (
        "RESERVE 10.20.0.0/33",
        "-ERR \"10.20.0.0/33\" is not a set of values",
    ),
    (
        "RESERVE office TTL 0",
        "-ERR TTL takes milliseconds from 1 to",
    ),
    (
        "RESERVE office TTL 99999999999999",
        "-ERR TTL takes milliseconds from 1 to",
    ),
    (
        "RESERVE office TTL 9999999999",
        "-ERR TTL is over the range's ttl_max: it takes at most 2592000000 milliseconds",
    ),
    (
        "RESERVE office TTL soon",
        "-ERR TTL takes milliseconds, not \"soon\"",
    ),
    (
        "RESERVE office COUNT 0",
        "-ERR COUNT takes a number from 1 to 1024",
    ),
    (
        "RESERVE office COUNT 2000",
        "-ERR COUNT takes a number from 1 to 1024",
    ),
    (
        "RESERVE office COUNT 2 UNIQUE x",
        "-ERR a unique key or an id of its own goes with one",
    ),
    (
        "RESERVE office FENCE 3",
        "-ERR RESERVE does not know \"FENCE\"",
    ),
    (
        "RESERVE office NONSENSE",
        "-ERR RESERVE does not know \"NONSENSE\"",
    ),
    ("RESERVE office PREFER a PREFER b", "-NOSUCH range \"a\""),
    ("CLAIM 10.20.0.0", "-NOSUCH value \"10.20.0.0\""),
    ("CLAIM 77.7.7.7", "-NOSUCH value \"77.7.7.7\""),
    ("CLAIM nonsense", "-ERR \"nonsense\" is not a value"),
    (
        "CLAIM 10.20.0.2 UNIQUE mine",
        "-ERR another reservation has this key for itself",
    ),
    (
        "RELEASE 10.20.0.1",
        "-ERR \"10.20.0.1\": this range needs the fence",
    ),
    (
        "RELEASE 10.20.0.1 FENCE 1",
        "-STALE \"10.20.0.1\": another holder has it",
    ),
    ("RELEASE 4711", "-NOSUCH value \"4711\""),
    ("RELEASE v-1-1-000000000000000000000000", "-NOSUCH ticket"),
    (
        "RELEASE v-00000000000000000000000000000001",
        "-STALE ticket",
    ),
    (
        "REFRESH 10.20.0.2",
        "-NOTHELD \"10.20.0.2\": it is not held",
    ),
    ("REFRESH KEY nobody", "-NOTHELD \"nobody\""),
    ("UPDATE 10.20.0.2 DATA x", "-NOTHELD \"10.20.0.2\""),
    ("LOOKUP 4711", "-NOSUCH value \"4711\""),
    (
        "LOOKUP 340282366920938463463374607431768211456",
        "-ERR \"340282366920938463463374607431768211456\" is not a value",
    ),
    ("RANGE.STAT nothing", "-NOSUCH range \"nothing\""),
    ("RANGE.RELEASE KEYPREFIX", "-ERR wrong number of arguments"),
    (
        "RANGE.DEBUG 3601",
        "-ERR RANGE.DEBUG takes seconds from 0 to 3600",
    ),
];

#[test]
fn what_is_wrong_says_so_in_its_own_words_and_changes_nothing() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (_, _, fence) = reserve(&mut peer, "RESERVE office TTL 60000 UNIQUE mine");
    let keys = "KEY a KEY b KEY c KEY d KEY e KEY f KEY g KEY h KEY i KEY j KEY k KEY l KEY m \
                KEY n KEY o KEY p KEY q";
    let (long_key, data) = ("k".repeat(300), "d".repeat(65 * 1024));
    let before = peer.say("RANGE.STAT");
    let long = [
        (
            format!("RESERVE office {keys}"),
            "-ERR a reservation has at most 16 keys",
        ),
        (
            format!("RESERVE office KEY {long_key}"),
            "-ERR the key of a value has 1 to 288 bytes",
        ),
        (
            format!("RESERVE office DATA {data}"),
            "-ERR the data of a reservation has at most 65536 bytes",
        ),
        (
            format!("RESERVE office SET {long_key} x"),
            "-ERR the name of a field has 1 to 255 bytes",
        ),
    ];
    let long = long.iter().map(|(line, error)| (line.as_str(), *error));
    for (line, error) in WRONG.iter().copied().chain(long) {
        let said = peer.say(line);
        assert!(said.starts_with(error), "{line:.80}: {said}");
        assert!(said.ends_with(['.', '?']), "a sentence: {said}");
    }
    let nine = format!("RESERVE office{}", " PREFER office".repeat(8));
    let said = peer.say(&nine);
    assert!(
        said.starts_with("-ERR RESERVE takes at most 8 tiers"),
        "{said}"
    );
    assert_eq!(peer.say("RANGE.STAT"), before, "nothing has changed");
    let seen = ask(&mut peer, "LOOKUP 10.20.0.1");
    assert_eq!(seen[6], fence);
}

/// Look again until something is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it never became so");
}

#[test]
fn values_of_a_connection_go_with_it() {
    let server = Server::start(TEXT);
    let mut watcher = server.connect();
    let mut holder = server.connect();
    let (one, ticket, _) = reserve(&mut holder, "RESERVE number NOTE job-7");
    reserve(&mut holder, "RESERVE number");
    let held = holder.say("HELD");
    assert!(
        held.contains(&format!("[range, number, {ticket}, {one}, ")),
        "{held}"
    );
    let holders = watcher.ask(&["SHOW", "HOLDERS"]);
    assert_eq!(rows(&holders).len(), 2);
    assert_eq!(stat(&mut watcher, "number", "free"), "1");
    assert_eq!(holder.say(&format!("RELEASE {ticket}")), "+OK");
    let again = holder.say(&format!("RELEASE {ticket}"));
    assert!(again.starts_with("-STALE ticket"), "{again}");
    assert_eq!(stat(&mut watcher, "number", "free"), "2");
    drop(holder);
    until(|| stat(&mut watcher, "number", "free") == "3");

    let mut polite = server.connect();
    reserve(&mut polite, "RESERVE number");
    polite.say("QUIT");
    until(|| stat(&mut watcher, "number", "free") == "3");

    let mut member = server.connect();
    let session = ask(&mut member, "SESSION OPEN TTL 60000")[0].clone();
    let (value, ..) = reserve(&mut member, "RESERVE number");
    drop(member);
    assert_eq!(ask(&mut watcher, &format!("LOOKUP {value}"))[4], "reserved");
    assert_eq!(watcher.say(&format!("SESSION CLOSE {session}")), "1");
    until(|| stat(&mut watcher, "number", "free") == "3");
}

#[test]
fn a_value_of_a_connection_that_runs_out_is_forgotten_with_its_next_holder() {
    let server = Server::start(TEXT);
    let mut first = server.connect();
    // All at once: of one after another the third may have what the first lost.
    let got = ask(&mut first, "RESERVE number COUNT 3 TTL 1");
    assert_eq!(got[0], "go", "{got:?}");
    let mut second = server.connect();
    until(|| second.say("RESERVE number WAIT 1000").starts_with("[go, "));
    let held = first.ask(&["HELD"]);
    assert_eq!(parts(&held).len(), 2, "{held:?}");
    let (_, _, fence) = reserve(&mut second, "RESERVE number WAIT 5000");
    drop(first);
    // What the first had once is the second's, and stays so.
    until(|| rows(&second.ask(&["SHOW", "CLIENTS"])).len() == 1);
    assert!(second.say("RANGE.LS number").contains(&fence));
}

#[test]
fn a_waiting_ask_gets_what_is_given_back() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let mut tickets = Vec::new();
    for _ in 0..7 {
        tickets.push(reserve(&mut peer, "RESERVE office TTL 60000").1);
    }
    let none = ask(&mut peer, "RESERVE office WAIT 1");
    assert_eq!(none[..3], ["none", "0", "7"]);
    assert_eq!(none[4], "timeout", "{none:?}");
    let mut waiter = server.connect();
    waiter.send(&["RESERVE", "office", "WAIT", "20000"]);
    until(|| peer.say("INFO clients").contains("blocked_clients:1"));
    peer.say(&format!("RELEASE {}", tickets[3]));
    assert!(waiter.hear().starts_with("[go, 10.20.0.4, "));
}

#[test]
fn two_values_with_a_comma_are_the_values_between_them() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    // As in the config, without the second.
    for _ in 0..2 {
        let (value, ..) = reserve(&mut peer, "RESERVE 10.21.0.0,10.21.0.2");
        assert!(value.starts_with("10.21.0."), "{value}");
    }
    assert_eq!(ask(&mut peer, "RESERVE 10.21.0.0,10.21.0.2")[0], "none");
    let (value, ..) = reserve(&mut peer, "RESERVE 2,3");
    assert_eq!(value, "2");
    // Names and networks are still a list.
    let (value, ..) = reserve(&mut peer, "RESERVE 2,office");
    assert!(value.starts_with("10.20.0."), "{value}");
    let (value, ..) = reserve(&mut peer, "RESERVE 2-2,1");
    assert_eq!(value, "1");
    for (line, said) in [
        ("RESERVE 3,1", "the last value is before the first"),
        ("RESERVE 1,2,3", "can be read in two ways"),
    ] {
        let no = peer.say(line);
        assert!(no.contains(said), "{no}");
    }
}
