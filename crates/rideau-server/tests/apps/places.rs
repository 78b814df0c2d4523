//! Places in processes for other fronts, and which user may do what.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::harness::{Harness, LONG, folder, until};
use crate::peer::{Peer, cell, rows, text};

/// One process, one request at a time.
const NARROW: &str = "[app.shop]\nexec = APP\nconcurrency = 1\nmax = 1\n";

/// A ticket, an address and a pid.
fn get(peer: &mut Peer, app: &str) -> (String, String, String) {
    let said = peer.ask(&["APP.GET", app, "WAIT", "20000"]);
    let Value::Array(parts) = &said else {
        panic!("no place: {said:?}");
    };
    let parts: Vec<_> = parts.iter().map(text).collect();
    assert_eq!((parts[0].as_str(), parts.len()), ("go", 5), "{parts:?}");
    (parts[1].clone(), parts[2].clone(), parts[3].clone())
}

/// Ask a process itself for its number.
fn pid_at(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(b"GET /pid HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut said = [0; 1024];
    let len = stream.read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]);
    said.rsplit("\r\n").next().unwrap().to_owned()
}

fn of_app(peer: &mut Peer, column: &str) -> String {
    cell(&peer.ask(&["SHOW", "APPS"]), 0, column)
}

#[test]
fn a_place_is_had_for_as_long_as_its_ticket() {
    let folder = folder();
    let harness = Harness::new(&folder, NARROW);
    let mut peer = harness.peer();
    let (ticket, address, pid) = get(&mut peer, "shop");
    let other = harness.peer().say("APP.GET shop WAIT 0");
    assert!(other.starts_with("[full, "), "the only place: {other}");
    assert_eq!(of_app(&mut peer, "sessions"), "1");
    let held = peer.ask(&["HELD"]);
    assert!(text(&held).contains(&ticket), "{held:?}");
    assert_eq!(pid_at(&address), pid, "it is that process's address");

    assert_eq!(peer.say(&format!("RELEASE {ticket}")), "+OK");
    assert_eq!(of_app(&mut peer, "sessions"), "0");
    assert_eq!(harness.get("/pid").body, pid);
    let again = peer.say(&format!("RELEASE {ticket}"));
    assert!(again.starts_with("-STALE"), "{again}");
    harness.end();
}

#[test]
fn an_ask_that_is_repeated_by_its_name_gets_the_same_place() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nconcurrency = 2\nmax = 1\n",
    );
    let (mut peer, mut other) = (harness.peer(), harness.peer());
    let named = "APP.GET shop WAIT 20000 ID mine";
    let said = peer.say(named);
    assert!(said.starts_with("[go, "), "{said}");
    let ticket = |said: &str| said.split(", ").nth(1).unwrap().to_owned();
    assert_eq!(ticket(&peer.say(named)), ticket(&said));
    assert_eq!(of_app(&mut peer, "sessions"), "1", "it is one place");
    let others = other.say(named);
    assert_ne!(ticket(&others), ticket(&said), "a name is its holder's own");
    assert_eq!(of_app(&mut peer, "sessions"), "2");
    assert_eq!(peer.say(&format!("RELEASE {}", ticket(&said))), "+OK");
    assert_eq!(of_app(&mut peer, "sessions"), "1");
    harness.end();
}

#[test]
fn a_holder_that_vanishes_gives_its_place_to_a_waiting_client() {
    let folder = folder();
    let harness = Harness::new(&folder, NARROW);
    let (mut first, mut second, mut ops) = (harness.peer(), harness.peer(), harness.peer());
    let (_, _, pid) = get(&mut first, "shop");
    second.send(&["APP.GET", "shop", "WAIT", "20000"]);
    until("it waits", || of_app(&mut ops, "waiting") == "1");
    let why = ops.say("EXPLAIN shop");
    assert!(why.contains("1 wait"), "{why}");
    drop(first);
    let said = second.hear();
    assert!(said.starts_with("[go, ") && said.contains(&pid), "{said}");
    drop(second);
    until("no request has a place", || {
        of_app(&mut ops, "sessions") == "0"
    });
    let numbers = harness.admin("GET", "/metrics", "").body;
    let back = "rideau_reclaims_total{kind=\"app\",cause=\"disconnect\"} 2";
    assert!(numbers.contains(back), "{numbers}");
    harness.end();
}

#[test]
fn a_client_that_does_not_want_to_wait_is_told_no() {
    let folder = folder();
    let harness = Harness::new(&folder, NARROW);
    let (mut first, mut second) = (harness.peer(), harness.peer());
    get(&mut first, "shop");
    let full = second.say("APP.GET shop WAIT 0");
    assert!(full.starts_with("[full, "), "{full}");
    let late = second.say("APP.GET shop WAIT 50");
    assert!(late.starts_with("[timeout, "), "{late}");
    let nobody = second.say("APP.GET blog");
    assert!(nobody.starts_with("-NOSUCH"), "{nobody}");
    let later = second.say("APP.GET shop WAIT 20000 ASYNC");
    assert!(later.starts_with("[await, "), "{later}");
    let ticket = later.trim_matches(['[', ']']).split(", ").nth(1).unwrap();
    drop(first);
    let granted = second.say(&format!("AWAIT {ticket}"));
    assert!(granted.starts_with("[go, "), "{granted}");
    harness.end();
}

/// `ops` may do anything, `eyes` only look, `anna` anything with `shop` alone.
fn with_users(folder: &Path) -> Harness {
    let hash = Hash::of(b"secret").unwrap();
    let mut text = String::new();
    for app in ["shop", "blog"] {
        text += &format!("[app.{app}]\nexec = APP\nhosts = [\"{app}\"]\nmin = 1\n");
    }
    for (name, rest) in [
        ("ops", "allow = [\"@admin\"]"),
        ("eyes", "allow = [\"@read\"]"),
        (
            "anna",
            "allow = [\"@app\", \"show\", \"explain\"]\non = [\"app:shop\"]",
        ),
    ] {
        let hash = hash.as_str();
        text += &format!("[user.{name}]\npassword = '{hash}'\n{rest}\n");
    }
    Harness::new(folder, &text)
}

fn login(harness: &Harness, name: &str) -> Peer {
    let mut peer = harness.peer();
    assert_eq!(peer.say(&format!("AUTH {name} secret")), "+OK");
    peer
}

/// The pid of the only process of an app, once it is ready.
fn pid_of(ops: &mut Peer, app: &str) -> String {
    let mut pid = None;
    until("it is ready", || {
        let all = ops.ask(&["SHOW", "PROCESSES"]);
        let is_it =
            |at: &usize| cell(&all, *at, "name") == app && cell(&all, *at, "state") == "ready";
        let at = (0..rows(&all).len()).find(is_it);
        pid = at.map(|at| cell(&all, at, "pid"));
        pid.is_some()
    });
    pid.unwrap()
}

#[test]
fn users_see_and_steer_the_apps_that_are_theirs() {
    let folder = folder();
    let harness = with_users(&folder);
    let (mut ops, mut anna) = (login(&harness, "ops"), login(&harness, "anna"));
    let (shop, blog) = (pid_of(&mut ops, "shop"), pid_of(&mut ops, "blog"));
    for what in ["APPS", "PROCESSES"] {
        let seen = rows(&anna.ask(&["SHOW", what]));
        assert!(seen.len() == 1 && seen[0].contains("shop"), "{seen:?}");
    }
    assert_eq!(rows(&anna.ask(&["APP.LS"])).len(), 1);
    get(&mut anna, "shop");
    for line in [
        "APP.GET blog",
        "APP.RESTART blog",
        "APP.LOG blog",
        "APP.STAT blog",
    ] {
        let said = anna.say(line);
        let no = "-NOPERM user anna may not use app blog";
        assert!(said.starts_with(no), "{said}");
    }
    // A pid that is none of its own is no pid at all.
    let said = anna.say(&format!("APP.DISABLE {blog}"));
    assert!(said.starts_with("-NOSUCH"), "{said}");
    assert!(anna.say("EXPLAIN blog").starts_with("-NOSUCH"));
    assert_eq!(anna.say(&format!("APP.DISABLE {shop}")), "+OK");
    assert_eq!(ops.say(&format!("APP.ENABLE {shop}")), "+OK");
    harness.end();
}

#[test]
fn a_user_who_may_only_look_does_nothing_to_apps() {
    let folder = folder();
    let harness = with_users(&folder);
    let (mut ops, mut eyes) = (login(&harness, "ops"), login(&harness, "eyes"));
    let shop = pid_of(&mut ops, "shop");
    assert_eq!(rows(&eyes.ask(&["APP.LS"])).len(), 2);
    for line in ["APP.RESTART shop", "APP.LOG shop", "APP.SPAWN shop"] {
        let said = eyes.say(line);
        assert!(said.contains("add \"app\" to its allow list"), "{said}");
    }
    let said = eyes.say(&format!("APP.DISABLE {shop}"));
    assert!(said.contains("add \"app\" to its allow list"), "{said}");
    let said = eyes.say("APP.GET shop");
    assert!(said.contains("add \"get\" to its allow list"), "{said}");
    harness.end();
}
