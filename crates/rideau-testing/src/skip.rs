//! Tests that cannot run on this machine or as this user.

use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::MetadataExt;
use std::thread;

/// Say that the current test ends here, and why. `./test` counts these lines.
pub fn skipped(why: &str) {
    let test = thread::current();
    let name = test.name().unwrap_or("a test");
    // Written past the harness, which shows nothing of a test that passes and may
    // have begun a line.
    let _ = write!(stderr(), "\nskipped {name}: {why}\n");
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
