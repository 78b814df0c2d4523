//! What tests start ends with them: after a panic, after a kill, and at the latest
//! when the test program has ended.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Signal, Start, command, signal};

const PATIENCE: Duration = Duration::from_secs(60);
/// Set where a test is run again in a process of its own.
const ALONE: &str = "RIDEAU_TEST_ALONE";
/// Leaves a process in a session of its own, where no guard finds it.
const LEAVE: &str = "setsid sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done";

#[test]
fn a_panic_ends_the_child_and_its_group() {
    let mut pids = Vec::new();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let (_family, started) = family();
        pids = started;
        panic!("a test fails");
    }));
    assert!(ended.is_err());
    assert_eq!(pids.len(), 2);
    until_gone(&pids);
}

#[test]
fn a_group_does_not_outlive_the_wait_for_its_leader() {
    let (mut family, pids) = family();
    assert!(family.try_wait().unwrap().is_none());
    signal(pids[0], Signal::KILL);
    let status = family.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    assert_eq!(family.try_wait().unwrap(), Some(status));
    until_gone(&pids);
}

#[test]
fn the_kernel_ends_children_of_a_killed_test_process() {
    if env::var_os(ALONE).is_some() {
        // Started by another thread than this, which ends before the process does.
        let child = std::thread::spawn(|| command("sleep").arg("1000").start());
        let child = child.join().unwrap();
        println!("child {}", child.id());
        return sleep(PATIENCE);
    }
    let mut test = command(env::current_exe().unwrap());
    test.args([
        "--exact",
        "the_kernel_ends_children_of_a_killed_test_process",
    ]);
    test.arg("--nocapture").env(ALONE, "1");
    let mut test = test.stdout(Stdio::piped()).start();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let child = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, pid) = line.split_once("child ")?;
        Some(pid.parse().unwrap())
    });
    let child = child.unwrap();
    assert!(runs(child));
    signal(test.id(), Signal::KILL);
    until_gone(&[child]);
}

#[test]
fn the_runner_reports_and_ends_what_is_left() {
    let mut runner = command(env!("CARGO_BIN_EXE_rideau-test-runner"));
    let output = runner.args(["0", "sh", "-c", LEAVE]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, pid) = said.split_once("process ").unwrap();
    let pid = pid.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(
        said,
        format!("left running by a test of sh: process {pid} (sleep 1000)\n")
    );
    assert!(!runs(pid));
}

#[test]
fn the_runner_names_the_test_that_left_something() {
    // The environment of the child says nothing; that of its parent does.
    let name = rideau_testing::TEST_NAME;
    let file = env::temp_dir().join(format!("rideau-ends-{}", std::process::id()));
    let script = format!(
        "{name}=cli::hold setsid sh -c 'env -i sleep 1000 & echo $! >{file}; wait' & \
         until test -s {file}; do :; done; rm {file}",
        file = file.display()
    );
    let mut runner = command(env!("CARGO_BIN_EXE_rideau-test-runner"));
    let output = runner.args(["0", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let is_named = |line: &str| line.starts_with("left running by cli::hold: process ");
    assert!(
        said.lines().count() == 2 && said.lines().all(is_named),
        "{said}"
    );
}

#[test]
fn the_runner_ends_as_its_program_did_and_waits_for_what_ends_by_itself() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let mut runner = command(env!("CARGO_BIN_EXE_rideau-test-runner"));
        let script = format!("sleep 0.1 & {script}");
        let output = runner.args(["60", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(output.stdout, b"");
    }
}

/// A shell and its child, which ignores what is asked of it.
fn family() -> (Running, Vec<u32>) {
    let script =
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & wait";
    let mut shell = command("sh");
    let mut shell = shell.args(["-c", script]).stdout(Stdio::piped()).start();
    let mut line = String::new();
    let mut lines = BufReader::new(shell.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let pids = vec![shell.id(), line.trim().parse().unwrap()];
    assert!(pids.iter().all(|pid| runs(*pid)));
    (shell, pids)
}

fn until_gone(pids: &[u32]) {
    let until = Instant::now() + PATIENCE;
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(Instant::now() < until, "{pids:?} still run");
        sleep(Duration::from_millis(2));
    }
}

/// Does a process with this number run? A zombie does not.
fn runs(pid: u32) -> bool {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    let stat = fs::read_to_string(stat).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
    !state.starts_with(['Z', 'X'])
}
