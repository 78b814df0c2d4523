//! How many files the process may have open, and the programs that it starts.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that programs know, before it was raised.
static USUAL: OnceLock<Option<u64>> = OnceLock::new();

/// Raise the limit of open files to the most that the system allows. Says how many.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = USUAL.set(limit.current);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

/// How many files the system allows the process, if it wants them all.
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// The limit was raised already, by a program that started this one: programs that we start
/// know this one. Called before [`raise_open_files`].
pub fn inherit_open_files(usual: Option<u64>) {
    let _ = USUAL.set(usual);
}

/// The limit that was there before it was raised.
pub fn open_files_usual() -> Option<u64> {
    usual()
}

/// How many files a program that we start may have unless it raises that itself, as we
/// did: some cannot use more.
pub(super) fn usual() -> Option<u64> {
    USUAL.get().copied().flatten()
}
