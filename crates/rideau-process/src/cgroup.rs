//! A cgroup for each child, where we were given one to divide: every process that
//! the child starts stays in it, and all of them are killed at once.
//!
//! It is a help and never a condition. The root of all cgroups was not given to
//! us, even where we may write to it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::getxattr;
use rustix::process::geteuid;

use super::procfs::{self, Seen};

/// The prefix of all our cgroup names.
const NAME: &str = "rideau-";
/// How often, and how many times at most, processes that a daemon left are killed.
const END_EVERY: Duration = Duration::from_millis(10);
const END_TIMES: usize = 100;

/// A new cgroup for a child, if there can be one.
pub(super) fn make(parent: Option<&Path>, id: u64) -> Option<PathBuf> {
    let cgroup = parent?.join(format!("{}{id}", prefix()));
    // One of the same name is empty: every process in it has been ended.
    let _ = fs::remove_dir(&cgroup);
    fs::create_dir(&cgroup).ok()?;
    Some(cgroup)
}

/// The processes that are in a cgroup and run.
pub(super) fn inside(cgroup: &Path) -> Vec<Seen> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let numbers = list.lines().filter_map(|number| number.parse().ok());
    numbers.filter_map(procfs::seen).collect()
}

/// Take away what earlier daemons left in a cgroup, and kill the processes in it.
///
/// A daemon is in the cgroup that it divides: one that is not there, where we are,
/// has ended. Where some processes there have no number for us, none is killed.
/// Says whether nothing of theirs is left.
pub(super) fn clean(parent: &Path) -> bool {
    let mut is_clean = true;
    let there = fs::read_to_string(parent.join("cgroup.procs")).unwrap_or_default();
    let there: Vec<u32> = there.lines().filter_map(|pid| pid.parse().ok()).collect();
    let knows = there.contains(&std::process::id()) && !there.contains(&0);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let cgroup = entry.path();
        let Some(daemon) = entry.file_name().to_str().and_then(daemon_of) else {
            continue;
        };
        // An empty one of a daemon that is there may be about to be entered.
        if !there.contains(&daemon) && fs::remove_dir(&cgroup).is_err() && knows {
            end(&cgroup);
        }
        is_clean &= !cgroup.exists();
    }
    is_clean
}

/// The same in the one that we are in, when the daemon that was in it has just
/// ended: it may still be counted for a moment.
pub(super) fn clean_own() {
    let Some(own) = own() else {
        return;
    };
    for _ in 0..END_TIMES {
        if clean(&own) {
            return;
        }
        thread::sleep(END_EVERY);
    }
}

/// Kill all processes in a cgroup, and take it away.
fn end(cgroup: &Path) {
    for _ in 0..END_TIMES {
        if fs::write(cgroup.join("cgroup.kill"), "1").is_err() || fs::remove_dir(cgroup).is_ok() {
            return;
        }
        thread::sleep(END_EVERY);
    }
}

/// The cgroup that this program is in, if it was given to us.
pub(super) fn own() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let at = mounts.lines().find_map(|row| {
        let words: Vec<&str> = row.split(' ').collect();
        (*words.get(2)? == "cgroup2").then(|| words[1].to_owned())
    })?;
    let ours = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = ours.lines().find_map(|row| row.strip_prefix("0::/"))?;
    let own = Path::new(&at).join(path);
    (!path.is_empty() && is_given(&own)).then_some(own)
}

/// A cgroup that was given away says so by its owner, or by an attribute of
/// systemd.
fn is_given(cgroup: &Path) -> bool {
    let us = geteuid().as_raw();
    let is_ours = |file: &Path| fs::metadata(file).is_ok_and(|about| about.uid() == us);
    let is_said = |name: &str| {
        let mut value = [0; 8];
        getxattr(cgroup, name, &mut value).is_ok_and(|len| value[..len] == *b"1")
    };
    let is_said = us != 0 || is_said("trusted.delegate") || is_said("user.delegate");
    is_said && is_ours(cgroup) && is_ours(&cgroup.join("cgroup.procs"))
}

/// Two daemons in one cgroup do not meet.
fn prefix() -> String {
    format!("{NAME}{}-", std::process::id())
}

/// The daemon whose child has a cgroup of this name, if that is one of ours.
fn daemon_of(name: &str) -> Option<u32> {
    let (daemon, child) = name.strip_prefix(NAME)?.split_once('-')?;
    child.parse::<u64>().ok()?;
    daemon.parse().ok()
}
