//! What several nodes decide alike, each by itself: which partition a name or a value
//! belongs to, which node should own a partition, and which node does.
//!
//! [`Cluster`] is one node. It keeps a lease in etcd, learns from the watch which nodes
//! live, takes partitions of nodes that do not, gives partitions to nodes that have too
//! few, and writes a log and snapshots of what it owns. It knows no sockets, no client of
//! etcd and nothing of what is in a partition.
//!
//! All of it is pure: nodes that see the same input decide the same.

mod batch;
mod digests;
mod drops;
mod effect;
mod invariants;
mod join;
mod key_epochs;
mod key_index;
mod keys;
mod lease;
mod log;
mod member;
mod messages;
mod options;
mod owned;
mod parked;
mod partitions;
mod planted;
mod purpose;
mod records;
mod reports;
mod requests;
mod rest;
mod routing;
mod rows;
mod shares;
mod slots;
mod snapshots;
mod store;
mod straight;
mod table;
mod tags;
mod takeover;

pub use batch::{BadBatch, LogBatch, LogSection};
pub use digests::{Digest, Digests, Search, SearchStep, SearchView, Tier};
pub use drops::RowDrops;
pub use effect::{AskRoute, Certainty, DownReason, Effect, ResignReason};
pub use key_epochs::KeyEpochs;
pub use key_index::{KeyAt, KeyIndexes, KeyTurn, SweptKey};
pub use keys::{ClusterKeys, WatchedKey};
pub use member::Cluster;
pub use messages::{PeerMessage, ReportedRow, RowAnswer, RowMessage};
pub use options::Options;
pub use parked::PARKED_MAX;
pub use partitions::{BadPartitions, Partitions};
#[cfg(feature = "planted")]
pub use planted::Planted;
pub use records::{BadRecord, Incarnation, NodeRecord, OwnerRecord, Segment, SnapshotId};
pub use rows::{EntryRows, RowEffect, RowNews};
pub use shares::{Node, shares};
pub use slots::{SLOTS, slot_of};
pub use store::{
    Compare, Holds, KeyChange, KeyRange, KeyValue, StoreOp, StoreOutcome, StoreRefusal, StoreReply,
    StoreRequest, StoreTxn, TxnReply,
};
pub use straight::{PeerLink, SlotRange};
pub use table::{KnownNode, KnownOwner, OwnerTable};
pub use tags::SlotTag;
