//! Words of prose: none that hides which thing acts, no phrase that readers stumble over,
//! and no metaphor of ours where the field has a word.
//!
//! Prose is what documents, comments and the strings of the programs say. What stands in
//! backticks is code.

use std::fs;

use crate::{Parts, check_samples, check_workspace, faults_by_line, identifiers, read, root};
use crate::{identifier_after, without_tests};

/// Words for people that hide which thing acts: a task, a client, an ask, a holder.
const HIDING: &[&str] = &["whoever", "somebody", "anybody", "everybody"];
/// One more, in documents and in `src`. Tests may say it of people.
const NONE_ACTS: &str = "nobody";

/// Phrases that were given up, and what to write.
const PHRASES: &[(&str, &str)] = &[
    ("a no", "a refusal"),
    ("noes", "refusals"),
    ("so many", "this many, or the number"),
    ("of late", "recently"),
    ("by a hair", "slightly"),
    ("dear", "expensive"),
    ("for who", "for clients, tasks or whatever acts"),
    ("ferry", "notifier"),
    ("ferries", "notifiers"),
    ("porch", "queue"),
    ("errand", "request"),
    ("workshop", "run folder"),
    ("shelf", "idle cache"),
    ("shelves", "idle caches"),
];

/// Names that were given up, and what to write.
const NAMES: &[(&str, &str)] = &[
    ("ferry", "notifier"),
    ("porch", "queue"),
    ("errand", "request"),
    ("workshop", "run_dirs"),
    ("shelf", "idle_cache"),
    ("shelves", "idle_caches"),
    ("sight", "viewer"),
    ("yard", "harness"),
];

/// What is wrong with a piece of prose. `next` is the line after it, in which a phrase may
/// end.
fn fault_of(prose: &str, next: &str, is_test: bool) -> Option<String> {
    let own = plain(prose);
    let hides = |word: &str| HIDING.contains(&word) || (word == NONE_ACTS && !is_test);
    let hiding = words(&own).find(|word| hides(word));
    if let Some(word) = hiding {
        return Some(format!("name what acts, not {word:?}"));
    }
    if begins_with_who(prose) {
        return Some("begin with what acts, not \"Who\"".to_owned());
    }
    let (joined, next) = (own + " " + &plain(next), plain(next));
    let given_up = |phrase: &str| has(&joined, phrase) && !has(&next, phrase);
    let (phrase, instead) = PHRASES.iter().find(|(phrase, _)| given_up(phrase))?;
    Some(format!("write {instead}, not {phrase:?}"))
}

/// Prose without code, in small letters.
fn plain(prose: &str) -> String {
    let prose: String = prose.split('`').step_by(2).collect();
    let marks = ['/', '!', '\\', '"', ' '];
    prose.trim_matches(marks).to_lowercase()
}

fn words(prose: &str) -> impl Iterator<Item = &str> {
    prose.split(|c: char| !c.is_alphabetic())
}

/// Whether these words stand in the prose: whole words, not parts of longer ones.
fn has(prose: &str, phrase: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    prose.match_indices(phrase).any(|(at, _)| {
        let before = prose[..at].chars().next_back();
        let after = prose[at + phrase.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// A sentence, not a question, and not the phrase for rights.
fn begins_with_who(prose: &str) -> bool {
    let text = prose.trim_start_matches(['/', '!', ' ', '-', '*', '>', '#', '"']);
    let rest = text.strip_prefix("Who ");
    rest.is_some_and(|rest| !rest.contains('?') && !rest.starts_with("may "))
}

/// The faults of each line; a phrase may go on in the next.
fn faults_in(text: &str, is_test: bool) -> Vec<String> {
    let mut rest = text.lines();
    faults_by_line(text, |line| {
        rest.next();
        let next = rest.clone().next().unwrap_or_default();
        if line.trim().is_empty() {
            return None;
        }
        let fault = fault_of(line, next, is_test)?;
        Some(format!("{fault}: `{}`", line.trim()))
    })
}

fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/")
}

#[test]
fn documents_are_in_plain_words() {
    let pages = ["README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING"];
    let mut files = Vec::from(pages.map(|page| root().join(format!("{page}.md"))));
    for folder in ["docs", "config"] {
        let entries = fs::read_dir(root().join(folder)).expect("it is there");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        // Pictures say nothing.
        files.extend(paths.filter(|path| path.is_file()));
    }
    let mut faults = Vec::new();
    for file in files {
        for fault in faults_in(&read(&file), false) {
            faults.push(format!("{}: {fault}", file.display()));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn comments_are_in_plain_words() {
    let rule = |path: &str, text: &str| {
        // This file and its table of names have them.
        if path.contains("/tests/tidy") {
            return Vec::new();
        }
        let is_test = !is_source(path);
        faults_in(&Parts::of(text).comments, is_test)
    };
    check_samples(
        rule,
        &[
            ("crates/a/src/b.rs", "/// Nobody waits.\n"),
            ("crates/a/src/b.rs", "let a = 1; // Nobody waits.\n"),
            ("crates/a/src/b.rs", "/// Who waits is served.\n"),
            ("crates/a/src/b.rs", "/// A pool for who comes first.\n"),
            ("crates/a/src/b.rs", "/// At most so\n/// many wait.\n"),
            ("crates/a/src/b.rs", "/// A no is an answer.\n"),
            ("crates/a/tests/b.rs", "/// Somebody waits.\n"),
            ("bench/src/b.rs", "//! Whoever waits.\n"),
        ],
        &[
            ("crates/a/src/b.rs", "/// No ask waits.\nlet nobody = 1;\n"),
            ("crates/a/src/b.rs", "/// The user `nobody`.\n"),
            ("crates/a/src/b.rs", "/// Who may do what.\n"),
            ("crates/a/src/b.rs", "// Who is next?\n"),
            ("crates/a/src/b.rs", "/// A no-op.\n"),
            ("crates/a/tests/b.rs", "/// Root, and nobody else.\n"),
            ("crates/a/tests/b.rs", "f(\"somebody waits\");\n"),
        ],
    );
    check_workspace(rule);
}

#[test]
fn messages_are_in_plain_words() {
    let rule = |path: &str, text: &str| {
        let is_message = is_source(path) && !path.contains("/tests") && !path.contains("models");
        if !is_message {
            return Vec::new();
        }
        faults_in(&Parts::of(without_tests(text)).literals, false)
    };
    check_samples(
        rule,
        &[
            ("crates/a/src/b.rs", "f(\"somebody waits\");\n"),
            ("crates/a/src/b.rs", "f(\"at most so \\\n  many\");\n"),
            ("crates/a/src/b.rs", "f(\"it was answered with a no\");\n"),
            ("crates/a/src/b.rs", "f(\"Who waits is served\");\n"),
        ],
        &[
            ("crates/a/src/b.rs", "f(\"an ask waits\"); // so many\n"),
            ("crates/a/src/b.rs", "f(\"Who is it?\");\n"),
            ("crates/a/tests/b.rs", "f(\"somebody waits\");\n"),
        ],
    );
    check_workspace(rule);
}

#[test]
fn names_are_in_plain_words() {
    let rule = |path: &str, text: &str| {
        if path.contains("/tests/tidy") {
            return Vec::new();
        }
        faults_by_line(&Parts::of(text).code, |line| {
            let mut names = identifiers(line);
            let found = names.find_map(|name| NAMES.iter().find(|(old, _)| *old == name));
            found.map(|(name, now)| format!("`{name}` is called {now}"))
        })
    };
    check_samples(
        rule,
        &[
            ("crates/a/src/b.rs", "let shelf = 1;\n"),
            ("crates/a/tests/b.rs", "fn f(yard: u8) {}\n"),
        ],
        &[
            ("crates/a/src/b.rs", "let shelfmark = 1; // shelf\n"),
            ("crates/a/src/b.rs", "f(\"yard\");\n"),
        ],
    );
    check_workspace(rule);
}

#[test]
fn names_of_functions_begin_with_the_thing_that_acts() {
    let rule = |_path: &str, text: &str| {
        faults_by_line(&Parts::of(text).code, |line| {
            let name = identifier_after(line, "fn")?;
            name.starts_with("who_")
                .then(|| format!("{name}: begin with what acts"))
        })
    };
    check_samples(
        rule,
        &[
            ("a.rs", "#[test]\nfn who_waits_is_served() {}"),
            ("a.rs", "    async fn who_waits_is_served() {"),
        ],
        &[
            ("a.rs", "fn a_user_who_may_look_sees_it() {}"),
            ("a.rs", "// fn who_waits\nfn whole() {}"),
        ],
    );
    check_workspace(rule);
}
