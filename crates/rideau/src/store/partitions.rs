//! Partitions that come to this process and leave it, and the log that they share.
//!
//! A node of a cluster owns some partitions at a time. What is kept in them is a
//! [`PartitionHost`]: the node tells it what it has. The log of the node is a
//! [`PartitionLog`]: the host writes to it, and asks it whether it may grant.

use std::error::Error;
use std::fmt;

use super::Piece;

/// The host of a node's partitions.
///
/// The node calls from one thread, one call after the other. No call may wait for the log.
/// The calls of a partition come in this order: `load`, `begin`, then `close`, `begin`
/// again or `end`. `snapshot` may come at any time after `load`, and `end` at any time.
pub trait PartitionHost: Send + Sync {
    /// Drops what there is of a partition, and takes in what its former owners wrote:
    /// chunks of a snapshot, then sections in the order in which they were written.
    /// Nothing is granted from it yet.
    ///
    /// # Errors
    ///
    /// If a piece cannot be read; why, in words.
    fn load(&self, partition: u32, epoch: u64, pieces: &[Piece<'_>]) -> Result<(), String>;

    /// The partition may be granted from, with fences of this epoch.
    fn begin(&self, partition: u32, epoch: u64);

    /// Nothing more is granted from the partition, which is kept. When all that was decided
    /// of it was given to the log, the host says so with [`PartitionLog::closed`].
    fn close(&self, partition: u32, epoch: u64);

    /// The partition is another node's, or the life of this node is over: it is forgotten.
    /// An ask about it whose answer is not safe is told that its outcome is not known.
    fn end(&self, partition: u32);

    /// A snapshot of the partition is wanted. The host answers with
    /// [`PartitionLog::snapshot_begun`], and later with [`PartitionLog::snapshotted`].
    fn snapshot(&self, partition: u32, epoch: u64);
}

/// The log that the partitions of a node share.
pub trait PartitionLog: Send + Sync {
    /// The epoch in which this node may grant from a partition at this moment, if it may.
    /// It is cheap. The host asks before each decision, and its callers ask again before an
    /// answer leaves the process. The host asks while it decides: nothing here may wait for a
    /// call of the host.
    fn serves(&self, partition: u32) -> Option<u64>;

    /// The newest ownership of a partition that this node knows of, its own or another's;
    /// zero if there was none. A node that serves a partition knows of all that was owned
    /// when it came to own that. It is asked as [`serves`](Self::serves) is.
    fn newest(&self, partition: u32) -> u64;

    /// Writes sections after all earlier ones, and returns when they are safe.
    ///
    /// It may take as long as etcd is away. An outcome that is not known is found out
    /// inside.
    ///
    /// # Errors
    ///
    /// If a section is of a partition that this life of the node does not own in that
    /// epoch any more. Then none of that section is written, and the others are safe.
    fn append(&self, sections: &[OwnedSection<'_>]) -> Result<(), PartitionsLost>;

    /// The sections of one call should have at most this many bytes together.
    fn append_len_max(&self) -> usize;

    /// All that was decided of a partition in this epoch was appended, and nothing more
    /// will be.
    fn closed(&self, partition: u32, epoch: u64);

    /// Hardly any fences are left of an epoch: the node has to raise it. The host says so
    /// once in each epoch.
    fn spent(&self, partition: u32, epoch: u64);

    /// A snapshot begins: sections from here on will be needed with it.
    fn snapshot_begun(&self, partition: u32, epoch: u64);

    /// The chunks of the snapshot that was begun. All that they show was appended.
    fn snapshotted(&self, partition: u32, epoch: u64, chunks: Vec<Vec<u8>>);
}

/// Entries of one partition, by its owner in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedSection<'a> {
    /// Which partition.
    pub partition: u32,
    /// The ownership in which it was decided.
    pub epoch: u64,
    /// The entries, in order after all earlier ones.
    pub bytes: &'a [u8],
}

/// Some partitions are not this node's any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsLost {
    /// Which of those that were written to.
    pub partitions: Vec<u32>,
}

impl fmt::Display for PartitionsLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this node does not own {} of the partitions any more",
            self.partitions.len()
        )
    }
}

impl Error for PartitionsLost {}
