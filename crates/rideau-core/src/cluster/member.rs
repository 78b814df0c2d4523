//! One node of a cluster: its inputs, and the requests it has on their way.
//!
//! What it knows of others comes from the watch alone. An answer to a request of its own
//! only says when to look again. So an answer that is lost or late costs time and nothing
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::machine::Machine;
use crate::rng::Rng;
use crate::time::{Instant, nanos};

use super::batch::LogSection;
use super::effect::{Certainty, Effect};
use super::keys::ClusterKeys;
use super::lease::{KeepAnswer, NodeLease};
use super::log::BatchLog;
use super::messages::EarlyMessage;
use super::options::Options;
use super::owned::{OwnedPart, PartPhase};
use super::parked::ParkedAsks;
#[cfg(feature = "planted")]
use super::planted::planted;
use super::purpose::{PendingRequest, Purpose};
use super::records::Incarnation;
use super::rest::Resting;
use super::store::{KeyChange, StoreOutcome, StoreRequest};
use super::table::OwnerTable;

/// The decisions of one node of a cluster.
///
/// Invariants: a partition that is open is owned by this life of the node and listed in
/// its record (C1); one batch is on its way (C2); epochs never fall (C6).
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(super) options: Options,
    pub(super) keys: ClusterKeys,
    pub(super) rng: Rng,
    pub(super) stage: Stage,
    /// When this life began to join.
    pub(super) since: Instant,
    /// The id of this life.
    pub(super) id: u64,
    /// The ids of earlier lives, the newest last.
    pub(super) formers: Vec<u64>,
    pub(super) me: Incarnation,
    pub(super) lease: Option<NodeLease>,
    /// The next stream of keepalives.
    pub(super) stream: u64,
    pub(super) told: Certainty,
    pub(super) table: OwnerTable,
    pub(super) watch: WatchState,
    pub(super) log: BatchLog,
    pub(super) parts: BTreeMap<u32, OwnedPart>,
    /// Partitions without owner, and since when.
    pub(super) orphans: BTreeMap<u32, Instant>,
    pub(super) moving: Option<Moving>,
    /// The newest link to each node.
    pub(super) links: BTreeMap<Incarnation, u64>,
    /// The nodes that lived when the table was last looked at.
    pub(super) members: BTreeSet<Incarnation>,
    /// The newest epoch of each partition that this node was to report for.
    pub(super) reported: Vec<u64>,
    /// Messages that wait for the watch.
    pub(super) early: Vec<EarlyMessage>,
    pub(super) resting: Resting,
    pub(super) draining: Draining,
    pub(super) parked: ParkedAsks,
    pub(super) asked: BTreeMap<u64, PendingRequest>,
    pub(super) retries: BTreeMap<Purpose, Instant>,
    pub(super) next_request: u64,
    tick: Instant,
    /// Something changed that may lead to a takeover, a move or a snapshot.
    pub(super) is_stirred: bool,
    /// The wall clock in microseconds at an instant.
    wall: (u64, Instant),
}

/// How far a node is with joining.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Not begun, or over.
    Out,
    /// Its name has to be free.
    Looking,
    /// It needs a lease.
    Granting,
    /// It creates its key.
    Creating,
    /// It reads the table.
    Reading,
    /// It is part of the cluster.
    Live { joined: Instant },
}

/// Whether a node gives away what it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Draining {
    No,
    Asked,
    Told,
    Done,
}

/// The watch of the cluster's keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchState {
    /// Which watch counts.
    pub(super) number: u64,
    /// Everything is being read anew.
    pub(super) reading: bool,
    /// The watch shows nothing since then, though keepalives are answered.
    pub(super) stuck: Option<Instant>,
}

/// A partition that this node gives to another.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub(super) partition: u32,
    pub(super) to: Incarnation,
    pub(super) until: Instant,
    /// The taker says that it serves.
    pub(super) is_served: bool,
}

impl Cluster {
    /// A node that has not begun. What it draws follows from the seed.
    pub fn new(options: Options, seed: u64) -> Self {
        Self {
            keys: ClusterKeys::new(&options.cluster),
            rng: Rng::new(seed),
            stage: Stage::Out,
            since: Instant::START,
            id: 0,
            formers: Vec::new(),
            me: Incarnation::new(&options.name, 0),
            lease: None,
            stream: 0,
            told: Certainty::Lost,
            table: OwnerTable::new(options.partitions),
            watch: WatchState {
                number: 0,
                reading: false,
                stuck: None,
            },
            log: BatchLog::default(),
            parts: BTreeMap::new(),
            orphans: BTreeMap::new(),
            moving: None,
            links: BTreeMap::new(),
            members: BTreeSet::new(),
            reported: vec![0; options.partitions as usize],
            early: Vec::new(),
            resting: Resting::default(),
            draining: Draining::No,
            parked: ParkedAsks::default(),
            asked: BTreeMap::new(),
            retries: BTreeMap::new(),
            next_request: 0,
            tick: Instant::NEVER,
            is_stirred: false,
            wall: (0, Instant::START),
            options,
        }
    }

    /// The process has begun. `formers` are the ids of its earlier lives that its folder
    /// has, `wall` is the wall clock in microseconds.
    pub fn began(&mut self, formers: Vec<u64>, wall: u64, now: Instant, effects: &mut Vec<Effect>) {
        self.formers = formers;
        self.wall = (wall, now);
        self.begin_life(now, effects);
        self.finish(now, effects);
    }

    /// A request has this outcome. Outcomes of requests of an earlier life do nothing.
    pub fn stored(
        &mut self,
        id: u64,
        outcome: StoreOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(asked) = self.asked.remove(&id) {
            // Most answers are of batches, which few partitions wait for.
            let is_batch = matches!(asked.purpose, Purpose::Append(_));
            self.is_stirred |= !is_batch || self.parts.values().any(OwnedPart::awaits_batch);
            self.answered(asked.purpose, asked.at, outcome, now, effects);
        }
        self.finish(now, effects);
    }

    /// A keepalive of a stream was answered with the time that the lease lasts.
    pub fn kept(&mut self, stream: u64, ttl: Duration, now: Instant, effects: &mut Vec<Effect>) {
        let options = &self.options;
        let lease = self.lease.as_mut();
        match lease.map(|lease| lease.kept(stream, ttl, now, options)) {
            Some(KeepAnswer::Live) => {
                if matches!(self.stage, Stage::Live { .. }) {
                    self.watch.stuck.get_or_insert(now);
                }
            }
            Some(KeepAnswer::Gone) => self.end_life(now, effects),
            Some(KeepAnswer::Stale) | None => (),
        }
        self.finish(now, effects);
    }

    /// The watch showed everything up to a revision, and this is what changed at it. A
    /// note of progress has no changes.
    pub fn seen(
        &mut self,
        watch: u64,
        revision: u64,
        changes: &[KeyChange],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let is_live = matches!(self.stage, Stage::Live { .. });
        if is_live && watch == self.watch.number && revision >= self.table.revision() {
            self.watch.stuck = None;
            let changed = self.table.apply(revision, changes, &self.keys, now);
            self.table_changed(&changed, now, effects);
        }
        self.finish(now, effects);
    }

    /// What the watch would show is compacted: everything has to be read anew. That watch is
    /// over, and what it still shows has gaps.
    pub fn compacted(&mut self, watch: u64, now: Instant, effects: &mut Vec<Effect>) {
        if watch == self.watch.number && matches!(self.stage, Stage::Live { .. }) {
            self.watch.number += 1;
            self.read_again(now, effects);
        }
        self.finish(now, effects);
    }

    /// There is a link to another node. The node that dials numbers its links, and only the
    /// newest counts.
    pub fn linked(
        &mut self,
        node: Incarnation,
        link: u64,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.links.insert(node, link);
        self.parked.stirred = true;
        self.is_stirred = true;
        self.finish(now, effects);
    }

    /// A link to another node is gone. That says nothing of the node.
    pub fn unlinked(
        &mut self,
        node: &Incarnation,
        link: u64,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if self.links.get(node) == Some(&link) {
            self.links.remove(node);
            #[cfg(feature = "planted")]
            self.unlinked_planted(node, now, effects);
        }
        self.finish(now, effects);
    }

    #[cfg(feature = "planted")]
    fn unlinked_planted(&mut self, node: &Incarnation, now: Instant, effects: &mut Vec<Effect>) {
        if planted!(self.options, StruckOnLinkLoss) {
            self.strike_unlinked(node, effects);
        }
        if planted!(self.options, TakeoverOfLiving) && self.is_sure(now) {
            let is_of = |record: &super::OwnerRecord| record.owner == *node;
            let of = |(_, row): &(u32, &super::KnownOwner)| row.record.as_ref().is_some_and(is_of);
            let theirs: Vec<_> = self.table.owners().filter(of).map(|(at, _)| at).collect();
            for partition in theirs {
                self.issue(Purpose::Takeover(partition), now, effects);
            }
        }
    }

    /// The partition is loaded as the ownership of this epoch found it.
    pub fn loaded(&mut self, partition: u32, epoch: u64, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(part) = self.parts.get_mut(&partition)
            && part.epoch == epoch
            && part.phase == PartPhase::Loading
        {
            part.phase = PartPhase::Unlisted;
            self.is_stirred = true;
            self.open(partition, effects);
        }
        self.finish(now, effects);
    }

    /// Entries that were decided of a partition while it was served in this epoch are to be
    /// written. They may come late: while the partition is closing, or while the node is
    /// unsure of its lease. They are written once it is sure, and the write is fenced.
    ///
    /// Returns the number of their batch, or none if this life of the node does not own the
    /// partition in that epoch any more: then nothing of them is written.
    pub fn append(
        &mut self,
        partition: u32,
        epoch: u64,
        entries: &[u8],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<u64> {
        let seq = self.log_entries(partition, epoch, entries);
        self.finish(now, effects);
        seq
    }

    /// The same for several partitions at once. What fits one batch is written in one.
    pub fn append_all(
        &mut self,
        sections: &[LogSection],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Vec<Option<u64>> {
        let lens = sections.iter().map(|section| section.entries.len());
        self.log.make_room(lens, self.options.batch_max);
        let seqs = sections.iter().map(|section| {
            let LogSection {
                partition,
                epoch,
                entries,
            } = section;
            self.log_entries(*partition, *epoch, entries)
        });
        let seqs = seqs.collect();
        self.finish(now, effects);
        seqs
    }

    fn log_entries(&mut self, partition: u32, epoch: u64, entries: &[u8]) -> Option<u64> {
        let part = self.parts.get_mut(&partition);
        let part = part.filter(|part| part.epoch == epoch && part.takes_entries())?;
        let len_max = self.options.batch_max;
        let seq = self.log.append(partition, epoch, entries, len_max);
        part.last = Some(seq);
        part.entries += 1;
        Some(seq)
    }

    /// All that was decided of a partition in this epoch was appended.
    pub fn closed(&mut self, partition: u32, epoch: u64, now: Instant, effects: &mut Vec<Effect>) {
        let part = self.parts.get_mut(&partition);
        if let Some(part) = part.filter(|part| part.epoch == epoch)
            && let PartPhase::Closing { closed, .. } = &mut part.phase
        {
            *closed = true;
            self.is_stirred = true;
        }
        self.finish(now, effects);
    }

    /// The fences of this epoch are used up: the node raises it.
    pub fn spent(&mut self, partition: u32, epoch: u64, now: Instant, effects: &mut Vec<Effect>) {
        let is_open = |part: &&OwnedPart| part.epoch == epoch && part.phase == PartPhase::Open;
        if self.parts.get(&partition).filter(is_open).is_some() {
            let me = self.me.clone();
            self.close(partition, me, effects);
        }
        self.finish(now, effects);
    }

    /// The node shall give away all that it owns.
    pub fn drain(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.draining == Draining::No {
            let is_live = matches!(self.stage, Stage::Live { .. });
            if is_live && self.table.is_draining(&self.options.name) {
                // An operator wants it, also of the next life of this node.
                self.draining = Draining::Told;
                self.is_stirred = true;
            } else {
                self.draining = Draining::Asked;
                if is_live {
                    self.issue(Purpose::Drain, now, effects);
                }
            }
        }
        self.finish(now, effects);
    }

    /// The node stops: what it owns is free for others at once.
    pub fn stop(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let lease = self.lease.as_ref().map(|lease| lease.id);
        self.drop_all(effects);
        if let Some(lease) = lease {
            self.next_request += 1;
            let request = StoreRequest::RevokeLease { lease };
            effects.push(Effect::Store {
                id: self.next_request,
                request,
            });
        }
        self.stage = Stage::Out;
        self.tick = Instant::NEVER;
        self.finish(now, effects);
    }

    /// The epoch in which this node may grant from a partition at this moment, if it may.
    ///
    /// The shell asks before it asks a machine, before it writes an answer, and when it
    /// reads a message of another node.
    pub fn serves(&self, partition: u32, now: Instant) -> Option<u64> {
        self.open_in(partition).filter(|_| self.is_sure(now))
    }

    /// The epoch in which a partition is open, if it is. The node [serves](Self::serves) it
    /// while that is so and the lease is [valid](Self::valid_until).
    ///
    /// It changes with [`Begin`](Effect::Begin), [`Close`](Effect::Close),
    /// [`Load`](Effect::Load) and [`End`](Effect::End) of the partition, and with nothing else.
    pub fn open_in(&self, partition: u32) -> Option<u64> {
        let part = self.parts.get(&partition)?;
        (part.phase == PartPhase::Open).then_some(part.epoch)
    }

    /// The number of its lease, if it has one.
    pub fn lease(&self) -> Option<u64> {
        self.lease.as_ref().map(|lease| lease.id)
    }

    /// From this instant on the node may not rely on its lease. It may change with every
    /// input.
    pub fn valid_until(&self) -> Instant {
        let lease = self.lease.as_ref();
        lease.map_or(Instant::START, NodeLease::valid_until)
    }

    /// Whether the node may rely on its lease.
    pub fn is_sure(&self, now: Instant) -> bool {
        now < self.valid_until()
    }

    /// This life of the node, once it is part of the cluster.
    pub fn incarnation(&self) -> Option<&Incarnation> {
        matches!(self.stage, Stage::Live { .. }).then_some(&self.me)
    }

    /// The table of all nodes and partitions.
    pub const fn table(&self) -> &OwnerTable {
        &self.table
    }

    /// The owner of a partition and its epoch, as far as this node knows.
    pub fn owner(&self, partition: u32) -> Option<(&Incarnation, u64)> {
        let record = self.table.owner(partition).record.as_ref()?;
        self.table
            .is_live(&record.owner)
            .then_some((&record.owner, record.epoch))
    }

    /// Whether the node gives a partition away just now.
    pub const fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The names of the cluster's keys.
    pub const fn keys(&self) -> &ClusterKeys {
        &self.keys
    }

    /// The wall clock in microseconds.
    pub(super) fn wall(&self, now: Instant) -> u64 {
        let (wall, at) = self.wall;
        wall.saturating_add(now.nanos_since(at) / 1_000)
    }

    /// The work after every input.
    pub(super) fn finish(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.keep_lease(now, effects);
        self.tell(now, effects);
        self.end_rest(now, effects);
        let due = |(_, at): &(&Purpose, &Instant)| **at <= now;
        let due: Vec<_> = self.retries.iter().filter(due).map(|(it, _)| *it).collect();
        for purpose in due {
            self.issue(purpose, now, effects);
        }
        if matches!(self.stage, Stage::Live { .. }) {
            self.watch_the_watch(now, effects);
        }
        if matches!(self.stage, Stage::Live { .. }) && self.is_sure(now) {
            self.write(now, effects);
            // Most inputs are entries and asks, which change nothing of this.
            if self.is_stirred || self.tick <= now {
                self.is_stirred = false;
                self.plan(now, effects);
                self.snapshot(now, effects);
            }
        }
        self.settle_parked(now, effects);
        if self.tick <= now || self.tick == Instant::NEVER {
            self.tick = now.after(nanos(self.options.retry) / 2);
        }
        self.check();
    }

    fn keep_lease(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(lease) = self.lease.as_mut() else {
            return;
        };
        if lease.time_out(now, &self.options) {
            self.watch.stuck = None;
        }
        if lease.asks(now) {
            let (stream, lease) = (lease.stream(), lease.id);
            effects.push(Effect::KeepAlive { stream, lease });
        }
        self.stream = lease.stream();
    }

    /// Tell the holders if the node is sure or not any more.
    fn tell(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if !matches!(self.stage, Stage::Live { .. }) {
            return;
        }
        let certainty = if self.is_sure(now) {
            Certainty::Sure
        } else {
            Certainty::Unsure
        };
        if self.told != certainty {
            self.parked.stirred = true;
            self.is_stirred = true;
            self.told = certainty;
            effects.push(Effect::Tell(certainty));
        }
    }

    /// A watch that shows nothing while the lease lives is read again, and then given up
    /// with this life: a node that lives and sees nothing would block every takeover.
    fn watch_the_watch(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(stuck) = self.watch.stuck else {
            return;
        };
        let lease = self.options.lease;
        if stuck + 2 * lease <= now {
            self.end_life(now, effects);
        } else if stuck + lease <= now && !self.watch.reading {
            self.read_again(now, effects);
        }
    }

    fn read_again(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.watch.reading = true;
        self.issue(Purpose::ReadAll, now, effects);
    }
}

impl Machine for Cluster {
    type Effect = Effect;

    fn deadline(&self) -> Option<Instant> {
        if self.stage == Stage::Out && self.parked.len() == 0 {
            return None;
        }
        let lease = self.lease.as_ref();
        let kept = lease.map_or(Instant::NEVER, NodeLease::deadline);
        let ends = lease.filter(|_| self.told == Certainty::Sure);
        let ends = ends.map_or(Instant::NEVER, NodeLease::valid_until);
        let parked = self.parked.deadline();
        let rest = self.resting.deadline();
        self.tick.min(kept).min(ends).min(parked).min(rest).finite()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.finish(now, effects);
    }
}
