//! The daemon's private folder: its children's sockets, and a record of each
//! child, so that the next daemon can end those that a killed one left behind.
//!
//! A child that came over a stage dies with us, and a reaper ends the processes it
//! has started. Children of a program without a stage live until a daemon opens the
//! same folder again, unless they notice by themselves that they are alone.
//!
//! No process is killed on the word of a number alone. The record has the instant
//! at which the child started and the system's boot, and where those do not fit any
//! more, only a process that was started with our variable is ended.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, geteuid, getpid};

use super::credentials::Credentials;
use super::group::kill;
use super::notify_socket::Notes;
use super::ports::Port;
use super::procfs::{self, Seen};
use super::program::{Listen, Program};
use super::reaper::Reaper;
use super::{cgroup, pre_exec};

/// How often, and how many times at most, the processes that are left are looked
/// for.
const CLEANING_EVERY: Duration = Duration::from_millis(10);
const CLEANING_TIMES: usize = 100;
/// How long a killed daemon and its reaper may take to let go of the folder. Only
/// what hangs takes as long.
const END_MAX: Duration = Duration::from_secs(10);

/// The variable by which a child, and each process it starts, is known as ours.
pub(super) const MARK: &str = "RIDEAU_PROCESS";
/// The path of a Unix socket has 107 bytes at most. This leaves room for a
/// slash, any number and the longest ending.
const PATH_LEN_MAX: usize = 107 - 1 - 20 - ".notify".len();
const _: () = assert!(".d/sock".len() <= ".notify".len());

/// A private folder for the children of one daemon. Clones are the same folder.
#[derive(Clone)]
pub struct RunFolder {
    folder: Arc<Folder>,
    stage: Option<Arc<Path>>,
    cgroup: Option<Arc<Path>>,
}

struct Folder {
    path: String,
    /// Locked for as long as it is open, which children do not inherit.
    _lock: File,
    ended: usize,
    next_id: AtomicU64,
    /// Once there are children. None if no reaper could be had, which is no reason
    /// to have no children.
    reaper: OnceLock<Option<Reaper>>,
}

impl RunFolder {
    /// Open the folder, make it if it is not there, and end what an earlier
    /// daemon left in it.
    ///
    /// A killed daemon that is not gone yet is waited for, some seconds at most. It
    /// is an error if another daemon has it open, if it is another user's, if
    /// others may write to it, or if its path is too long for sockets in it. A
    /// folder made here is closed to all other users; a caller that wants other
    /// users to reach the children's sockets opens it to them.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_within(path, END_MAX)
    }

    /// As [`open`](Self::open), and wait no longer than this for a killed daemon.
    pub fn open_within(path: &Path, within: Duration) -> io::Result<Self> {
        let path = checked(path)?;
        let lock = lock(&path, within)?;
        let ended = clean(&path)?;
        let folder = Folder {
            path,
            _lock: lock,
            ended,
            next_id: AtomicU64::new(1),
            reaper: OnceLock::new(),
        };
        let opened = Self {
            folder: Arc::new(folder),
            stage: None,
            cgroup: None,
        };
        Ok(match pre_exec::is_ours() {
            true => opened
                .with_stage(Path::new(pre_exec::OURSELVES))
                .with_cgroup(cgroup::own()),
            false => opened,
        })
    }

    /// Start children over a stage: a program that calls [`stage`] in its `main`.
    ///
    /// [`stage`]: super::stage()
    #[must_use]
    pub fn with_stage(self, program: &Path) -> Self {
        Self {
            stage: Some(program.into()),
            ..self
        }
    }

    /// Give each child that comes over a stage a cgroup of its own in this one.
    #[must_use]
    pub fn with_cgroup(self, cgroup: Option<PathBuf>) -> Self {
        let _ = cgroup.as_deref().map(cgroup::clean);
        Self {
            cgroup: cgroup.map(Into::into),
            ..self
        }
    }

    /// How many process groups of an earlier daemon were ended when this was
    /// opened.
    pub fn ended(&self) -> usize {
        self.folder.ended
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        Path::new(&self.folder.path)
    }

    /// Make room for a child: a port if it wants one, a listener if we listen
    /// for it, and a folder that it may write to if it is another user's.
    pub(super) fn place(
        &self,
        program: &Program,
        account: Option<&Credentials>,
    ) -> io::Result<Place> {
        if self.stage.is_none() && program.needs_stage() {
            let why = "what it wants needs a stage, and this program has none";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        if let Some(stage) = &self.stage {
            let start = || Reaper::start(stage, &self.folder.path).ok();
            self.folder.reaper.get_or_init(start);
        }
        let id = self.claim()?;
        let mut place = Place {
            run: self.clone(),
            id,
            socket: format!("{}/{id}.sock", self.folder.path),
            port: None,
            listener: None,
        };
        if let Some(account) = account {
            self.open_to_others()?;
            if program.wants_socket() && !program.inherits() {
                place.socket = format!("{}/sock", place.make_folder(account)?);
            }
        }
        if program.wants_port() {
            place.port = Some(Port::claim()?);
        }
        place.listener = match (&program.listen, place.port()) {
            (Listen::InheritSocket, _) => Some(UnixListener::bind(&place.socket)?.into()),
            (Listen::InheritPort, Some(port)) => {
                Some(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.into())
            }
            _ => None,
        };
        Ok(place)
    }

    /// Other users may go through it to what is theirs, and not look around.
    fn open_to_others(&self) -> io::Result<()> {
        let mode = fs::metadata(self.path())?.mode();
        fs::set_permissions(self.path(), Permissions::from_mode(mode | 0o011))
    }

    /// The empty record stands for a child that may have been started. A number
    /// whose record is still there belongs to a child that could not be ended.
    fn claim(&self) -> io::Result<u64> {
        loop {
            let id = self.folder.next_id.fetch_add(1, Ordering::Relaxed);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            match options.open(record(&self.folder.path, id)) {
                Ok(_) => return Ok(id),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What one child has in the folder. Dropping it takes that away.
pub(super) struct Place {
    run: RunFolder,
    pub(super) id: u64,
    pub(super) socket: String,
    port: Option<Port>,
    /// Ours until a child has it.
    listener: Option<OwnedFd>,
}

impl Place {
    /// Where the child is to listen, if it wants a port.
    pub(super) fn port(&self) -> Option<u16> {
        self.port.as_ref().map(Port::number)
    }

    /// The program that children are started with.
    pub(super) fn stage(&self) -> Option<&Path> {
        self.run.stage.as_deref()
    }

    /// Where its cgroup can be.
    pub(super) fn cgroup(&self) -> Option<&Path> {
        self.run.stage.as_ref()?;
        self.run.cgroup.as_deref()
    }

    pub(super) const fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take()
    }

    /// Hear what the child says of itself.
    pub(super) fn listen_for_notes(&self, account: Option<&Credentials>) -> io::Result<Notes> {
        let notes = Notes::listen(&self.notify())?;
        if let Some(account) = account {
            chown(self.notify(), Some(account.uid), Some(account.gid))?;
        }
        Ok(notes)
    }

    fn make_folder(&self, account: &Credentials) -> io::Result<String> {
        let path = own_folder(&self.run.folder.path, self.id);
        DirBuilder::new().mode(0o700).create(&path)?;
        chown(&path, Some(account.uid), Some(account.gid))?;
        Ok(path)
    }

    /// Where the child says that it is ready.
    pub(super) fn notify(&self) -> PathBuf {
        format!("{}/{}.notify", self.run.folder.path, self.id).into()
    }

    /// The value of [`MARK`].
    pub(super) fn mark(&self) -> String {
        mark(&self.run.folder.path, self.id)
    }

    /// Remember a child that was just started and cannot have been reaped.
    pub(super) fn record(&self, pid: i32) -> io::Result<()> {
        let seen = procfs::seen(pid).ok_or(ErrorKind::NotFound)?;
        let text = Record::of(seen).text();
        let path = record(&self.run.folder.path, self.id);
        OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(text.as_bytes())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let record = record(&self.run.folder.path, self.id);
        // They may never have been made, or the child may have taken them away.
        let _ = fs::remove_dir_all(own_folder(&self.run.folder.path, self.id));
        for path in [self.socket.clone().into(), self.notify(), record] {
            let _ = fs::remove_file(path);
        }
    }
}

/// What is written down of a child.
#[derive(PartialEq, Eq, Debug)]
struct Record {
    pid: i32,
    since: u64,
    boot: String,
}

impl Record {
    fn of(seen: Seen) -> Self {
        Self {
            pid: seen.pid,
            since: seen.since,
            boot: procfs::boot(),
        }
    }

    fn text(&self) -> String {
        format!("{} {} {}\n", self.pid, self.since, self.boot)
    }

    /// A record without its end was not written to the end.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        Some(Self {
            pid: words.next()?.parse().ok().filter(|pid| *pid > 1)?,
            since: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
        })
    }

    /// Is this still the same process, and does it lead its group?
    fn names(&self, seen: Seen) -> bool {
        let leads = seen.pid == self.pid && seen.group == self.pid;
        leads && seen.since == self.since && self.boot == procfs::boot()
    }
}

fn record(folder: &str, id: u64) -> PathBuf {
    format!("{folder}/{id}.pid").into()
}

/// The child may write to it, so nothing but the child relies on what is in it.
fn own_folder(folder: &str, id: u64) -> String {
    format!("{folder}/{id}.d")
}

fn mark(folder: &str, id: u64) -> String {
    format!("{folder}/{id}")
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

/// Make the folder if it is not there, and return its path if it will do.
fn checked(path: &Path) -> io::Result<String> {
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
fn lock(folder: &str, within: Duration) -> io::Result<File> {
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

/// End what an earlier daemon left, and say how many groups that were.
fn clean(folder: &str) -> io::Result<usize> {
    let records = records(folder)?;
    let mut groups = HashSet::new();
    let mut kept = HashSet::new();
    for _ in 0..CLEANING_TIMES {
        let mut left = left(folder, &records);
        // Another user's by now: the record stays as a warning.
        left.retain(|(id, _)| !kept.contains(id));
        if left.is_empty() {
            break;
        }
        for (id, seen) in left {
            match kill(seen) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => _ = groups.insert(seen.group),
                Err(_) => _ = kept.insert(id),
            }
        }
        thread::sleep(CLEANING_EVERY);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match part(&path) {
            Some((id, "pid")) if kept.contains(&id) => (),
            Some((_, "sock" | "notify" | "pid")) => fs::remove_file(path)?,
            Some((_, "d")) => fs::remove_dir_all(path)?,
            _ => (),
        }
    }
    Ok(groups.len())
}

/// Whose a file in the folder is, and what.
fn part(path: &Path) -> Option<(u64, &str)> {
    let id = path.file_stem()?.to_str()?.parse().ok()?;
    Some((id, path.extension()?.to_str()?))
}

/// The children that were written down, and those that may have been started and
/// were not.
fn records(folder: &str) -> io::Result<HashMap<u64, Option<Record>>> {
    let mut records = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some((id, "pid")) = part(&path) {
            records.insert(id, Record::read(&fs::read_to_string(&path)?));
        }
    }
    Ok(records)
}

/// What is left of the children: those written down, and all processes that were
/// started with the variable of one of them, wherever they went.
fn left(folder: &str, records: &HashMap<u64, Option<Record>>) -> Vec<(u64, Seen)> {
    if records.is_empty() {
        return Vec::new();
    }
    let named = |seen: &Seen| {
        let mut named = records.iter();
        let found = named.find(|(_, record)| {
            let record = record.as_ref();
            record.is_some_and(|record| record.names(*seen))
        });
        found.map(|(id, _)| *id)
    };
    let marked = |seen: &Seen| {
        let mark = procfs::variable(seen.pid, MARK)?;
        let id = mark.strip_prefix(folder)?.strip_prefix('/')?.parse().ok()?;
        records.contains_key(&id).then_some(id)
    };
    let all = procfs::all().into_iter().filter(|seen| !seen.ended);
    all.filter_map(|seen| Some((named(&seen).or_else(|| marked(&seen))?, seen)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{LockOwner, Record, RunFolder, clean_after, open_lock, own_pid, try_lock};
    use rideau_testing::Scratch;
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;

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
                // It tries now. If it did not wait it would fail, sooner or later.
                for _ in 0..1000 {
                    assert!(opened.try_recv().is_err(), "it did not wait");
                    thread::yield_now();
                }
                drop(lock);
                assert_eq!(opened.recv(), Ok(true));
            });
        }
    }

    #[test]
    fn no_daemon_waits_for_one_that_lives() {
        let scratch = Scratch::new();
        let first = RunFolder::open(scratch.path()).expect("nobody has it");
        let kind = |opened: std::io::Result<RunFolder>| opened.err().map(|error| error.kind());
        let second = RunFolder::open(scratch.path());
        assert_eq!(kind(second), Some(ErrorKind::AddrInUse));
        // A reaper that comes late leaves it alone.
        fs::write(scratch.join("7.sock"), "").expect("the folder is ours");
        clean_after(NONE, scratch.path()).expect("there is nothing to do");
        assert!(scratch.join("7.sock").exists());
        drop(first);
        clean_after(NONE, scratch.path()).expect("nobody has it");
        assert!(!scratch.join("7.sock").exists());
    }

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let record = Record {
            pid: 4711,
            since: 99,
            boot: "5-6".to_owned(),
        };
        let text = record.text();
        assert_eq!(Record::read(&text), Some(record));
        for end in 0..text.len() {
            assert_eq!(Record::read(&text[..end]), None, "{end}");
        }
        assert_eq!(Record::read("1 99 5-6\n"), None);
        assert_eq!(Record::read("-5 99 5-6\n"), None);
    }
}
