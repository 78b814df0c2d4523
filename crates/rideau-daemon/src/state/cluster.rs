//! The cluster that this server is a node of: where a command goes, and how it gets there.

mod claim;
mod entry;
mod far;
mod names;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rideau::Histogram;
use rideau_cluster::{ClusterNode, LinkError, PeerAnswer, PeerAsk, PeerLinks};
use rideau_core::cluster::{AskRoute, DownReason, Incarnation, Partitions, PeerMessage};

pub(crate) use claim::{ClaimOutcome, ClaimWait, LockClaim};
pub(crate) use entry::{NameLease, NoLease};
pub(crate) use far::{FarSession, read_left};
pub(crate) use names::Names;

use far::FarSessions;

/// How often a node looks whether it has heard of a new owner.
const LOOK: Duration = Duration::from_millis(10);

/// The cluster, as commands use it.
pub(crate) struct Cluster {
    /// This node.
    pub node: ClusterNode,
    /// How values are dealt out.
    pub partitions: Partitions,
    /// The links of this life of the node.
    pub links: RwLock<Option<PeerLinks>>,
    /// What there is of names.
    pub names: Names,
    /// Connections of other nodes that are in sessions of this one.
    far: FarSessions,
    /// The last attachment to a session of another node.
    next_far: AtomicU64,
    /// The newest link to each node, and the last number of all.
    numbers: Mutex<(BTreeMap<Incarnation, u64>, u64)>,
    /// What other nodes have free of each range.
    free: RwLock<BTreeMap<(Box<str>, Incarnation), FreeValues>>,
    /// What was counted.
    pub counts: HopCounts,
}

/// What a node has free of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeValues {
    /// A partition of the node.
    pub partition: u32,
    /// How many there are in all of its partitions.
    pub count: u64,
}

/// Where commands went.
#[derive(Debug, Default)]
pub(crate) struct HopCounts {
    /// Commands that were sent to another node.
    pub hops_out: AtomicU64,
    /// Commands of other nodes that were answered here.
    pub hops_in: AtomicU64,
    /// Commands that no node could answer.
    pub down: AtomicU64,
    /// How long commands took that another node answered.
    pub took: Mutex<Histogram>,
}

/// Why no node answered a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// The partition has no owner that this node can reach.
    Down(DownReason),
    /// The link to the owner failed.
    Link(Incarnation, LinkError),
    /// The owner is another than this node knew, twice.
    Moved,
}

impl Cluster {
    /// The cluster of a node that was opened.
    pub(crate) fn new(node: ClusterNode) -> Self {
        let partitions = node.options().partitions;
        let names = Names::new(node.options());
        Self {
            names,
            far: FarSessions::default(),
            next_far: AtomicU64::new(1),
            numbers: Mutex::default(),
            node,
            partitions,
            links: RwLock::new(None),
            free: RwLock::default(),
            counts: HopCounts::default(),
        }
    }

    /// Whether this node serves everything.
    pub(crate) fn is_alone(&self) -> bool {
        let mut all = 0..self.partitions.count();
        all.all(|partition| self.node.serves(partition).is_some())
    }

    /// The first partition that this node serves.
    pub(crate) fn first_served(&self) -> Option<u32> {
        let mut all = 0..self.partitions.count();
        all.find(|partition| self.node.serves(*partition).is_some())
    }

    /// How many partitions no node is known to serve: without owner, or this node's by the
    /// table and not by its clock.
    pub(crate) fn unserved(&self) -> usize {
        let table = self.node.table();
        let all = 0..self.partitions.count();
        let is_unserved = |partition: &u32| match table.owner(*partition) {
            None => true,
            Some((owner, _)) if table.me.as_ref() == Some(owner) => {
                self.node.serves(*partition).is_none()
            }
            Some(_) => false,
        };
        all.filter(is_unserved).count()
    }

    /// Where an ask for something in a partition goes.
    pub(crate) async fn route(&self, partition: u32, wait: Option<Duration>) -> AskRoute {
        self.node.route(partition, wait).await
    }

    /// Ask another node.
    ///
    /// # Errors
    ///
    /// If there is no link, or it breaks, or the answer takes too long.
    pub(crate) async fn ask(
        &self,
        to: &Incarnation,
        ask: &PeerAsk,
    ) -> Result<PeerAnswer, LinkError> {
        let links = self.links.read().clone();
        let answer = links.ok_or(LinkError::NoLink)?.ask(to, ask)?;
        self.counts.hops_out.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let answer = answer.await?;
        self.counts.took.lock().record(began.elapsed());
        Ok(answer)
    }

    /// Tell another node, if there is a link to it.
    pub(crate) fn tell(&self, to: &Incarnation, message: PeerMessage) {
        if let Some(links) = &*self.links.read() {
            // Without it the other node goes on a little later.
            let _ = links.tell(to, message);
        }
    }

    /// A name for one more attachment to a session of another node.
    pub(crate) fn next_far(&self) -> u64 {
        self.next_far.fetch_add(1, Ordering::Relaxed)
    }

    /// There is a link to another node.
    pub(crate) fn linked(self: &Arc<Self>, node: Incarnation) {
        let link = {
            let (numbers, last) = &mut *self.numbers.lock();
            *last += 1;
            numbers.insert(node.clone(), *last);
            *last
        };
        self.change_rows(|rows, effects| rows.linked(&node, link, effects));
        self.node.linked(node, link);
    }

    /// The link to another node is gone.
    pub(crate) fn unlinked(self: &Arc<Self>, node: Incarnation) {
        self.forget_free(&node);
        let link = self.numbers.lock().0.remove(&node);
        if let Some(link) = link {
            self.change_rows(|rows, effects| rows.unlinked(&node, link, effects));
            self.node.unlinked(node, link);
        }
    }

    /// All links are gone.
    pub(crate) fn unlinked_all(self: &Arc<Self>) {
        let nodes: Vec<_> = self.numbers.lock().0.keys().cloned().collect();
        nodes.into_iter().for_each(|node| self.unlinked(node));
    }

    /// The number of the newest link to a node.
    pub(crate) fn link(&self, node: &Incarnation) -> u64 {
        self.numbers.lock().0.get(node).copied().unwrap_or(0)
    }

    /// Wait until the owner of a partition is another than that of this epoch, as long as an
    /// ask may wait for one.
    pub(crate) async fn moved(&self, partition: u32, epoch: u64) {
        let patience = self.node.options().patience;
        let is_same = || {
            let table = self.node.table();
            table.owner(partition).is_some_and(|(_, now)| now == epoch)
        };
        let until = tokio::time::Instant::now() + patience;
        while is_same() && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Another node says how much it has free of a range.
    pub(crate) fn set_free(&self, range: &str, node: &Incarnation, free: FreeValues) {
        let key = (Box::from(range), node.clone());
        self.free.write().insert(key, free);
    }

    /// There is no link to a node any more: what it has is not known.
    fn forget_free(&self, node: &Incarnation) {
        self.free.write().retain(|(_, of), _| of != node);
    }

    /// The node that has most free values of these ranges, and a partition of it.
    pub(crate) fn most_free(&self, ranges: &[Box<str>]) -> Option<(Incarnation, u32)> {
        let all = self.free.read();
        let has_some = |free: &FreeValues| free.count > 0;
        let named = all
            .iter()
            .filter(|((range, _), free)| ranges.contains(range) && has_some(free));
        let most = named.max_by_key(|(_, free)| free.count);
        most.map(|((_, node), free)| (node.clone(), free.partition))
    }

    /// A node had none of these, although it had said so.
    pub(crate) fn had_none(&self, ranges: &[Box<str>], node: &Incarnation) {
        let mut all = self.free.write();
        let those = all
            .iter_mut()
            .filter(|((range, of), _)| of == node && ranges.contains(range));
        those.for_each(|(_, free)| free.count = 0);
    }

    /// The name of a node that owns partitions and has not said how much it has free of one
    /// of these ranges.
    pub(crate) fn silent_about(&self, ranges: &[Box<str>]) -> Option<String> {
        let (table, all) = (self.node.table(), self.free.read());
        let mut owners = (0..self.partitions.count())
            .filter_map(|partition| table.owner(partition))
            .map(|(owner, _)| owner)
            .filter(|owner| table.me.as_ref() != Some(*owner));
        let is_silent = |owner: &&Incarnation| {
            let key = |range: &str| (Box::from(range), (*owner).clone());
            ranges.iter().any(|range| !all.contains_key(&key(range)))
        };
        owners.find(is_silent).map(|owner| owner.name.clone())
    }
}
