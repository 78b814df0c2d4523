//! Events of a node for the process around it.

use std::sync::Arc;

use rideau_core::cluster::{Certainty, Incarnation, PeerMessage, ReportedRow, RowMessage};

use super::error::NodeError;
use super::view::NodeTable;

/// Receives the events of a node.
///
/// The node's own thread calls, one call after the other. No call may wait: the lease is
/// kept by the same thread.
pub trait NodeEvents: Send + Sync {
    /// How sure the node is of what it granted. After [`Lost`](Certainty::Lost) a new life
    /// begins, and with [`Sure`](Certainty::Sure) it is part of the cluster.
    fn certainty_changed(&self, certainty: Certainty);

    /// Nodes, owners or links are others than before.
    fn table_changed(&self, table: &Arc<NodeTable>);

    /// Something of what is kept in memory has changed. The node grants names of a
    /// partition when the call that says it [adopted](NameEvent::Adopted) them has returned.
    fn names_changed(&self, event: NameEvent) {
        let _ = event;
    }

    /// Partitions came or went.
    fn partitions_moved(&self, _moved: &MovedPartitions) {}

    /// The node cannot be part of the cluster, and does not try any more.
    fn resigned(&self, error: &NodeError);
}

/// What a process is told that keeps names: locks and others that are only in memory. Rows
/// are those of `rideau_core::cluster::EntryRows`.
#[derive(Clone, Debug)]
pub enum NameEvent {
    /// A life of the node begins. Rows of earlier ones do not count any more.
    Joined(Incarnation),
    /// A partition has a new owner, which has to be told what is behind this node.
    Owned {
        /// Which partition.
        partition: u32,
        /// The new ownership.
        epoch: u64,
        /// The new owner.
        owner: Incarnation,
    },
    /// All nodes have reported: this is what is held and asked for in a partition.
    Adopted {
        /// Which partition.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The reports of each node.
        reports: Vec<(Incarnation, Vec<ReportedRow>)>,
    },
    /// This node keeps nothing of a partition any more.
    Ended {
        /// Which one.
        partition: u32,
    },
    /// An ask or a lease is over.
    RowEnded {
        /// The partition of the name.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The entry node.
        node: Incarnation,
        /// The ask or the lease.
        ticket: u64,
        /// How it ended, as its entry node told.
        how: Vec<u8>,
    },
    /// A life of a node is over, and all behind it.
    Gone(Incarnation),
    /// Tell another node, or the rows of this one.
    Send {
        /// Which one.
        to: Incarnation,
        /// What.
        message: RowMessage,
    },
}

/// Partitions that recently came from a node or went to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedPartitions {
    /// Whether they came or went.
    pub how: MoveKind,
    /// The node that had them before, or has them now. None if no node had them.
    pub node: Option<String>,
    /// Which ones.
    pub partitions: Vec<u32>,
}

/// How partitions change their owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveKind {
    /// No living node owned them, and this one took them.
    TakenOver,
    /// Another node gave them to this one.
    MovedIn,
    /// This node gave them to another.
    MovedOut,
}

impl MovedPartitions {
    /// Add a partition to those that went the same way.
    pub(super) fn add(all: &mut Vec<Self>, how: MoveKind, node: Option<String>, partition: u32) {
        let found = all.iter_mut().find(|it| it.how == how && it.node == node);
        match found {
            Some(moved) => moved.partitions.push(partition),
            None => all.push(Self {
                how,
                node,
                partitions: vec![partition],
            }),
        }
    }
}

/// Sends messages to other nodes.
pub trait PeerSender: Send + Sync {
    /// Send a message over the link to a node, if there is one. It may get lost. The call
    /// must not wait.
    fn send(&self, to: &Incarnation, message: PeerMessage);
}

/// There are no links.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

impl PeerSender for NoPeers {
    fn send(&self, _to: &Incarnation, _message: PeerMessage) {}
}
