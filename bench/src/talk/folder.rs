//! Folders of servers, removed with them, on a disk that keeps what it is given.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::fs::statfs;

/// A folder that is removed with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// In the temporary folder of the system, which may be in memory.
    pub(crate) fn new() -> Self {
        Self::within(&env::temp_dir())
    }

    pub(crate) fn within(folder: &Path) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let folder = folder.join(format!("rideau-bench-{}-{number}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where a write to the disk is one, and the name of its file system.
pub(crate) struct Disk {
    pub(crate) folder: PathBuf,
    pub(crate) system: String,
}

impl Disk {
    /// The temporary folder if it is on a disk, or else that of this program.
    pub(crate) fn find() -> Option<Self> {
        let program = env::current_exe().ok()?;
        [env::temp_dir(), program.parent()?.into()]
            .into_iter()
            .find_map(|folder| {
                let system = file_system(&folder)?;
                let is_memory = ["tmpfs", "ramfs"].contains(&system.as_str());
                (!is_memory).then_some(Self { folder, system })
            })
    }
}

/// The kernel tells a number; those that people use have a name.
fn file_system(folder: &Path) -> Option<String> {
    let number = statfs(folder).ok()?.f_type as u64;
    let known = [
        (0x0102_1994, "tmpfs"),
        (0x8584_58f6, "ramfs"),
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x2fc1_2fc1, "zfs"),
        (0xf2f5_2010, "f2fs"),
        (0x794c_7630, "overlayfs"),
        (0x6969, "nfs"),
    ];
    let found = known.iter().find(|(known, _)| *known == number);
    Some(found.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).into()))
}
