//! A folder that is read back before it is written again.

use std::path::Path;

use rideau_core::cluster::Partitions;

use super::log::{self, Log, Written, gap, lost};
use super::mark::{self, Mark};
use super::snapshots::{self, Snapshots, State};
use super::{Writing, create, sections};
use crate::store::{Loaded, Piece, StoreError, Take};

/// A store that was not read yet.
#[derive(Debug)]
pub(super) struct Opened {
    snapshots: Snapshots,
    /// What counts of each partition.
    states: Vec<State>,
    mark: mark::Found,
}

/// What the logs held.
struct Read {
    /// The last file, and its number.
    last: Written,
    file: u64,
    /// Bytes of batches in all of them,
    total: u64,
    /// and how many they were when the snapshot of each partition began.
    starts: Vec<u64>,
}

impl Opened {
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let snapshots = if create::is_created(folder)? {
            Snapshots::open(folder)?
        } else {
            create::create(folder)?
        };
        let count = snapshots.partitions()?.count();
        let states = snapshots.states(count)?;
        let mark = Mark::open(folder, states[0].salt)?;
        let newest = snapshots::newest(&states);
        if states[0].fence < mark.told.fence || newest < mark.told.snapshot {
            let what = "its newest change is gone, and a client was told of it";
            return Err(snapshots.corrupt(what.into()));
        }
        Ok(Self {
            snapshots,
            states,
            mark,
        })
    }

    /// Which opening was the last.
    pub(super) fn fence(&self) -> u64 {
        self.states[0].fence
    }

    pub(super) fn load(
        mut self,
        folder: &Path,
        partitions: Partitions,
        fence: u64,
        each: &mut Take<'_>,
    ) -> Result<(Writing, Loaded), StoreError> {
        self.settle_partitions(folder, partitions)?;
        let mut loaded = Loaded::default();
        self.look_through(&mut loaded)?;
        for (partition, state) in (0..).zip(&self.states) {
            self.snapshots.each(state, |chunk| {
                loaded.give(partition, Piece::Snapshot(chunk), each)
            })?;
        }
        let read = self.read_logs(folder, partitions, &mut loaded, each)?;
        let (log, file) = self.go_on(folder, &read.last, read.file, &mut loaded)?;
        self.states[0].fence = fence;
        self.snapshots.set(0, &self.states)?;
        let places = [
            log.place()?,
            self.mark.mark.place()?,
            self.snapshots.place()?,
        ];
        let mut writing = Writing {
            partitions,
            places,
            snapshots: self.snapshots,
            snapshot: snapshots::newest(&self.states),
            states: self.states,
            mark: self.mark.mark,
            log,
            file,
            total: read.total,
            starts: read.starts,
            begun: None,
            encoded: Vec::new(),
        };
        writing.tell()?;
        writing.mark.sync()?;
        writing.remove_old(folder);
        Ok((writing, loaded))
    }

    /// A store without anything in it becomes one of these partitions. Any other has
    /// them, or is refused.
    fn settle_partitions(&mut self, folder: &Path, wanted: Partitions) -> Result<(), StoreError> {
        let found = self.snapshots.partitions()?;
        let (is_one, wants_one) = (found.count() == 1, wanted.count() == 1);
        if found != wanted && !(is_one && wants_one) {
            if !self.is_empty(folder)? {
                let path = folder.to_owned();
                return Err(StoreError::OtherPartitions {
                    path,
                    found,
                    wanted,
                });
            }
            self.snapshots.set_partitions(wanted)?;
            self.states = self.snapshots.states(wanted.count())?;
        }
        match wants_one {
            true => Ok(()),
            false => create::set_format_of_many(folder),
        }
    }

    /// Nothing was ever written to it.
    fn is_empty(&self, folder: &Path) -> Result<bool, StoreError> {
        let first = State::new().file;
        if snapshots::newest(&self.states) > 0 || log::files(folder)? != [first] {
            return Ok(false);
        }
        let written = Written::open(folder, first, self.states[0].salt)?;
        Ok(written.peek().is_none() && self.mark.told.reach == written.reach())
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
        if self.snapshots.has_unended(&self.states)? {
            let note = "dropped a snapshot that was never ended";
            loaded.notes.push(note.into());
        }
        Ok(())
    }

    /// Gives all sections of batches that are whole and needed.
    fn read_logs(
        &self,
        folder: &Path,
        partitions: Partitions,
        loaded: &mut Loaded,
        each: &mut Take<'_>,
    ) -> Result<Read, StoreError> {
        let salt = self.states[0].salt;
        let files = log::files(folder)?;
        let newest = files.last().copied().unwrap_or_default();
        let file = snapshots::oldest_file(&self.states);
        let mut read = Read {
            last: Written::open(folder, file, salt)?,
            file,
            total: 0,
            starts: vec![0; self.states.len()],
        };
        self.begin_file(&mut read)?;
        while read.file < newest {
            let next = Written::open(folder, read.file + 1, salt)?;
            // What lies behind was given up when the next file was begun.
            self.read_log(&mut read, next.reach().number, partitions, loaded, each)?;
            if read.last.reach() != next.reach() {
                return Err(lost(&read.last, next.reach().number));
            }
            read.last = next;
            read.file += 1;
            self.begin_file(&mut read)?;
        }
        self.read_log(&mut read, u64::MAX, partitions, loaded, each)?;
        Ok(read)
    }

    /// A snapshot that goes on with this file must have been begun where it begins.
    fn begin_file(&self, read: &mut Read) -> Result<(), StoreError> {
        for (state, start) in self.states.iter().zip(&mut read.starts) {
            if state.file != read.file {
                continue;
            }
            if read.last.reach() != state.reach {
                return Err(gap(&read.last, state.reach));
            }
            *start = read.total;
        }
        Ok(())
    }

    /// Gives the batches of one file up to a number.
    fn read_log(
        &self,
        read: &mut Read,
        until: u64,
        partitions: Partitions,
        loaded: &mut Loaded,
        each: &mut Take<'_>,
    ) -> Result<(), StoreError> {
        let told = self.mark.told.reach;
        while let Some(record) = read.last.peek()
            && record.number <= until
        {
            if record.number == told.number && record.check != told.check {
                return Err(gap(&read.last, told));
            }
            for section in sections::decode(partitions, record.batch) {
                let section = section.ok_or_else(|| StoreError::Corrupt {
                    what: format!("batch {} has no sections", record.number),
                    path: read.last.path.clone(),
                })?;
                read.total += section.bytes.len() as u64;
                if self.states[section.partition as usize].file <= read.file {
                    loaded.give(section.partition, Piece::Batch(section.bytes), each)?;
                }
            }
            read.last.pass();
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
        let salt = self.states[0].salt;
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
