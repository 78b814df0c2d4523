//! A node of a cluster: its life in etcd, and its links to other nodes.
//!
//! `rideau_core::cluster` decides. This crate carries out what it decides: requests to etcd,
//! the lease, the watch, and the connections between nodes. It knows no command and nothing
//! of what is in a partition.

mod node;

pub use node::{
    ClusterMade, ClusterNode, NoPeers, NodeAbout, NodeCounters, NodeError, NodeEvents, NodeOptions,
    NodeRow, NodeTable, NodeView, PartitionRow, PartitionState, PeerSender, RoomLevel, RoomView,
};
