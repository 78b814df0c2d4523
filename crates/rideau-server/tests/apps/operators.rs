//! What operators see of applications and do to them, by commands and on the
//! command line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;

use rideau_testing::{Start, command};
use serde_json::Value as Json;

use crate::harness::{Harness, folder, processes_of, until};
use crate::peer::{Peer, cell, rows};

/// The only process there is.
fn process(peer: &mut Peer, column: &str) -> String {
    let shown = peer.ask(&["SHOW", "PROCESSES"]);
    assert_eq!(rows(&shown).len(), 1, "{shown:?}");
    cell(&shown, 0, column)
}

fn json(harness: &Harness, words: &[&str]) -> Json {
    let said = harness.cli(&[words, &["--json"]].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A command of the command line that is to fail; what it says then.
fn fails(harness: &Harness, words: &[&str]) -> String {
    let done = command(env!("CARGO_BIN_EXE_rideau"))
        .args(["--server", &harness.control])
        .args(words)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(1), "{words:?}: {done:?}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// Scenario 41.
#[test]
fn a_disabled_process_waits_an_enabled_one_serves_and_a_detached_one_goes() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nconcurrency = 4\nmax = 1\n",
    );
    let pid = harness.get("/pid").body;
    let mut ops = harness.peer();
    thread::scope(|scope| {
        let served: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| harness.get("/sleep/3000")))
            .collect();
        until("both are served", || process(&mut ops, "sessions") == "2");
        assert_eq!(ops.say(&format!("APP.DISABLE {pid}")), "+OK");
        assert_eq!(process(&mut ops, "state"), "disabled");
        let late = ops.say("APP.GET shop WAIT 100");
        assert!(late.starts_with("[timeout, "), "nothing new: {late}");
        for answer in served {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
    until("no request is served", || {
        process(&mut ops, "sessions") == "0"
    });
    assert_eq!(process(&mut ops, "state"), "disabled", "it is kept");
    let twice = ops.say(&format!("APP.DISABLE {pid}"));
    assert!(
        twice.starts_with("-ERR APP.DISABLE is not possible"),
        "{twice}"
    );

    assert_eq!(ops.say(&format!("APP.ENABLE {pid}")), "+OK");
    assert_eq!(harness.get("/pid").body, pid, "it serves again");

    thread::scope(|scope| {
        let served = scope.spawn(|| harness.get("/sleep/2000"));
        until("it is served", || process(&mut ops, "sessions") == "1");
        assert_eq!(ops.say(&format!("APP.DETACH {pid}")), "+OK");
        let shown = ops.ask(&["SHOW", "PROCESSES"]);
        assert_eq!(cell(&shown, 0, "state"), "draining", "{shown:?}");
        assert_eq!(served.join().unwrap().status, 200);
    });
    assert_ne!(harness.get("/pid").body, pid);
    until("it is gone", || {
        !processes_of(&folder).contains(&pid.parse().unwrap())
    });
    let events = rows(&ops.ask(&["SHOW", "EVENTS"])).join("\n");
    for told in [
        "APP.DISABLE of process",
        "APP.ENABLE of",
        "APP.DETACH of",
        "detached",
    ] {
        assert!(events.contains(told), "{told}: {events}");
    }
    harness.end();
}

#[test]
fn processes_are_restarted_in_three_ways() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nmin = 1\nmax = 1\n");
    let mut ops = harness.peer();
    let mut pid = harness.get("/pid").body;
    for how in ["", " ROLLING", " blocking", " NOW"] {
        assert_eq!(ops.say(&format!("APP.RESTART shop{how}")), "+OK");
        until("another serves", || {
            let now = harness.get("/pid");
            now.status == 200 && now.body != pid
        });
        pid = harness.get("/pid").body;
        until("the old one is gone", || processes_of(&folder).len() == 1);
    }
    assert!(ops.say("APP.RESTART shop SOON").starts_with("-ERR"));
    assert!(ops.say("APP.RESTART blog").starts_with("-NOSUCH"));
    until("it is settled", || {
        cell(&ops.ask(&["APP.LS"]), 0, "state") == "ready"
    });
    harness.end();
}

#[test]
fn more_processes_are_started_up_to_the_limit_and_one_is_killed() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 2\nidle_after = \"1h\"\n",
    );
    let mut ops = harness.peer();
    for count in 1..=2 {
        assert_eq!(ops.say("APP.SPAWN shop"), "+OK");
        until("it is ready", || {
            cell(&ops.ask(&["SHOW", "APPS"]), 0, "ready") == count.to_string()
        });
    }
    let said = ops.say("APP.SPAWN shop");
    assert!(said.starts_with("-BUSY app shop has no room"), "{said}");
    assert_eq!(ops.say("APP.SET shop MAX 3"), "+OK");
    assert_eq!(ops.say("APP.SPAWN shop"), "+OK");
    until("all are there", || processes_of(&folder).len() == 3);

    let pid = processes_of(&folder)[0];
    until("it is ready", || {
        cell(&ops.ask(&["SHOW", "APPS"]), 0, "ready") == "3"
    });
    assert_eq!(ops.say(&format!("APP.KILL {pid}")), "+OK");
    until("it is gone", || !processes_of(&folder).contains(&pid));
    // It was young, and had got no request; its start went well all the same.
    let shown = ops.ask(&["SHOW", "APPS"]);
    assert_eq!(cell(&shown, 0, "starts_failed"), "0", "{shown:?}");
    let shown = ops.ask(&["SHOW", "EVENTS"]);
    let all = rows(&shown);
    for at in (0..all.len()).filter(|at| cell(&shown, *at, "kind") == "app") {
        let text = cell(&shown, at, "text");
        assert!(text.starts_with("app shop: "), "it names the app: {text}");
    }
    let events = all.join("\n");
    assert!(events.contains("is stopped: killed"), "{events}");
    assert!(!events.contains("start failed"), "{events}");
    until("it is forgotten", || {
        ops.say(&format!("APP.KILL {pid}")).starts_with("-NOSUCH")
    });
    harness.end();
}

#[test]
fn what_an_app_does_and_writes_is_shown() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 1\nenv = { SAY = \"hello from shop\" }\n",
    );
    let mut ops = harness.operator();
    let pid = harness.get("/pid").body;
    let lines = ops.say("APP.LOG shop LINES 5");
    assert_eq!(lines, "[[1, 1, out, hello from shop]]");

    let memory: u64 = process(&mut ops, "memory").parse().unwrap();
    assert!(memory > 1 << 20, "SHOW looks before it shows: {memory}");
    let shown = ops.ask(&["APP.STAT", "shop"]);
    assert_eq!(cell(&shown, 0, "pid"), pid);
    assert_eq!(cell(&shown, 0, "finished"), "1");
    let memory: u64 = cell(&shown, 0, "memory").parse().unwrap();
    assert!(memory > 1 << 20, "{memory}");
    thread::scope(|scope| {
        let served = scope.spawn(|| harness.get("/sleep/2000?secret=1"));
        until("it is served", || {
            !rows(&ops.ask(&["SHOW", "REQUESTS"])).is_empty()
        });
        let shown = ops.ask(&["SHOW", "REQUESTS"]);
        let of = |column| cell(&shown, 0, column);
        assert_eq!((of("name"), of("pid")), ("shop".into(), pid.clone()));
        assert_eq!(of("method"), "GET");
        assert_eq!(of("path"), "/sleep/2000", "what follows may be secret");
        assert_eq!(of("client"), "127.0.0.1");
        assert_eq!(served.join().unwrap().status, 200);
    });
    until("nothing is served", || {
        rows(&ops.ask(&["SHOW", "REQUESTS"])).is_empty()
    });
    let why = ops.say("EXPLAIN shop");
    assert!(
        why.contains("App shop is ready: 0 requests in 1 process, 0 waiting"),
        "{why}"
    );
    assert!(ops.say("EXPLAIN app:shop").contains("App shop is ready"));
    harness.end();
}

#[test]
fn an_app_that_does_not_start_is_explained() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nenv = { CRASH = \"3\" }\n");
    let mut ops = harness.operator();
    let refused = ops.say("APP.GET shop WAIT 20000");
    assert!(refused.contains("3"), "{refused}");
    let why = ops.say("EXPLAIN shop");
    assert!(why.contains("App shop is failing"), "{why}");
    assert!(why.contains("cannot start: CRASH is set"), "{why}");
    let shown = harness.admin("GET", "/api/v1/apps/shop", "").body;
    let shown: Json = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["state"], "failing", "{shown}");
    assert!(shown["failing"]["failures"].as_u64() >= Some(1), "{shown}");
    let lines = shown["report"]["lines"].to_string();
    assert!(lines.contains("CRASH is set"), "{shown}");
    let numbers = harness.admin("GET", "/metrics", "").body;
    let failed = numbers.lines().find_map(|line| {
        line.strip_prefix("rideau_app_spawns_total{app=\"shop\",outcome=\"failed\"} ")
    });
    assert!(failed.unwrap().parse::<f64>().unwrap() >= 1.0);
    harness.end();
}

#[test]
fn the_command_line_does_the_same() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 2\nidle_after = \"1h\"\n\
         env = { SAY = \"hello from shop\" }\n",
    );
    let pid = harness.get("/pid").body;
    let said = harness.cli(&["status"]);
    assert!(said.contains("shop") && said.contains("ready"), "{said}");
    assert_eq!(json(&harness, &["status", "apps"])[0]["state"], "ready");
    for kind in ["processes", "process"] {
        assert_eq!(json(&harness, &["status", kind])[0]["pid"].to_string(), pid);
    }
    assert_eq!(harness.cli(&["logs", "shop"]), "1 out hello from shop\n");
    let line = json(&harness, &["logs", "shop", "-n", "1"]);
    assert_eq!(line["text"], "hello from shop");

    harness.cli(&["disable", &pid]);
    assert_eq!(
        json(&harness, &["status", "processes"])[0]["state"],
        "disabled"
    );
    harness.cli(&["enable", &pid]);
    assert_eq!(
        json(&harness, &["status", "processes"])[0]["state"],
        "ready"
    );
    harness.cli(&["spawn", "shop"]);
    until("both are ready", || {
        json(&harness, &["status", "apps"])[0]["ready"] == 2
    });
    harness.cli(&["detach", &pid]);
    until("it is gone", || {
        !processes_of(&folder).contains(&pid.parse().unwrap())
    });
    let other = harness.get("/pid").body;
    harness.cli(&["restart", "shop"]);
    until("another serves", || harness.get("/pid").body != other);
    assert!(harness.cli(&["explain", "shop"]).contains("App shop is"));

    assert!(fails(&harness, &["restart", "blog"]).contains("app \"blog\""));
    assert!(fails(&harness, &["disable", "999999999"]).contains("process \"999999999\""));
    assert!(fails(&harness, &["logs", "blog"]).contains("app \"blog\""));
    harness.end();
}

#[test]
fn the_command_line_restarts_in_three_ways() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nmin = 1\nmax = 1\n");
    let mut pid = harness.get("/pid").body;
    for (words, cause) in [
        (&["restart", "shop"][..], "one after the other"),
        (&["restart", "shop", "--blocking"][..], "have finished"),
        (
            &["restart", "shop", "--now"][..],
            "all processes are stopped",
        ),
    ] {
        assert!(harness.cli(words).contains("OK"), "{words:?}");
        assert!(harness.log().contains(cause), "{cause}: {}", harness.log());
        until("another serves", || {
            let now = harness.get("/pid");
            now.status == 200 && now.body != pid
        });
        pid = harness.get("/pid").body;
        until("the old one is gone", || processes_of(&folder).len() == 1);
    }
    // A request that is being served is finished, or it is not.
    for (word, status) in [("--blocking", 200), ("--now", 502)] {
        let mut ops = harness.operator();
        thread::scope(|scope| {
            let slow = scope.spawn(|| harness.ask("POST", "test", "/sleep/2000", b"").unwrap());
            until("it is served", || {
                !rows(&ops.ask(&["SHOW", "REQUESTS"])).is_empty()
            });
            harness.cli(&["restart", "shop", word]);
            assert_eq!(slow.join().unwrap().status, status, "{word}");
        });
        until("another serves", || harness.get("/pid").status == 200);
    }
    let both = command(env!("CARGO_BIN_EXE_rideau"))
        .args([
            "--server",
            &harness.control,
            "restart",
            "shop",
            "--now",
            "--blocking",
        ])
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    harness.end();
}

#[test]
fn what_an_application_writes_can_be_followed() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 1\nenv = { SAY = \"hello from shop\" }\n",
    );
    assert_eq!(harness.get("/say/before").status, 200);
    let mut following = command(env!("CARGO_BIN_EXE_rideau"))
        .args([
            "--server",
            &harness.control,
            "logs",
            "shop",
            "--follow",
            "-n",
            "1",
        ])
        .stdout(Stdio::piped())
        .start();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(
        next(),
        "1 out before",
        "as many of the last as were asked for"
    );
    for word in ["one", "two"] {
        assert_eq!(harness.get(&format!("/say/{word}")).status, 200);
        assert_eq!(next(), format!("1 out {word}"));
    }
    harness.cli(&["restart", "shop"]);
    assert_eq!(
        next(),
        "2 out hello from shop",
        "it goes on with the next process"
    );
    assert!(following.try_wait().unwrap().is_none(), "it never ends");
    following.kill().unwrap();
    following.wait().unwrap();
    harness.end();
}
