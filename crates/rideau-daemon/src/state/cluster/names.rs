//! This node as the owner of partitions: what is held of the names in them, whichever node
//! the holders are connected to.
//!
//! What an owner has is only in memory. It is made anew from the reports of all nodes when
//! a partition comes, and dropped when it goes. Fences of an ownership begin with its epoch.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rideau::{Acquiring, Capacity, Denied, Lock, Locks, LocksOptions, Now, Reason, Refusal};
use rideau_cluster::NameEvent;
use rideau_config::Config;
use rideau_core::cluster::{
    AskRoute, EntryRows, Incarnation, Options, ReportedRow, RowAnswer, RowDrops, RowMessage,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::claim::{ClaimOutcome, LockClaim};
use super::entry::EntryState;
use super::owned::{
    EarlyAsk, HostPlaces, OwnedNames, OwnedRow, PlacesPhase, RowKey, RowOf, WaitTask,
};
use super::place_claim::{PlaceClaim, PlaceEnd, PlaceHeld};
use super::{Cluster, LOOK};
use crate::state::end::EndReason;
use crate::state::lock_rules::rule_locks;

/// This many grants of an epoch are kept back, so that its fences never run into the next.
const FENCES_LEFT: u64 = 1 << 24;
/// More units than any client can take: what is held was granted before.
const ANY: Capacity = Capacity::new(u64::MAX, 1);

/// What this node owns, and the rows of its clients.
pub(crate) struct Names {
    pub(super) entry: Mutex<EntryState>,
    /// By partition; none if this node has not adopted it.
    pub(super) owned: Box<[Mutex<Option<OwnedNames>>]>,
    /// Asks of other nodes that wait for reports.
    early: Mutex<HashMap<(Incarnation, u64), AbortHandle>>,
    /// The newest life of each node that is over.
    gone: Mutex<BTreeMap<String, u64>>,
    /// A lease was taken back that ends later.
    pub(super) due: Notify,
    /// Rows of other nodes that are to go.
    pub(super) drops: Mutex<RowDrops>,
    config: ArcSwapOption<Config>,
    /// Pools, brokers and regulators.
    places: OnceLock<Arc<dyn HostPlaces>>,
    pub(super) runtime: Handle,
}

/// The result of an ask to the locks.
type Answer = Result<Lock<'static, Vec<u8>>, ClaimOutcome>;

impl Names {
    pub(super) fn new(options: &rideau_cluster::NodeOptions) -> Self {
        let count = options.partitions.count();
        let rows = EntryRows::new(Options {
            partitions: count,
            lease: options.lease,
            ..Options::new(&options.cluster, &options.name)
        });
        Self {
            entry: Mutex::new(EntryState::new(rows)),
            owned: (0..count).map(|_| Mutex::default()).collect(),
            early: Mutex::default(),
            gone: Mutex::default(),
            due: Notify::new(),
            drops: Mutex::default(),
            config: ArcSwapOption::empty(),
            places: OnceLock::new(),
            runtime: Handle::current(),
        }
    }

    /// What has pools, brokers and regulators. It is said before the node joins.
    pub(crate) fn set_places(&self, places: Arc<dyn HostPlaces>) {
        let _ = self.places.set(places);
    }

    pub(super) fn places(&self) -> &Arc<dyn HostPlaces> {
        self.places
            .get()
            .expect("they are there before the node joins")
    }

    /// Keep the rules of a config from now on.
    pub(crate) fn follow(&self, config: &Arc<Config>) {
        self.config.store(Some(Arc::clone(config)));
        for owned in &self.owned {
            if let Some(owned) = &*owned.lock() {
                self.rule(&owned.locks);
            }
        }
    }

    fn rule(&self, locks: &Locks<Vec<u8>>) {
        if let Some(config) = &*self.config.load() {
            // Rules that break a rule were refused with the config.
            let _ = rule_locks(locks, config);
        }
    }

    /// Look at the locks of each partition that this node has.
    pub(crate) fn each_locks(&self, mut look: impl FnMut(&Locks<Vec<u8>>)) {
        for owned in &self.owned {
            if let Some(owned) = &*owned.lock() {
                look(&owned.locks);
            }
        }
    }

    /// How many units of a key are held, and how many asks wait. None if this node does not
    /// know.
    pub(crate) fn count(&self, partition: u32, key: &[u8]) -> Option<(u64, usize)> {
        let owned = self.owned[partition as usize].lock();
        let locks = &owned.as_ref()?.locks;
        Some((locks.held(key), locks.waiting(key)))
    }

    fn is_gone(&self, node: &Incarnation) -> bool {
        let gone = self.gone.lock();
        gone.get(&node.name).is_some_and(|last| node.fence <= *last)
    }
}

impl Cluster {
    /// The node says that something of names has changed.
    pub(crate) fn names_changed(self: &Arc<Self>, event: NameEvent) {
        match event {
            NameEvent::Joined(me) => {
                let mut entry = self.names.entry.lock();
                entry.rows.joined(me.clone());
                entry.me = Some(me);
                drop(entry);
                self.give_up_asks();
            }
            NameEvent::Owned {
                partition,
                epoch,
                owner,
            } => {
                let now = self.node.now();
                self.change_rows(|rows, effects| {
                    rows.owned(partition, epoch, &owner, now, effects);
                });
            }
            NameEvent::Adopted {
                partition,
                epoch,
                reports,
            } => self.adopt(partition, epoch, reports),
            NameEvent::Ended { partition } => {
                let ended = self.names.owned[partition as usize].lock().take();
                self.names.places().set_here(partition, false);
                self.names.drops.lock().ended(partition);
                drop(ended);
            }
            NameEvent::RowEnded {
                partition,
                epoch,
                node,
                ticket,
                how,
            } => self.end_row(partition, epoch, (node, ticket), &how),
            NameEvent::Gone(node) => {
                self.names.drops.lock().gone(&node);
                self.end_rows_of(&node);
            }
            NameEvent::Send { to, message } => _ = self.send_row(&to, message, Vec::new()),
        }
    }

    /// Another node, or this one, said something of a row.
    pub(crate) fn row_heard(
        self: &Arc<Self>,
        from: &Incarnation,
        link: u64,
        message: RowMessage,
        told: &[u8],
    ) {
        match message {
            RowMessage::Ask {
                partition,
                epoch,
                row,
            } => self.asked(from, partition, epoch, row),
            RowMessage::End {
                partition,
                epoch,
                ticket,
                ref how,
            } if self.node.serves_names(partition) == Some(epoch) => {
                self.end_row(partition, epoch, (from.clone(), ticket), how);
                let ended = RowMessage::Ended {
                    partition,
                    epoch,
                    ticket,
                };
                let _ = self.send_row(from, ended, Vec::new());
            }
            RowMessage::Report { .. } | RowMessage::End { .. } => {
                self.node.row_heard(from.clone(), link, message);
            }
            RowMessage::RowDropped { epoch, ticket, .. } => {
                self.names.drops.lock().dropped(from, ticket, epoch);
            }
            message => self.rows_heard(from, link, &message, told),
        }
    }

    /// A node asks for something of a partition that it takes for this node's.
    fn asked(self: &Arc<Self>, from: &Incarnation, partition: u32, epoch: u64, row: ReportedRow) {
        if partition >= self.partitions.count() {
            return;
        }
        let of = RowOf {
            partition,
            epoch,
            key: (from.clone(), row.ticket),
        };
        let is_hop = self.names.entry.lock().me.as_ref() != Some(from);
        let hops = &self.counts.hops_in;
        hops.fetch_add(u64::from(is_hop), Ordering::Relaxed);
        if self.node.serves_names(partition) == Some(epoch) {
            self.take_ask(of, &row);
            return;
        }
        // It waits until all nodes have reported.
        let mut early = self.names.early.lock();
        let (cluster, key) = (Arc::clone(self), of.key.clone());
        let task = self.names.runtime.spawn(async move {
            let by = of.key.0.clone();
            let route = cluster.node.route_name_for_peer(by, partition, epoch).await;
            cluster.names.early.lock().remove(&of.key);
            match route {
                AskRoute::Here { .. } => cluster.take_ask(of, &row),
                _ => cluster.answer(&of, RowAnswer::NotMine, Vec::new()),
            }
        });
        early.insert(key, task.abort_handle());
    }

    /// Grant an ask, refuse it, or let it wait.
    fn take_ask(self: &Arc<Self>, of: RowOf, row: &ReportedRow) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        let Some(known) = known.filter(|_| !self.names.is_gone(&of.key.0)) else {
            drop(owned);
            self.answer(&of, RowAnswer::NotMine, Vec::new());
            return;
        };
        // A second copy is the same ask.
        if known.rows.contains_key(&of.key) {
            return;
        }
        if let Some(claim) = PlaceClaim::read(&row.what) {
            self.take_place_ask(known, of, claim, row.age);
            return;
        }
        let Some(claim) = LockClaim::read(&row.what) else {
            drop(owned);
            // A newer release asks for something that this one does not know.
            self.answer(&of, RowAnswer::NotMine, Vec::new());
            return;
        };
        match ask(&known.locks, &claim, row.age) {
            Now::Answered(Ok(lock)) => {
                let fence = lock.fence();
                let told = granted(&lock, row.age);
                known.rows.insert(of.key.clone(), OwnedRow::Held(lock));
                drop(owned);
                self.spend(&of, fence);
                self.answer(&of, RowAnswer::Granted { fence }, told);
            }
            Now::Answered(Err(no)) => {
                drop(owned);
                self.answer(&of, RowAnswer::Refused, no.write());
            }
            Now::Waiting(acquiring) => {
                let task = self.wait_for(of.clone(), acquiring, row.age);
                known.rows.insert(of.key, OwnedRow::Waits(task));
            }
        }
    }

    /// All nodes have reported: what they say is held and asked for, and nothing else.
    fn adopt(
        self: &Arc<Self>,
        partition: u32,
        epoch: u64,
        reports: Vec<(Incarnation, Vec<ReportedRow>)>,
    ) {
        let locks = Locks::with(LocksOptions {
            fence: epoch << 32,
            ..LocksOptions::default()
        });
        let mut known = OwnedNames {
            epoch,
            locks: locks.expect("the default options break no rule"),
            rows: HashMap::new(),
            places: PlacesPhase::Open,
            fence: epoch << 32,
            adopting: None,
        };
        let (mut asks, mut place_asks, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for (node, rows) in reports {
            for row in rows {
                let key = (node.clone(), row.ticket);
                if let Some(lease) = PlaceHeld::read(&row.what) {
                    known.rows.insert(key.clone(), OwnedRow::Coming(None));
                    held.push((key, lease));
                    continue;
                }
                if let Some(claim) = PlaceClaim::read(&row.what) {
                    known.rows.insert(key.clone(), OwnedRow::Coming(None));
                    let of = RowOf {
                        partition,
                        epoch,
                        key,
                    };
                    let age = row.age;
                    place_asks.push(EarlyAsk { of, claim, age });
                    continue;
                }
                let Some(claim) = LockClaim::read(&row.what) else {
                    continue;
                };
                if row.fence.is_none() {
                    asks.push((key, claim, row.age));
                } else if let Ok(lock) = known.locks.acquire_owned(&*claim.key, claim.units, ANY) {
                    known.rows.insert(key, OwnedRow::Held(lock));
                }
            }
        }
        self.names.rule(&known.locks);
        // The oldest first.
        asks.sort_by_key(|(_, _, age)| std::cmp::Reverse(*age));
        place_asks.sort_by_key(|ask| std::cmp::Reverse(ask.age));
        let parties = place_asks.iter();
        let parties = parties.map(|ask| (ask.of.key.clone(), ask.claim.clone()));
        let parties = parties.collect();
        known.places = PlacesPhase::Opening(place_asks);
        let mut owned = self.names.owned[partition as usize].lock();
        for (key, claim, age) in asks {
            let of = RowOf {
                partition,
                epoch,
                key,
            };
            let key = of.key.clone();
            let task = match ask(&known.locks, &claim, age) {
                Now::Answered(answer) => self.wait_for(of, std::future::ready(answer), age),
                Now::Waiting(acquiring) => self.wait_for(of, acquiring, age),
            };
            known.rows.insert(key, OwnedRow::Waits(task));
        }
        known.adopting = Some(self.adopt_places(partition, epoch, held, parties));
        let before = owned.replace(known);
        drop(owned);
        drop(before);
    }

    /// Wait for units, and answer when the node is sure that it may.
    fn wait_for<A: IntoAnswer>(
        self: &Arc<Self>,
        of: RowOf,
        acquiring: impl Future<Output = A> + Send + 'static,
        age: Duration,
    ) -> WaitTask {
        let cluster = Arc::clone(self);
        let task = self.names.runtime.spawn(async move {
            let answer = acquiring.await.into_answer(age);
            while cluster.node.serves_names(of.partition) != Some(of.epoch) {
                tokio::time::sleep(LOOK).await;
            }
            cluster.wait_over(&of, answer, age);
        });
        WaitTask::new(task.abort_handle())
    }

    /// An ask has waited long enough.
    fn wait_over(self: &Arc<Self>, of: &RowOf, answer: Answer, age: Duration) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        // It was cancelled just now, or is another's.
        let Some(known) = known.filter(|known| known.rows.contains_key(&of.key)) else {
            return;
        };
        match answer {
            Ok(lock) => {
                let (fence, told) = (lock.fence(), granted(&lock, age));
                known.rows.insert(of.key.clone(), OwnedRow::Held(lock));
                drop(owned);
                self.spend(of, fence);
                self.answer(of, RowAnswer::Granted { fence }, told);
            }
            Err(no) => {
                known.rows.remove(&of.key);
                drop(owned);
                self.answer(of, RowAnswer::Refused, no.write());
            }
        }
    }

    /// Raise the epoch before its fences are used up.
    pub(super) fn spend(&self, of: &RowOf, fence: u64) {
        if fence >> 32 != of.epoch || fence & 0xffff_ffff > (1 << 32) - FENCES_LEFT {
            self.node.spent(of.partition, of.epoch);
        }
    }

    pub(super) fn answer(self: &Arc<Self>, of: &RowOf, answer: RowAnswer, told: Vec<u8>) {
        let message = RowMessage::Answer {
            partition: of.partition,
            epoch: of.epoch,
            ticket: of.key.1,
            answer,
        };
        // Without a link the other node gives the ask up, and says so on the next.
        let _ = self.send_row(&of.key.0, message, told);
    }

    /// An ask or a lease is over.
    fn end_row(&self, partition: u32, epoch: u64, key: RowKey, how: &[u8]) {
        let early = self.names.early.lock().remove(&key);
        if let Some(early) = early {
            early.abort();
        }
        let mut owned = self.names.owned[partition as usize].lock();
        let Some(known) = owned.as_mut().filter(|owned| owned.epoch == epoch) else {
            return;
        };
        let end = PlaceEnd::read(how);
        if let Some(OwnedRow::Coming(ended)) = known.rows.get_mut(&key) {
            ended.get_or_insert(end);
            return;
        }
        let row = known.rows.remove(&key);
        drop(owned);
        end_owned(row, end);
    }

    /// A life of a node is over, and all behind it.
    fn end_rows_of(&self, node: &Incarnation) {
        {
            let mut gone = self.names.gone.lock();
            let last = gone.entry(node.name.clone()).or_default();
            *last = node.fence.max(*last);
        }
        self.names.early.lock().retain(|(of, _), task| {
            let stays = of != node;
            if !stays {
                task.abort();
            }
            stays
        });
        for owned in &self.names.owned {
            let mut rows = Vec::new();
            if let Some(known) = &mut *owned.lock() {
                rows.extend(known.rows.extract_if(|(of, _), _| of == node));
            }
            for (_, row) in rows {
                end_owned(Some(row), PlaceEnd::new(EndReason::Lost));
            }
        }
    }
}

/// Give back what a row stands for.
fn end_owned(row: Option<OwnedRow>, end: PlaceEnd) {
    if let Some(OwnedRow::Place(lease)) = row {
        lease.end(end);
    }
}

/// Ask the locks. An ask that has waited before waits for the rest of its time.
fn ask(
    locks: &Locks<Vec<u8>>,
    claim: &LockClaim,
    age: Duration,
) -> Now<Answer, Acquiring<Vec<u8>>> {
    let (key, units, capacity) = (&*claim.key, claim.units, claim.capacity);
    let Some(terms) = claim.wait.terms(age) else {
        let lock = locks.try_acquire_owned(key, units, capacity);
        return Now::Answered(lock.map_err(|denied| match denied {
            Denied::Full(full) => ClaimOutcome::Full(full),
            Denied::Keys => ClaimOutcome::Keys,
        }));
    };
    match locks.acquire_now(key, units, capacity, terms) {
        Now::Answered(answer) => Now::Answered(answer.into_answer(age)),
        Now::Waiting(acquiring) => Now::Waiting(acquiring),
    }
}

fn granted(lock: &Lock<'static, Vec<u8>>, age: Duration) -> Vec<u8> {
    let (ordinal, waited) = (lock.ordinal(), lock.waited() + age);
    ClaimOutcome::Granted { ordinal, waited }.write()
}

/// A type that becomes an answer for another node.
trait IntoAnswer {
    fn into_answer(self, age: Duration) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self, _age: Duration) -> Answer {
        self
    }
}

impl IntoAnswer for Result<Lock<'static, Vec<u8>>, Refusal> {
    fn into_answer(self, age: Duration) -> Answer {
        self.map_err(|refusal| match refusal.reason {
            Reason::Keys => ClaimOutcome::Keys,
            _ => ClaimOutcome::Refused(Refusal {
                waited: refusal.waited + age,
                ..refusal
            }),
        })
    }
}
