//! The daemon's private folder: its children's sockets, and a record of each
//! child, so that the next daemon can end those that a killed one left behind.
//!
//! A child that came over a stage dies with us, and a reaper ends the processes it
//! has started. Children of a program without a stage live until a daemon opens the
//! same folder again, unless they notice by themselves that they are alone.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::credentials::Credentials;
use super::notify_socket::Notes;
use super::ports::Port;
use super::procfs;
use super::program::{Listen, Program};
use super::reaper::Reaper;
use super::run_lock::{END_MAX, checked, lock};
use super::run_records::{Record, clean, mark, own_folder, record};
use super::{cgroup, pre_exec};

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
            let why = "its options need the stage program, which is missing";
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

/// The files of one child in the folder. Dropping it removes them.
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

    /// The value of the variable by which it is known as ours.
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
