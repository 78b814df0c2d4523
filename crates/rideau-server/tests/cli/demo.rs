//! What a person sees first: a server with traffic, and a cluster whose nodes die.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use rideau_testing::{Signal, Start, command, signal};

use crate::served::{rideau, text};

#[test]
fn the_demo_says_where_to_look_and_what_to_type() {
    let output = rideau().args(["demo", "--seconds", "2"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for wanted in [
        "http://127.0.0.1:",
        "redis-cli -p ",
        "TAKE licences WAIT 200",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    let last: Vec<_> = said.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last[..2], ["2", "s"]);
    assert!(
        last[2].parse::<u32>().unwrap() > 0,
        "members are taken: {said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
}

#[test]
fn the_demo_of_a_cluster_kills_a_node_and_loses_nothing() {
    let mut demo = rideau();
    let output = demo.args(["demo", "--cluster", "--seconds", "12"]).output();
    let output = output.unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    assert!(said.contains("is killed (kill -9)"), "{said}");
    assert!(said.contains("   12 s  n1 "), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("0 values given twice, 0 lost: "), "{said}");
    let held: Vec<_> = last.split_whitespace().collect();
    assert!(held[6].parse::<u32>().unwrap() > 0, "{said}");
}

#[test]
fn the_demo_of_a_cluster_leaves_nothing_behind_when_it_is_told_to_end() {
    let mut demo = command(env!("CARGO_BIN_EXE_rideau"));
    demo.args(["demo", "--cluster", "--json"]);
    demo.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut demo = demo.start();
    let folder = PathBuf::from(format!("rideau-demo-{}", demo.id()));
    let folder = std::env::temp_dir().join(folder);
    let out = BufReader::new(demo.stdout.take().unwrap());
    let second = out
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("\"second\":1"));
    assert!(second.is_some(), "it shows what happens");
    assert!(folder.exists());
    signal(demo.id(), Signal::TERM);
    assert!(demo.wait().unwrap().success());
    assert!(!folder.exists(), "its files are gone");
    // A process that is left is found by the test runner.
}

#[test]
fn the_demo_of_a_cluster_says_how_to_get_an_etcd() {
    let mut demo = command("sh");
    let line = "PATH=/nonexistent exec \"$0\" demo --cluster";
    let output = demo
        .args(["-c", line, env!("CARGO_BIN_EXE_rideau")])
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("apt install etcd-server"), "{said}");
    assert!(said.contains("--etcd http://"), "{said}");
}
