//! Snapshots in redb, with what must change in one step with them: which log
//! goes on after the snapshot, and which opening of the store this is.
//!
//! redb does not look for damage in a file that was closed well, and may panic
//! at it later. So each chunk has a check here that includes the one before,
//! and a panic counts as damage.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, TableDefinition};
use rideau_core::cluster::Partitions;

use super::log::{Reach, check_of, number_at};
use super::place::Place;
use super::private;
use crate::store::StoreError;

pub(super) const NAME: &str = "snapshots.redb";
const STATE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("state");
const CHUNKS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("chunks");
const CACHE_LEN: usize = 16 * 1024 * 1024;
/// Where it stands which partitions there are, if there are several. The state of each
/// stands at its number.
const PARTITIONS: u64 = u64::MAX;
const STATE_LEN: usize = 72;
const CHECK_LEN: usize = 8;

/// What changes in one step, of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The same in all partitions.
    pub(super) salt: u64,
    /// Only that of the first partition counts.
    pub(super) fence: u64,
    /// Which snapshot counts. There is none before the first.
    pub(super) snapshot: u64,
    pub(super) chunks: u64,
    /// The check of its last chunk.
    pub(super) check: u64,
    /// The first log that is needed with it.
    pub(super) file: u64,
    /// After which record that log goes on.
    pub(super) reach: Reach,
}

#[derive(Debug)]
pub(super) struct Snapshots {
    path: PathBuf,
    redb: Database,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            salt: RandomState::new().hash_one("salt"),
            fence: 0,
            snapshot: 0,
            chunks: 0,
            check: 0,
            file: 1,
            reach: Reach::default(),
        }
    }

    fn to_bytes(self) -> [u8; STATE_LEN] {
        let mut bytes = [0; STATE_LEN];
        let numbers = [
            self.salt,
            self.fence,
            self.snapshot,
            self.chunks,
            self.check,
            self.file,
            self.reach.number,
            self.reach.check,
        ];
        for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let check = check_of(0, &[&bytes[..64]]);
        bytes[64..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let whole =
            bytes.len() == STATE_LEN && number_at(bytes, 64) == check_of(0, &[&bytes[..64]]);
        whole.then(|| Self {
            salt: number_at(bytes, 0),
            fence: number_at(bytes, 8),
            snapshot: number_at(bytes, 16),
            chunks: number_at(bytes, 24),
            check: number_at(bytes, 32),
            file: number_at(bytes, 40),
            reach: Reach {
                number: number_at(bytes, 48),
                check: number_at(bytes, 56),
            },
        })
    }
}

impl Snapshots {
    /// The file that has its name.
    pub(super) fn place(&self) -> Result<Place, StoreError> {
        Place::at(&self.path)
    }

    /// Creates the file, or takes one that an interrupted creation left.
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(NAME);
        let create = || {
            let prepared = private::prepare_file(&path);
            prepared.map_err(|error| StoreError::of("create a store", &path, error))?;
            guard("create a store", &path, || {
                Ok(Database::builder()
                    .set_cache_size(CACHE_LEN)
                    .create(&path)?)
            })
        };
        let redb = match create() {
            Err(StoreError::Corrupt { .. }) => {
                let removed = fs::remove_file(&path);
                removed.map_err(|error| StoreError::of("create a store", &path, error))?;
                create()?
            }
            created => created?,
        };
        Ok(Self { path, redb })
    }

    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(NAME);
        if !path.exists() {
            let what = "this file is needed and is not there".into();
            return Err(StoreError::Corrupt { what, path });
        }
        let redb = guard("open the snapshots", &path, || {
            Ok(Database::builder().set_cache_size(CACHE_LEN).open(&path)?)
        })?;
        Ok(Self { path, redb })
    }

    /// The states of this many partitions. One that never had a snapshot needs all logs
    /// from the first on.
    pub(super) fn states(&self, count: u32) -> Result<Vec<State>, StoreError> {
        let first = self.state(0)?;
        let first = first.ok_or_else(|| self.corrupt(UNREADABLE.into()))?;
        let mut states = vec![first];
        for partition in 1..count {
            let state = self.state(partition.into())?;
            states.push(state.unwrap_or(State {
                salt: first.salt,
                ..State::new()
            }));
        }
        Ok(states)
    }

    fn state(&self, partition: u64) -> Result<Option<State>, StoreError> {
        let Some(bytes) = self.row(partition)? else {
            return Ok(None);
        };
        let state = State::of_bytes(&bytes);
        let state = state.ok_or_else(|| self.corrupt(UNREADABLE.into()))?;
        Ok(Some(state))
    }

    fn row(&self, at: u64) -> Result<Option<Vec<u8>>, StoreError> {
        guard("read the snapshots", &self.path, || {
            let state = self.redb.begin_read()?.open_table(STATE)?;
            Ok(state.get(at)?.map(|bytes| bytes.value().to_vec()))
        })
    }

    /// The state of a partition counts from now on, and no chunk that none of all
    /// states names.
    pub(super) fn set(&self, partition: usize, states: &[State]) -> Result<(), StoreError> {
        let state = states[partition].to_bytes();
        let mut live: Vec<u64> = states.iter().map(|state| state.snapshot).collect();
        live.sort_unstable();
        live.dedup();
        guard("write a snapshot", &self.path, || {
            let write = self.redb.begin_write()?;
            let mut table = write.open_table(STATE)?;
            table.insert(partition as u64, &state[..])?;
            drop(table);
            // The older ones, and those that were never ended.
            let mut chunks = write.open_table(CHUNKS)?;
            let mut from = 0;
            for snapshot in &live {
                chunks.retain_in((from, 0)..(*snapshot, 0), |_, _| false)?;
                from = snapshot + 1;
            }
            chunks.retain_in((from, 0).., |_, _| false)?;
            drop(chunks);
            write.commit()?;
            Ok(())
        })
    }

    /// Which partitions it was written with.
    pub(super) fn partitions(&self) -> Result<Partitions, StoreError> {
        let Some(row) = self.row(PARTITIONS)? else {
            return Ok(Partitions::ONE);
        };
        let (count, stripe) =
            match row.len() == 16 && check_of(0, &[&row[..8]]) == number_at(&row, 8) {
                true => halves(number_at(&row, 0)),
                false => (0, 0),
            };
        let partitions = Partitions::new(count, stripe);
        partitions.map_err(|_| self.corrupt(UNREADABLE.into()))
    }

    /// It will be written with these.
    pub(super) fn set_partitions(&self, partitions: Partitions) -> Result<(), StoreError> {
        let number = u64::from(partitions.count()) << 32 | u64::from(partitions.stripe());
        let mut row = number.to_le_bytes().to_vec();
        row.extend(check_of(0, &[&row]).to_le_bytes());
        guard("write a snapshot", &self.path, || {
            let write = self.redb.begin_write()?;
            write.open_table(STATE)?.insert(PARTITIONS, &row[..])?;
            write.commit()?;
            Ok(())
        })
    }

    /// Looks at every page, and at what redb knows of free ones. Says whether
    /// all was well.
    pub(super) fn look_through(&mut self) -> Result<bool, StoreError> {
        let Self { path, redb } = self;
        guard("read the snapshots", path, || {
            match redb.check_integrity() {
                Err(redb::DatabaseError::Storage(error)) => Err(error.into()),
                found => Ok(found?),
            }
        })
    }

    /// Adds a chunk to a snapshot that does not count yet, and returns the check
    /// that the next one goes on with. It is on the disk then: a wait after each
    /// chunk is shorter than one for all of them.
    pub(super) fn put(&self, begun: &State, chunk: &[u8]) -> Result<u64, StoreError> {
        let check = check_of(begun.check, &[chunk]);
        let place = (begun.snapshot, begun.chunks);
        guard("write a snapshot", &self.path, || {
            let write = self.redb.begin_write()?;
            {
                let mut chunks = write.open_table(CHUNKS)?;
                let mut place = chunks.insert_reserve(place, CHECK_LEN + chunk.len())?;
                let (head, body) = place.as_mut().split_at_mut(CHECK_LEN);
                head.copy_from_slice(&check.to_le_bytes());
                body.copy_from_slice(chunk);
            }
            write.commit()?;
            Ok(())
        })?;
        Ok(check)
    }

    /// Gives the chunks of the snapshot that counts, in order.
    pub(super) fn each(
        &self,
        state: &State,
        mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut check = state.salt;
        for at in 0..state.chunks {
            let found = guard("read the snapshots", &self.path, || {
                let chunks = self.redb.begin_read()?.open_table(CHUNKS)?;
                Ok(chunks
                    .get((state.snapshot, at))?
                    .map(|chunk| chunk.value().to_vec()))
            })?;
            let chunk = found
                .as_deref()
                .and_then(|found| found.split_at_checked(CHECK_LEN));
            let whole = chunk.filter(|(head, chunk)| {
                check = check_of(check, &[chunk]);
                number_at(head, 0) == check
            });
            let Some((_, chunk)) = whole else {
                let what = "is not as it was written";
                let chunks = state.chunks;
                return Err(self.corrupt(format!(
                    "chunk {} of {chunks} of the snapshot {what}",
                    at + 1
                )));
            };
            take(chunk)?;
        }
        if state.chunks > 0 && check != state.check {
            return Err(self.corrupt("the chunks are not those of the snapshot".into()));
        }
        Ok(())
    }

    /// Whether there are chunks of a snapshot that was not ended.
    pub(super) fn has_unended(&self, states: &[State]) -> Result<bool, StoreError> {
        guard("read the snapshots", &self.path, || {
            let chunks = self.redb.begin_read()?.open_table(CHUNKS)?;
            let mut others = chunks.range((newest(states) + 1, 0)..)?;
            Ok(others.next().is_some())
        })
    }

    pub(super) fn corrupt(&self, what: String) -> StoreError {
        StoreError::Corrupt {
            what,
            path: self.path.clone(),
        }
    }
}

const UNREADABLE: &str = "what belongs to the snapshot cannot be read";

/// The newest snapshot that counts; zero if there is none.
pub(super) fn newest(states: &[State]) -> u64 {
    let snapshots = states.iter().map(|state| state.snapshot);
    snapshots.max().unwrap_or_default()
}

/// The first log that is needed.
pub(super) fn oldest_file(states: &[State]) -> u64 {
    let files = states.iter().map(|state| state.file);
    files.min().unwrap_or_default()
}

const fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

/// Does something with redb, and puts in our words what goes wrong.
fn guard<T>(
    what: &'static str,
    path: &Path,
    step: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, StoreError> {
    let error = match catch_unwind(AssertUnwindSafe(step)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error,
        Err(_) => {
            return Err(StoreError::Corrupt {
                what: "redb gave up on what it found in this file".into(),
                path: path.to_owned(),
            });
        }
    };
    let path = path.to_owned();
    Err(match error {
        redb::Error::DatabaseAlreadyOpen => StoreError::Busy { path },
        redb::Error::Io(error) if is_damage(&error) => StoreError::Corrupt {
            what: error.to_string(),
            path,
        },
        redb::Error::Io(error) => StoreError::of(what, &path, error),
        other => StoreError::Corrupt {
            what: other.to_string(),
            path,
        },
    })
}

/// redb says in this way that a file is not one of its own.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    error.raw_os_error().is_none() && matches!(error.kind(), InvalidData | UnexpectedEof)
}
