//! The lock of a daemon's folder: one daemon at a time, and after it the reaper that ends
//! what it left.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, geteuid, getpid};

use super::procfs;
use super::run_records::{CLEANING_EVERY, clean};

/// How long a killed daemon and its reaper may take to let go of the folder. Only
/// what hangs takes as long.
pub(super) const END_MAX: Duration = Duration::from_secs(10);
/// The path of a Unix socket has 107 bytes at most. This leaves room for a
/// slash, any number and the longest ending.
const PATH_LEN_MAX: usize = 107 - 1 - 20 - ".notify".len();
const _: () = assert!(".d/sock".len() <= ".notify".len());

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

/// Make the folder if it is not there, and return its path if it will do.
pub(super) fn checked(path: &Path) -> io::Result<String> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let path = fs::canonicalize(path)?;
    let path = path
        .to_str()
        .ok_or_else(|| refused("its path is not UTF-8"))?;
    if path.len() > PATH_LEN_MAX {
        let most = format!("its path is longer than {PATH_LEN_MAX} bytes");
        return Err(refused(&most));
    }
    let about = fs::metadata(path)?;
    if about.uid() != geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if about.mode() & 0o022 != 0 {
        return Err(refused("other users may write to it"));
    }
    Ok(path.to_owned())
}

/// Which process has the lock, written to its file after it was taken. What stands
/// there may be of an earlier one.
#[derive(PartialEq, Eq, Debug)]
enum LockOwner {
    Daemon(i32),
    /// It ends what a killed daemon left, and lets go then.
    Reaper(i32),
    Unknown,
}

impl LockOwner {
    fn read(folder: &str) -> Self {
        let text = fs::read_to_string(lock_path(folder)).unwrap_or_default();
        let mut words = text.split_whitespace();
        let (kind, pid) = (words.next(), words.next().and_then(|pid| pid.parse().ok()));
        match (kind, pid) {
            (Some("daemon"), Some(pid)) => Self::Daemon(pid),
            (Some("warden"), Some(pid)) => Self::Reaper(pid),
            _ => Self::Unknown,
        }
    }

    /// In one piece, and as long as any other: no reader gets half of it.
    fn write(self, lock: &File) -> io::Result<()> {
        let text = match self {
            Self::Daemon(pid) => format!("daemon {pid}"),
            Self::Reaper(pid) => format!("warden {pid}"),
            Self::Unknown => String::new(),
        };
        lock.write_all_at(format!("{text:<24}\n").as_bytes(), 0)
    }

    /// It will let go of the folder by itself: a killed daemon, or a reaper.
    fn is_leaving(&self) -> bool {
        match self {
            Self::Daemon(pid) => procfs::is_ending(*pid),
            Self::Reaper(_) => true,
            Self::Unknown => false,
        }
    }
}

/// The lock of a daemon.
pub(super) fn lock(folder: &str, within: Duration) -> io::Result<File> {
    let file = open_lock(folder)?;
    let until = Instant::now() + within;
    loop {
        if try_lock(&file)? {
            LockOwner::Daemon(own_pid()).write(&file)?;
            return Ok(file);
        }
        if Instant::now() >= until {
            break;
        }
        if LockOwner::read(folder).is_leaving() {
            thread::sleep(CLEANING_EVERY);
        // It may have let go since the attempt.
        } else if !try_lock(&file)? && !LockOwner::read(folder).is_leaving() {
            break;
        }
    }
    let taken = "another daemon has it open";
    Err(io::Error::new(ErrorKind::AddrInUse, taken))
}

/// End what a killed daemon left in the folder, unless another daemon has it: that
/// has done the same.
pub(super) fn clean_after(daemon: i32, path: &Path) -> io::Result<()> {
    let path = checked(path)?;
    let file = open_lock(&path)?;
    let until = Instant::now() + END_MAX;
    // What told of the daemon's end is closed before the lock may be.
    while !try_lock(&file)? {
        let next = matches!(LockOwner::read(&path), LockOwner::Daemon(pid) if pid != daemon);
        if next || Instant::now() > until {
            return Ok(());
        }
        thread::sleep(CLEANING_EVERY);
    }
    // It only helps the processes that wait, so there is no harm in a full disk.
    let _ = LockOwner::Reaper(own_pid()).write(&file);
    clean(&path)?;
    Ok(())
}

fn own_pid() -> i32 {
    Pid::as_raw(Some(getpid()))
}

fn open_lock(folder: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(lock_path(folder))
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn lock_path(folder: &str) -> PathBuf {
    Path::new(folder).join("lock")
}

#[cfg(test)]
mod tests {
    use super::{END_MAX, LockOwner, clean_after, open_lock, own_pid, try_lock};
    use crate::RunFolder;
    use rideau_testing::Scratch;
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    /// No process has this number.
    const NONE: i32 = i32::MAX;

    fn locked(scratch: &Scratch, owner: LockOwner) -> File {
        let lock = open_lock(scratch.path().to_str().expect("its path is ASCII"));
        let lock = lock.expect("the folder is ours");
        assert!(try_lock(&lock).expect("a file can be locked"));
        owner.write(&lock).expect("the folder is ours");
        lock
    }

    /// How often this process has a file open.
    fn opened_times(file: &Path) -> usize {
        let files = fs::read_dir("/proc/self/fd")
            .expect("Linux has it")
            .flatten();
        let files = files.filter_map(|entry| fs::read_link(entry.path()).ok());
        files.filter(|open| open == file).count()
    }

    #[test]
    fn a_daemon_waits_for_a_killed_one_and_its_warden() {
        for owner in [LockOwner::Daemon(NONE), LockOwner::Reaper(own_pid())] {
            let scratch = Scratch::new();
            let lock = locked(&scratch, owner);
            let (told, opened) = channel();
            thread::scope(|scope| {
                scope.spawn(|| told.send(RunFolder::open(scratch.path()).is_ok()));
                while opened_times(&scratch.join("lock")) < 2 {
                    thread::yield_now();
                }
                // It tries now. If it did not wait it would fail, sooner or later. On a busy
                // machine this may last as long as it waits at most.
                let since = Instant::now();
                for _ in 0..1000 {
                    if since.elapsed() > END_MAX / 2 {
                        break;
                    }
                    assert!(opened.try_recv().is_err(), "it did not wait");
                    thread::yield_now();
                }
                drop(lock);
                assert_eq!(opened.recv(), Ok(true));
            });
        }
    }

    #[test]
    fn a_daemon_that_lives_is_not_waited_for() {
        let scratch = Scratch::new();
        let first = RunFolder::open(scratch.path()).expect("it is free");
        let kind = |opened: std::io::Result<RunFolder>| opened.err().map(|error| error.kind());
        let second = RunFolder::open(scratch.path());
        assert_eq!(kind(second), Some(ErrorKind::AddrInUse));
        // A reaper that comes late leaves it alone.
        fs::write(scratch.join("7.sock"), "").expect("the folder is ours");
        clean_after(NONE, scratch.path()).expect("there is nothing to do");
        assert!(scratch.join("7.sock").exists());
        drop(first);
        clean_after(NONE, scratch.path()).expect("it is free");
        assert!(!scratch.join("7.sock").exists());
    }
}
