//! What the thread that drives the machine lets other threads read.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use tokio::sync::watch;

use super::boot_clock;
use super::config::StoredConfig;
use super::pulse::{NodePulse, Pulse};
use super::room::Room;
use super::serving::ServingTable;
use super::view::NodeTable;

/// What other threads read.
#[derive(Debug)]
pub(super) struct NodeShared {
    pub(super) serving: Arc<ServingTable>,
    pub(super) room: Room,
    /// The newest revision of etcd that the node knows of.
    pub(super) revision: AtomicU64,
    pub(super) table: RwLock<Arc<NodeTable>>,
    pub(super) pulse: Mutex<Pulse>,
    /// The text that all nodes share; none as long as nodes share none.
    pub(super) config: watch::Sender<Option<Arc<StoredConfig>>>,
}

impl NodeShared {
    pub(super) fn pulse(&self) -> NodePulse {
        let now = boot_clock::now();
        let pulse = self.pulse.lock();
        NodePulse {
            certainty: pulse.certainty,
            keepalive_age: pulse.kept_at.map(|at| now.since(at)),
            valid_for: self.serving.valid_for(),
            lost_nodes: pulse.lost_nodes.clone(),
            parked: pulse.parked,
            counters: pulse.counters.clone(),
            room: self.room.view(),
        }
    }
}
