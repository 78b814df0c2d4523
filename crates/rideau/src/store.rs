//! Where the state of machines outlives the process: batches in order, and now and
//! then a snapshot that replaces what came before it.
//!
//! What is kept is dealt out to partitions. All of them share one log: a batch has a
//! section for each partition that has something to write. Each partition has snapshots
//! of its own, and can be read back without the others.
//!
//! A store knows nothing of what it keeps. It blocks, so one thread of its own
//! calls it, and that thread decides what goes into a batch and when a snapshot
//! is due.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rideau_core::cluster::Partitions;

#[cfg(feature = "store")]
mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
mod memory;
mod partitions;

#[cfg(feature = "store")]
pub use embedded::Embedded;
pub use memory::{Fault, Hold, Left, Memory, Platter};
pub use partitions::{OwnedSection, PartitionHost, PartitionLog, PartitionsLost};

/// Keeps batches and snapshots.
///
/// The order of calls is: [`load`](Self::load), then [`append`](Self::append) for ever,
/// and between two appends any step of a snapshot. Any error but
/// [`TooLarge`](StoreError::TooLarge) and [`OutOfTurn`](StoreError::OutOfTurn) ends the
/// store: it is not known what of the last write reached the disk, so every later write
/// is answered with [`Stopped`](StoreError::Stopped) until the store is opened and
/// loaded again.
pub trait Store: Send {
    /// Writes a batch after all earlier ones: all of its sections or none. When it
    /// returns, the batch outlives a power cut.
    ///
    /// A batch that failed may be there after the next start, whole, or not.
    ///
    /// # Errors
    ///
    /// If it is not certain that the batch is safe.
    fn append(&mut self, batch: &[BatchSection<'_>]) -> Result<(), StoreError>;

    /// Gives everything of the wanted partitions back: of each the chunks of its newest
    /// whole snapshot, then its sections since that began, in order. A store that is this
    /// process's alone gives all of its partitions at once, and once.
    ///
    /// # Errors
    ///
    /// If it was written with other partitions than these, if anything that was
    /// acknowledged is missing or is not as it was written, or if `each` says no. Some
    /// pieces may have been given by then.
    fn load(
        &mut self,
        partitions: Partitions,
        wanted: &[u32],
        each: &mut Take<'_>,
    ) -> Result<Loaded, StoreError>;

    /// Begins a snapshot of a partition: its sections from here on will be needed with
    /// it. One that was begun before and not ended is forgotten, whatever its partition.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    fn begin_snapshot(&mut self, partition: u32) -> Result<(), StoreError>;

    /// Adds a chunk to the snapshot. It need not be on disk before the end.
    ///
    /// # Errors
    ///
    /// If the store cannot be written, or no snapshot was begun.
    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError>;

    /// Ends the snapshot: it replaces the one before of its partition and the sections
    /// before it began, all or nothing.
    ///
    /// A chunk may show what no batch holds yet. Then that batch is to be
    /// appended before the end, or a power cut would make it true too early.
    ///
    /// # Errors
    ///
    /// If the store cannot be written, or no snapshot was begun.
    fn end_snapshot(&mut self) -> Result<(), StoreError>;

    /// Tries to write on after an error that [can pass](StoreError::can_pass). The batch
    /// whose append failed is safe then, and a snapshot that was begun is given up. Says
    /// no if this store cannot be written again before it is opened anew.
    ///
    /// # Errors
    ///
    /// If the store still cannot be written.
    fn recover(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The sections of a batch, and a chunk, should have at most this many bytes
    /// together. What the store adds to them does not count.
    fn batch_len_max(&self) -> usize {
        BATCH_LEN_MAX
    }

    /// How many bytes of batches the next start would have to read. The caller that
    /// appends decides by it when the next snapshots are due. It shrinks when the
    /// partition that needs the oldest batch has a new snapshot.
    fn log_bytes(&self) -> u64;

    /// Which opening of the store this is. It grows with each.
    fn fence(&self) -> u64;

    /// The name of the store in logs.
    fn name(&self) -> &str;
}

/// The entries of one partition in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSection<'a> {
    /// Which partition.
    pub partition: u32,
    /// The entries, in order after all earlier ones.
    pub bytes: &'a [u8],
}

impl<'a> BatchSection<'a> {
    /// What a store with one partition is given.
    pub const fn only(bytes: &'a [u8]) -> Self {
        Self {
            partition: 0,
            bytes,
        }
    }
}

/// Takes one piece of a partition after the other, or says in words why it cannot.
pub type Take<'a> = dyn FnMut(u32, Piece<'_>) -> Result<(), String> + 'a;

/// A part of what a store gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A chunk of the snapshot, as it was put.
    Snapshot(&'a [u8]),
    /// A section of a batch, as it was appended.
    Batch(&'a [u8]),
}

/// What a store gave back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Chunks of snapshots; none if there was no snapshot.
    pub chunks: u64,
    /// Sections of batches since they began: one a batch if there is one partition.
    pub batches: u64,
    /// Bytes in both.
    pub bytes: u64,
    /// What was found and left out or put right, in words, each worth a line in
    /// the log: the end of a batch that no caller was told of, a snapshot that was
    /// never ended. Nothing that was acknowledged is among it.
    pub notes: Vec<String>,
}

impl Loaded {
    /// Gives one piece of a partition more, and counts it.
    ///
    /// # Errors
    ///
    /// If `each` says no.
    pub fn give(
        &mut self,
        partition: u32,
        piece: Piece<'_>,
        each: &mut Take<'_>,
    ) -> Result<(), StoreError> {
        let (which, bytes, count) = match piece {
            Piece::Snapshot(bytes) => ("chunk", bytes, &mut self.chunks),
            Piece::Batch(bytes) => ("batch", bytes, &mut self.batches),
        };
        *count += 1;
        self.bytes += bytes.len() as u64;
        each(partition, piece).map_err(|why| StoreError::Refused {
            which: format!("{which} {count}"),
            why,
        })
    }
}

/// Why a store cannot do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another store of this one, has it open.
    Busy {
        /// What is open elsewhere.
        path: PathBuf,
    },
    /// It was opened once more elsewhere, and that opening counts.
    Fenced {
        /// Which opening this is.
        fence: u64,
        /// The newest one.
        newest: u64,
    },
    /// There is no room left.
    Full {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It may be read and not written.
    ReadOnly {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The system failed in another way.
    Io {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Its files were removed or replaced while they were open.
    Gone {
        /// What is not there any more.
        path: PathBuf,
    },
    /// What is there is not what was written.
    Corrupt {
        /// What is wrong.
        what: String,
        /// Where.
        path: PathBuf,
    },
    /// It was written by a newer version of this program.
    Newer {
        /// Where.
        path: PathBuf,
        /// The format that was found.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// It was written with other partitions.
    OtherPartitions {
        /// Where.
        path: PathBuf,
        /// Those it was written with.
        found: Partitions,
        /// Those it should have.
        wanted: Partitions,
    },
    /// An earlier write failed, so nothing more is written.
    Stopped {
        /// What failed first.
        why: String,
    },
    /// The caller that takes the pieces does not understand one.
    Refused {
        /// Which one.
        which: String,
        /// What it said.
        why: String,
    },
    /// The batch or the chunk is larger than a store takes.
    TooLarge {
        /// How large it is.
        len: usize,
        /// How large it may be.
        len_max: usize,
    },
    /// The call came when it makes no sense.
    OutOfTurn {
        /// What has to come first.
        what: &'static str,
    },
}

/// How large a batch or a chunk may be.
pub const PIECE_LEN_MAX: usize = 64 * 1024 * 1024;
/// How large most stores would have them.
pub const BATCH_LEN_MAX: usize = 16 * 1024 * 1024;

impl StoreError {
    /// Says no to what no store takes in one piece.
    ///
    /// # Errors
    ///
    /// If it is longer than [`PIECE_LEN_MAX`].
    pub const fn unless_fits(piece: &[u8]) -> Result<(), Self> {
        Self::unless_len_fits(piece.len())
    }

    /// Says no to a batch whose sections no store takes in one piece.
    ///
    /// # Errors
    ///
    /// If they are longer than [`PIECE_LEN_MAX`] together.
    pub fn unless_all_fit(batch: &[BatchSection<'_>]) -> Result<(), Self> {
        Self::unless_len_fits(batch.iter().map(|section| section.bytes.len()).sum())
    }

    const fn unless_len_fits(len: usize) -> Result<(), Self> {
        if len <= PIECE_LEN_MAX {
            return Ok(());
        }
        Err(Self::TooLarge {
            len,
            len_max: PIECE_LEN_MAX,
        })
    }

    /// What a store says that is written before it is loaded.
    pub const NOT_LOADED: Self = Self::OutOfTurn {
        what: "a store is loaded before it is written",
    };
    /// What it says to a second load.
    pub const LOADED_TWICE: Self = Self::OutOfTurn {
        what: "a store is loaded once",
    };
    /// What it says to a load of some of its partitions, or to one that it has not.
    pub const NOT_ALL: Self = Self::OutOfTurn {
        what: "all partitions of this store are loaded at once",
    };
    /// What it says to bytes of a partition that it has not.
    pub const NO_PARTITION: Self = Self::OutOfTurn {
        what: "a section or a snapshot belongs to a partition of the store",
    };
    /// What it says to a chunk, or an end, without a beginning.
    pub const NOT_BEGUN: Self = Self::OutOfTurn {
        what: "a snapshot is begun before it is written",
    };

    /// Whether it may be over by itself: there may be room again, or the right to write.
    pub const fn can_pass(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::ReadOnly { .. })
    }

    /// Sorts what the system said by what one can do about it.
    pub fn of(what: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { what, path, error }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, error }
            }
            _ => Self::Io { what, path, error },
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { path } => write!(
                f,
                "{} is open already: stop the other process, or give this one a folder of its own",
                path.display()
            ),
            Self::Fenced { fence, newest } => write!(
                f,
                "this is opening {fence} of the store and there is an opening {newest}: \
                 only the newest may write, so stop this one"
            ),
            Self::Full { what, path, error } => write!(
                f,
                "no room to {what} in {}: {error}; make room, and start again what has not started",
                path.display()
            ),
            Self::ReadOnly { path, error } => write!(
                f,
                "{} cannot be written: {error}; \
                 give the user of this process the right to write there",
                path.display()
            ),
            Self::Io { what, path, error } => write!(
                f,
                "cannot {what} in {}: {error}; see what the system's log says of this disk, \
                 then start again",
                path.display()
            ),
            Self::Gone { path } => write!(
                f,
                "{} was removed or replaced while it was in use: put the folder back as it was, \
                 or a copy of it, and start again",
                path.display()
            ),
            Self::Corrupt { what, path } => write!(
                f,
                "{} is damaged: {what}; put a copy back, or move the folder away to start with \
                 nothing",
                path.display()
            ),
            Self::Newer { path, found, known } => write!(
                f,
                "{} has format {found}, and this version knows formats up to {known}: \
                 start the version that wrote it, or a newer one",
                path.display()
            ),
            Self::OtherPartitions {
                path,
                found,
                wanted,
            } => write!(
                f,
                "{} was written with {found} and cannot be read with {wanted}: start with what \
                 it was written with, or move the folder away to start with nothing",
                path.display()
            ),
            Self::Stopped { why } => write!(
                f,
                "nothing more is written, since what is on disk is uncertain: {why}"
            ),
            Self::Refused { which, why } => write!(f, "{which} makes no sense: {why}"),
            Self::TooLarge { len, len_max } => {
                write!(f, "{len} bytes in one piece are more than {len_max}")
            }
            Self::OutOfTurn { what } => f.write_str(what),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Full { error, .. } | Self::ReadOnly { error, .. } | Self::Io { error, .. } => {
                // Its own words are among ours already.
                error.source()
            }
            _ => None,
        }
    }
}
