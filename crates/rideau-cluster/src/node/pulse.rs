//! What changes all the time of a node: counters, and how it stands with etcd. Any thread may
//! look at any time, and the node's own thread does not wait for it.

use std::time::Duration;

use rideau_core::Instant;
use rideau_core::cluster::{Certainty, StoreOutcome};

use super::room::RoomView;
use super::view::NodeCounters;

/// How a node stands at one moment.
#[derive(Clone, Debug)]
pub struct NodePulse {
    /// How sure it is of what it owns.
    pub certainty: Certainty,
    /// How long ago the last keepalive was answered, if one was in this life.
    pub keepalive_age: Option<Duration>,
    /// For how long the node may rely on its lease.
    pub valid_for: Duration,
    /// Nodes that do not live, and did in the last 24 hours or own something.
    pub lost_nodes: Vec<String>,
    /// Asks that wait for an owner.
    pub parked: usize,
    /// Counters since the process began.
    pub counters: NodeCounters,
    /// How much of etcd's room is used.
    pub room: RoomView,
}

/// The state that the node's thread publishes.
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) certainty: Certainty,
    /// When the last keepalive of this life was answered.
    pub(super) kept_at: Option<Instant>,
    pub(super) lost_nodes: Vec<String>,
    pub(super) parked: usize,
    pub(super) counters: NodeCounters,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            certainty: Certainty::Lost,
            kept_at: None,
            lost_nodes: Vec::new(),
            parked: 0,
            counters: NodeCounters::default(),
        }
    }
}

impl Pulse {
    /// A request to etcd has this outcome, after so long.
    pub(super) fn etcd_answered(&mut self, outcome: &StoreOutcome, took: Duration) {
        match outcome {
            StoreOutcome::Unknown => self.counters.etcd_unknown += 1,
            _ => self.counters.etcd.record(took),
        }
    }
}
