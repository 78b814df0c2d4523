//! Rest: what the death of a node frees is left alone for a while.
//!
//! A holder that was connected to a dead node may not have heard of it, and the thing that a
//! lock protects may not check fences. So its leases are kept for a while, and so is what
//! other nodes do not know of: a partition of the dead node gives nothing from memory.

use std::collections::BTreeMap;

use crate::time::Instant;

use super::records::Incarnation;

/// What rests, and until when.
#[derive(Clone, Debug, Default)]
pub(super) struct Resting {
    pub(super) partitions: BTreeMap<u32, Instant>,
    /// In the order in which they died.
    pub(super) nodes: Vec<(Instant, Incarnation)>,
}

impl Resting {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When the next of it is over.
    pub(super) fn deadline(&self) -> Instant {
        let partitions = self.partitions.values().copied();
        let nodes = self.nodes.iter().map(|(until, _)| *until);
        partitions.chain(nodes).min().unwrap_or(Instant::NEVER)
    }

    /// Whether names of a partition are not granted yet.
    pub(super) fn holds(&self, partition: u32) -> bool {
        self.partitions.contains_key(&partition)
    }
}
