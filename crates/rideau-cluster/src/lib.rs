//! A node of a cluster: its life in etcd, and its links to other nodes.
//!
//! `rideau_core::cluster` decides. This crate carries out what it decides: requests to etcd,
//! the lease, the watch, and the connections between nodes. It knows no command and nothing
//! of what is in a partition.

mod links;
mod node;

pub use links::{
    BadPeerTls, BadSecret, LINK_VERSIONS, LinkError, LinkEvent, LinkLimits, LinkMessage,
    LinkOptions, LinkSecret, LinkStats, LinkTimes, MESSAGE_MAX, PeerAnswer, PeerAsk, PeerLinks,
    PeerStats, PeerTls, PendingAnswer, RefusalReason, ReportParts, ReportTooLong, ServeAsks,
    ServedAnswer, read_report, write_report,
};
pub use node::{
    ClusterMade, ClusterNode, ConfigError, MoveKind, MovedPartitions, NameEvent, NewConfig,
    NoPeers, NodeAbout, NodeCounters, NodeError, NodeEvents, NodeOptions, NodePulse, NodeRow,
    NodeTable, NodeView, OfflineCluster, PartitionRow, PartitionState, PeerSender, RoomLevel,
    RoomView, STORED_FORMAT, StoredConfig,
};
