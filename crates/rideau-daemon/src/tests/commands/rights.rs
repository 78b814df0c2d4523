//! The matrix of rights: every command, and what alone opens it.
//!
//! What is expected stands in `rights.txt`, and what there is comes from the
//! table of commands: a command that is new, or has another right, fails until
//! its author has written down who may use it.

use std::collections::BTreeMap;

use crate::redis::commands;
use rideau_config::ALLOWED;
use rideau_config::password::Hash;
use rideau_resp::Value;

use crate::tests::commands::peer::Peer;
use crate::tests::commands::server::Server;

const EXPECTED: &str = include_str!("rights.txt");

/// Commands whose first word says what they do. Each may need another right than the
/// rest.
const PARTED: &[&str] = &[
    "ACL", "CLIENT", "CLUSTER", "CONFIG", "LATENCY", "MODULE", "SESSION", "SHOW", "SLOWLOG",
];

/// Enough words for a command; no command can parse them.
fn words(about: &commands::About) -> Vec<&'static str> {
    let mut words = vec![about.name];
    words.resize(about.words.max(2), "x");
    if about.name == "AUTH" {
        // Too many: a login that fails is answered late.
        words.resize(4, "x");
    }
    words
}

/// The first words that a command takes, as its usage says.
fn parts(about: &commands::About) -> impl Iterator<Item = &'static str> {
    let parts = about.usage.split(" | ");
    parts.map(|part| part.split(' ').next().unwrap_or_default())
}

/// All that is tried, by name. What goes on for ever comes last, and behind it what
/// ends that, a login and a connection.
fn calls() -> Vec<(String, Vec<&'static str>)> {
    let mut calls = Vec::new();
    for about in commands::planted::all_but_planted() {
        calls.push((about.name.to_owned(), words(about)));
        if PARTED.contains(&about.name) {
            let parts = parts(about);
            calls.extend(
                parts.map(|part| (format!("{} {part}", about.name), vec![about.name, part])),
            );
        }
    }
    let last = ["MONITOR", "RESET", "QUIT"];
    calls.sort_by_key(|(name, _)| (last.iter().position(|last| last == name), name.clone()));
    calls
}

/// Whether a client may not do this at all.
fn is_denied(peer: &mut Peer, words: &[&str]) -> bool {
    peer.send(words);
    loop {
        match peer.next() {
            Some(Value::Error(text)) => {
                return text.starts_with("NOPERM") || text.starts_with("NOAUTH");
            }
            // What it listens to tells it something as well.
            Some(Value::Push(told)) if !is_answer(&told) => (),
            Some(Value::Simple(line)) if is_monitored(&line) => (),
            Some(_) => return false,
            None => panic!("{words:?} ended the connection"),
        }
    }
}

/// A command that it sees, as `MONITOR` shows it: it begins with the time.
fn is_monitored(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_digit())
}

/// In the third version of the protocol these are answered by a push.
fn is_answer(told: &[Value]) -> bool {
    let Some(Value::Bulk(what)) = told.first() else {
        return false;
    };
    what.ends_with(b"subscribe")
}

/// The users who may, in few words.
fn said(who: &[&str]) -> String {
    let is_every = ALLOWED.iter().all(|word| who.contains(word));
    let strangers = who.iter().filter(|who| !ALLOWED.contains(who)).copied();
    match is_every {
        true => strangers
            .chain(["every user"])
            .collect::<Vec<_>>()
            .join(" "),
        false => who.join(" "),
    }
}

fn users() -> String {
    let hash = Hash::of(b"secret").unwrap();
    let user = |(at, word): (usize, &&str)| {
        let hash = hash.as_str();
        format!("[user.u{at}]\npassword = '{hash}'\nallow = [\"{word}\"]\n\n")
    };
    ALLOWED.iter().enumerate().map(user).collect()
}

#[test]
fn every_word_of_a_parted_command_is_tried() {
    let calls = calls();
    let is_tried = |name: &str| calls.iter().any(|(tried, _)| tried == name);
    for part in ["CLIENT KILL", "CLIENT LIST", "SHOW CONFIG", "SESSION LS"] {
        assert!(is_tried(part), "{part}");
    }
    for about in commands::planted::all_but_planted() {
        let is_parted = about.usage.contains(" | ") && parts(about).all(is_word);
        assert!(
            !is_parted || PARTED.contains(&about.name) || LIKE_PARTED.contains(&about.name),
            "{} {}",
            about.name,
            about.usage
        );
        assert!(
            !PARTED.contains(&about.name) || parts(about).all(is_word),
            "{}",
            about.usage
        );
    }
}

/// These say what they are about by a word, and not what they do.
const LIKE_PARTED: &[&str] = &["RANGE.RELEASE"];

fn is_word(part: &str) -> bool {
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    !part.is_empty() && part.bytes().all(is_upper)
}

#[test]
fn each_right_opens_what_it_should_and_nothing_else() {
    let places = "[lock.\"*\"]\n[broker.default]\n";
    let server = Server::start(&(users() + places));
    let open = Server::start(places);
    let calls = calls();
    let mut opened: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // A client where there are no users, and one without a login where there
    // are.
    let strangers = [("open", open.stranger()), ("nobody", server.stranger())];
    let users = ALLOWED.iter().enumerate().map(|(at, word)| {
        let mut peer = server.stranger();
        assert_eq!(peer.say(&format!("AUTH u{at} secret")), "+OK");
        (*word, peer)
    });
    for (who, mut peer) in strangers.into_iter().chain(users) {
        if who != "nobody" {
            peer.ask(&["HELLO", "3"]);
        }
        for (name, words) in &calls {
            let names = opened.entry(name).or_default();
            if !is_denied(&mut peer, words) {
                names.push(who);
            }
        }
    }
    let found: String = opened
        .iter()
        .map(|(name, who)| format!("{name}: {}\n", said(who)))
        .collect();
    assert!(found == EXPECTED, "the rights are now\n{found}");
}
