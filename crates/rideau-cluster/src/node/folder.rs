//! The folder of a node: the ids of its lives, and what it saw of etcd.
//!
//! A process that has the folder's lock knows that the process before it is dead. So it may
//! remove that one's key, if the key has one of the ids that are kept here.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::NodeError;

/// How many ids are kept.
const IDS_MAX: usize = 16;
const IDS: &str = "incarnations";
const SEEN: &str = "etcd";

/// A folder whose lock this process has.
#[derive(Debug)]
pub(super) struct NodeFolder {
    path: PathBuf,
    /// Held as long as this value lives.
    _lock: File,
    machine: String,
    /// The newest last.
    ids: Vec<u64>,
    seen: Option<EtcdSeen>,
}

/// The id and revision of etcd that were seen: a restored etcd has another id or a smaller
/// revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EtcdSeen {
    pub(super) cluster: u64,
    pub(super) revision: u64,
    /// When a restored etcd was accepted last, in milliseconds since 1970; zero if never.
    pub(super) accepted: u64,
}

impl NodeFolder {
    /// Take the lock, and read what an earlier process left.
    pub(super) fn open(path: &Path) -> Result<Self, NodeError> {
        Self::open_on(path, machine_id())
    }

    fn open_on(path: &Path, machine: String) -> Result<Self, NodeError> {
        let failed = |error| NodeError::Folder {
            path: path.to_owned(),
            error,
        };
        fs::create_dir_all(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(NodeError::FolderTaken(path.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let ids = read(&path.join(IDS)).map_err(failed)?;
        let seen = read(&path.join(SEEN)).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            ids: ids_of(&ids, &machine),
            machine,
            seen: seen_of(&seen),
        })
    }

    /// The ids of earlier lives on this machine, the newest last.
    pub(super) fn ids(&self) -> &[u64] {
        &self.ids
    }

    pub(super) const fn seen(&self) -> Option<EtcdSeen> {
        self.seen
    }

    /// Keep the id of a life that begins.
    pub(super) fn remember(&mut self, id: u64) -> io::Result<()> {
        self.ids.push(id);
        let excess = self.ids.len().saturating_sub(IDS_MAX);
        self.ids.drain(..excess);
        let mut text = format!("1 {}\n", self.machine);
        for id in &self.ids {
            text.push_str(&format!("{id}\n"));
        }
        replace(&self.path, IDS, &text)
    }

    /// Keep what was seen of etcd.
    pub(super) fn saw(&mut self, seen: EtcdSeen) -> io::Result<()> {
        if self.seen == Some(seen) {
            return Ok(());
        }
        self.seen = Some(seen);
        let EtcdSeen {
            cluster,
            revision,
            accepted,
        } = seen;
        let text = format!("1 {cluster:016x} {revision} {accepted}\n");
        replace(&self.path, SEEN, &text)
    }
}

/// Reads a file; empty if it does not exist.
fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Write a file so that after a power cut there is either the old or the new one.
fn replace(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Ids that were written on another machine do not count: the folder was copied, and the
/// process there may live.
fn ids_of(text: &str, machine: &str) -> Vec<u64> {
    let mut lines = text.lines();
    if lines.next() != Some(&format!("1 {machine}")) {
        return Vec::new();
    }
    lines.filter_map(|line| line.parse().ok()).collect()
}

fn seen_of(text: &str) -> Option<EtcdSeen> {
    let mut words = text.trim().strip_prefix("1 ")?.split(' ');
    Some(EtcdSeen {
        cluster: u64::from_str_radix(words.next()?, 16).ok()?,
        revision: words.next()?.parse().ok()?,
        // Earlier versions did not write it.
        accepted: words.next().map_or(Some(0), |word| word.parse().ok())?,
    })
}

/// The id of this machine. Without one a copied folder is not noticed.
fn machine_id() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    match id.trim() {
        "" => "unknown".to_owned(),
        id => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rideau_testing::Scratch;

    use super::*;

    fn open(path: &Path, machine: &str) -> NodeFolder {
        NodeFolder::open_on(path, machine.to_owned()).expect("it is free")
    }

    #[test]
    fn ids_outlive_the_process_on_the_same_machine() {
        let scratch = Scratch::new();
        let path = scratch.join("node");
        let mut folder = open(&path, "a");
        assert_eq!((folder.ids(), folder.seen()), (&[][..], None));
        for id in 0..20 {
            folder.remember(id).expect("it is written");
        }
        let seen = EtcdSeen {
            cluster: u64::MAX - 3,
            revision: 12,
            accepted: 7,
        };
        folder.saw(seen).expect("it is written");
        drop(folder);
        let folder = open(&path, "a");
        assert_eq!(folder.ids(), Vec::from_iter(4..20));
        assert_eq!(folder.seen(), Some(seen));
        drop(folder);
        assert!(open(&path, "b").ids().is_empty());
    }

    #[test]
    fn a_folder_is_one_process_s() {
        let scratch = Scratch::new();
        let folder = open(scratch.path(), "a");
        let taken = NodeFolder::open(scratch.path());
        assert!(matches!(taken, Err(NodeError::FolderTaken(_))));
        drop(folder);
        assert!(NodeFolder::open(scratch.path()).is_ok());
    }
}
