//! A store in a folder of its own.
//!
//! Batches go into log files, snapshots into redb. Which log goes on after which
//! snapshot stands in redb too, so that both change in one step. A snapshot of a
//! partition begins where a log file does, and a log goes when no partition needs it.
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
use std::path::{Path, PathBuf};

use rideau_core::cluster::Partitions;

use super::{BatchSection, Loaded, Store, StoreError, Take};
use load::Opened;
use log::Log;
use mark::{Mark, Told};
use place::Place;
use recover::Left;
use snapshots::{Snapshots, State};

mod create;
mod load;
mod log;
mod mark;
mod pages;
mod place;
mod private;
mod recover;
mod sections;
mod snapshots;

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

/// Invariant: the mark never names more than is on the disk.
#[derive(Debug)]
struct Writing {
    partitions: Partitions,
    snapshots: Snapshots,
    /// The snapshot that was begun last, ended or not.
    snapshot: u64,
    /// What counts of each partition.
    states: Vec<State>,
    mark: Mark,
    log: Log,
    /// The number of its file.
    file: u64,
    /// Bytes of batches, all that are read or written so far,
    total: u64,
    /// and how many they were when the snapshot of each partition began.
    starts: Vec<u64>,
    begun: Option<Begun>,
    /// A batch as it is written, if its sections do not stand there as they are.
    encoded: Vec<u8>,
    /// Where the files have to be that are written.
    places: [Place; 3],
}

/// A snapshot that is not ended yet.
#[derive(Debug)]
struct Begun {
    partition: u32,
    state: State,
    start: u64,
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
        let opened = Opened::open(&folder)?;
        Ok(Self {
            folder,
            fence: opened.fence() + 1,
            stage: Stage::Opened(Box::new(opened)),
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
                partitions: writing.partitions,
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
    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError> {
        StoreError::unless_all_fit(batch)?;
        let before = match &self.stage {
            Stage::Writing(writing) => Some(writing.log.reach()),
            Stage::Opened(_) | Stage::Stopped { .. } => None,
        };
        let done = self.write(|writing, _| writing.append(batch));
        if let Stage::Stopped { left, .. } = &mut self.stage
            && let Some(left) = left.as_mut().filter(|left| before == Some(left.reach))
        {
            let mut encoded = Vec::new();
            left.batch = Some(sections::encode(left.partitions, batch, &mut encoded).to_vec());
        }
        done
    }

    fn recover(&mut self) -> Result<bool, StoreError> {
        self.try_again()
    }

    fn load(
        &mut self,
        partitions: Partitions,
        wanted: &[u32],
        each: &mut Take<'_>,
    ) -> Result<Loaded, StoreError> {
        if !wanted.iter().copied().eq(0..partitions.count()) {
            return Err(StoreError::NOT_ALL);
        }
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
        let loaded = opened.load(&self.folder, partitions, self.fence, each);
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

    fn begin_snapshot(&mut self, partition: u32) -> Result<(), StoreError> {
        self.write(|writing, folder| writing.begin_snapshot(partition, folder))
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
            Stage::Writing(writing) => writing.log_bytes(),
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

impl Writing {
    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError> {
        let count = self.partitions.count();
        if batch.iter().any(|section| section.partition >= count) {
            return Err(StoreError::NO_PARTITION);
        }
        let mut encoded = std::mem::take(&mut self.encoded);
        let bytes = sections::encode(self.partitions, batch, &mut encoded);
        let done = self.append_encoded(bytes);
        self.encoded = encoded;
        self.total += sections::len(batch);
        done
    }

    fn append_encoded(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.log.append(bytes)?;
        self.tell()?;
        // What no start would find is not acknowledged.
        self.places.iter().try_for_each(Place::check)
    }

    /// Bytes of batches since the oldest snapshot that counts began.
    fn log_bytes(&self) -> u64 {
        let oldest = self.starts.iter().min();
        self.total - oldest.copied().unwrap_or_default()
    }

    fn begin_snapshot(&mut self, partition: u32, folder: &Path) -> Result<(), StoreError> {
        let before = self.states.get(partition as usize).copied();
        let before = before.ok_or(StoreError::NO_PARTITION)?;
        let reach = self.log.reach();
        if reach != self.log.begins_after() {
            self.log = Log::create(folder, self.file + 1, self.salt(), reach, None)?;
            self.places[0] = self.log.place()?;
            self.file += 1;
        }
        self.snapshot += 1;
        self.begun = Some(Begun {
            partition,
            state: State {
                snapshot: self.snapshot,
                chunks: 0,
                check: self.salt(),
                file: self.file,
                reach,
                ..before
            },
            start: self.total,
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
        let partition = begun.partition as usize;
        self.states[partition] = begun.state;
        self.snapshots.set(partition, &self.states)?;
        self.starts[partition] = begun.start;
        self.tell()?;
        self.remove_old(folder);
        Ok(())
    }

    fn tell(&mut self) -> Result<(), StoreError> {
        self.mark.tell(Told {
            fence: self.states[0].fence,
            snapshot: snapshots::newest(&self.states),
            reach: self.log.reach(),
        })
    }

    fn salt(&self) -> u64 {
        self.states[0].salt
    }

    /// Removes what no start will read. What cannot be removed is tried again
    /// after the next snapshot.
    fn remove_old(&self, folder: &Path) {
        let needed = snapshots::oldest_file(&self.states);
        let remove = || {
            for file in log::files(folder)? {
                if file < needed {
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
