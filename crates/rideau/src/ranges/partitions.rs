//! Which partitions a node in a cluster has at this moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rideau_core::cluster::Partitions;

use super::ownership::Ownership;
use crate::store::PartitionLog;

/// No epoch: the partition is not open.
pub(super) const NONE: u64 = u64::MAX;

/// What can be asked about partitions without the lock.
pub(super) struct Hosted {
    pub(super) partitions: Partitions,
    pub(super) log: Arc<dyn PartitionLog>,
    /// The epochs of the partitions that are open here, by number.
    pub(super) open: Vec<AtomicU64>,
}

/// What is known of partitions behind the lock.
pub(super) struct HostedParts {
    /// Those that are here, by number.
    pub(super) ownerships: Vec<Option<Arc<Ownership>>>,
    /// The node is to be told when all of these is written,
    pub(super) closing: Vec<Arc<Ownership>>,
    /// and wants snapshots of these.
    pub(super) snapshots: VecDeque<Arc<Ownership>>,
    /// What was logged may have gone with its partition: answers about others wait for
    /// its turn all the same.
    pub(super) owes_turn: bool,
}

impl HostedParts {
    pub(super) fn has_work(&self) -> bool {
        !self.closing.is_empty() || !self.snapshots.is_empty() || self.owes_turn
    }

    /// Is the partition still here as it was?
    pub(super) fn has(&self, ownership: &Arc<Ownership>) -> bool {
        let own = self.ownerships[ownership.partition as usize].as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, ownership))
    }
}

impl Hosted {
    pub(super) fn serves(&self, partition: u32) -> bool {
        let epoch = self.open[partition as usize].load(Ordering::Acquire);
        epoch != NONE && self.log.serves(partition) == Some(epoch)
    }

    pub(super) fn set_open(&self, partition: u32, epoch: u64) {
        self.open[partition as usize].store(epoch, Ordering::Release);
    }
}
