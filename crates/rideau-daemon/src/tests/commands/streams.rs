//! Rights are looked up when something is sent: streams and commands that wait follow
//! users that change.

use std::time::{Duration, Instant};

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;
use crate::tests::commands::users::{hash, login};

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const OPS: &str = "allow = [\"@admin\"]";

/// A config in which `anna` may do this, besides `ops`.
fn config(anna: Option<&str>) -> String {
    let user =
        |name: &str, keys: &str| format!("[user.{name}]\npassword = '{}'\n{keys}\n\n", hash());
    let mut all = user("ops", OPS) + &user("bert", "allow = [\"lock\", \"subscribe\"]");
    if let Some(keys) = anna {
        all += &user("anna", keys);
    }
    all + r#"
[pool.cad]
member = { list = ["A"] }
queue = { kind = "never" }

[pool.other]
member = { list = ["A"] }

[broker.work]
asks = { kind = "never" }

[regulator.crew]
valve = { kind = "open", max = 1 }
queue = { kind = "never" }

[lock."*"]
queue = { kind = "never" }

[store]
kind = "memory"

[range.office]
values = ["1-2"]
start = "free"

[range.lab]
values = ["11-12"]
start = "free"
"#
}

fn apply(ops: &mut Peer, anna: Option<&str>) {
    let said = text(&ops.ask(&["CONFIG", "APPLY", &config(anna)]));
    assert!(!said.starts_with('-'), "{said}");
}

const ALL: &str = "allow = [\"@all\", \"@admin\"]";
const LITTLE: &str = "allow = [\"info\"]";

#[test]
fn a_stream_of_a_user_who_may_not_watch_any_more_ends_at_once_and_says_so() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let server = Server::start(&config(Some(ALL)));
        let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
        anna.say(hello);
        let sign = if hello == "HELLO 3" { ">" } else { "" };
        anna.say("SUBSCRIBE rideau:events:pool");
        anna.say("RANGE.WATCH");
        anna.say("PSUBSCRIBE rideau:events:config:*");
        // Nothing is asked from here on, and nothing else happens.
        apply(&mut ops, Some(LITTLE));
        let mut heard = anna.hear();
        // The event of the change itself came while it might be seen, or not at all.
        if heard.contains("\"kind\"") {
            heard = anna.hear();
        }
        assert_eq!(
            heard,
            format!(
                "{sign}[message, rideau:events:pool, {{\"error\":\"NOPERM user anna may not use \
                 SUBSCRIBE: add \\\"subscribe\\\" to its allow list.\"}}]"
            )
        );
        let unsubscribed = format!("{sign}[unsubscribe, rideau:events:pool, 2]");
        assert_eq!(anna.hear(), unsubscribed);
        let unsubscribed = format!("{sign}[unsubscribe, rideau:ranges, 1]");
        assert_eq!(anna.hear(), unsubscribed);
        let unsubscribed = format!("{sign}[punsubscribe, rideau:events:config:*, 0]");
        assert_eq!(anna.hear(), unsubscribed);
        ops.say("POOL.PAUSE cad");
        ops.say("RESERVE office");
        assert_eq!(anna.say("PING"), "+PONG");
        // Its tasks end in their own time.
        while server.daemon.events.watchers() != 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stream_goes_silent_for_what_its_user_may_not_see_any_more() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    anna.say("SUBSCRIBE rideau:events:pool");
    anna.say("RANGE.WATCH");
    ops.say("POOL.PAUSE other");
    assert!(anna.hear().contains("pool other was paused"));
    let narrow = format!("{ALL}\non = [\"pool:cad\", \"range:lab\"]");
    apply(&mut ops, Some(&narrow));
    ops.say("POOL.RESUME other");
    ops.say("RESERVE office");
    ops.say("POOL.PAUSE cad");
    assert!(anna.hear().contains("pool cad was paused"));
    ops.say("RESERVE lab");
    assert!(anna.hear().contains("\"range\":\"lab\""));
    // And it sees more as soon as it may.
    apply(&mut ops, Some(ALL));
    ops.say("POOL.PAUSE other");
    assert!(anna.hear().contains("pool other was paused"));
}

#[test]
fn a_stream_of_one_range_ends_with_the_right_to_use_it() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    anna.say("RANGE.WATCH office");
    anna.say("RANGE.WATCH lab");
    apply(&mut ops, Some(&format!("{ALL}\non = [\"range:lab\"]")));
    let heard = anna.hear();
    let begin = "[message, rideau:ranges:office, {\"error\":\"NOPERM user anna may not use range";
    assert!(heard.starts_with(begin), "{heard}");
    assert_eq!(anna.hear(), "[unsubscribe, rideau:ranges:office, 1]");
    ops.say("RESERVE office");
    ops.say("RESERVE lab");
    assert!(anna.hear().contains("\"range\":\"lab\""));
}

#[test]
fn a_monitor_sees_nothing_after_its_user_may_not() {
    let narrow = format!("{ALL}\non = [\"pool:cad\"]");
    let (no, not_all) = (
        "-NOPERM user anna may not use MONITOR: add \"monitor\" to its allow list.",
        "-NOPERM user anna may not use all commands of others: that takes \"*\" on its on list.",
    );
    for (less, no) in [("allow = [\"@all\"]", no), (&narrow, not_all)] {
        let server = Server::start(&config(Some(ALL)));
        let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
        assert_eq!(anna.say("MONITOR"), "+OK");
        apply(&mut ops, Some(less));
        let mut heard = anna.hear();
        if heard.contains("\"CONFIG\"") {
            heard = anna.hear();
        }
        assert_eq!(heard, no);
        ops.say("PING");
        assert_eq!(anna.say("PING"), "+PONG");
        while server.daemon.clients.is_monitored() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_was_asked_by_a_user_with_another_password_is_refused() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    ops.say("LOCK k");
    anna.say("HELLO 3");
    assert!(anna.say("LOCK k WAIT 30000 ASYNC").contains("await"));
    let other = Hash::of(b"other").unwrap();
    let set = ["CONFIG", "SET", "user.anna.password", other.as_str()];
    assert_eq!(text(&ops.ask(&set)), "+OK");
    let heard = anna.hear();
    assert!(heard.contains("another password now"), "{heard}");
}

#[test]
fn a_change_leaves_asks_for_a_value_alone_that_may_still_be_had() {
    let may = format!("{ALL}\non = [\"range:lab\"]");
    let server = Server::start(&config(Some(&may)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    let ticket = ops.say("RESERVE lab");
    ops.say("RESERVE lab");
    anna.say("HELLO 3");
    let asked = anna.say("RESERVE 11-12 WAIT 30000 ASYNC");
    assert!(asked.contains("await"), "{asked}");
    apply(&mut ops, Some(&format!("{may}\nstreams_max = 5")));
    let ticket = ticket.split(", ").find(|word| word.starts_with("v-"));
    let said = ops.say(&format!("RELEASE {}", ticket.unwrap()));
    assert!(!said.starts_with('-'), "{said}");
    let heard = anna.hear();
    assert!(heard.contains("go"), "{heard}");
}

#[test]
fn a_stream_follows_the_user_who_logs_in_on_its_connection() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    anna.say("HELLO 3");
    assert_eq!(anna.say("MONITOR"), "+OK");
    anna.say("PSUBSCRIBE rideau:events:pool:*");
    while anna.say("PING") != "+PONG" {}
    anna.send(&["AUTH", "bert", "secret"]);
    let mut heard = Vec::new();
    while heard
        .last()
        .is_none_or(|last: &String| !last.starts_with('-'))
    {
        heard.push(anna.hear());
    }
    let no = "-NOPERM user bert may not use MONITOR: add \"monitor\" to its allow list.";
    assert_eq!(heard.last().unwrap(), no);
    assert_eq!(heard[heard.len() - 2], "+OK");
    // It may subscribe, and so it hears on, as the other user.
    ops.say("POOL.PAUSE cad");
    assert!(anna.hear().contains("pool cad was paused"));
    assert_eq!(anna.say("PING"), "+PONG");
}

#[test]
fn no_stream_goes_on_when_users_come() {
    let text = "[pool.cad]\nmember = { list = [\"A\"] }\n";
    let server = Server::start(text);
    let (mut ops, mut other) = (server.connect(), server.connect());
    other.say("SUBSCRIBE rideau:events:pool");
    apply(&mut ops, None);
    let heard = other.hear();
    let begin = "[message, rideau:events:pool, {\"error\":\"NOAUTH ";
    assert!(heard.starts_with(begin), "{heard}");
    assert_eq!(other.hear(), "[unsubscribe, rideau:events:pool, 0]");
}

/// What waits, and what another does so that it has to.
const WAITS: [(&str, &str, &str); 5] = [
    ("LOCK k", "LOCK k WAIT 20000", "lock"),
    ("TAKE cad", "TAKE cad WAIT 20000", "take"),
    ("REG.ASK crew", "REG.ASK crew WAIT 20000", "ask"),
    ("PING", "ASK work WAIT 20000", "ask"),
    (
        "RESERVE office COUNT 2",
        "RESERVE office WAIT 20000",
        "reserve",
    ),
];

#[test]
fn a_command_that_waits_is_answered_no_when_its_user_may_not_have_it_any_more() {
    for (first, line, right) in WAITS {
        let server = Server::start(&config(Some(ALL)));
        let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
        let held = ops.say(first);
        anna.send(&line.split(' ').collect::<Vec<_>>());
        wait_for_one(&mut ops);
        apply(&mut ops, Some(LITTLE));
        let name = line.split(' ').next().unwrap();
        let no =
            format!("-NOPERM user anna may not use {name}: add \"{right}\" to its allow list.");
        assert_eq!(anna.hear(), no, "{line} {held}");
        is_told(&server, right, "user anna may not use");
        assert_eq!(anna.say("PING"), "+PONG");
        assert_eq!(waiting(&mut ops), 0, "{line}");
    }
}

#[test]
fn the_right_to_use_a_thing_counts_for_waiting_asks() {
    for (first, line, right) in WAITS {
        let server = Server::start(&config(Some(ALL)));
        let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
        ops.say(first);
        anna.send(&line.split(' ').collect::<Vec<_>>());
        wait_for_one(&mut ops);
        apply(&mut ops, Some(&format!("{ALL}\non = [\"pool:x\"]")));
        let said = anna.hear();
        assert!(said.starts_with("-NOPERM user anna may not use "), "{said}");
        assert!(said.ends_with(" to its on list."), "{said}");
        is_told(&server, right, "user anna may not use");
    }
}

#[test]
fn a_waiting_ask_goes_on_when_others_change() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    let ticket = ticket(&ops.ask(&["LOCK", "k"]));
    anna.send(&["LOCK", "k", "WAIT", "20000"]);
    wait_for_one(&mut ops);
    apply(&mut ops, Some("allow = [\"lock\"]\non = [\"lock:k\"]"));
    ops.say("CONFIG SET pool.cad.max 1");
    assert_eq!(ops.say(&format!("RELEASE {ticket}")), "+OK");
    assert!(anna.hear().starts_with("[go, "));
}

#[test]
fn a_command_of_a_user_who_is_no_more_is_answered_before_the_end() {
    for (first, line, right) in WAITS {
        let server = Server::start(&config(Some(ALL)));
        let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
        ops.say(first);
        anna.send(&line.split(' ').collect::<Vec<_>>());
        wait_for_one(&mut ops);
        apply(&mut ops, None);
        let said = anna.hear();
        assert!(said.starts_with("-NOAUTH user anna was removed"), "{said}");
        is_told(&server, right, "user anna was removed");
        assert_eq!(anna.next(), None);
        assert_eq!(waiting(&mut ops), 0, "{line}");
    }
}

/// The config in which the password of `anna` is another.
fn other_password() -> String {
    let user = |hash: &str| format!("[user.anna]\npassword = '{hash}'");
    let other = Hash::of(b"other").unwrap();
    config(Some(ALL)).replace(&user(hash()), &user(other.as_str()))
}

#[test]
fn a_command_of_a_user_with_another_password_is_answered_no() {
    let other = other_password();
    for (first, line, right) in WAITS {
        for end in ["", " ASYNC"] {
            let server = Server::start(&config(Some(ALL)));
            let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
            ops.say(first);
            let line = format!("{line}{end}");
            anna.send(&line.split(' ').collect::<Vec<_>>());
            wait_for_one(&mut ops);
            let said = text(&ops.ask(&["CONFIG", "APPLY", &other]));
            assert!(!said.starts_with('-'), "{said}");
            if end.is_empty() {
                let no = "-NOAUTH the user has another password now: log in again.";
                assert_eq!(anna.hear(), no);
            }
            is_told(&server, right, "the user has another password now");
        }
    }
}

#[test]
fn the_end_of_a_stream_is_told() {
    let little = config(Some(LITTLE));
    for (config_now, why) in [
        (&little, "user anna may not use"),
        (&other_password(), "authentication required"),
    ] {
        for (watch, right) in [
            ("SUBSCRIBE rideau:events", "subscribe"),
            ("MONITOR", "monitor"),
        ] {
            let server = Server::start(&config(Some(ALL)));
            let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
            anna.say(watch);
            let said = text(&ops.ask(&["CONFIG", "APPLY", config_now]));
            assert!(!said.starts_with('-'), "{said}");
            is_told(&server, right, why);
        }
    }
}

#[test]
fn an_ask_in_the_background_is_refused_with_its_right() {
    for hello in ["HELLO 2", "HELLO 3"] {
        for (first, line, right) in WAITS {
            let server = Server::start(&config(Some(ALL)));
            let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
            anna.say(hello);
            ops.say(first);
            let line = format!("{line} ASYNC");
            let Value::Array(told) = anna.ask(&line.split(' ').collect::<Vec<_>>()) else {
                panic!("{line}");
            };
            let ticket = text(&told[1]);
            wait_for_one(&mut ops);
            apply(&mut ops, Some("allow = [\"await\"]"));
            let name = line.split(' ').next().unwrap();
            let no =
                format!("NOPERM user anna may not use {name}: add \"{right}\" to its allow list.");
            match hello {
                "HELLO 3" => {
                    assert_eq!(anna.hear(), format!(">[rideau:denied, {ticket}, {no}]"));
                }
                _ => assert_eq!(anna.say(&format!("AWAIT {ticket} 20000")), format!("-{no}")),
            }
            is_told(&server, right, "user anna may not use");
            // Its task ends in its own time.
            while waiting(&mut ops) != 0 {}
            assert!(!text(&ops.ask(&["SHOW", "HOLDERS"])).contains("anna"));
        }
    }
}

#[test]
fn what_a_user_holds_it_can_release_whatever_else_it_may_do_by_now() {
    let server = Server::start(&config(Some(ALL)));
    let (mut ops, mut anna) = (login(&server, "ops"), login(&server, "anna"));
    let lock = ticket(&anna.ask(&["LOCK", "k"]));
    anna.say("LOCK other");
    let member = ticket(&anna.ask(&["TAKE", "cad"]));
    let lease = ticket(&anna.ask(&["REG.ASK", "crew"]));
    let Value::Array(value) = anna.ask(&["RESERVE", "office"]) else {
        panic!("no value");
    };
    let value = text(&value[2]);
    let mut second = login(&server, "anna");
    let Value::Array(session) = second.ask(&["SESSION", "OPEN"]) else {
        panic!("no session");
    };
    let foreign = ticket(&ops.ask(&["LOCK", "ops"]));
    apply(&mut ops, Some("allow = [\"info\"]\non = [\"lock:none\"]"));
    let no = anna.say("LOCK k2");
    assert!(no.starts_with("-NOPERM "), "{no}");
    let no = anna.say(&format!("RELEASE {foreign}"));
    assert!(no.starts_with("-NOPERM "), "{no}");
    assert_eq!(anna.say(&format!("RELEASE {lock}")), "+OK");
    assert_eq!(anna.say("UNLOCK other"), "+OK");
    assert_eq!(anna.say(&format!("RELEASE {member} FAIL")), "+OK");
    assert_eq!(anna.say(&format!("REG.DONE {lease}")), "+OK");
    assert_eq!(anna.say(&format!("RELEASE {value}")), "+OK");
    assert_eq!(rows(&ops.ask(&["SHOW", "HOLDERS"])).len(), 1);
    let no = anna.say(&format!("RELEASE {lock}"));
    assert!(no.starts_with("-STALE "), "{no}");
    let no = second.say("SESSION LS");
    assert!(no.starts_with("-NOPERM "), "{no}");
    let closed = second.say(&format!("SESSION CLOSE {}", text(&session[0])));
    assert!(!closed.starts_with('-'), "{closed}");
    assert!(server.daemon.sessions.all().is_empty());
}

#[test]
fn the_operator_watches_and_waits_on_whatever_users_there_are() {
    let text = config(None);
    let places = text.find("[pool.cad]").unwrap();
    let server = Server::start(&text[places..]);
    let [mut ops, mut watcher, mut waiter, mut later] = [(); 4].map(|()| server.operator());
    watcher.say("SUBSCRIBE rideau:events:pool");
    let held = ["j", "k"].map(|key| ticket(&ops.ask(&["LOCK", key])));
    waiter.send(&["LOCK", "j", "WAIT", "20000"]);
    let asked = ticket(&later.ask(&["LOCK", "k", "WAIT", "20000", "ASYNC"]));
    while waiting(&mut ops) != 2 {}
    for anna in [None, Some(ALL), Some(LITTLE)] {
        apply(&mut ops, anna);
    }
    ops.say("POOL.PAUSE cad");
    assert!(watcher.hear().contains("pool cad was paused"));
    for ticket in held {
        assert_eq!(ops.say(&format!("RELEASE {ticket}")), "+OK");
    }
    assert!(waiter.hear().starts_with("[go, "));
    let answer = later.say(&format!("AWAIT {asked} 20000"));
    assert!(answer.starts_with("[go, "), "{answer}");
}

fn ticket(value: &Value) -> String {
    match value {
        Value::Array(parts) => text(&parts[1]),
        other => panic!("no grant: {other:?}"),
    }
}

/// How many commands wait.
/// An event says that `anna` was denied this, once and why. It may come a moment later.
fn is_told(server: &Server, right: &str, why: &str) {
    let begin = format!("anna was denied {right:?}: {why}");
    let until = Instant::now() + PATIENCE;
    loop {
        let events = server.daemon.events.newest(50);
        let denied = events.iter().filter(|event| event.kind == "denied");
        let denied: Vec<_> = denied.map(|event| event.text.clone()).collect();
        match &*denied {
            [text] if text.starts_with(&begin) => return,
            [] if Instant::now() < until => std::thread::yield_now(),
            _ => panic!("{begin}: {denied:?}"),
        }
    }
}

fn waiting(ops: &mut Peer) -> usize {
    let limits = ops.ask(&["SHOW", "LIMITS", "waiters_max"]);
    cell(&limits, 0, "now").parse().unwrap()
}

fn wait_for_one(ops: &mut Peer) {
    while waiting(ops) != 1 {}
}
