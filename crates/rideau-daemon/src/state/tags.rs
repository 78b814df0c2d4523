//! The tags that tickets get on several nodes.

use std::sync::Arc;

use rideau_core::cluster::{Partitions, SlotTag};

/// A tag for each partition; none on a server that is alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TicketTags(Option<(Partitions, Arc<[SlotTag]>)>);

impl TicketTags {
    /// Those of a node of a cluster.
    pub(crate) fn new(partitions: Partitions) -> Self {
        Self(Some((partitions, SlotTag::all(partitions).into())))
    }

    /// The tag of tickets of something with this name.
    pub(crate) fn of_name(&self, name: &[u8]) -> SlotTag {
        self.of_partition(|partitions| partitions.of_name(name))
    }

    /// The tag of tickets of a partition.
    pub(crate) fn of(&self, partition: u32) -> SlotTag {
        self.of_partition(|_| partition)
    }

    /// The tag of tickets of a value.
    pub(crate) fn of_value(&self, value: u128) -> SlotTag {
        self.of_partition(|partitions| partitions.of_value(value))
    }

    fn of_partition(&self, partition: impl FnOnce(Partitions) -> u32) -> SlotTag {
        match &self.0 {
            None => SlotTag::NONE,
            Some((partitions, tags)) => tags[partition(*partitions) as usize],
        }
    }
}
