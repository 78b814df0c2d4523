//! State that all links of a node share: the table of peers, the limits and the counters.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rideau_core::cluster::Incarnation;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use super::hello::Handshake;
use super::message::PeerAnswer;
use super::options::LinkOptions;
use super::outgoing::LinkBudget;
use super::peer::{LinkedPeer, PeerStanding};
use super::refusal::{LinkRefusal, RefusalCounts, RefusalReason};
use super::tls::PeerTls;
use super::{LinkEvent, ServeAsks};

/// Peers that may be linked before the watch has shown them.
const EARLY_MAX: usize = 64;

/// State that all links of a node share.
pub(super) struct LinksShared {
    pub(super) options: LinkOptions,
    /// Replaced when certificates are renewed.
    pub(super) tls: Mutex<Option<PeerTls>>,
    pub(super) server: Arc<dyn ServeAsks>,
    pub(super) events: mpsc::Sender<LinkEvent>,
    pub(super) runtime: Handle,
    pub(super) budget: Arc<LinkBudget>,
    /// Bytes were written or settled, so there may be room.
    pub(super) room: Notify,
    /// Why all links are to end.
    pub(super) stop: watch::Sender<Option<String>>,
    pub(super) refusals: RefusalCounts,
    pub(super) totals: LinkTotals,
    peers: RwLock<PeerTable>,
}

/// Counters of all links since the start.
#[derive(Default)]
pub(super) struct LinkTotals {
    pub(super) links: AtomicU64,
    pub(super) links_now: AtomicU64,
    pub(super) reconnects: AtomicU64,
    pub(super) dials_failed: AtomicU64,
    pub(super) asks_out: AtomicU64,
    pub(super) asks_in: AtomicU64,
    pub(super) asks_busy: AtomicU64,
    pub(super) copies: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) bytes_in: AtomicU64,
}

/// Which peers there are, at one revision of etcd.
#[derive(Default)]
struct PeerTable {
    revision: u64,
    peers: BTreeMap<Incarnation, Arc<LinkedPeer>>,
}

/// How many links one peer has had, and what they carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStats {
    /// The peer.
    pub node: Incarnation,
    /// Whether it is linked now.
    pub is_linked: bool,
    /// The version of the protocol that the last link spoke.
    pub version: Option<u32>,
    /// How long the last ping took.
    pub rtt: Option<Duration>,
    /// Links so far. All but the first are reconnects.
    pub links: u64,
    /// Asks that were sent to it.
    pub asks_out: u64,
    /// Asks that it sent.
    pub asks_in: u64,
    /// Asks of this node that wait for its answer.
    pub outstanding: usize,
    /// Bytes of them, and of what is not yet written.
    pub outstanding_bytes: usize,
    /// Its asks that run here.
    pub running: usize,
    /// Messages that it has not confirmed, and that the next link repeats.
    pub unheard: usize,
    /// Bytes that were sent to it.
    pub bytes_out: u64,
    /// Bytes that it sent.
    pub bytes_in: u64,
}

/// Counters of all links since the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkStats {
    /// Peers that the watch shows.
    pub peers: usize,
    /// Links that are up.
    pub links: u64,
    /// Links so far.
    pub links_made: u64,
    /// Links that replaced an earlier one of the same peer.
    pub reconnects: u64,
    /// Attempts to connect that failed, and handshakes that were broken off.
    pub dials_failed: u64,
    /// Asks that were sent.
    pub asks_out: u64,
    /// Asks that came.
    pub asks_in: u64,
    /// Asks that were refused because too much was outstanding.
    pub asks_busy: u64,
    /// Second copies of asks.
    pub copies: u64,
    /// Bytes of asks without an answer and of frames that are not yet written.
    pub outstanding_bytes: usize,
    /// Bytes that were sent.
    pub bytes_out: u64,
    /// Bytes that came.
    pub bytes_in: u64,
    /// How often each reason prevented a link.
    pub refusals: Vec<(RefusalReason, u64)>,
}

impl LinksShared {
    pub(super) fn new(
        options: LinkOptions,
        server: Arc<dyn ServeAsks>,
        events: mpsc::Sender<LinkEvent>,
        runtime: Handle,
    ) -> Self {
        Self {
            tls: Mutex::new(options.tls.clone()),
            server,
            events,
            runtime,
            budget: Arc::new(LinkBudget::new(options.limits.node_bytes_max)),
            room: Notify::new(),
            stop: watch::Sender::new(None),
            refusals: RefusalCounts::default(),
            totals: LinkTotals::default(),
            peers: RwLock::default(),
            options,
        }
    }

    /// The inputs of this node to a handshake.
    pub(super) fn handshake<'a>(&'a self, channel: &'a [u8]) -> Handshake<'a> {
        Handshake {
            me: &self.options.me,
            cluster: &self.options.cluster,
            versions: self.options.versions,
            secret: &self.options.secret,
            channel,
        }
    }

    /// A peer that lives, or has proved itself.
    pub(super) fn peer(&self, node: &Incarnation) -> Option<Arc<LinkedPeer>> {
        self.peers.read().peers.get(node).cloned()
    }

    /// All of them.
    pub(super) fn peers(&self) -> Vec<Arc<LinkedPeer>> {
        self.peers.read().peers.values().cloned().collect()
    }

    /// The peer that has proved to be this incarnation. A create revision is that of the
    /// watch or later if the watch has yet to show it. One that the watch has passed
    /// without it is gone.
    pub(super) fn admit(&self, node: &Incarnation) -> Result<Arc<LinkedPeer>, LinkRefusal> {
        let mut table = self.peers.write();
        if let Some(peer) = table.peers.get(node) {
            return Ok(Arc::clone(peer));
        }
        if node.fence <= table.revision {
            let detail = format_args!("{node} is gone");
            return Err(RefusalReason::Incarnation.with(detail));
        }
        let is_early = |peer: &&Arc<LinkedPeer>| *peer.standing.borrow() == PeerStanding::Early;
        if table.peers.values().filter(is_early).count() >= EARLY_MAX {
            let detail = "too many nodes are linked that the watch has not shown";
            return Err(RefusalReason::Crowded.with(detail));
        }
        let peer = Arc::new(self.new_peer(node, PeerStanding::Early));
        table.peers.insert(node.clone(), Arc::clone(&peer));
        Ok(peer)
    }

    /// The watch shows these nodes at a revision. Returns those that this node has to dial
    /// from now on, with their addresses.
    pub(super) fn set_peers(
        &self,
        revision: u64,
        nodes: Vec<(Incarnation, String)>,
    ) -> Vec<(Arc<LinkedPeer>, String)> {
        let mut table = self.peers.write();
        if revision < table.revision {
            return Vec::new();
        }
        table.revision = revision;
        let me = &self.options.me.name;
        let nodes: BTreeMap<_, _> = nodes.into_iter().filter(|it| it.0.name != *me).collect();
        let (mut gone, mut dialed) = (Vec::new(), Vec::new());
        table.peers.retain(|node, peer| {
            let stays = nodes.contains_key(node) || node.fence > revision;
            if !stays {
                gone.push(Arc::clone(peer));
            }
            stays
        });
        for (node, address) in nodes {
            if let Some(peer) = table.peers.get(&node) {
                peer.standing.send_if_modified(|standing| {
                    let is_early = *standing == PeerStanding::Early;
                    *standing = PeerStanding::Live;
                    is_early
                });
                continue;
            }
            let peer = Arc::new(self.new_peer(&node, PeerStanding::Live));
            if *me < node.name {
                dialed.push((Arc::clone(&peer), address));
            }
            table.peers.insert(node, peer);
        }
        drop(table);
        gone.iter().for_each(|peer| peer.forget());
        dialed
    }

    /// Wait until all links are to end. Returns why.
    pub(super) async fn stopped(&self) -> String {
        let mut stop = self.stop.subscribe();
        let stopped = stop.wait_for(Option::is_some).await;
        let stopped = stopped.expect("the sender is beside it");
        stopped.clone().unwrap_or_default()
    }

    /// Undoes what an answer took. A panic of the server costs no link.
    pub(super) fn undo(&self, from: &Incarnation, row: Vec<u8>) {
        let undo = || self.server.undo(from, row);
        if catch_unwind(AssertUnwindSafe(undo)).is_err() {
            tracing::error!(%from, "what a cancelled ask took could not be undone");
        }
    }

    /// An answer came too late. A panic of the server costs no link.
    pub(super) fn unclaimed(&self, from: &Incarnation, answer: PeerAnswer) {
        let hand_back = || self.server.unclaimed(from, answer);
        if catch_unwind(AssertUnwindSafe(hand_back)).is_err() {
            tracing::error!(%from, "an answer that came too late could not be handed back");
        }
    }

    fn new_peer(&self, node: &Incarnation, standing: PeerStanding) -> LinkedPeer {
        let budget = Arc::clone(&self.budget);
        LinkedPeer::new(node.clone(), standing, self.options.limits, budget)
    }

    pub(super) fn stats(&self) -> LinkStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let totals = &self.totals;
        let peers = self.peers();
        let is_live = |peer: &&Arc<LinkedPeer>| *peer.standing.borrow() == PeerStanding::Live;
        LinkStats {
            peers: peers.iter().filter(is_live).count(),
            links: read(&totals.links_now),
            links_made: read(&totals.links),
            reconnects: read(&totals.reconnects),
            dials_failed: read(&totals.dials_failed),
            asks_out: read(&totals.asks_out),
            asks_in: read(&totals.asks_in),
            asks_busy: read(&totals.asks_busy),
            copies: read(&totals.copies),
            outstanding_bytes: self.budget.used(),
            bytes_out: read(&totals.bytes_out),
            bytes_in: read(&totals.bytes_in),
            refusals: self.refusals.counts(),
        }
    }
}

impl LinkedPeer {
    pub(super) fn stats(&self) -> PeerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let traffic = self.traffic();
        PeerStats {
            node: self.node.clone(),
            is_linked: traffic.out.is_open(),
            version: self.version(),
            rtt: traffic.served.rtt(),
            links: read(&self.counts.links),
            asks_out: read(&self.counts.asks_out),
            asks_in: read(&self.counts.asks_in),
            outstanding: traffic.out.asks(),
            outstanding_bytes: traffic.out.charged(),
            running: traffic.served.running(),
            unheard: traffic.out.repeats(),
            bytes_out: read(&self.counts.bytes_out),
            bytes_in: read(&self.counts.bytes_in),
        }
    }
}
