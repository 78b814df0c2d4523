//! What the server was told, and how that changes.

use std::process;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Ready;
use crate::Source;
use rideau_config::Config;
use rideau_resp::Value;
use rideau_testing::{Signal, signal};

use crate::tests::commands::peer::{Peer, cell, rows, text};
use crate::tests::commands::server::Server;

const TEXT: &str = "\
# ours
[pool.cad]
member = { list = [\"A\", \"B\", \"C\"] } # three
queue = { kind = \"timeout\", timeout = \"5s\", max = 10 }

[lock.\"*\"]
";

fn max(peer: &mut Peer) -> String {
    let pools = peer.ask(&["SHOW", "POOLS", "cad"]);
    cell(&pools, 0, "max")
}

#[test]
fn a_value_is_set_and_read_and_the_comments_stay() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(peer.say("CONFIG GET pool.cad.max"), "[pool.cad.max, 3]");
    assert_eq!(peer.say("CONFIG SET pool.cad.max 2"), "+OK");
    assert_eq!(peer.say("CONFIG GET pool.cad.max"), "[pool.cad.max, 2]");
    assert_eq!(max(&mut peer), "2");
    let text = peer.say("CONFIG TEXT");
    assert_eq!(text, TEXT.replace("max = 10 }\n", "max = 10 }\nmax = 2\n"));
    let value = "CONFIG SET pool.cad.queue.max 20 pool.cad.leak_after 5s";
    assert_eq!(peer.say(value), "+OK");
    peer.say("HELLO 3");
    assert_eq!(
        peer.say("CONFIG GET pool.cad.queue.max pool.cad.leak_*"),
        "{pool.cad.queue.max: 20, pool.cad.leak_after: \"5s\"}"
    );
    let below = peer.say("CONFIG GET pool.cad.queue");
    assert!(below.starts_with("{pool.cad.queue."), "{below}");
}

#[test]
fn keys_of_redis_are_not_there_and_that_is_no_error() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    assert_eq!(peer.say("CONFIG GET save"), "[]");
    assert_eq!(peer.say("CONFIG GET appendonly"), "[]");
    assert_eq!(
        peer.say("CONFIG GET pool.cad.maxx"),
        "-CONFIG there is no key `maxx`; did you mean `max`?"
    );
}

#[test]
fn what_is_wrong_changes_nothing_and_says_where() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for (words, error) in [
        (
            vec!["SET", "pool.cad.max", "9"],
            "-CONFIG pool.cad: `max` is over the 3 members of the list; lower it or remove it.",
        ),
        (
            vec!["SET", "pool.cad.max", "2", "pool.cad.nix", "3"],
            "-CONFIG there is no key `nix`",
        ),
        (
            vec!["SET", "pool.cad", "3"],
            "-CONFIG this is a table; name a key in it.",
        ),
        (
            vec!["SET", "pool.cad.max"],
            "-ERR CONFIG SET needs a value, and nothing follows.",
        ),
        (
            vec!["APPLY", "[pool.cad]\nmx = 1\n"],
            "-CONFIG 2:1 unknown key `mx`",
        ),
        (vec!["CHECK", "[pool.cad]\nmax = 'x'\n"], "-CONFIG 2:7 "),
        (vec!["PLAN", "[pool"], "-CONFIG 1:6 "),
        (
            vec!["RELOAD"],
            "-CONFIG the server was started without a file: start it with one, or use CONFIG \
             APPLY.",
        ),
        (
            vec!["REWRITE"],
            "-CONFIG the server was started without a file: ",
        ),
        (
            vec!["ROLLBACK"],
            "-CONFIG the server still has the config that it was started with: there is nothing \
             to go back to.",
        ),
        (
            vec!["ROLLBACK", "7"],
            "-CONFIG version 7 is not kept: CONFIG HISTORY shows 1 to 1.",
        ),
        (vec!["RESETSTAT"], "-ERR counters cannot be reset"),
        (vec!["FROB"], "-ERR CONFIG does not know \"FROB\"."),
    ] {
        let mut all = vec!["CONFIG"];
        all.extend(&words);
        let said = text(&peer.ask(&all));
        assert!(said.starts_with(error), "{words:?}: {said}");
        assert!(said.ends_with(['.', '?']), "{words:?}: {said}");
    }
    assert_eq!(max(&mut peer), "3");
    assert_eq!(peer.say("CONFIG TEXT"), TEXT);
    let history = peer.ask(&["CONFIG", "HISTORY"]);
    assert_eq!(rows(&history).len(), 1);
}

#[test]
fn a_value_is_set_only_of_what_there_is() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    for (words, error) in [
        (
            "pool.cda.max 2",
            "-CONFIG there is no pool `cda`; did you mean `cad`?",
        ),
        (
            "pool.licences.max 2",
            "-CONFIG there is no pool `licences`; POOL.ADD or CONFIG APPLY adds one.",
        ),
        (
            "pool.cad.max 2 broker.typo.read_after 4",
            "-CONFIG there is no broker `typo`; CONFIG APPLY adds one.",
        ),
        (
            "lock.build.per 5",
            "-CONFIG there is no lock `build`; CONFIG APPLY adds a rule, at its place among the \
             others.",
        ),
    ] {
        assert_eq!(peer.say(&format!("CONFIG SET {words}")), error);
    }
    assert_eq!(peer.say("CONFIG TEXT"), TEXT);
}

#[test]
fn a_check_finds_nothing_wrong_or_warns() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let fine = peer.ask(&["CONFIG", "CHECK", TEXT]);
    assert_eq!(text(&fine), "[[line, column, warning, hint]]");
}

#[test]
fn a_plan_says_what_would_happen_to_holders() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("TAKE cad");
    peer.say("TAKE cad");
    let new = TEXT.replace("\"C\"] }", "\"C\"] }\nmax = 1");
    let plan = peer.ask(&["CONFIG", "PLAN", &new]);
    assert_eq!(
        text(&plan),
        "[[path, old, new, change, meaning, shed], [pool.cad.max, 3, 1, live, 1 member above the \
         new limit is in use: it is stopped when returned; no holder is interrupted., 0]]"
    );
    assert_eq!(max(&mut peer), "3");
    let gone = peer.ask(&["CONFIG", "PLAN", "[lock.\"*\"]\n"]);
    assert_eq!(
        rows(&gone),
        ["[pool.cad, removed, nil, live, 0 that wait are refused; 2 held until given back., 0]"]
    );
}

#[test]
fn what_needs_a_restart_is_said() {
    let server = Server::start(TEXT);
    let mut peer = server.operator();
    assert_eq!(
        peer.say("CONFIG SET server.threads 3"),
        "+OK, but server.threads takes effect after the next start"
    );
    let config = peer.say("INFO config");
    assert!(
        config.contains("restart_needed_for:server.threads\r\n"),
        "{config}"
    );
    let events = peer.ask(&["SHOW", "EVENTS"]);
    assert_eq!(
        cell(&events, 0, "text"),
        "set: server.threads 0 -> 3; part of it takes effect after the next start"
    );
    assert_eq!(cell(&events, 0, "by"), "operator");
    let back = peer.ask(&["CONFIG", "ROLLBACK"]);
    assert_eq!(
        rows(&back),
        ["[server.threads, 3, 0, live, The server was started with it, so it is in effect., 0]"]
    );
    let config = peer.say("INFO config");
    assert!(config.contains("restart_needed_for:\r\n"), "{config}");
}

#[test]
fn one_can_go_back() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    peer.say("CONFIG SET pool.cad.max 2");
    peer.say("CONFIG SET pool.cad.max 1");
    let history = peer.ask(&["CONFIG", "HISTORY"]);
    assert_eq!(cell(&history, 0, "version"), "3");
    assert_eq!(cell(&history, 0, "summary"), "set: pool.cad.max 2 -> 1");
    assert_eq!(cell(&history, 2, "by"), "start");
    let plan = peer.ask(&["CONFIG", "ROLLBACK"]);
    assert_eq!(cell(&plan, 0, "new"), "2");
    assert_eq!(max(&mut peer), "2");
    peer.say("CONFIG ROLLBACK 1");
    assert_eq!(max(&mut peer), "3");
    assert_eq!(peer.say("CONFIG TEXT"), TEXT);
    assert_eq!(peer.say("CONFIG TEXT 1"), TEXT);
    for _ in 0..20 {
        peer.say("CONFIG SET pool.cad.max 2");
        peer.say("CONFIG SET pool.cad.max 3");
    }
    let history = peer.ask(&["CONFIG", "HISTORY"]);
    assert_eq!(rows(&history).len(), 32, "no more are kept");
    let gone = "-CONFIG version 1 is not kept: CONFIG HISTORY shows 14 to 45.";
    assert_eq!(peer.say("CONFIG ROLLBACK 1"), gone);
    assert_eq!(peer.say("CONFIG TEXT 1"), gone);
}

#[test]
fn the_file_is_read_again_and_written() {
    let server = Server::of_file(TEXT);
    let mut peer = server.connect();
    let file = server.file();
    let edited = TEXT.replace("# three", "# more\nmax = 2");
    std::fs::write(&file, &edited).unwrap();
    let plan = peer.ask(&["CONFIG", "RELOAD"]);
    assert_eq!(cell(&plan, 0, "path"), "pool.cad.max");
    assert_eq!(max(&mut peer), "2");

    peer.say("CONFIG SET pool.cad.max 1");
    assert!(peer.say("INFO config").contains("config_unsaved:1\r\n"));
    assert_eq!(peer.say("CONFIG REWRITE"), "+OK");
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written, edited.replace("max = 2", "max = 1"));
    assert!(peer.say("INFO config").contains("config_unsaved:0\r\n"));

    std::fs::write(&file, "[pool.cad]\nmxa = 2\n").unwrap();
    let said = peer.say("CONFIG RELOAD");
    assert!(said.starts_with("-CONFIG 2:1 unknown key `mxa`"), "{said}");
    assert_eq!(max(&mut peer), "1");
    let said = peer.say("CONFIG REWRITE NOW");
    assert_eq!(
        said,
        "-ERR CONFIG REWRITE takes FORCE or nothing, not \"NOW\"."
    );
    let said = peer.say("CONFIG REWRITE");
    assert!(
        said.contains("was edited since it was read: CONFIG RELOAD"),
        "{said}"
    );
    assert_eq!(peer.say("CONFIG REWRITE FORCE"), "+OK");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);

    std::fs::remove_file(&file).unwrap();
    let said = peer.say("CONFIG RELOAD");
    assert!(said.contains("cannot be read: "), "{said}");
    assert_eq!(max(&mut peer), "1");
}

#[test]
fn a_hangup_reads_the_file_again() {
    let text = format!("[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"none\"\n\n{TEXT}");
    // Only its file is of use here: the program's own way to serve is tried.
    let folder = Server::of_file(&text);
    let source = Source::read(&folder.file()).unwrap();
    let config = Config::parse(&text, "test.toml", &|_| None).unwrap();
    let (tell, told) = mpsc::channel();
    let ready = move |ready: &Ready| {
        let control = ready
            .control
            .as_ref()
            .expect("there is a place for the token");
        let token = std::fs::read_to_string(&control.token).unwrap();
        tell.send((ready.addresses[0].clone(), token)).unwrap();
    };
    let runtime = folder.runtime.as_ref().unwrap();
    runtime.spawn(crate::run_from(config, source, ready));
    let limit = Duration::from_secs(20);
    let (address, token) = told.recv_timeout(limit).unwrap();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let mut peer = Peer::operator(port, token.trim());
    assert_eq!(max(&mut peer), "3");

    let hang_up = || {
        signal(process::id(), Signal::HUP);
    };
    let since = Instant::now();
    std::fs::write(folder.file(), text.replace("# three", "\nmax = 2")).unwrap();
    hang_up();
    while max(&mut peer) != "2" {
        assert!(since.elapsed() < limit, "the file is read again");
    }
    std::fs::write(folder.file(), "nonsense").unwrap();
    hang_up();
    let mut newest = String::new();
    while !newest.starts_with("reload changed nothing: 1:9 ") {
        assert!(
            since.elapsed() < limit,
            "what is wrong is an event: {newest}"
        );
        newest = cell(&peer.ask(&["SHOW", "EVENTS"]), 0, "text");
    }
    assert_eq!(max(&mut peer), "2");
}

#[test]
fn a_client_that_waits_and_holds_keeps_its_place() {
    let server = Server::start(TEXT);
    let (mut peer, mut other) = (server.connect(), server.connect());
    let mut tickets = Vec::new();
    for _ in 0..3 {
        let Value::Array(taken) = peer.ask(&["TAKE", "cad"]) else {
            panic!("no member");
        };
        tickets.push(text(&taken[1]));
    }
    other.send(&["TAKE", "cad", "WAIT", "10000"]);
    while cell(&peer.ask(&["SHOW", "POOLS"]), 0, "waiting") != "1" {}
    let plan = peer.ask(&["CONFIG", "APPLY", &TEXT.replace("5s", "9s")]);
    let meaning = "The 1 that waits keeps its position and times.";
    assert_eq!(cell(&plan, 0, "meaning"), meaning);
    peer.say(&format!("RELEASE {}", tickets[0]));
    assert!(other.hear().starts_with("[go, "));
}

#[test]
fn what_goes_is_held_until_it_is_given_back() {
    let server = Server::start(TEXT);
    let mut peer = server.connect();
    let Value::Array(taken) = peer.ask(&["TAKE", "cad"]) else {
        panic!("no member");
    };
    peer.ask(&["CONFIG", "APPLY", "[lock.\"*\"]\n"]);
    assert!(peer.say("TAKE cad").starts_with("-NOSUCH pool \"cad\": "));
    assert_eq!(peer.say(&format!("RELEASE {}", text(&taken[1]))), "+OK");
}
