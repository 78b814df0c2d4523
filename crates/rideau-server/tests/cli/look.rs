//! What operators see of a server, and change of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::Start;
use serde_json::Value;

use crate::served::{Served, text};

fn json(served: &Served, words: &[&str]) -> Value {
    let output = served.run(&[words, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stdout)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_status_shows_what_there_is() {
    let served = Served::start();
    let output = served.run(&["status"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for wanted in ["POOL ", "licences", "BROKER ", "default", "LOCK "] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(json(&served, &["status"])["pools"][0]["name"], "licences");
    assert_eq!(json(&served, &["status", "pool", "licences"])[0]["max"], 1);
}

#[test]
fn the_status_says_how_many_alarms_are_on() {
    let served = Served::start();
    let file = served.folder().join("rideau.toml");
    let alarms = "[[alarm]]\nname = \"always on\"\nwhen = \"pool.licences.free >= 0\"\n\
                  [[alarm]]\nname = \"never on\"\nwhen = \"pool.licences.free > 9\"\n";
    let config = fs::read_to_string(&file).unwrap() + alarms;
    fs::write(&file, config).unwrap();
    let applied = served.run(&["apply", file.to_str().unwrap()]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let since = Instant::now();
    loop {
        let output = served.run(&["status"]);
        let said = text(&output.stdout);
        if said.contains("\n1 alarm is on: always on\n") {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{said}");
        thread::sleep(Duration::from_millis(50));
    }
    let never = &json(&served, &["status", "alarms", "never on"])[0];
    assert_eq!(
        (&never["state"], &never["value"]),
        (&"off".into(), &1.into())
    );
    assert_eq!(never["when"], "pool.licences.free > 9");
}

#[test]
fn what_is_not_there_is_an_error_that_says_what_is() {
    let served = Served::start();
    for (words, wanted) in [
        (
            &["status", "pools", "nope"][..],
            "`rideau status pools` lists",
        ),
        (
            &["status", "history", "999"],
            "`rideau status history` lists",
        ),
        (
            &["status", "nope"],
            "there is no status of \"nope\"; there is: pools,",
        ),
        (
            &["take", "nope", "--", "true"],
            "`rideau status pools` lists",
        ),
        (&["logs", "nope"], "`rideau status apps` lists"),
        (&["disable", "9"], "`rideau status processes` lists"),
        (&["rollback", "999"], "`rideau status history` shows"),
    ] {
        let output = served.run(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?} {said}");
        assert!(said.contains(wanted), "{words:?} {said}");
    }
    // There may be none today.
    for words in [["status", "events", "nope"], ["status", "refusals", "nope"]] {
        assert_eq!(json(&served, &words), serde_json::json!([]));
    }
    let nobody = served.run(&["holders", "nope"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("nothing is called \"nope\""));
    // A pool may not be held just now.
    let free = served.run(&["holders", "licences"]);
    assert!(free.status.success());
    assert!(text(&free.stderr).contains("\"licences\" is neither held"));
}

#[test]
fn values_of_a_list_are_free_before_they_were_ever_held() {
    let served = Served::start();
    let pool = || json(&served, &["status", "pools", "licences"])[0].clone();
    assert_eq!(pool()["idle"], 1, "{}", pool());
    let explained = served.run(&["explain", "licences"]);
    let said = text(&explained.stdout);
    assert!(
        said.contains("1 value in its list: 0 held, 1 free."),
        "{said}"
    );
    let kept = served.run(&["take", "licences", "--session", "60s"]);
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    assert_eq!(pool()["idle"], 0, "{}", pool());
    assert_eq!(pool()["held"], 1, "{}", pool());
}

#[test]
fn dates_and_sizes_are_shown_with_what_they_are() {
    let served = Served::start();
    let history = served.run(&["status", "history"]);
    let said = text(&history.stdout);
    let date = said
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(1));
    let digits: Vec<_> = date.unwrap().split('-').map(str::len).collect();
    assert_eq!(digits, [4, 2, 2], "{said}");
    let limits = served.run(&["status", "limits", "pipeline_max"]);
    assert!(text(&limits.stdout).contains("64 KiB"), "{limits:?}");
    // The table says which limits are sizes; so does the config.
    let config = json(&served, &["status", "config"]);
    for limit in json(&served, &["status", "limits"]).as_array().unwrap() {
        let path = format!("limits.{}", limit["name"].as_str().unwrap());
        let row = config.as_array().unwrap().iter();
        let row = row.clone().find(|row| row["name"] == path).unwrap();
        let is_size = row["value"]
            .as_str()
            .unwrap()
            .trim_matches('"')
            .ends_with('B');
        assert_eq!(limit["unit"] == "bytes", is_size, "{limit} {row}");
    }
}

#[test]
fn the_versions_of_the_config_are_listed_for_a_rollback() {
    let served = Served::start();
    let set = served.run(&["set", "pool.licences.leak_after", "1h"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let history = json(&served, &["status", "history"]);
    let versions = history.as_array().unwrap();
    assert!(versions.len() >= 2, "{history}");
    let all = versions.iter().filter_map(|row| row["version"].as_u64());
    let first = all.min().unwrap().to_string();
    let back = served.run(&["rollback", &first]);
    assert!(back.status.success(), "{}", text(&back.stderr));
}

#[test]
fn holders_are_shown_with_their_notes_and_can_be_killed() {
    let served = Served::start();
    let take = ["take", "licences", "--note", "bridge.dwg", "--", "cat"];
    let mut holder = served.rideau();
    holder.args(take).stdin(Stdio::piped());
    holder.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut holder = holder.start();
    let held = loop {
        let held = json(&served, &["holders", "licences"]);
        if let Some(row) = held.get(0) {
            break row.clone();
        }
    };
    assert_eq!(held["note"], "bridge.dwg");
    let explained = served.run(&["explain", held["ticket"].as_str().unwrap()]);
    assert!(text(&explained.stdout).contains("licences"));

    let id = held["connection"].to_string();
    assert!(served.run(&["kill", &id]).status.success());
    let mut line = String::new();
    let mut said = BufReader::new(holder.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("lost"), "{line}");
    assert_eq!(served.run(&["kill", "999999"]).status.code(), Some(1));
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn a_refusal_can_be_explained_by_its_id() {
    let served = Served::start();
    served.run(&["ask", "default", "--wait", "1ms"]);
    let drops = json(&served, &["status", "refusals"]);
    let id = drops[0]["id"].as_str().unwrap();
    let explained = served.run(&["explain", id]);
    assert!(text(&explained.stdout).contains("default"), "{drops}");
    assert!(json(&served, &["explain", id]).is_object());
}

#[test]
fn a_config_is_planned_applied_and_rolled_back() {
    let served = Served::start();
    let file = served.folder().join("rideau.toml");
    let changed = fs::read_to_string(&file).unwrap() + "\n[broker.more]\n";
    let file = served.folder().join("more.toml");
    fs::write(&file, changed).unwrap();
    let file = file.to_str().unwrap();
    let brokers = || {
        json(&served, &["status", "brokers"])
            .as_array()
            .unwrap()
            .len()
    };

    let plan = served.run(&["plan", file]);
    assert!(
        text(&plan.stdout).contains("broker.more"),
        "{}",
        text(&plan.stderr)
    );
    assert!(text(&plan.stdout).contains("rideau apply"));
    assert_eq!(brokers(), 1);
    let applied = served.run(&["apply", file]);
    assert!(
        !text(&applied.stdout).contains("rideau apply"),
        "it is done"
    );
    assert_eq!(brokers(), 2);
    assert!(served.run(&["rollback"]).status.success());
    assert_eq!(brokers(), 1);
    let third = served.run(&["set", "broker.third.asks.target", "50ms"]);
    assert_eq!(third.status.code(), Some(1), "set makes nothing new");
    assert_eq!(brokers(), 1);
    assert!(served.run(&["apply", file]).status.success());
    assert_eq!(brokers(), 2);
    assert!(served.run(&["reload"]).status.success());
    assert_eq!(brokers(), 1);

    fs::write(file, "[broker.more]\naskss = 1\n").unwrap();
    let bad = served.run(&["apply", file]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        text(&bad.stderr).contains("more.toml:2:1  error"),
        "{}",
        text(&bad.stderr)
    );
    assert_eq!(brokers(), 1);
}

#[test]
fn events_are_followed_as_lines_of_json() {
    let served = Served::start();
    let mut tail = served.rideau();
    tail.args(["tail", "--json"]).stdout(Stdio::piped());
    let mut tail = tail.start();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // It may subscribe only after the first change.
    let (done, is_done) = std::sync::mpsc::channel();
    let event = thread::scope(|scope| {
        let served = &served;
        scope.spawn(move || {
            for span in 1.. {
                let value = format!("{span}s");
                served.run(&["set", "pool.licences.leak_after", &value]);
                if is_done.try_recv().is_ok() {
                    return;
                }
            }
        });
        let line = lines.next().unwrap().unwrap();
        done.send(()).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    });
    assert!(event["kind"].is_string(), "{event}");
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn what_a_client_sends_does_not_command_our_terminal() {
    let served = Served::start();
    let wild = "\x1b[31mred\u{9b}2J";
    let take = ["take", "licences", "--session", "60s", "--note"];
    let refused = served.run(&[&take[..], &[wild]].concat());
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("NOTE"), "{refused:?}");
    // Whatever else a holder says of itself is shown as it is.
    let note = "grün und 漢字";
    let held = served.run(&[&take[..], &[note]].concat());
    assert!(held.status.success(), "{}", text(&held.stderr));
    assert_eq!(json(&served, &["holders"])[0]["note"], note);
    let is_wild = |c: char| c.is_control() && c != '\n';
    for words in [
        &[&take[..], &[wild]].concat()[..],
        &["explain", wild],
        &["take", wild, "--", "true"],
        &["holders", wild],
    ] {
        let output = served.run(words);
        for said in [&output.stdout, &output.stderr] {
            assert!(!text(said).contains(is_wild), "{words:?} {}", text(said));
        }
    }
}
