//! The cluster that this server is a node of: where a command goes, and how it gets there.

mod claim;
mod configs;
mod entry;
mod far;
mod left;
mod lines;
mod names;
mod owned;
mod place_claim;
mod places;
mod renew;
mod straight;
pub(crate) mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rideau::Histogram;
use rideau_cluster::{ClusterNode, LinkError, PeerAnswer, PeerAsk, PeerLinks, ServeAsks};
use rideau_core::cluster::{
    AskRoute, Digests, DownReason, Incarnation, KeyIndexes, Partitions, PeerMessage,
};
use tokio::sync::Notify;

pub(crate) use lines::Lines;

pub(crate) use claim::{ClaimOutcome, ClaimWait, LockClaim};
pub(crate) use configs::KnownConfig;
pub(crate) use entry::{NameLease, NameOf, NoLease, NoPlace};
pub(crate) use far::{FarSession, read_left};
pub(crate) use names::Names;
pub(crate) use owned::{AdoptedLease, HeldPlace, HostPlaces, NotRenewed, Placed, Placing, RowKey};
pub(crate) use place_claim::{
    PlaceClaim, PlaceEnd, PlaceGrant, PlaceHeld, PlaceKind, PlaceOutcome,
};
pub(crate) use renew::Renewed;
pub(crate) use straight::StraightNode;

use crate::state::tags::TicketTags;
use configs::ConfigVersions;
use far::FarSessions;

/// How often a node looks whether it has heard of a new owner.
const LOOK: Duration = Duration::from_millis(10);

/// The cluster, as commands use it.
pub(crate) struct Cluster {
    /// This node.
    pub node: ClusterNode,
    /// How values are dealt out.
    pub partitions: Partitions,
    /// The tags of tickets.
    pub tags: TicketTags,
    /// The links of this life of the node.
    pub links: RwLock<Option<PeerLinks>>,
    /// Locks of this node as an owner, and rows of its clients.
    pub names: Names,
    /// Connections of other nodes that are in sessions of this one.
    far: FarSessions,
    /// The last attachment to a session of another node.
    next_far: AtomicU64,
    /// When links to nodes were lost, until there is one again.
    lost_links: Mutex<BTreeMap<Incarnation, Instant>>,
    /// The newest link to each node, and the last number of all.
    numbers: Mutex<(BTreeMap<Incarnation, u64>, u64)>,
    /// Answers what nodes ask this one, itself among them.
    pub server: RwLock<Option<Arc<dyn ServeAsks>>>,
    /// Free values of other nodes, by range.
    pub digests: RwLock<Digests>,
    /// Where the keys of the partitions of this node are.
    pub keys: Mutex<KeyIndexes>,
    /// A key is free again, or more is known of keys.
    pub keys_changed: Notify,
    /// One task at a time has other nodes report their keys.
    pub collecting: tokio::sync::Mutex<()>,
    /// Asks that wait on this node for values of any node.
    pub lines: Lines,
    /// Which version of the shared config each node follows.
    configs: ConfigVersions,
    pub counts: HopCounts,
}

/// Where commands went.
#[derive(Debug, Default)]
pub(crate) struct HopCounts {
    /// Commands about what nodes share that this node answered by itself.
    pub here: AtomicU64,
    /// Commands of this node's clients that were sent to another node.
    pub first: AtomicU64,
    /// Commands that were sent to another node, those of other nodes' clients among them.
    pub hops_out: AtomicU64,
    /// Commands of other nodes that were answered here.
    pub hops_in: AtomicU64,
    /// Those of them that another node had been sent before.
    pub second: AtomicU64,
    /// Commands that no node could answer.
    pub down: AtomicU64,
    /// Commands whose clients were sent to another node.
    pub redirects: AtomicU64,
    /// How long commands took that another node answered.
    pub took: Mutex<Histogram>,
}

impl HopCounts {
    /// A command was sent to another node. Is it one of this node's clients?
    pub(crate) fn sent(&self, is_first: bool) {
        self.hops_out.fetch_add(1, Ordering::Relaxed);
        self.first.fetch_add(is_first.into(), Ordering::Relaxed);
    }

    /// A command was answered here that had come over this many links.
    pub(crate) fn served(&self, hops: u8) {
        self.hops_in
            .fetch_add(u64::from(hops > 0), Ordering::Relaxed);
        self.second
            .fetch_add(u64::from(hops > 1), Ordering::Relaxed);
    }
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
            lost_links: Mutex::default(),
            numbers: Mutex::default(),
            node,
            partitions,
            tags: TicketTags::new(partitions),
            links: RwLock::new(None),
            server: RwLock::new(None),
            digests: RwLock::default(),
            keys: Mutex::new(KeyIndexes::new(partitions.count())),
            keys_changed: Notify::new(),
            collecting: tokio::sync::Mutex::default(),
            lines: Lines::default(),
            configs: ConfigVersions::default(),
            counts: HopCounts::default(),
        }
    }

    /// Whether this node serves everything.
    pub(crate) fn is_alone(&self) -> bool {
        let mut all = 0..self.partitions.count();
        all.all(|partition| self.node.serves(partition).is_some())
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

    /// Whether the node does not serve all that it owns: it may have what it does not give.
    pub(crate) fn is_partly_closed(&self) -> bool {
        let table = self.node.table();
        let is_mine = |partition: &u32| {
            let owner = table.owner(*partition).map(|(owner, _)| owner);
            owner.is_some() && owner == table.me.as_ref()
        };
        let mut own = (0..self.partitions.count()).filter(is_mine);
        own.any(|partition| self.node.serves(partition).is_none())
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
        self.counts.sent(ask.hop <= 1);
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
        self.lost_links.lock().remove(&node);
        self.change_rows(|rows, effects| rows.linked(&node, link, effects));
        let mut effects = Vec::new();
        self.names.drops.lock().linked(&node, &mut effects);
        let _ = self.carry(effects, &[]);
        self.tell_config(&node);
        self.node.linked(node, link);
    }

    /// The link to another node is gone.
    pub(crate) fn unlinked(self: &Arc<Self>, node: Incarnation) {
        self.digests.write().forget(&node);
        self.forget_config(&node);
        let link = self.numbers.lock().0.remove(&node);
        if let Some(link) = link {
            let mut lost_links = self.lost_links.lock();
            lost_links.retain(|_, lost| self.is_recent(*lost));
            lost_links.insert(node.clone(), Instant::now());
            drop(lost_links);
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

    /// Have this node answer what it would ask another.
    pub(crate) async fn ask_self(&self, ask: PeerAsk) -> Result<PeerAnswer, LinkError> {
        let server = self.server.read().clone();
        let me = self.node.table().me.clone();
        let (Some(server), Some(me)) = (server, me) else {
            return Err(LinkError::NoLink);
        };
        Ok(server.serve(&me, 0, ask).await)
    }

    /// All other nodes that own partitions.
    pub(crate) fn others(&self) -> BTreeSet<Incarnation> {
        let table = self.node.table();
        let owners = (0..self.partitions.count()).filter_map(|partition| table.owner(partition));
        let others = owners.filter(|(owner, _)| table.me.as_ref() != Some(*owner));
        others.map(|(owner, _)| owner.clone()).collect()
    }

    /// The names of nodes that do not live any more, and own partitions.
    pub(crate) fn dead_owners(&self) -> BTreeSet<String> {
        let table = self.node.table();
        let all = table.owners.owners();
        let records = all.filter_map(|(_, owner)| owner.record.as_ref());
        let dead = records.filter(|record| !table.owners.is_live(&record.owner));
        dead.map(|record| record.owner.name.clone()).collect()
    }

    /// The first partition that a node owns, and its epoch.
    pub(crate) fn first_of(&self, node: &Incarnation) -> Option<(u32, u64)> {
        let table = self.node.table();
        (0..self.partitions.count()).find_map(|partition| {
            let (owner, epoch) = table.owner(partition)?;
            (owner == node).then_some((partition, epoch))
        })
    }

    /// The partitions that this node serves, with their epochs.
    pub(crate) fn served(&self) -> Vec<(u32, u64)> {
        let all = 0..self.partitions.count();
        let served = all.filter_map(|partition| Some((partition, self.node.serves(partition)?)));
        served.collect()
    }

    /// Does an ask wait for values of a range, on any node?
    pub(crate) fn is_waited(&self, range: &str) -> bool {
        self.lines.is_waited(range) || self.digests.read().is_waited(range)
    }
}
