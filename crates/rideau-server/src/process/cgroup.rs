//! A cgroup for each child, where we were given one to divide: whoever the child
//! starts stays in it, and all of them are killed at once.
//!
//! It is a help and never a condition. The root of all cgroups was not given to
//! us, even where we may write to it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::geteuid;

use super::procfs::{self, Seen};
use super::run_folder::Place;

/// A new cgroup for a child, if there can be one.
pub(super) fn make(place: &Place) -> Option<PathBuf> {
    let parent = place.cgroup()?;
    let cgroup = parent.join(format!("{}{}", prefix(), place.id));
    // One of the same name is empty: whoever was in it has been ended.
    let _ = fs::remove_dir(&cgroup);
    fs::create_dir(&cgroup).ok()?;
    Some(cgroup)
}

/// Who is in a cgroup and runs.
pub(super) fn inside(cgroup: &Path) -> Vec<Seen> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let numbers = list.lines().filter_map(|number| number.parse().ok());
    numbers.filter_map(procfs::seen).collect()
}

/// Take away what an earlier daemon left in a cgroup, as far as it is empty.
pub(super) fn clean(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.starts_with("rideau-"));
        if is_ours && entry.path().join("cgroup.kill").exists() {
            let _ = fs::remove_dir(entry.path());
        }
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

/// Whoever gives one away says so by its owner, or systemd by an attribute.
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
    format!("rideau-{}-", std::process::id())
}
