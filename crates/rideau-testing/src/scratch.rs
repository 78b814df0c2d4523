//! A folder for one test, gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::statvfs;

/// Where Linux has files in memory.
const IN_MEMORY: &str = "/dev/shm";
/// Room for the servers that tests start at a time, some of which take much of it at once.
const ROOM_MIN: u64 = 4 << 30;

/// A folder for one test.
pub struct Scratch(PathBuf);

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Where files are in memory, if the machine has room for them there: what a server syncs does
/// not wait for a disk that others are busy with. The temporary folder if it has not.
pub fn memory_folder() -> PathBuf {
    let has_room = statvfs(IN_MEMORY)
        .is_ok_and(|system| system.f_bavail.saturating_mul(system.f_frsize) >= ROOM_MIN);
    match has_room {
        true => IN_MEMORY.into(),
        false => std::env::temp_dir(),
    }
}

impl Scratch {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the temporary folder is not there.
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// One in [memory](memory_folder), if there is room.
    ///
    /// # Panics
    ///
    /// If the folder cannot be made.
    pub fn in_memory() -> Self {
        Self::within(&memory_folder())
    }

    fn within(place: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-scratch-{}-{number}", process::id());
        let path = place.join(name);
        // A test that was killed may have had our number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where something in it is.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
