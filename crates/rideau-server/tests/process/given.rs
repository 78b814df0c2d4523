//! A cgroup that a test may divide, where one can be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rideau_testing::skipped;
use rustix::fs::{XattrFlags, setxattr};

/// A cgroup that was given to us, as systemd does it. It is gone with this.
pub(crate) struct Given(PathBuf);

impl Given {
    /// One in the cgroup that `RIDEAU_TEST_CGROUP` names, or in our own. None where
    /// that is not possible, which is said.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let named = std::env::var_os("RIDEAU_TEST_CGROUP").map(PathBuf::from);
        let name = format!("test-rideau-{}-{number}", std::process::id());
        let made = named.or_else(own).and_then(|parent| {
            let path = parent.join(name);
            fs::create_dir(&path).ok()?;
            Some(Self(path))
        });
        let given = made.filter(|given| {
            // What it is for is there since Linux 5.14.
            let can_kill = given.0.join("cgroup.kill").exists();
            can_kill && setxattr(&given.0, "trusted.delegate", b"1", XattrFlags::empty()).is_ok()
        });
        if given.is_none() {
            skipped("no cgroup can be made here: that needs cgroup2 and root");
        }
        given
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The cgroups within it.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.is_dir()).collect()
    }
}

/// The numbers of those in a cgroup.
pub(crate) fn inside(cgroup: &Path) -> Vec<i32> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    list.lines().flat_map(str::parse).collect()
}

fn own() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut rows = mounts.lines().map(|row| row.split(' ').collect::<Vec<_>>());
    let at = rows.find(|words| words.get(2) == Some(&"cgroup2"))?[1].to_owned();
    let ours = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = ours.lines().find_map(|row| row.strip_prefix("0::/"))?;
    Some(Path::new(&at).join(path))
}

impl Drop for Given {
    fn drop(&mut self) {
        // A test that failed has left more than usual.
        for _ in 0..100 {
            let _ = fs::write(self.0.join("cgroup.kill"), "1");
            self.parts()
                .iter()
                .for_each(|part| drop(fs::remove_dir(part)));
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
