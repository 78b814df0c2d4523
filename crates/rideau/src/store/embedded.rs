//! A store in a folder of its own.
//!
//! Batches go into log files, snapshots into redb. Which log goes on after which
//! snapshot stands in redb too, so that both change in one step.
//!
//! Why the log is not in redb or fjall as well: of a store of 30 batches, 250
//! bytes of the main file were flipped one by one, and its end was torn.
//!
//! - fjall 3.1 reported 249 of them. At the other 2, in a frame, it dropped all
//!   batches from there on, cut its file, and said nothing. A page missing within
//!   the last batch, as a power cut may leave it, kept it from opening at all.
//! - redb 4.4 gave wrong bytes back for 49 of them when the file was closed well,
//!   unless asked to check itself. After a crash it went back by one commit, at
//!   5 of them, and did not say so. A file that was cut off it refused.
//!
//! So with either the checks, the numbers and the mark would be needed on top,
//! and they are most of a log. One writer, a sync each time, 1,500 batches of
//! random bytes, ext4, two cores and a disk shared with others, real-time priority
//! (at an ordinary one all of them waited 4 ms for the processor); the least and
//! the most of four runs, of two for redb, in ms:
//!
//! | batch | | this | fjall | redb |
//! |---|---|---|---|---|
//! | 100 B | p50 | 0.035–0.049 | 0.042–0.049 | 0.11–0.14 |
//! | | p99 | 0.07–0.13 | 0.10–0.15 | 0.22–0.34 |
//! | 10 KB | p50 | 0.044–0.059 | 0.090–0.11 | 0.17–0.20 |
//! | | p99 | 0.76–0.97 | 0.19–0.39 | 5.1–8.4 |
//! | 50 KB | p50 | 0.063–0.088 | 0.15–0.17 | 0.26–0.36 |
//! | | p99 | 0.90–6.7 | 0.26–4.0 | 4.0 |
//!
//! Small batches cost what they cost in fjall. For larger ones the p99 here is
//! that of making room, once a megabyte: with steps of 16 MiB it was 0.08–0.19,
//! and the longest wait 31–44.
//!
//! That was through the system's cache, as the others write. [Past it](pages) a small
//! batch takes a fifth to a third less, and half the processor time.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Loaded, Piece, Store, StoreError, Take};
use log::{Log, Written, gap, lost};
use mark::{Mark, Told};
use place::Place;
use recover::Left;
use snapshots::{Snapshots, State};

mod log;
mod mark;
mod pages;
mod place;
mod private;
mod recover;
mod snapshots;

/// Says which format a folder has. Read before anything else.
const FORMAT_NAME: &str = "format";
const FORMAT: u32 = 1;
const FORMAT_TEXT: &str = "rideau store ";
/// Stands there until the folder holds all that it needs.
const CREATING_TEXT: &str = "rideau store is being created";

/// A store in a folder.
#[derive(Debug)]
pub struct Embedded {
    folder: PathBuf,
    fence: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Opened(Box<Opened>),
    Writing(Box<Writing>),
    Stopped {
        why: String,
        /// What there was, if it may be written again.
        left: Option<Left>,
    },
}

#[derive(Debug)]
struct Opened {
    snapshots: Snapshots,
    state: State,
    mark: mark::Found,
}

/// Invariant: the mark never names more than is on the disk.
#[derive(Debug)]
struct Writing {
    snapshots: Snapshots,
    /// The snapshot that was begun last, ended or not.
    snapshot: u64,
    state: State,
    mark: Mark,
    log: Log,
    /// The number of its file.
    file: u64,
    /// Bytes of batches since the snapshot that counts began.
    log_bytes: u64,
    begun: Option<Begun>,
    /// Where the files have to be that are written.
    places: [Place; 3],
}

/// A snapshot that is not ended yet.
#[derive(Debug)]
struct Begun {
    state: State,
    /// What of the log's bytes it will replace.
    log_bytes: u64,
}

impl Embedded {
    /// Opens the store in `folder`, or creates it there.
    ///
    /// # Errors
    ///
    /// If the folder is open elsewhere, cannot be written, has a newer format,
    /// or lacks what was in it.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        let snapshots = if is_created(&folder)? {
            Snapshots::open(&folder)?
        } else {
            create(&folder)?
        };
        let state = snapshots.state()?;
        let mark = Mark::open(&folder, state.salt)?;
        if state.fence < mark.told.fence || state.snapshot < mark.told.snapshot {
            let what = "its newest change is gone, and a client was told of it";
            return Err(snapshots.corrupt(what.into()));
        }
        Ok(Self {
            folder,
            fence: state.fence + 1,
            stage: Stage::Opened(Box::new(Opened {
                snapshots,
                state,
                mark,
            })),
        })
    }

    /// Does one step of writing, if nothing has failed before; if this fails,
    /// nothing is written any more.
    fn write<T>(
        &mut self,
        step: impl FnOnce(&mut Writing, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let done = match &mut self.stage {
            Stage::Opened(_) => return Err(StoreError::NOT_LOADED),
            Stage::Stopped { why, .. } => return Err(StoreError::Stopped { why: why.clone() }),
            Stage::Writing(writing) => step(writing, &self.folder),
        };
        if let Err(error) = &done
            && !matches!(error, StoreError::OutOfTurn { .. })
        {
            self.stop(error);
        }
        done
    }

    fn stop(&mut self, error: &StoreError) {
        let left = match &self.stage {
            Stage::Writing(writing) if error.can_pass() => Some(Left {
                reach: writing.log.reach(),
                batch: None,
            }),
            _ => None,
        };
        self.stage = Stage::Stopped {
            why: error.to_string(),
            left,
        };
    }
}

impl Store for Embedded {
    fn append(&mut self, batch: &[u8]) -> Result<(), StoreError> {
        StoreError::unless_fits(batch)?;
        let before = match &self.stage {
            Stage::Writing(writing) => Some(writing.log.reach()),
            Stage::Opened(_) | Stage::Stopped { .. } => None,
        };
        let done = self.write(|writing, _| writing.append(batch));
        if let Stage::Stopped { left, .. } = &mut self.stage
            && let Some(left) = left.as_mut().filter(|left| before == Some(left.reach))
        {
            left.batch = Some(batch.to_vec());
        }
        done
    }

    fn recover(&mut self) -> Result<bool, StoreError> {
        self.try_again()
    }

    fn load(&mut self, each: &mut Take<'_>) -> Result<Loaded, StoreError> {
        let before = std::mem::replace(
            &mut self.stage,
            Stage::Stopped {
                why: "the store was not loaded to its end".into(),
                left: None,
            },
        );
        let opened = match before {
            Stage::Opened(opened) => opened,
            other => {
                self.stage = other;
                return Err(StoreError::LOADED_TWICE);
            }
        };
        let loaded = opened.load(&self.folder, self.fence, each);
        match loaded {
            Ok((writing, loaded)) => {
                self.stage = Stage::Writing(Box::new(writing));
                Ok(loaded)
            }
            Err(error) => {
                self.stop(&error);
                Err(error)
            }
        }
    }

    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        self.write(Writing::begin_snapshot)
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        StoreError::unless_fits(chunk)?;
        self.write(|writing, _| writing.put_chunk(chunk))
    }

    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        self.write(Writing::end_snapshot)
    }

    fn log_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Writing(writing) => writing.log_bytes,
            Stage::Opened(_) | Stage::Stopped { .. } => 0,
        }
    }

    fn fence(&self) -> u64 {
        self.fence
    }

    fn name(&self) -> &'static str {
        "embedded"
    }
}

impl Drop for Embedded {
    /// After a good end even a power cut leaves no doubt about the last batch.
    fn drop(&mut self) {
        if let Stage::Writing(writing) = &self.stage {
            // Where it fails, the mark is as old as after a crash.
            let _ = writing.mark.sync();
        }
    }
}

impl Opened {
    fn load(
        mut self,
        folder: &Path,
        fence: u64,
        each: &mut Take<'_>,
    ) -> Result<(Writing, Loaded), StoreError> {
        let mut loaded = Loaded::default();
        self.look_through(&mut loaded)?;
        self.snapshots.each(&self.state, |chunk| {
            loaded.give(Piece::Snapshot(chunk), each)
        })?;
        let before = loaded.bytes;
        let (last, file) = self.read_logs(folder, &mut loaded, each)?;
        let (log, file) = self.go_on(folder, &last, file, &mut loaded)?;
        self.state.fence = fence;
        self.snapshots.set(self.state)?;
        let places = [
            log.place()?,
            self.mark.mark.place()?,
            self.snapshots.place()?,
        ];
        let mut writing = Writing {
            places,
            snapshots: self.snapshots,
            snapshot: self.state.snapshot,
            state: self.state,
            mark: self.mark.mark,
            log,
            file,
            log_bytes: loaded.bytes - before,
            begun: None,
        };
        writing.tell()?;
        writing.mark.sync()?;
        writing.remove_old(folder);
        Ok((writing, loaded))
    }

    fn look_through(&mut self, loaded: &mut Loaded) -> Result<(), StoreError> {
        if self.mark.half {
            let note = "one of the two marks is unreadable; the other is at most a batch older";
            loaded.notes.push(note.into());
        }
        if !self.snapshots.look_through()? {
            let note = "redb put its own lists in order; the snapshot was not touched";
            loaded.notes.push(note.into());
        }
        if self.snapshots.has_unended(&self.state)? {
            let note = "dropped a snapshot that was never ended";
            loaded.notes.push(note.into());
        }
        Ok(())
    }

    /// Gives all batches that are whole, and returns the last file and its number.
    fn read_logs(
        &self,
        folder: &Path,
        loaded: &mut Loaded,
        each: &mut Take<'_>,
    ) -> Result<(Written, u64), StoreError> {
        let salt = self.state.salt;
        let files = log::files(folder)?;
        let newest = files.last().copied().unwrap_or_default();
        let mut file = self.state.file;
        let mut written = Written::open(folder, file, salt)?;
        if written.reach() != self.state.reach {
            return Err(gap(&written, self.state.reach));
        }
        while file < newest {
            let next = Written::open(folder, file + 1, salt)?;
            // What lies behind was given up when the next file was begun.
            self.read_log(&mut written, next.reach().number, loaded, each)?;
            if written.reach() != next.reach() {
                return Err(lost(&written, next.reach().number));
            }
            written = next;
            file += 1;
        }
        self.read_log(&mut written, u64::MAX, loaded, each)?;
        Ok((written, file))
    }

    /// Gives the batches of one file up to a number.
    fn read_log(
        &self,
        written: &mut Written,
        until: u64,
        loaded: &mut Loaded,
        each: &mut Take<'_>,
    ) -> Result<(), StoreError> {
        let told = self.mark.told.reach;
        while let Some(record) = written.peek()
            && record.number <= until
        {
            if record.number == told.number && record.check != told.check {
                return Err(gap(written, told));
            }
            loaded.give(Piece::Batch(record.batch), each)?;
            written.pass();
        }
        Ok(())
    }

    /// Decides about what comes after the last whole record, and opens a file to
    /// go on with.
    fn go_on(
        &self,
        folder: &Path,
        last: &Written,
        file: u64,
        loaded: &mut Loaded,
    ) -> Result<(Log, u64), StoreError> {
        let salt = self.state.salt;
        let reach = last.reach();
        let told = self.mark.told.reach.number;
        if reach.number < told {
            return Err(lost(last, told));
        }
        let torn = last.has_tail();
        if torn {
            if let Some(later) = last.survivor() {
                return Err(lost(last, later));
            }
            loaded.notes.push(format!(
                "dropped the beginning of batch {}, which no client was told of, at byte {} of {}",
                reach.number + 1,
                last.end(),
                last.path.display()
            ));
        }
        // It may be whole in the system's memory only, after a sync that failed.
        // So it is written once more, where nothing is known to have failed.
        let unsure = last.last().filter(|_| reach.number > told);
        if !torn && unsure.is_none() {
            return Ok((Log::resume(last, salt)?, file));
        }
        let (before, first) = unsure.unzip();
        let before = before.unwrap_or(reach);
        let log = Log::create(folder, file + 1, salt, before, first)?;
        Ok((log, file + 1))
    }
}

impl Writing {
    fn append(&mut self, batch: &[u8]) -> Result<(), StoreError> {
        self.log.append(batch)?;
        self.log_bytes += batch.len() as u64;
        self.tell()?;
        // What no start would find is not acknowledged.
        self.places.iter().try_for_each(Place::check)
    }

    fn begin_snapshot(&mut self, folder: &Path) -> Result<(), StoreError> {
        let reach = self.log.reach();
        self.log = Log::create(folder, self.file + 1, self.state.salt, reach, None)?;
        self.places[0] = self.log.place()?;
        self.file += 1;
        self.snapshot += 1;
        self.begun = Some(Begun {
            state: State {
                snapshot: self.snapshot,
                chunks: 0,
                check: self.state.salt,
                file: self.file,
                reach,
                ..self.state
            },
            log_bytes: self.log_bytes,
        });
        Ok(())
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        let state = &mut self.begun.as_mut().ok_or(StoreError::NOT_BEGUN)?.state;
        state.check = self.snapshots.put(state, chunk)?;
        state.chunks += 1;
        Ok(())
    }

    fn end_snapshot(&mut self, folder: &Path) -> Result<(), StoreError> {
        let begun = self.begun.take().ok_or(StoreError::NOT_BEGUN)?;
        self.snapshots.set(begun.state)?;
        self.state = begun.state;
        self.log_bytes -= begun.log_bytes;
        self.tell()?;
        self.remove_old(folder);
        Ok(())
    }

    fn tell(&mut self) -> Result<(), StoreError> {
        self.mark.tell(Told {
            fence: self.state.fence,
            snapshot: self.state.snapshot,
            reach: self.log.reach(),
        })
    }

    /// Removes what no start will read. What cannot be removed is tried again
    /// after the next snapshot.
    fn remove_old(&self, folder: &Path) {
        let remove = || {
            for file in log::files(folder)? {
                if file < self.state.file {
                    let path = Log::path_of(folder, file);
                    let removed = fs::remove_file(&path);
                    removed.map_err(|error| StoreError::of("remove a log", &path, error))?;
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = remove() {
            tracing::warn!(%error, "an old log stays on the disk for now");
        }
    }
}

/// Whether the folder holds a store of this format. Not if there is none yet,
/// or if its creation was interrupted.
fn is_created(folder: &Path) -> Result<bool, StoreError> {
    let path = folder.join(FORMAT_NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if holds_remains(folder)? {
                let what = "this file is needed and is not there".into();
                Err(StoreError::Corrupt { what, path })
            } else {
                Ok(false)
            };
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(StoreError::of("read the format", &path, error)),
    };
    if text == CREATING_TEXT {
        return Ok(false);
    }
    let found = text
        .strip_prefix(FORMAT_TEXT)
        .and_then(|text| text.strip_suffix('\n'));
    match found.and_then(|found| found.parse().ok()) {
        Some(FORMAT) => Ok(true),
        Some(found) if found > FORMAT => Err(StoreError::Newer {
            path,
            found,
            known: FORMAT,
        }),
        _ => Err(StoreError::Corrupt {
            what: "this file does not say which format the folder has".into(),
            path,
        }),
    }
}

/// Whether a store was here once.
fn holds_remains(folder: &Path) -> Result<bool, StoreError> {
    if !folder.exists() {
        return Ok(false);
    }
    let named = [snapshots::NAME, mark::NAME]
        .iter()
        .any(|name| folder.join(name).exists());
    Ok(named || !log::files(folder)?.is_empty())
}

/// Creates an empty store. Until it is whole the folder says so, and the next
/// start begins anew.
fn create(folder: &Path) -> Result<Snapshots, StoreError> {
    let path = folder.join(FORMAT_NAME);
    let begun = private::create_folder(folder).and_then(|()| begin_file(&path, CREATING_TEXT));
    begun.map_err(|error| StoreError::of("create a store", folder, error))?;
    let state = State::new();
    let snapshots = Snapshots::create(folder)?;
    // Another process may have been faster before this one had the lock.
    if is_created(folder)? {
        return Ok(snapshots);
    }
    snapshots.set(state)?;
    Log::create(folder, state.file, state.salt, state.reach, None)?;
    Mark::create(folder, state.salt)?;
    let ended = replace_file(&path, &format!("{FORMAT_TEXT}{FORMAT}\n"));
    ended.map_err(|error| StoreError::of("create a store", folder, error))?;
    Ok(snapshots)
}

/// Puts a small file where none is. It is there whole, or not at all.
fn begin_file(path: &Path, text: &str) -> io::Result<()> {
    let new = write_beside(path, text)?;
    match fs::hard_link(new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| sync_name(path)),
    }
}

/// Puts a small file in the place of another, in one step.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    fs::rename(write_beside(path, text)?, path)?;
    sync_name(path)
}

fn write_beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let new = path.with_extension("new");
    // The one that is there may be another name of the file itself.
    if new.exists() {
        fs::remove_file(&new)?;
    }
    let mut file = private::create_file(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(new)
}

/// Makes the names of a file and of its folder outlive a power cut.
fn sync_name(path: &Path) -> io::Result<()> {
    let folders = path.ancestors().skip(1).take(2);
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        log::sync_folder(folder)?;
    }
    Ok(())
}
