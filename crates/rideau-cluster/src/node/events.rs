//! What a node tells the process around it.

use std::sync::Arc;

use rideau_core::cluster::{Certainty, Incarnation, PeerMessage};

use super::error::NodeError;
use super::view::NodeTable;

/// What the process around a node learns from it.
///
/// The node's own thread calls, one call after the other. No call may wait: the lease is
/// kept by the same thread.
pub trait NodeEvents: Send + Sync {
    /// How sure the node is of what it granted. After [`Lost`](Certainty::Lost) a new life
    /// begins, and with [`Sure`](Certainty::Sure) it is part of the cluster.
    fn certainty_changed(&self, certainty: Certainty);

    /// Nodes, owners or links are others than before.
    fn table_changed(&self, table: &Arc<NodeTable>);

    /// The node cannot be part of the cluster, and does not try any more.
    fn resigned(&self, error: &NodeError);
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
