//! Sessions of one node that connections of another are in.
//!
//! A session belongs to the node that opened it, and so does what it holds. A connection of
//! another node that attaches to it has its commands about holdings executed there.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rideau_core::cluster::Incarnation;

use super::Cluster;
use crate::state::end::EndReason;
use crate::state::ticket::Ticket;

/// A session of another node that a connection of this one is in. The other node is told
/// when the connection leaves.
pub(crate) struct FarSession {
    cluster: Arc<Cluster>,
    /// The node that has it.
    pub(crate) node: Incarnation,
    /// The attachment, as this node names it.
    pub(crate) id: u64,
    is_left: bool,
}

/// Connections of other nodes that are in sessions of this one, by node and attachment.
#[derive(Default)]
pub(super) struct FarSessions {
    attached: Mutex<HashMap<(Incarnation, u64), Ticket>>,
}

impl FarSession {
    /// The attachment that another node has just confirmed.
    pub(crate) fn new(cluster: &Arc<Cluster>, node: Incarnation, id: u64) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            node,
            id,
            is_left: false,
        }
    }

    /// The connection leaves the session in this manner.
    pub(crate) fn leave(mut self, why: EndReason) {
        self.is_left = true;
        self.cluster.leave_far(&self.node, self.id, why);
    }
}

impl Drop for FarSession {
    fn drop(&mut self) {
        if !self.is_left {
            self.cluster.leave_far(&self.node, self.id, EndReason::Lost);
        }
    }
}

impl Cluster {
    /// Tell another node that a connection has left its session.
    pub(crate) fn leave_far(&self, node: &Incarnation, id: u64, why: EndReason) {
        let mut holder = id.to_be_bytes().to_vec();
        holder.push(u8::from(why == EndReason::Quit));
        if let Some(links) = &*self.links.read() {
            // A node that is gone has no sessions.
            let _ = links.end_holder(node, u32::MAX, 0, holder);
        }
    }

    /// A connection of another node is in a session of this one.
    pub(crate) fn attached(&self, node: &Incarnation, id: u64, session: Ticket) {
        let key = (node.clone(), id);
        self.far.attached.lock().insert(key, session);
    }

    /// The session that a connection of another node is in.
    pub(crate) fn far_session(&self, node: &Incarnation, id: u64) -> Option<Ticket> {
        let attached = self.far.attached.lock();
        attached.get(&(node.clone(), id)).copied()
    }

    /// A connection of another node has left its session. Says which, if it was in one.
    pub(crate) fn detached(&self, node: &Incarnation, id: u64) -> Option<Ticket> {
        self.far.attached.lock().remove(&(node.clone(), id))
    }

    /// A life of a node is over. Says which sessions its connections were in.
    pub(crate) fn detached_all(&self, node: &Incarnation) -> Vec<Ticket> {
        let mut attached = self.far.attached.lock();
        let left = attached.extract_if(|(of, _), _| of == node);
        left.map(|(_, ticket)| ticket).collect()
    }
}

/// Parses the end of a connection of another node: its attachment, and how it left.
pub(crate) fn read_left(holder: &[u8]) -> Option<(u64, EndReason)> {
    let (id, rest) = holder.split_first_chunk()?;
    let why = match rest {
        [1] => EndReason::Quit,
        _ => EndReason::Lost,
    };
    Some((u64::from_be_bytes(*id), why))
}
