//! The view of a node and its cluster for operators.

use std::collections::BTreeSet;
use std::time::Duration;

use rideau_core::Histogram;
use rideau_core::cluster::{Certainty, Incarnation, OwnerTable};

use super::about::NodeAbout;
use super::room::RoomView;

/// The cluster as this node knows it, for routing.
#[derive(Clone, Debug)]
pub struct NodeTable {
    /// This life of the node, once it is part of the cluster.
    pub me: Option<Incarnation>,
    /// All nodes that live, and the owners of all partitions.
    pub owners: OwnerTable,
    /// The nodes that there is a link to.
    pub links: BTreeSet<Incarnation>,
}

impl NodeTable {
    /// The owner of a partition and its epoch, if a living node owns it.
    pub fn owner(&self, partition: u32) -> Option<(&Incarnation, u64)> {
        let record = self.owners.owner(partition).record.as_ref()?;
        let is_live = self.owners.is_live(&record.owner);
        is_live.then_some((&record.owner, record.epoch))
    }
}

/// A node and its cluster at one moment.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// This life of the node, once it is part of the cluster.
    pub me: Option<Incarnation>,
    /// How sure it is of what it owns.
    pub certainty: Certainty,
    /// How long ago the last keepalive was answered, if one was in this life.
    pub keepalive_age: Option<Duration>,
    /// For how long the node may rely on its lease.
    pub valid_for: Duration,
    /// The revision of etcd that the node has seen.
    pub revision: u64,
    /// All nodes that live, by name.
    pub nodes: Vec<NodeRow>,
    /// All partitions.
    pub partitions: Vec<PartitionRow>,
    /// Nodes that do not live, and did in the last 24 hours or own something.
    pub lost_nodes: Vec<String>,
    /// Asks that wait for an owner.
    pub parked: usize,
    /// Counters since the process began.
    pub counters: NodeCounters,
    /// How much of etcd's room is used.
    pub room: RoomView,
}

/// A node that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its life.
    pub node: Incarnation,
    /// The data that it publishes.
    pub about: NodeAbout,
    /// How much it should own beside the others.
    pub weight: u32,
    /// Whether it gives away what it owns.
    pub is_draining: bool,
    /// Whether there is a link to it.
    pub is_linked: bool,
    /// How many partitions it owns.
    pub partitions: u32,
    /// How long this node has known of it.
    pub age: Duration,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRow {
    /// Its number.
    pub partition: u32,
    /// The node that owns it, if that lives.
    pub owner: Option<Incarnation>,
    /// The newest ownership.
    pub epoch: u64,
    /// How far it is, as this node knows.
    pub state: PartitionState,
}

/// How far a partition is from being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// No living node owns it.
    NoOwner,
    /// Another node owns it.
    Elsewhere,
    /// This node reads it from etcd.
    Loading,
    /// This node could not load it, and tries again.
    LoadFailed(String),
    /// This node writes a snapshot of it before it serves it.
    Loaded,
    /// This node serves it.
    Serving,
    /// This node gives it away.
    Closing,
}

/// Counters since the process began.
#[derive(Clone, Debug, Default)]
pub struct NodeCounters {
    /// Lives of the node: how often it became part of the cluster.
    pub lives: u64,
    /// Partitions that came because no living node owned them.
    pub takeovers: u64,
    /// Partitions that another node gave.
    pub moves_in: u64,
    /// Partitions that went to another node.
    pub moves_out: u64,
    /// Partitions that were loaded, with how long it took to read and load them.
    pub loads: Histogram,
    /// Loads that failed.
    pub loads_failed: u64,
    /// Calls that appended something, with how long each waited until it was safe.
    pub appends: Histogram,
    /// Calls that appended to a partition which was lost meanwhile.
    pub appends_lost: u64,
    /// Bytes of sections that were appended.
    pub append_bytes: u64,
    /// Snapshots that were asked for.
    pub snapshots: u64,
    /// Requests that etcd answered, with how long each took.
    pub etcd: Histogram,
    /// Requests of which it is not known whether etcd did them.
    pub etcd_unknown: u64,
}
