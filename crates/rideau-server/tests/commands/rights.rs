//! The matrix of rights: every command, and what alone opens it.
//!
//! What is expected stands in `rights.txt`, and what there is comes from the table of
//! commands: a command that is new, or has another right, fails until somebody has
//! written down who may use it.

use std::collections::BTreeMap;

use rideau_server::command;
use rideau_server::config::ALLOWED;
use rideau_server::config::password::Hash;
use rideau_server::resp::Value;

use crate::peer::Peer;
use crate::server::Server;

const EXPECTED: &str = include_str!("rights.txt");

/// What one command does may need another right than the rest of it.
const PARTS: &[(&str, &[&str])] = &[
    ("CLIENT LIST", &["CLIENT", "LIST"]),
    ("CLIENT KILL", &["CLIENT", "KILL", "0"]),
    ("SHOW CONFIG", &["SHOW", "CONFIG"]),
];

/// As many words as a command wants; what they say makes no sense to any.
fn words(about: &command::About) -> Vec<&'static str> {
    let mut words = vec![about.name];
    words.resize(about.words.max(2), "x");
    words
}

/// All that is tried, by name. What goes on for ever comes last, as nothing can
/// be asked after it.
fn calls() -> Vec<(&'static str, Vec<&'static str>)> {
    let commands = command::ALL.iter().filter(|about| !about.right.is_empty());
    let mut calls: Vec<_> = commands.map(|about| (about.name, words(about))).collect();
    calls.extend(PARTS.iter().map(|(name, words)| (*name, words.to_vec())));
    calls.sort_by_key(|(name, _)| (*name == "MONITOR", *name));
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
            Some(_) => return false,
            None => panic!("{words:?} ended the connection"),
        }
    }
}

/// In the third version of the protocol these are answered by a push.
fn is_answer(told: &[Value]) -> bool {
    let Some(Value::Bulk(what)) = told.first() else {
        return false;
    };
    what.ends_with(b"subscribe")
}

/// Who may, in few words.
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
fn each_right_opens_what_it_should_and_nothing_else() {
    let places = "[lock.\"*\"]\n[broker.default]\n";
    let server = Server::start(&(users() + places));
    let open = Server::start(places);
    let mut opened: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let calls = calls();
    // Somebody where there are no users, and nobody where there are.
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
