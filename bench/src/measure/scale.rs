//! Weighs memory in a fresh process, as pages tell it.
//!
//! An allocator that counts would be in the way of every timed operation.

use std::env;
use std::fs;
use std::process::Command;

/// On the command line: only weigh a subject of a benchmark, in this process.
pub(crate) const WEIGH: &str = "weigh";

/// Starts this program again to weigh `what` of a benchmark's subject.
pub(crate) fn weigh_apart(bench: &str, subject: &str, what: &str) -> f64 {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args([WEIGH, bench, subject, what])
        .output()
        .expect("this program can be started again");
    let bytes = String::from_utf8_lossy(&output.stdout);
    bytes.trim().parse().expect("a scale prints a number")
}

pub(crate) fn resident_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has smaps_rollup");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes
        .and_then(|number| number.parse().ok())
        .expect("resident memory is given in kB");
    kilobytes * 1024
}
