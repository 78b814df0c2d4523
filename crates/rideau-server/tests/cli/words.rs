//! What needs no server: help, misuse, checks of files, what shells and man read.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use rideau_testing::{Start, command};
use serde_json::Value;

use crate::served::{rideau, text};

const COMMANDS: &[&str] = &[
    "serve",
    "demo",
    "check",
    "plan",
    "apply",
    "reload",
    "rollback",
    "set",
    "status",
    "holders",
    "explain",
    "tail",
    "kill",
    "revoke",
    "cluster",
    "take",
    "lock",
    "ask",
    "offer",
    "bench",
    "simulate",
    "hash",
    "numbers",
    "completions",
    "man",
];

#[test]
fn every_command_has_a_help_without_colours_in_a_pipe() {
    for command in COMMANDS {
        let help = rideau().args([command, "--help"]).output().unwrap();
        let said = text(&help.stdout);
        assert!(help.status.success(), "{command}");
        assert!(said.contains(&format!("Usage: rideau {command}")), "{said}");
        assert!(!said.contains('\x1b'), "{said}");
    }
}

#[test]
fn misuse_ends_with_two() {
    for words in [
        &["no-such-command"][..],
        &["take"],
        &["kill", "somebody"],
        &["take", "pg", "--wait", "long", "--", "true"],
        &["take", "pg", "--wait", "200", "--", "true"],
        &["lease", "number", "--ttl", "30"],
        &["demo", "--seconds", "0"],
        &["bench", "--clients", "0"],
        &["serve", "--set", "no-equals-sign"],
        &["take", "pg"],
        &["lock", "key", "--session", "5s", "--", "true"],
    ] {
        let output = rideau().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn help_shows_how_to_reach_a_server_where_one_is_needed() {
    let help = |words: &[&str]| {
        let mut help = rideau();
        // It may have a password in it.
        help.env("RIDEAU_SERVER", "redis://ops:hunter2@nowhere:1");
        let output = help.args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}");
        let said = text(&output.stdout).to_owned();
        assert!(!said.contains("hunter2"), "{said}");
        said
    };
    for command in ["status", "take", "plan", "bench"] {
        let said = help(&[command, "--help"]);
        assert!(said.contains("The server:\n"), "{said}");
        assert!(said.contains("--tls"), "{said}");
    }
    for command in [
        "hash",
        "numbers",
        "check",
        "completions",
        "man",
        "serve",
        "run",
        "demo",
    ] {
        let said = help(&[command, "--help"]);
        assert!(!said.contains("--tls"), "{said}");
        assert!(said.contains("--json"), "{said}");
    }
    assert_eq!(help(&["help", "--help"]), help(&["help"]));
}

#[test]
fn a_variable_is_no_option_that_one_has_to_give() {
    let mut misused = rideau();
    misused.env("RIDEAU_SERVER", "127.0.0.1:1");
    let output = misused.arg("take").output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("Usage: rideau take"), "{said}");
    assert!(!said.contains("--server"), "{said}");
}

#[test]
fn a_variable_that_names_no_server_is_misuse() {
    let mut status = rideau();
    status.env("RIDEAU_SERVER", "http://127.0.0.1:1");
    let output = status.arg("status").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the variable RIDEAU_SERVER: http://"),
        "{said}"
    );
}

#[test]
fn misuse_is_told_with_what_to_write_instead() {
    for (words, wanted) in [
        (&["kill", "x"][..], "`rideau status clients`"),
        (&["disable", "x"], "`rideau status processes`"),
        (&["rollback", "x"], "`rideau status history`"),
        (&["status", "--server", "http://127.0.0.1:1"], "redis://"),
        (&["status", "--server", "127.0.0.1:x"], "redis://"),
        (&["run", "--listen", "x:1", "--", "true"], "127.0.0.1:3000"),
    ] {
        let output = rideau().args(words).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(said.contains(wanted), "{words:?} {said}");
    }
}

#[test]
fn another_kind_of_server_is_told_with_where_ours_is() {
    for (answer, options, wanted) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            &[][..],
            "`server.listen`",
        ),
        (b"-ERR\r\n", &["--tls"], "`server.tls_listen`"),
        (
            b"",
            &["--cacert", "/nonexistent/ca.pem"],
            "/nonexistent/ca.pem",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let _ = peer.read(&mut [0; 4096]);
            let _ = peer.write_all(answer);
        });
        let mut status = rideau();
        status.args(["status", "--server", &place]).args(options);
        let output = status.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains("--cacert"), "{said}");
        answering.join().unwrap();
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_a_hint() {
    let nowhere = ["--server", "unix:/nonexistent/rideau.sock"];
    for words in [&["status"][..], &["take", "pg", "--", "true"], &["reload"]] {
        let output = rideau().args(nowhere).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(text(&output.stderr).contains("rideau serve"), "{words:?}");
    }
    let mut json = rideau();
    json.args(nowhere).args(["status", "--json"]);
    let answer: Value = serde_json::from_slice(&json.output().unwrap().stdout).unwrap();
    assert!(answer["error"].as_str().unwrap().contains("no server"));
}

#[test]
fn a_good_file_passes_the_check() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/minimal.toml");
    let output = rideau().arg("check").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("nothing is wrong"));
}

#[test]
fn the_sample_file_and_the_schema_are_printed() {
    let said = |words: &[&str]| rideau().arg("check").args(words).output().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/rideau.toml");
    let sample = said(&["--sample"]);
    assert!(sample.status.success());
    assert_eq!(text(&sample.stdout), fs::read_to_string(file).unwrap());
    let schema: Value = serde_json::from_slice(&said(&["--schema"]).stdout).unwrap();
    assert!(schema["properties"]["server"].is_object());
    for words in [&[][..], &["--sample", "--schema"], &["--sample", "a.toml"]] {
        let output = said(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn the_example_with_every_key_only_lacks_its_files_and_folders() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/rideau.toml");
    let mut check = rideau();
    let output = check.args(["check", "--json"]).arg(&file).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors: Vec<_> = answer["faults"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|fault| fault["level"] == "error")
        .collect();
    let is_missing = |fault: &&Value| {
        let hint = fault["hint"].as_str().unwrap_or_default();
        let starts = [
            "the server needs it to start",
            "run mkdir -p /",
            "a page is a file",
        ];
        starts.iter().any(|start| hint.starts_with(start))
    };
    assert!(errors.iter().all(is_missing), "{errors:?}");
}

#[test]
fn a_bad_file_fails_the_check_and_the_start_with_its_place() {
    let bad = "[pool.pg]\nmaxx = 3\n";
    let folder = std::env::temp_dir().join(format!("rideau-words-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("bad.toml");
    fs::write(&file, bad).unwrap();
    let check = rideau().arg("check").arg(&file).output().unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(text(&check.stdout).contains("bad.toml:2:1  error"));

    let start = rideau().args(["serve", "-c"]).arg(&file).output().unwrap();
    assert_eq!(start.status.code(), Some(1));
    assert!(text(&start.stderr).contains("bad.toml:2:1  error"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_plan_without_a_server_compares_with_the_default_and_says_so() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/minimal.toml");
    let nowhere = ["--server", "unix:/nonexistent/rideau.sock"];
    let mut plan = rideau();
    let output = plan.args(nowhere).arg("plan").arg(&file).output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("pool.licences"));
    assert!(text(&output.stderr).contains("compares with the default"));
}

#[test]
fn bash_can_read_the_completions() {
    let output = rideau().args(["completions", "bash"]).output().unwrap();
    assert!(output.status.success());
    let mut bash = command("bash").arg("-n").stdin(Stdio::piped()).start();
    let mut stdin = bash.stdin.take().unwrap();
    stdin.write_all(&output.stdout).unwrap();
    drop(stdin);
    assert!(bash.wait().unwrap().success());
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let output = rideau().args(["completions", shell]).output().unwrap();
        assert!(text(&output.stdout).contains("rollback"), "{shell}");
    }
}

#[test]
fn each_command_has_a_page_of_the_manual() {
    let folder = std::env::temp_dir().join(format!("rideau-man-{}", std::process::id()));
    let output = rideau().arg("man").arg(&folder).output().unwrap();
    assert!(output.status.success());
    for command in COMMANDS {
        let page = fs::read_to_string(folder.join(format!("rideau-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_hash_of_a_password_is_one_that_the_config_takes() {
    let mut hash = rideau()
        .arg("hash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .start();
    hash.stdin.take().unwrap().write_all(b"hunter2\n").unwrap();
    let output = hash.wait_with_output().unwrap();
    let said = text(&output.stdout).trim_end();
    let parsed = rideau_config::password::Hash::parse(said).unwrap();
    assert!(parsed.verify(b"hunter2"), "the line end is no part of it");
}

#[test]
fn a_range_is_shown_in_numbers() {
    let output = rideau()
        .args(["numbers", "10.0.0.0/8", "0,10000", "2001:db8::/127"])
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "10.0.0.0/8: 281470849515520-281470866292735, 16777216 values, \
         10.0.0.0 to 10.255.255.255\n\
         0,10000: 0-9999, 10000 values\n\
         2001:db8::/127: 42540766411282592856903984951653826560-\
         42540766411282592856903984951653826561, 2 values, 2001:db8:: to 2001:db8::1\n"
    );
    let output = rideau()
        .args(["numbers", "1-3", "--json"])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said[0]["first"], "1");
    assert_eq!(said[0]["count"], "3");
    let output = rideau().args(["numbers", "office"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("\"office\" stands for no values"), "{said}");
}
