//! Every change leaves an event that says who made it, and so does every try of
//! a user who may not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::redis::commands::{self, About};
use rideau_config::password::Hash;

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Control that changes nothing.
const READS: &[&str] = &[
    "APP.LOG",
    "MONITOR",
    "CONFIG GET",
    "CONFIG CHECK",
    "CONFIG PLAN",
    "CONFIG HISTORY",
    "CONFIG TEXT",
    // A server within a test is not upgraded; the program's tests look at its events.
    "UPGRADE",
];

/// A change: the kind of its event, and its words. The first text holds several, and
/// what follows is one word each.
type Change = (&'static str, Vec<String>);

fn change(kind: &'static str, words: &[&str]) -> Change {
    (kind, words.iter().map(|word| (*word).to_owned()).collect())
}

fn config() -> String {
    let hash = Hash::of(b"secret").unwrap();
    format!(
        "[user.ops]\npassword = '{}'\nallow = [\"@all\", \"@admin\"]\n\
         [store]\nkind = \"memory\"\n[range.all]\nvalues = [\"0-9\"]\nstart = \"free\"\n\
         [pool.cad]\nmember = {{ list = [\"A\"] }}\n\
         [app.shop]\nidle_after = \"1h\"\n\
         exec = [\"python3\", \"{}/../rideau-server/tests/apps/app.py\"]\n",
        hash.as_str(),
        env!("CARGO_MANIFEST_DIR"),
    )
}

/// What a command is called, with the first word after its name where that says what
/// is done.
fn called(words: &[&str]) -> String {
    match words[0] {
        "CONFIG" | "CLIENT" => words[..2].join(" "),
        name => name.into(),
    }
}

/// All control there is, from the table of commands.
fn control() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for About { name, usage, .. } in commands::ALL.iter().filter(|about| about.is_control) {
        match *name {
            "CONFIG" => all.extend(usage.split(" | ").map(|part| {
                let word = part.split(' ').next().unwrap_or_default();
                format!("{name} {word}")
            })),
            name => {
                all.insert(name.to_owned());
            }
        }
    }
    all
}

/// Make a change, and see that it is told.
fn is_told(ops: &mut Peer, (kind, words): &Change) -> String {
    let serial = |ops: &mut Peer| {
        let events = ops.ask(&["SHOW", "EVENTS", "COUNT", "1"]);
        match rows(&events).is_empty() {
            true => 0,
            false => cell(&events, 0, "id").parse::<u64>().unwrap(),
        }
    };
    let before = serial(ops);
    let mut all: Vec<&str> = words[0].split(' ').collect();
    all.extend(words[1..].iter().map(String::as_str));
    let answer = text(&ops.ask(&all));
    assert!(!answer.starts_with('-'), "{words:?}: {answer}");
    let events = ops.ask(&["SHOW", "EVENTS", "COUNT", "20"]);
    let new = (0..rows(&events).len()).filter(|row| {
        let is_new = cell(&events, *row, "id").parse::<u64>().unwrap() > before;
        is_new && cell(&events, *row, "by") == "ops" && cell(&events, *row, "kind") == *kind
    });
    assert!(new.count() > 0, "{words:?} is told: {:?}", rows(&events));
    called(&all)
}

/// The pid of the only process, once it is ready.
fn process(ops: &mut Peer) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let shown = ops.ask(&["SHOW", "PROCESSES"]);
        let ready = (0..rows(&shown).len()).find(|row| cell(&shown, *row, "state") == "ready");
        if let Some(row) = ready {
            return cell(&shown, row, "pid");
        }
        assert!(Instant::now() < until, "none is ready: {:?}", rows(&shown));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_change_says_who_made_it() {
    let config = config();
    let server = Server::of_file(&config);
    let runtime = server.runtime.as_ref().unwrap();
    runtime.block_on(async { server.daemon.apps.begin(&server.daemon.config.load()) });
    let mut ops = server.connect();
    ops.say("AUTH ops secret");
    let mut tried = BTreeSet::new();
    is_told(&mut ops, &change("app", &["APP.SPAWN shop"]));
    let old = process(&mut ops);
    is_told(&mut ops, &change("app", &["APP.RESTART shop"]));
    let until = Instant::now() + PATIENCE;
    while cell(&ops.ask(&["SHOW", "APPS"]), 0, "state") != "on_trial" {
        assert!(Instant::now() < until, "it is not on trial");
        std::thread::sleep(Duration::from_millis(5));
    }
    tried.insert(is_told(
        &mut ops,
        &change("app", &["APP.TRIAL shop REJECT"]),
    ));
    is_told(&mut ops, &change("app", &[&format!("APP.KILL {old}")]));
    // A process ends in one of two ways.
    for ways in [&["DISABLE", "ENABLE", "DETACH"][..], &["KILL"]] {
        tried.insert(is_told(&mut ops, &change("app", &["APP.SPAWN shop"])));
        let pid = process(&mut ops);
        for way in ways {
            let words = format!("APP.{way} {pid}");
            tried.insert(is_told(&mut ops, &change("app", &[&words])));
        }
    }
    let mut idle = server.connect();
    let id = idle.say("CLIENT ID");
    let more = format!("{config}[pool.more]\n");
    for change in [
        change("config", &["CONFIG SET server.drain 7s"]),
        change("config", &["CONFIG REWRITE"]),
        change("config", &["CONFIG APPLY", &more]),
        change("config", &["CONFIG RELOAD"]),
        change("config", &["CONFIG ROLLBACK"]),
        change("pool", &["POOL.PAUSE cad"]),
        change("pool", &["POOL.RESUME cad"]),
        change("pool", &["POOL.RECYCLE cad"]),
        change("config", &["POOL.SET cad max 1"]),
        change("pool", &["POOL.ADD new", "member = { list = [\"x\"] }"]),
        change("pool", &["POOL.DEL new"]),
        change("config", &["RANGE.ADD new", "values = [\"20-29\"]"]),
        change("config", &["RANGE.SET new cool 7s"]),
        change("config", &["RANGE.REMOVE new"]),
        change("config", &["RANGE.ADD other", "values = [\"30-39\"]"]),
        change("config", &["RANGE.DRAIN other"]),
        change("range", &["RANGE.RELEASE KEYPREFIX a"]),
        change("range", &["RANGE.DEBUG 0"]),
        change("app", &["APP.RESTART shop"]),
        change("config", &["APP.SET shop MAX 2"]),
        change("client", &[&format!("CLIENT KILL {id}")]),
    ] {
        tried.insert(is_told(&mut ops, &change));
    }
    let changes = control().into_iter();
    let untried: Vec<_> = changes
        .filter(|name| !READS.contains(&name.as_str()) && !tried.contains(name))
        // These change a cluster, and there is none here.
        .filter(|name| !name.starts_with("NODE.") && name != "CONFIG PUSH")
        .collect();
    assert!(untried.is_empty(), "add a change with {untried:?}");
    runtime.block_on(server.daemon.apps.close_now());
}

#[test]
fn every_denial_of_a_stranger_is_told() {
    let users = config();
    let commands = commands::ALL.iter().filter(|about| about.is_control);
    let mut calls: Vec<(&str, Vec<&str>)> = commands
        .map(|about| {
            let mut words = vec![about.name];
            words.resize(about.words.max(2), "x");
            (about.right, words)
        })
        .collect();
    calls.push(("client", vec!["CLIENT", "KILL", "0"]));
    for text in ["", &users] {
        for (right, words) in &calls {
            // Each is told once in a while, so each has a server.
            let server = Server::start(text);
            let mut peer = server.stranger();
            let said = crate::tests::commands::peer::text(&peer.ask(words));
            assert!(said.starts_with("-NOAUTH "), "{words:?}: {said}");
            peer.ask(words);
            let events = server.daemon.events.newest(10);
            let told = events.iter().filter(|event| event.kind == "denied");
            let told: Vec<_> = told.map(|event| &event.text).collect();
            let begin = format!("a client from 127.0.0.1 was denied {right:?}: ");
            assert_eq!(told.len(), 1, "{words:?}: {told:?}");
            assert!(told[0].starts_with(&begin), "{words:?}: {told:?}");
        }
    }
    let open = Server::start("");
    open.stranger().say("SHOW CONFIG");
    assert_eq!(open.daemon.events.newest(1)[0].kind, "denied");
}

#[test]
fn a_wrong_token_is_a_failed_login() {
    let server = Server::start("");
    let mut peer = server.stranger();
    for (login, said) in [
        ("AUTH wrong", "-ERR there is no password here"),
        ("AUTH operator wrong", "-WRONGPASS"),
    ] {
        let answer = peer.say(login);
        assert!(answer.starts_with(said), "{login}: {answer}");
    }
    let failed = &server.daemon.counts.denied;
    assert_eq!(failed.load(std::sync::atomic::Ordering::Relaxed), 2);
    let told = &server.daemon.events.newest(1)[0];
    assert_eq!((told.kind, &*told.name), ("login", "127.0.0.1"));
    assert_eq!(told.text, "1 failed login from 127.0.0.1");
}
