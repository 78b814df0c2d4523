//! Options of a node of a cluster.

use std::time::Duration;

/// One node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the node, which no other has.
    pub name: String,
    /// How much the node should own beside the others.
    pub weight: u32,
    /// Further data that the node publishes, in the format of the shell.
    pub about: String,
    /// How many partitions there are.
    pub partitions: u32,
    /// How long the node's key outlives its last keepalive.
    pub lease: Duration,
    /// A node owns nothing for this long after it joined.
    pub settle: Duration,
    /// A partition without owner is taken by the next in rank after this long.
    pub rank_wait: Duration,
    /// The next partition moves after this long, whether the last serves again or not.
    pub move_wait: Duration,
    /// How long an ask waits for an owner at most.
    pub patience: Duration,
    /// What the death of a node frees is left alone for this long.
    pub rest: Duration,
    /// A request of unknown outcome is repeated after this long.
    pub retry: Duration,
    /// The most bytes of a batch.
    pub batch_max: usize,
    /// The most segments of a partition.
    pub segments_max: usize,
    /// A partition is snapshotted after this many entries.
    pub snapshot_after: u64,
    /// Above this many bytes of batches, the partition that needs the oldest is snapshotted.
    pub log_max: usize,
    /// A bug that a test has to find.
    #[cfg(feature = "planted")]
    pub planted: Option<super::Planted>,
}

impl Options {
    /// The default options for a node with this name.
    pub fn new(cluster: &str, name: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            weight: 1,
            about: String::new(),
            partitions: 64,
            lease: Duration::from_secs(5),
            settle: Duration::from_secs(3),
            rank_wait: Duration::from_secs(2),
            move_wait: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            rest: Duration::ZERO,
            retry: Duration::from_millis(200),
            batch_max: 256 * 1_024,
            segments_max: 4,
            snapshot_after: 65_536,
            log_max: 64 << 20,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}
