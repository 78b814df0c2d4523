//! The program as a person runs it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::Output;

use rideau_testing::command;

#[test]
fn it_says_its_version_and_how_it_is_used() {
    let version = rideau(&["--version"]);
    assert!(version.status.success());
    let wanted = format!("rideau {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&version.stdout), wanted);

    let help = rideau(&["--help"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("demo"));
    assert!(help.stderr.is_empty());
}

#[test]
fn an_unknown_word_is_an_error_with_a_suggestion() {
    for (words, meant) in [
        (&["dmeo"][..], "similar subcommand exists: 'demo'"),
        (
            &["demo", "--secnods", "2"],
            "similar argument exists: '--seconds'",
        ),
        (&["demo", "--seconds", "long"], "from 1 to 3600"),
        (&[], "demo  "),
    ] {
        let output = rideau(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(said.contains(meant), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn the_demo_of_overload_ends_by_itself_with_a_table_of_both_queues() {
    let output = rideau(&["demo", "--overload", "--seconds", "2"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(!shown.contains('\x1b'), "a pipe gets plain lines: {shown}");

    let (_, table) = shown.split_once("Waits of those served").unwrap();
    for queue in ["timeout", "default"] {
        let row = table.lines().find(|line| line.starts_with(queue)).unwrap();
        let served: u64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(served > 0, "{shown}");
    }
}

fn rideau(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_rideau");
    command(program).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
