//! The partitions that the node has or reads, as far as the machine has told.

use std::collections::BTreeMap;

use rideau_core::Instant;

use super::events::MovedPartitions;
use super::load::LoadJob;
use super::view::PartitionState;

/// The partitions that the node has or reads.
#[derive(Debug, Default)]
pub(super) struct HeldParts {
    pub(super) held: BTreeMap<u32, HeldPart>,
    /// The epochs in which names were adopted.
    pub(super) adopted: BTreeMap<u32, u64>,
    /// Wait until what is being read now is there.
    pub(super) queued: Vec<LoadJob>,
    pub(super) is_reading: bool,
    /// What came and went since others were told.
    pub(super) moved: Vec<MovedPartitions>,
}

#[derive(Debug)]
pub(super) struct HeldPart {
    pub(super) epoch: u64,
    pub(super) state: PartitionState,
    pub(super) job: LoadJob,
    pub(super) since: Instant,
}
