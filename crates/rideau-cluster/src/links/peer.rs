//! One incarnation of another node, for as long as it lives: what it is sent, what it has
//! asked, and which of its links counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rideau_core::cluster::Incarnation;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, watch};

use super::LinkError;
use super::options::LinkLimits;
use super::outgoing::{LinkBudget, Outgoing};
use super::refusal::{LinkRefusal, RefusalReason};
use super::served::Served;

/// The state of an incarnation, as the watch shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerStanding {
    /// It has proved itself, and the watch has not come that far.
    Early,
    /// It lives.
    Live,
    /// It is gone for good.
    Gone,
}

/// One incarnation of another node.
pub(super) struct LinkedPeer {
    pub(super) node: Incarnation,
    pub(super) standing: watch::Sender<PeerStanding>,
    /// Links that this node has tried to make.
    dialed: AtomicU64,
    /// The number of the link that counts.
    newest: watch::Sender<u64>,
    /// The version that the last link spoke; zero if there was none.
    version: AtomicU32,
    /// Held by the link that runs. The next one waits for it.
    slot: Arc<AsyncMutex<()>>,
    /// There is something to write.
    pub(super) wake: Notify,
    traffic: Mutex<Traffic>,
    pub(super) counts: PeerCounts,
}

/// The traffic of a peer's links.
pub(super) struct Traffic {
    pub(super) out: Outgoing,
    pub(super) served: Served,
}

/// Counters of a peer's links.
#[derive(Default)]
pub(super) struct PeerCounts {
    pub(super) links: AtomicU64,
    pub(super) asks_out: AtomicU64,
    pub(super) asks_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    pub(super) bytes_in: AtomicU64,
}

impl LinkedPeer {
    pub(super) fn new(
        node: Incarnation,
        standing: PeerStanding,
        limits: LinkLimits,
        budget: Arc<LinkBudget>,
    ) -> Self {
        let traffic = Traffic {
            out: Outgoing::new(limits, budget),
            served: Served::default(),
        };
        Self {
            node,
            standing: watch::Sender::new(standing),
            dialed: AtomicU64::new(0),
            newest: watch::Sender::new(0),
            version: AtomicU32::new(0),
            slot: Arc::default(),
            wake: Notify::new(),
            traffic: Mutex::new(traffic),
            counts: PeerCounts::default(),
        }
    }

    pub(super) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock()
    }

    /// The number of the next link, for the node that dials. None is used twice: the peer
    /// may have heard of one that this node gave up.
    pub(super) fn next_number(&self) -> u64 {
        1 + self.dialed.fetch_add(1, Ordering::Relaxed)
    }

    /// End older links, and wait until nothing of them is read any more.
    pub(super) async fn claim(&self, number: u64) -> Result<OwnedMutexGuard<()>, LinkRefusal> {
        let is_newer = self.newest.send_if_modified(|newest| {
            let is_newer = *newest < number;
            *newest = number.max(*newest);
            is_newer
        });
        let superseded = || {
            let detail = format_args!("link {number} of {} is not its newest", self.node);
            RefusalReason::Superseded.with(detail)
        };
        if !is_newer {
            return Err(superseded());
        }
        let slot = Arc::clone(&self.slot).lock_owned().await;
        match *self.newest.borrow() == number {
            true => Ok(slot),
            false => Err(superseded()),
        }
    }

    /// The version that the last link spoke.
    pub(super) fn version(&self) -> Option<u32> {
        let version = self.version.load(Ordering::Relaxed);
        (version > 0).then_some(version)
    }

    /// Both sides have agreed on a version.
    pub(super) fn speaks(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// Wait until a newer link counts.
    pub(super) async fn superseded(&self, number: u64) {
        let mut newest = self.newest.subscribe();
        let newer = newest.wait_for(|newest| *newest > number).await;
        drop(newer.expect("the peer keeps the sender"));
    }

    /// Wait until the watch shows that it lives, or that it is gone.
    pub(super) async fn known(&self) {
        self.stands(|standing| standing != PeerStanding::Early)
            .await;
    }

    /// Wait until it is gone for good.
    pub(super) async fn gone(&self) {
        self.stands(|standing| standing == PeerStanding::Gone).await;
    }

    async fn stands(&self, is_it: impl Fn(PeerStanding) -> bool) {
        let mut standing = self.standing.subscribe();
        let stood = standing.wait_for(|standing| is_it(*standing)).await;
        drop(stood.expect("the peer keeps the sender"));
    }

    /// The link is gone: all asks end as broken.
    pub(super) fn close(&self) {
        let asks = self.traffic().out.close();
        for ask in asks {
            let _ = ask.send(Err(LinkError::Broken));
        }
    }

    /// The incarnation is gone for good: nothing is repeated, and no ask of it runs on.
    pub(super) fn forget(&self) {
        self.standing.send_replace(PeerStanding::Gone);
        let mut traffic = self.traffic();
        traffic.out.forget();
        let tasks = traffic.served.forget();
        drop(traffic);
        tasks.iter().for_each(|task| task.abort());
    }
}

/// Count one more, or more.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
