//! Events and commands, as they happen.

use std::time::{Duration, Instant};

use crate::serve::leak_check::Watcher;

use crate::tests::commands::peer::{cell, text};
use crate::tests::commands::server::Server;

const TEXT: &str = r#"
[pool.cad]
member = { list = ["A", "B"] }
leak_after = "1ms"

[pool.pressed]
member = { exec = ["/nonexistent/program"] }

[broker.work]
asks = { kind = "timeout", timeout = "1ms", max = 1 }

[lock."*"]
"#;

#[test]
fn a_subscriber_hears_of_what_happens() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.operator(), server.connect());
    assert_eq!(
        peer.say("SUBSCRIBE rideau:events:pool rideau:events:config:set"),
        "[subscribe, rideau:events:pool, 1]"
    );
    assert_eq!(peer.hear(), "[subscribe, rideau:events:config:set, 2]");
    other.say("POOL.PAUSE cad");
    other.say("CONFIG SET pool.cad.max 1");
    other.say("CONFIG ROLLBACK");
    other.say("POOL.RESUME cad");
    for (channel, said) in [
        ("rideau:events:pool", "pool cad was paused"),
        ("rideau:events:config:set", "set: pool.cad.max 2 -> 1"),
        ("rideau:events:pool", "pool cad was resumed"),
    ] {
        let heard = peer.hear();
        assert!(
            heard.starts_with(&format!("[message, {channel}, {{")),
            "{heard}"
        );
        assert!(heard.contains(&format!("\"text\":\"{said}\"")), "{heard}");
    }
    assert_eq!(
        peer.say("UNSUBSCRIBE rideau:events:pool"),
        "[unsubscribe, rideau:events:pool, 1]"
    );
    assert_eq!(
        peer.say("UNSUBSCRIBE"),
        "[unsubscribe, rideau:events:config:set, 0]"
    );
    assert_eq!(peer.say("UNSUBSCRIBE"), "[unsubscribe, nil, 0]");
    assert_eq!(peer.say("PING"), "+PONG");
}

#[test]
fn patterns_fit_whole_channels() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.say("HELLO 3");
    assert_eq!(
        peer.say("PSUBSCRIBE rideau:*:cad"),
        ">[psubscribe, rideau:*:cad, 1]"
    );
    other.say("POOL.PAUSE pressed");
    other.say("POOL.PAUSE cad");
    let heard = peer.hear();
    let begin = ">[pmessage, rideau:*:cad, rideau:events:pool:cad, {";
    assert!(heard.starts_with(begin), "{heard}");
    // Answers and pushes can be told apart, and so everything is allowed.
    assert_eq!(peer.say("LEN work"), "[0, 0]");
    assert_eq!(peer.say("PUNSUBSCRIBE"), ">[punsubscribe, rideau:*:cad, 0]");
}

#[test]
fn patterns_are_as_in_redis() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.say("HELLO 3");
    peer.say("PSUBSCRIBE rideau:events:p[n-p]ol:?a?");
    other.say("POOL.PAUSE pressed");
    other.say("POOL.PAUSE cad");
    let heard = peer.hear();
    assert!(heard.contains("rideau:events:pool:cad, {"), "{heard}");
}

#[test]
fn a_subscriber_can_do_little_else_in_the_second_version() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("SUBSCRIBE rideau:events");
    assert_eq!(
        peer.say("LEN work"),
        "-ERR Can't execute 'len': this connection listens to events, and only SUBSCRIBE, \
         PSUBSCRIBE, UNSUBSCRIBE, PUNSUBSCRIBE, RANGE.WATCH, PING, QUIT, RESET are allowed \
         meanwhile; UNSUBSCRIBE first, or use HELLO 3."
    );
    assert_eq!(peer.say("PING"), "[pong, ]");
    assert_eq!(peer.say("RESET"), "+RESET");
    assert_eq!(peer.say("LEN work"), "[0, 0]");
}

#[test]
fn channels_that_cannot_be_are_refused() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for channel in [
        "news",
        "rideau:events:",
        "rideau:events:pools",
        "rideau:eventsx",
    ] {
        let said = peer.say(&format!("SUBSCRIBE {channel}"));
        assert_eq!(
            said,
            format!(
                "-ERR there is no channel \"{channel}\": events are on rideau:events, \
                 rideau:events:KIND and rideau:events:KIND:NAME, where KIND is one of client, \
                 session, config, pool, range, app, leak, shed, server, login, denied, process, \
                 alarm; values are on rideau:ranges and rideau:ranges:RANGE."
            )
        );
    }
    let many: Vec<_> = (0..129)
        .map(|n| format!("rideau:events:pool:{n}"))
        .collect();
    let mut words = vec!["SUBSCRIBE"];
    words.extend(many.iter().map(String::as_str));
    let said = text(&peer.ask(&words));
    assert!(
        said.starts_with("-BUSY a connection watches 128 channels"),
        "{said}"
    );
}

#[test]
fn a_monitor_sees_commands_and_no_secrets() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.operator(), server.operator());
    assert_eq!(peer.say("MONITOR"), "+OK");
    other.say("LEN work");
    other.say("AUTH anna secret");
    other.say("CONFIG SET log.level debug");
    for end in ["\"LEN\" \"work\"", "\"AUTH\"", "\"CONFIG\" \"SET\""] {
        let line = peer.hear();
        assert!(line.starts_with('+') && line.ends_with(end), "{line}");
        assert!(line.contains(" [0 127.0.0.1:"), "{line}");
    }
    assert_eq!(server.daemon.clients.monitors(), 1);
    drop(peer);
    let limit = Instant::now() + Duration::from_secs(20);
    while server.daemon.clients.monitors() > 0 {
        assert!(Instant::now() < limit, "it is gone");
        std::thread::yield_now();
    }
}

#[test]
fn a_lease_that_is_held_too_long_is_one_event() {
    let server = Server::start(TEXT);
    server.watch();
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.say("SUBSCRIBE rideau:events:leak");
    other.say("CLIENT SETNAME anna");
    other.say("TAKE cad NOTE drawing");
    let heard = peer.hear();
    assert!(
        heard.contains("anna (\\\"drawing\\\") has held A of pool cad for "),
        "{heard}"
    );
    other.say("TAKE cad");
    assert!(peer.hear().contains("anna has held B of pool cad for "));
    let holders = other.ask(&["SHOW", "HOLDERS"]);
    assert_eq!(cell(&holders, 0, "is_leak"), "1");
}

#[test]
fn starts_that_fail_are_an_event() {
    let server = Server::start(TEXT);
    server.watch();
    let (mut peer, mut other) = (server.operator(), server.connect());
    peer.say("SUBSCRIBE rideau:events:pool:pressed");
    other.say("TAKE pressed WAIT 1000");
    // The start that failed tells first, and then the check of all pools.
    let heard = [peer.hear(), peer.hear()].concat();
    assert!(heard.contains("a member could not be started: "), "{heard}");
    assert!(
        heard.contains("members of pool pressed do not start: "),
        "{heard}"
    );
}

#[test]
fn shedding_is_told_when_it_begins_and_when_it_is_over() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let (mut watcher, now) = (Watcher::default(), Instant::now());
    watcher.look(&server.daemon, now);
    for _ in 0..3 {
        assert!(peer.say("ASK work WAIT 1000").starts_with("[timeout, "));
    }
    watcher.look(&server.daemon, now);
    peer.say("ASK work WAIT 1000");
    for later in [1, 2, 11, 12, 13, 30] {
        watcher.look(&server.daemon, now + Duration::from_secs(later));
    }
    let events = peer.ask(&["SHOW", "EVENTS", "work"]);
    let texts: Vec<_> = (0..2).map(|row| cell(&events, row, "text")).collect();
    assert_eq!(
        texts[0],
        "broker work has stopped shedding: 4 were shed in 1.0s"
    );
    assert_eq!(texts[1], "broker work begins to shed, 3 so far (timeout)");
    assert_eq!(crate::tests::commands::peer::rows(&events).len(), 2);
}

#[test]
fn a_client_that_promises_to_say_something_and_does_not_is_gone() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    other.say("SUBSCRIBE rideau:events:client");
    peer.say("TAKE cad");
    assert_eq!(peer.say("CLIENT HEARTBEAT 50"), "+OK");
    assert_eq!(peer.next(), None);
    let heard = other.hear();
    assert!(
        heard.contains("connection 1 (conn-1) was silent for "),
        "{heard}"
    );
    let mut third = server.connect();
    assert_eq!(third.say("CLIENT HEARTBEAT 0"), "+OK");
    assert_eq!(
        third.say("CLIENT HEARTBEAT never"),
        "-ERR CLIENT HEARTBEAT takes milliseconds, not \"never\"."
    );
    let limit = Instant::now() + Duration::from_secs(20);
    while cell(&third.ask(&["SHOW", "POOLS", "cad"]), 0, "held") != "0" {
        assert!(Instant::now() < limit, "its member is back");
    }
}

#[test]
fn a_heartbeat_rests_while_a_command_waits() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("TAKE cad");
    peer.say("TAKE cad");
    peer.say("CLIENT HEARTBEAT 300");
    let said = peer.say("TAKE cad WAIT 900");
    assert!(said.starts_with("[timeout, "), "{said}");
}

#[test]
fn a_killed_connection_and_an_expired_session_are_events() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.say("SUBSCRIBE rideau:events:client rideau:events:session");
    peer.hear();
    other.say("SESSION OPEN TTL 1 NAME short");
    assert!(peer.hear().contains("short expired and gave 0 leases back"));
    let mut third = server.connect();
    assert_eq!(third.say("CLIENT KILL ID 2"), "1");
    assert!(peer.hear().contains("connection 2 (conn-2) was killed"));
    assert_eq!(other.next(), None);
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let server = Server::start("[limits]\noutput_max = \"1KiB\"\n[lock.\"*\"]\n");
    let mut peer = server.connect();
    peer.say("SUBSCRIBE rideau:events");
    let events = &server.daemon.events;
    for _ in 0..100 {
        events.add("server", "test", "x".repeat(100), None);
    }
    let mut count = 0;
    while peer.next().is_some() {
        count += 1;
    }
    assert!(count < 100, "{count}");
    assert_eq!(server.daemon.clients.len(), 0);
}
