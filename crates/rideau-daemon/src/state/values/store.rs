//! The folder for what must outlive the server, made when there is something.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rideau::cluster::Partitions;
use rideau::store::{BatchSection, Embedded, Loaded, Store, StoreError, Take};
use rideau_config::Config;

use super::secret::{Origin, Secret};

/// Where the log and the snapshots are, within the folder.
pub(crate) const RANGES: &str = "ranges";
/// The file that says which cluster has the values now.
const MOVED: &str = "moved";
/// The file of the secret of tickets.
const SECRET: &str = "tickets.key";

/// A folder, opened or not.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    store: Arc<Mutex<Option<Embedded>>>,
    /// A caller that looks does not wait for a disk.
    is_open: AtomicBool,
}

/// A store that keeps something from when its folder is open.
#[derive(Debug)]
pub(super) struct Kept(Option<Arc<Mutex<Option<Embedded>>>>);

/// The folder of a config: what it says, what a supervisor says, or a place of
/// this user and server.
pub(crate) fn folder(config: &Config) -> PathBuf {
    if let Some(path) = &config.store.path {
        return path.clone();
    }
    let full = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    if let Some(path) = full("STATE_DIRECTORY") {
        return path;
    }
    let state = full("XDG_STATE_HOME")
        .or_else(|| full("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"));
    state.join("rideau").join(&config.server.name)
}

/// The cluster that the values of a folder were moved to, if they were.
pub(crate) fn moved_to(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join(MOVED)).ok()?;
    Some(text.trim().to_owned())
}

/// The values of a folder belong to this cluster from now on.
pub(crate) fn mark_moved(folder: &Path, cluster: &str) -> io::Result<()> {
    let file = folder.join(MOVED);
    fs::write(&file, format!("{cluster}\n"))?;
    fs::File::open(&file)?.sync_all()?;
    fs::File::open(folder)?.sync_all()
}

/// The bytes that the tickets of a folder follow from.
pub(crate) fn stored_secret(folder: &Path) -> io::Result<[u8; 32]> {
    let (secret, _) = Secret::random().kept(&folder.join(SECRET))?;
    Ok(secret.bytes())
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            store: Arc::default(),
            is_open: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        *self.store.lock() = None;
    }

    /// Open the folder, to be read. Gives what its tickets follow from.
    pub(super) fn open(&self, secret: &Secret) -> Result<(Secret, Origin), StoreError> {
        let created = create_private(&self.path);
        created.map_err(|error| StoreError::of("make the folder", &self.path, error))?;
        self.check_moved()?;
        let store = Embedded::open(self.path.join(RANGES))?;
        let file = self.path.join(SECRET);
        let secret = secret.kept(&file);
        let secret = secret.map_err(|error| StoreError::of("use the key", &file, error))?;
        *self.store.lock() = Some(store);
        self.is_open.store(true, Ordering::Release);
        Ok(secret)
    }

    /// Open the folder while the server runs. Says whether there was nothing in
    /// it, which has to be.
    pub(super) fn open_late(&self) -> Result<bool, StoreError> {
        let created = create_private(&self.path);
        created.map_err(|error| StoreError::of("make the folder", &self.path, error))?;
        self.check_moved()?;
        let mut store = Embedded::open(self.path.join(RANGES))?;
        let mut is_empty = true;
        let loaded = store.load(Partitions::ONE, &[0], &mut |_, _| {
            is_empty = false;
            Err("it is read only at the start".into())
        });
        if !is_empty {
            return Ok(false);
        }
        loaded?;
        *self.store.lock() = Some(store);
        self.is_open.store(true, Ordering::Release);
        Ok(true)
    }

    /// Values that a cluster has are not given out by this server as well.
    fn check_moved(&self) -> Result<(), StoreError> {
        let Some(cluster) = moved_to(&self.path) else {
            return Ok(());
        };
        let text = format!(
            "its values were moved to the cluster {cluster}. Serve them with [cluster]; or \
             remove the file {MOVED} to give out here again what was here then"
        );
        let error = io::Error::other(text);
        Err(StoreError::of("use the folder", &self.path, error))
    }

    /// Where the key of tickets is.
    pub(super) fn key(&self) -> PathBuf {
        self.path.join(SECRET)
    }

    /// The secret of the server is that of the folder from now on.
    pub(super) fn keep(&self, secret: &Secret) -> Result<(), StoreError> {
        let file = self.path.join(SECRET);
        let kept = secret.write(&file);
        kept.map_err(|error| StoreError::of("keep the secret", &file, error))
    }
}

/// Make a folder that no other account may look into. One that is there stays as it is.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)
}

/// What others can read of a folder that is ours alone: the folder itself, and what
/// we put into it. Each is told with what to do about it.
pub(super) fn open_to_others(folder: &Path) -> Vec<String> {
    let mut open = Vec::new();
    let mut look = |path: &Path, wanted: &str| {
        let mode = fs::metadata(path).map_or(0, |about| about.permissions().mode());
        if mode & 0o077 != 0 {
            let (path, mode) = (path.display(), mode & 0o777);
            open.push(format!(
                "{path} is open to others (mode {mode:03o}): run chmod {wanted} {path}"
            ));
        }
    };
    look(folder, "700");
    let ranges = folder.join(RANGES);
    look(&ranges, "700");
    let files = fs::read_dir(&ranges).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.push(folder.join(SECRET));
    files.sort();
    files.iter().for_each(|file| look(file, "600"));
    open
}

impl Kept {
    pub(super) fn new(folder: Option<&Folder>) -> Self {
        Self(folder.map(|folder| Arc::clone(&folder.store)))
    }

    /// Asks the store, or a store that keeps nothing.
    fn ask<T>(
        &self,
        nothing: T,
        ask: impl FnOnce(&mut Embedded) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self
            .0
            .as_ref()
            .and_then(|store| store.lock().as_mut().map(ask))
        {
            Some(answer) => answer,
            None => Ok(nothing),
        }
    }
}

impl Store for Kept {
    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError> {
        self.ask((), |store| store.append(batch))
    }

    fn load(
        &mut self,
        partitions: Partitions,
        wanted: &[u32],
        each: &mut Take<'_>,
    ) -> Result<Loaded, StoreError> {
        self.ask(Loaded::default(), |store| {
            store.load(partitions, wanted, each)
        })
    }

    fn begin_snapshot(&mut self, partition: u32) -> Result<(), StoreError> {
        self.ask((), |store| store.begin_snapshot(partition))
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.ask((), |store| store.put_chunk(chunk))
    }

    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        self.ask((), Embedded::end_snapshot)
    }

    fn recover(&mut self) -> Result<bool, StoreError> {
        self.ask(false, Embedded::recover)
    }

    fn log_bytes(&self) -> u64 {
        let bytes = self.ask(0, |store| Ok(store.log_bytes()));
        bytes.unwrap_or(0)
    }

    fn fence(&self) -> u64 {
        self.ask(1, |store| Ok(store.fence())).unwrap_or(1)
    }

    fn name(&self) -> &str {
        "ranges"
    }
}
