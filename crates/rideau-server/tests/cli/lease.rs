//! Values that are held while a command runs.

use std::process::Stdio;

use rideau_testing::Start;
use serde_json::Value;

use crate::served::{Served, text};

#[test]
fn a_command_runs_with_its_value_and_gives_it_back() {
    let served = Served::start();
    for _ in 0..2 {
        let show = "echo $1 $RIDEAU_VALUE; test -n \"$RIDEAU_TICKET$RIDEAU_FENCE\"";
        let output = served.run(&["lease", "number", "--", "sh", "-c", show, "-", "<{value}>"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "<1> 1\n");
    }
    let output = served.run(&["lease", "number", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_value_is_renewed_for_as_long_as_its_command_runs() {
    let served = Served::start();
    // It would have run out several times.
    let words = ["lease", "number", "--ttl", "500ms", "--", "sleep", "2"];
    let mut long = served.rideau();
    let mut long = long.args(words).stderr(Stdio::piped()).start();
    let probe = ["--json", "status", "ranges", "number"];
    let held = || {
        let output = served.run(&probe);
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        rows[0]["reserved"].as_u64().unwrap()
    };
    while held() == 0 {
        let ended = long.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "it ended before it held anything: {ended:?}"
        );
    }
    // Whose value is lost is told so with the next word about it.
    let output = long.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(held(), 0, "it was given back");
}

#[test]
fn a_command_that_gets_no_value_does_not_run_and_ends_with_three() {
    let served = Served::start();
    let probe = env!("CARGO_BIN_EXE_rideau");
    let inner = format!("{probe} lease number -- echo ran; echo $?");
    let all = format!("{probe} lease number -- sh -c '{inner}'");
    let output = served.run(&["lease", "number", "--", "sh", "-c", &all]);
    assert_eq!(text(&output.stdout), "3\n");
    assert!(text(&output.stderr).contains("none: 0 of 2 values of number are free"));
}

#[test]
fn without_a_command_the_value_is_printed_and_kept() {
    let served = Served::start();
    let output = served.run(&["--json", "lease", "number", "--ttl", "60s"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["value"], "1");
    let output = served.run(&["explain", "1"]);
    assert!(text(&output.stdout).contains("1 of range number is reserved"));
    let status = served.run(&["status"]);
    let shown = text(&status.stdout);
    let (ranges, views) = (shown.find("RANGE"), shown.find("VIEW"));
    assert!(ranges.is_some() && ranges < views, "{shown}");
    let views = served.run(&["--json", "status", "views", "low"]);
    let views: Value = serde_json::from_slice(&views.stdout).unwrap();
    assert_eq!(views[0]["held"], 1, "{views}");
}

#[test]
fn a_connection_that_is_lost_is_replaced_and_the_value_stays() {
    let served = Served::start();
    let words = ["lease", "number", "--ttl", "20s", "--", "sleep", "2"];
    let mut lease = served.rideau();
    lease.args(words).stderr(Stdio::piped());
    let lease = lease.start();
    let rows = |kind: &str| -> Value {
        let output = served.run(&["--json", "status", kind]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    while rows("ranges")[0]["reserved"] == 0 {}
    // All connections, of which only one lasts.
    for client in rows("clients").as_array().unwrap() {
        let id = client["id"].to_string();
        served.run(&["kill", id.trim_matches('"')]);
    }
    let output = lease.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("trying again"), "{said}");
    assert!(said.contains("connected again"), "{said}");
    assert!(!said.contains("others may get"), "{said}");
    assert_eq!(rows("ranges")[0]["reserved"], 0, "it was given back");
}
