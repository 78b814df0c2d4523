//! Asks that wait for an owner of their partition.

use std::collections::BTreeMap;

use crate::time::Instant;

use super::records::Incarnation;

/// At most this many asks of a node wait for an owner.
pub const PARKED_MAX: usize = 1_024;

/// The kind of an ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AskKind {
    /// A durable value: the owner has to have loaded the partition.
    Value,
    /// A name: the owner has to have the reports of all nodes, too.
    Name,
}

/// Asks that have no route yet, by the shell's ids.
#[derive(Clone, Debug, Default)]
pub(super) struct ParkedAsks {
    pub(super) asks: BTreeMap<u64, ParkedAsk>,
    /// Something changed that may give them a route.
    pub(super) stirred: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ParkedAsk {
    pub(super) partition: u32,
    pub(super) until: Instant,
    pub(super) kind: AskKind,
    /// Another node sent it, by what it knew of the owner.
    pub(super) sent: Option<SentAsk>,
}

#[derive(Clone, Debug)]
pub(super) struct SentAsk {
    /// The life of that node, if it matters.
    pub(super) by: Option<Incarnation>,
    pub(super) epoch: u64,
}

impl ParkedAsks {
    /// When the next of them has waited long enough.
    pub(super) fn deadline(&self) -> Instant {
        let untils = self.asks.values().map(|ask| ask.until);
        untils.min().unwrap_or(Instant::NEVER)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.asks.len()
    }
}
