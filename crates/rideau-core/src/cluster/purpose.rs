//! What a node asks etcd for.

use crate::time::Instant;

use super::records::SnapshotId;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Purpose {
    Look,
    RemoveFormer(u64),
    Grant,
    Create,
    ReadAll,
    Append(u64),
    Takeover(u32),
    HandOver(u32),
    /// One piece of one snapshot: the answer for another must not count.
    Chunk(u32, SnapshotId, u32),
    NameSnapshot(u32),
    RemoveSnapshot(u32, SnapshotId),
    Trim,
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) purpose: Purpose,
    pub(super) at: Instant,
}
