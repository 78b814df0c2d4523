//! Things that are held while a command runs.

use std::io::Read;
use std::process::Stdio;

use rideau_testing::{Signal, Start, signal};
use serde_json::Value;

use crate::served::{Served, text, wait_for};

#[test]
fn a_command_runs_with_its_member_and_gives_it_back() {
    let served = Served::start();
    for _ in 0..2 {
        let show = "echo $1 $RIDEAU_MEMBER; test -n \"$RIDEAU_TICKET\"";
        let words = ["take", "licences", "--", "sh", "-c", show, "-", "<{value}>"];
        let output = served.run(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "<CAD-001> CAD-001\n");
    }
}

#[test]
fn the_code_of_the_command_is_ours() {
    let served = Served::start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        for words in [["take", "licences"], ["lock", "key"]] {
            let mut run = served.rideau();
            run.args(words)
                .args(["--fail-on-error", "--", "sh", "-c", script]);
            let output = run.output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{words:?} {script}");
        }
    }
    let missing = served.run(&["lock", "key", "--", "/nonexistent/command"]);
    assert_eq!(missing.status.code(), Some(127));
    let unknown = served.run(&["take", "no-such-pool", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("NOSUCH pool"));
}

#[test]
fn a_refused_command_does_not_run_and_ends_with_three() {
    let served = Served::start();
    let probe = env!("CARGO_BIN_EXE_rideau");
    let inner = |words: &str| format!("{probe} {words} -- echo ran; echo $?");
    for words in ["lock key", "take licences --wait 0"] {
        let mut outer = served.rideau();
        outer.args(words.split(' ').take(2));
        outer.args(["--", "sh", "-c", &inner(words)]);
        let output = outer.output().unwrap();
        assert_eq!(text(&output.stdout), "3\n", "{words}");
        assert!(!output.stderr.is_empty(), "{words}");
    }
    let json = format!("{probe} lock key --json -- true");
    let output = served.run(&["lock", "key", "--", "sh", "-c", &json]);
    assert_eq!(output.status.code(), Some(3));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = "1 of 1 unit is held; WAIT waits for one";
    let id = &answer[5];
    assert_eq!(
        answer,
        serde_json::json!(["full", 0, why, "busy", null, id])
    );
    assert!(
        id.as_str().is_some_and(|id| id.starts_with("d-")),
        "{answer}"
    );
}

#[test]
fn fences_grow() {
    let served = Served::start();
    let fence = || -> u64 {
        let output = served.run(&["lock", "key", "--", "sh", "-c", "echo $RIDEAU_FENCE"]);
        text(&output.stdout).trim().parse().unwrap()
    };
    assert!(fence() < fence());
}

#[test]
fn so_many_units_can_be_held_and_no_more() {
    let served = Served::start();
    let probe = env!("CARGO_BIN_EXE_rideau");
    let lock = |units: u32| format!("lock key --per 2 --buckets 2 --units {units}");
    for (units, said) in [(1, "ran\n0\n"), (2, "3\n")] {
        let script = format!("{probe} {} -- echo ran; echo $?", lock(units));
        let mut outer = served.rideau();
        outer
            .args(lock(3).split(' '))
            .args(["--", "sh", "-c", &script]);
        assert_eq!(text(&outer.output().unwrap().stdout), said);
    }
}

#[test]
fn a_holder_that_is_killed_leaves_it_to_the_next() {
    let served = Served::start();
    for words in [["take", "licences"], ["lock", "key"]] {
        let mark = served.folder().join(format!("{}-began", words[0]));
        // The command ends with its standard input, and that with this test.
        let script = format!("touch {}; exec cat", mark.display());
        let mut holder = served
            .rideau()
            .args(words)
            .args(["--", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .start();
        wait_for(&mark);
        let busy = served.run(&[words[0], words[1], "--wait", "0", "--", "true"]);
        assert_eq!(busy.status.code(), Some(3), "{words:?}");

        let mut next = served.rideau();
        next.args(words)
            .args(["--wait", "20s", "--", "echo", "mine"]);
        let next = next.stdout(Stdio::piped()).start();
        signal(holder.id(), Signal::KILL);
        let output = next.wait_with_output().unwrap();
        assert_eq!(text(&output.stdout), "mine\n", "{words:?}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
    }
}

#[test]
fn a_holder_that_is_killed_takes_its_command_with_it() {
    let served = Served::start();
    for words in [["take", "licences"], ["lock", "key"], ["lease", "number"]] {
        let mark = served.folder().join(format!("{}-bound", words[0]));
        let script = format!("touch {}; exec cat", mark.display());
        let mut holder = served.rideau();
        holder.args(words).args(["--", "sh", "-c", &script]);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.start();
        // Its input stays open: only a signal ends it.
        let _input = holder.stdin.take();
        wait_for(&mark);
        signal(holder.id(), Signal::KILL);
        let mut said = String::new();
        let mut out = holder.stdout.take().unwrap();
        // The command has the other end, too.
        out.read_to_string(&mut said).unwrap();
        holder.wait().unwrap();
    }
}

#[test]
fn a_signal_to_us_reaches_the_command() {
    let served = Served::start();
    let mark = served.folder().join("began");
    let script = format!(
        "trap 'exit 9' TERM; touch {}; while :; do sleep 0.05; done",
        mark.display()
    );
    let mut holder = served.rideau();
    holder.args(["lock", "key", "--", "sh", "-c", &script]);
    let mut holder = holder.start();
    wait_for(&mark);
    signal(holder.id(), Signal::TERM);
    assert_eq!(holder.wait().unwrap().code(), Some(9));
}

#[test]
fn a_lost_server_is_told_and_the_command_goes_on_or_not() {
    for (option, code) in [(None, 5), (Some("--kill-on-loss"), 9)] {
        let mut served = Served::start();
        let (mark, end) = (served.folder().join("began"), served.folder().join("end"));
        let script = format!(
            "trap 'exit 9' TERM; touch {}; until test -e {}; do sleep 0.05; done; exit 5",
            mark.display(),
            end.display()
        );
        let mut holder = served.rideau();
        holder.args(["lock", "key"]).args(option);
        holder.args(["--", "sh", "-c", &script]);
        let holder = holder.stderr(Stdio::piped()).start();
        wait_for(&mark);
        served.kill();
        if option.is_none() {
            std::fs::write(&end, "").unwrap();
        }
        let output = holder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{option:?}");
        // Without the option the command may have ended before the loss was seen.
        if option.is_some() {
            assert!(text(&output.stderr).contains("lost"), "{option:?}");
        }
    }
}

#[test]
fn a_session_keeps_what_it_holds_until_it_is_revoked() {
    let served = Served::start();
    let kept = served.run(&["take", "licences", "--session", "60s", "--json"]);
    let kept: Value = serde_json::from_slice(&kept.stdout).unwrap();
    assert_eq!(kept["member"], "CAD-001");
    let busy = ["take", "licences", "--wait", "0", "--", "true"];
    assert_eq!(served.run(&busy).status.code(), Some(3));
    let ticket = kept["ticket"].as_str().unwrap();
    let revoked = served.run(&["revoke", ticket]);
    assert!(revoked.status.success(), "{}", text(&revoked.stderr));
    assert!(served.run(&busy).status.success());
    let again = served.run(&["revoke", ticket]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn a_session_that_holds_nothing_does_not_stay() {
    let served = Served::start();
    let kept = served.run(&["lock", "key", "--session", "60s"]);
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    let busy = served.run(&["lock", "key", "--session", "60s"]);
    assert_eq!(busy.status.code(), Some(3));
    let unknown = served.run(&["take", "no-such-pool", "--session", "60s"]);
    assert_eq!(unknown.status.code(), Some(1));
    let sessions = served.run(&["status", "sessions", "--json"]);
    let sessions: Value = serde_json::from_slice(&sessions.stdout).unwrap();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn an_ask_and_an_offer_get_each_other() {
    let served = Served::start();
    let mut offer = served.rideau();
    offer.args(["offer", "default", "--wait", "20s", "--value", "worker"]);
    offer.args(["--", "sh", "-c", "echo did $RIDEAU_VALUE; exit 4"]);
    let offer = offer.stdout(Stdio::piped()).start();
    let mut ask = served.rideau();
    ask.args([
        "ask",
        "default",
        "--wait",
        "20s",
        "--value",
        "job",
        "--until-done",
    ]);
    let asked = ask.output().unwrap();
    assert_eq!(text(&asked.stdout), "worker\ndone exit 4\n");
    let offered = offer.wait_with_output().unwrap();
    assert_eq!(offered.status.code(), Some(4));
    assert_eq!(text(&offered.stdout), "did job\n");

    let alone = served.run(&["ask", "default", "--wait", "10ms", "--json"]);
    assert_eq!(alone.status.code(), Some(3));
    let answer: Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!(answer[0], "timeout");
}
