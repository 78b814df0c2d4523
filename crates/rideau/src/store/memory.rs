//! A store in memory, whose disk outlives it and fails when told to.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rideau_core::cluster::Partitions;

use super::{BATCH_LEN_MAX, BatchSection, Loaded, Piece, Store, StoreError, Take};

/// The disk of [`Memory`] stores.
///
/// Open one, drop it as a crash would, and open the next: it finds what the
/// first one was told is safe.
#[derive(Clone, Debug, Default)]
pub struct Platter(Arc<Shared>);

/// What goes wrong, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An append fails, and leaves this behind.
    Append(Left),
    /// An append finds no room.
    Full,
    /// A chunk cannot be put.
    Chunk,
    /// The end of a snapshot fails, and it counts nevertheless if this is set.
    End(bool),
}

/// What a failed append leaves on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// The beginning of the batch, which the next start drops.
    Torn,
    /// All of it, though no caller was told.
    Whole,
}

/// Keeps every write waiting as long as it lives.
#[derive(Debug)]
pub struct Hold(Arc<Shared>);

/// A store on a [`Platter`].
#[derive(Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    fence: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Opened,
    Loaded,
    Stopped { why: String },
}

#[derive(Debug, Default)]
struct Shared {
    disk: Mutex<Disk>,
    /// Rung when no write is kept waiting any more.
    let_go: Condvar,
}

#[derive(Debug)]
struct Disk {
    fence: u64,
    /// Those that it was first loaded with.
    partitions: Option<Partitions>,
    parts: Vec<Part>,
    /// Batches that a partition needs.
    log: VecDeque<Batch>,
    /// How many batches were there before the first of them.
    trimmed: u64,
    /// How many of them a caller was told of.
    acknowledged: usize,
    torn: bool,
    begun: Option<Begun>,
    faults: VecDeque<Fault>,
    holds: usize,
    batch_len_max: usize,
}

/// Sections, each with its partition.
type Batch = Vec<(u32, Vec<u8>)>;

/// What is kept of a partition beside its sections.
#[derive(Clone, Debug, Default)]
struct Part {
    snapshot: Vec<Vec<u8>>,
    /// How many batches were there before its snapshot began.
    from: u64,
}

/// A snapshot that is not ended yet.
#[derive(Debug)]
struct Begun {
    partition: u32,
    part: Part,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            fence: 0,
            partitions: None,
            parts: vec![Part::default()],
            log: VecDeque::new(),
            trimmed: 0,
            acknowledged: 0,
            torn: false,
            begun: None,
            faults: VecDeque::new(),
            holds: 0,
            batch_len_max: BATCH_LEN_MAX,
        }
    }
}

impl Platter {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a store on it. Those opened before may no longer write.
    pub fn open(&self) -> Memory {
        let mut disk = self.0.disk.lock();
        disk.fence += 1;
        Memory {
            shared: Arc::clone(&self.0),
            fence: disk.fence,
            stage: Stage::Opened,
        }
    }

    /// Lets the next call that can fail in this way do so. Several come true in
    /// their order.
    pub fn inject(&self, fault: Fault) {
        self.0.disk.lock().faults.push_back(fault);
    }

    /// Keeps every write waiting until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.disk.lock().holds += 1;
        Hold(Arc::clone(&self.0))
    }

    /// Loses the last `count` batches, as a disk does that said they were safe.
    pub fn lose_tail(&self, count: usize) {
        let log = &mut self.0.disk.lock().log;
        log.truncate(log.len().saturating_sub(count));
    }

    /// From now on batches should have at most this many bytes.
    pub fn limit_batches(&self, len_max: usize) {
        self.0.disk.lock().batch_len_max = len_max;
    }

    /// How many chunks the last snapshots have that came to their end.
    pub fn chunks(&self) -> usize {
        let disk = self.0.disk.lock();
        disk.parts.iter().map(|part| part.snapshot.len()).sum()
    }

    /// How many batches the next start would read.
    pub fn batches(&self) -> usize {
        self.0.disk.lock().log.len()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.disk.lock().holds -= 1;
        self.0.let_go.notify_all();
    }
}

impl Memory {
    /// Does one step of writing, if nothing has failed before; if this fails,
    /// nothing is written any more.
    fn write<T>(
        &mut self,
        step: impl FnOnce(&mut Disk) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.stage {
            Stage::Opened => return Err(StoreError::NOT_LOADED),
            Stage::Stopped { why } => return Err(StoreError::Stopped { why: why.clone() }),
            Stage::Loaded => {}
        }
        let mut disk = self.shared.disk.lock();
        while disk.holds > 0 {
            self.shared.let_go.wait(&mut disk);
        }
        let done = if disk.fence == self.fence {
            step(&mut disk)
        } else {
            Err(StoreError::Fenced {
                fence: self.fence,
                newest: disk.fence,
            })
        };
        drop(disk);
        if let Err(error) = &done
            && !matches!(error, StoreError::OutOfTurn { .. })
        {
            self.stage = Stage::Stopped {
                why: error.to_string(),
            };
        }
        done
    }
}

impl Store for Memory {
    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError> {
        StoreError::unless_all_fit(batch)?;
        self.write(|disk| disk.append(batch))
    }

    fn load(
        &mut self,
        partitions: Partitions,
        wanted: &[u32],
        each: &mut Take<'_>,
    ) -> Result<Loaded, StoreError> {
        let Stage::Opened = self.stage else {
            return Err(StoreError::LOADED_TWICE);
        };
        if !wanted.iter().copied().eq(0..partitions.count()) {
            return Err(StoreError::NOT_ALL);
        }
        let loaded = self.shared.disk.lock().load(partitions, each);
        self.stage = match &loaded {
            Ok(_) => Stage::Loaded,
            Err(error) => Stage::Stopped {
                why: error.to_string(),
            },
        };
        loaded
    }

    fn begin_snapshot(&mut self, partition: u32) -> Result<(), StoreError> {
        self.write(|disk| {
            disk.part(partition)?;
            let snapshot = Vec::new();
            let from = disk.trimmed + disk.log.len() as u64;
            let part = Part { snapshot, from };
            disk.begun = Some(Begun { partition, part });
            Ok(())
        })
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        StoreError::unless_fits(chunk)?;
        self.write(|disk| {
            let fails = disk.fault(|fault| fault == Fault::Chunk).is_some();
            let begun = disk.begun.as_mut().ok_or(StoreError::NOT_BEGUN)?;
            if fails {
                return Err(broken("write a chunk"));
            }
            begun.part.snapshot.push(chunk.to_owned());
            Ok(())
        })
    }

    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        self.write(Disk::end_snapshot)
    }

    fn batch_len_max(&self) -> usize {
        self.shared.disk.lock().batch_len_max
    }

    fn log_bytes(&self) -> u64 {
        let disk = self.shared.disk.lock();
        let sections = disk.log.iter().flatten();
        sections.map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn fence(&self) -> u64 {
        self.fence
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

impl Disk {
    /// The first fault that waits for a call like this one.
    fn fault(&mut self, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        let at = self.faults.iter().position(|&fault| fits(fault))?;
        self.faults.remove(at)
    }

    fn part(&mut self, partition: u32) -> Result<&mut Part, StoreError> {
        let part = self.parts.get_mut(partition as usize);
        part.ok_or(StoreError::NO_PARTITION)
    }

    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError> {
        for section in batch {
            self.part(section.partition)?;
        }
        let sections = batch.iter();
        let batch = sections.map(|section| (section.partition, section.bytes.to_owned()));
        let batch = batch.collect();
        let fault = self.fault(|fault| matches!(fault, Fault::Append(_) | Fault::Full));
        match fault {
            None => {
                self.log.push_back(batch);
                self.acknowledged = self.log.len();
                return Ok(());
            }
            Some(Fault::Append(Left::Whole)) => self.log.push_back(batch),
            Some(Fault::Append(Left::Torn)) => self.torn = true,
            Some(_) => {}
        }
        Err(if fault == Some(Fault::Full) {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            StoreError::of("write a batch", Path::new("memory"), error)
        } else {
            broken("write a batch")
        })
    }

    fn load(&mut self, partitions: Partitions, each: &mut Take<'_>) -> Result<Loaded, StoreError> {
        let found = *self.partitions.get_or_insert(partitions);
        if found != partitions {
            let path = PathBuf::from("memory");
            return Err(StoreError::OtherPartitions {
                path,
                found,
                wanted: partitions,
            });
        }
        let count = partitions.count() as usize;
        self.parts.resize(count, Part::default());
        if self.log.len() < self.acknowledged {
            return Err(StoreError::Corrupt {
                what: format!(
                    "{} batches were acknowledged and {} are there",
                    self.acknowledged,
                    self.log.len()
                ),
                path: PathBuf::from("memory"),
            });
        }
        let mut loaded = Loaded::default();
        for (partition, part) in (0..).zip(&self.parts) {
            for chunk in &part.snapshot {
                loaded.give(partition, Piece::Snapshot(chunk), each)?;
            }
        }
        for (at, batch) in (self.trimmed..).zip(&self.log) {
            for (partition, bytes) in batch {
                if at >= self.parts[*partition as usize].from {
                    loaded.give(*partition, Piece::Batch(bytes), each)?;
                }
            }
        }
        if std::mem::take(&mut self.torn) {
            loaded.notes.push("dropped the beginning of a batch".into());
        }
        if self.begun.take().is_some() {
            loaded.notes.push("dropped an unended snapshot".into());
        }
        // A caller that has seen a batch counts on it.
        self.acknowledged = self.log.len();
        Ok(loaded)
    }

    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        let fault = self.fault(|fault| matches!(fault, Fault::End(_)));
        let begun = self.begun.take().ok_or(StoreError::NOT_BEGUN)?;
        if fault != Some(Fault::End(false)) {
            *self.part(begun.partition)? = begun.part;
            let needed = self.parts.iter().map(|part| part.from).min();
            let gone = needed.unwrap_or(self.trimmed) - self.trimmed;
            self.log.drain(..gone as usize);
            self.trimmed += gone;
            self.acknowledged = self.log.len();
        }
        match fault {
            None => Ok(()),
            Some(_) => Err(broken("end a snapshot")),
        }
    }
}

fn broken(what: &'static str) -> StoreError {
    let error = io::Error::other("the test said so");
    StoreError::of(what, Path::new("memory"), error)
}
