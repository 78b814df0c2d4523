//! How partitions get owners: taken over from the dead, handed over by the living.

use crate::time::{Instant, nanos};

use super::effect::Effect;
use super::member::{Cluster, Draining, Moving, Stage};
use super::messages::PeerMessage;
use super::owned::{OwnedPart, PartPhase, SnapshotPhase};
use super::planted::planted;
use super::purpose::Purpose;
use super::records::{Incarnation, OwnerRecord};
use super::shares::{Node, rank, shares};
use super::store::{
    Compare, Holds, StoreOp, StoreOutcome, StoreReply, StoreRequest, StoreTxn, TxnReply,
};

/// Wall clocks do not raise epochs above this: then the clock is wrong.
const WALL_EPOCH_MAX: u64 = 1_500_000;

impl Cluster {
    /// The watch or a read showed something new: these partitions have other records.
    pub(super) fn table_changed(
        &mut self,
        changed: &[u32],
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if !self.table.is_live(&self.me) {
            self.end_life(now, effects);
            return;
        }
        self.parked.stirred = true;
        self.is_stirred |= !changed.is_empty();
        for partition in changed {
            self.owner_changed(*partition, now, effects);
        }
        self.nodes_changed(now, effects);
    }

    /// Whether a life of a node is over, as far as the watch has shown.
    pub(super) fn is_gone(&self, node: &Incarnation) -> bool {
        let known = self.table.nodes().get(&node.name);
        !self.table.is_live(node)
            && (node.fence <= self.table.revision()
                || known.is_some_and(|known| known.fence > node.fence))
    }

    fn owner_changed(&mut self, partition: u32, now: Instant, effects: &mut Vec<Effect>) {
        let Some(record) = self.table.owner(partition).record.clone() else {
            return;
        };
        if record.epoch > self.reported[partition as usize] {
            self.reported[partition as usize] = record.epoch;
            effects.push(Effect::Report {
                partition,
                epoch: record.epoch,
                owner: record.owner.clone(),
            });
        }
        let part = self.parts.get(&partition);
        if record.owner != self.me {
            if part.is_some() {
                self.parts.remove(&partition);
                effects.push(Effect::End { partition });
            }
            return;
        }
        match part.map(|part| (part.epoch, &part.phase)) {
            // What this node handed to itself is still as it was.
            Some((_, PartPhase::Handed { sent, .. })) if sent.as_ref() == Some(&record) => {
                self.reopen(partition, &record, now, effects);
            }
            Some((epoch, phase)) if epoch == record.epoch => {
                if matches!(phase, PartPhase::Handed { .. }) {
                    self.issue(Purpose::HandOver(partition), now, effects);
                }
                self.record_renewed(partition, &record, now, effects);
            }
            _ => self.adopt(partition, &record, now, effects),
        }
    }

    /// A new ownership of this node begins with loading.
    fn adopt(
        &mut self,
        partition: u32,
        record: &OwnerRecord,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let from = self.log.seal();
        // One that has written nothing does not stand in the record.
        let former = self.table.owner(partition).former.clone();
        self.rest_partition(partition, former.as_ref(), now);
        let giver = former.filter(|former| *former != self.me);
        let reports = self.awaited(now);
        self.parts
            .insert(partition, OwnedPart::new(record, from, giver, reports));
        let own = |epoch: u64| epoch == record.epoch;
        let segments = record.segments.iter().filter(|segment| !own(segment.epoch));
        effects.push(Effect::Load {
            partition,
            epoch: record.epoch,
            snapshot: record.snapshot,
            segments: segments.cloned().collect(),
        });
    }

    /// The node handed the partition to itself, so nothing has to be loaded.
    fn reopen(
        &mut self,
        partition: u32,
        record: &OwnerRecord,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let from = self.log.seal();
        let mut part = OwnedPart::new(record, from, None, self.awaited(now));
        part.phase = PartPhase::Unlisted;
        self.parts.insert(partition, part);
        self.open(partition, effects);
    }

    /// Serve a partition that is loaded, if what is written from now on is found by the
    /// next owner; else a snapshot has to be written first.
    pub(super) fn open(&mut self, partition: u32, effects: &mut Vec<Effect>) {
        let record = self.table.owner(partition).record.as_ref();
        let is_listed = record.is_some_and(OwnerRecord::is_listed);
        let part = self.parts.get_mut(&partition).expect("it is owned");
        if !is_listed || part.phase != PartPhase::Unlisted {
            return;
        }
        part.phase = PartPhase::Open;
        self.parked.stirred = true;
        let epoch = part.epoch;
        effects.push(Effect::Begin { partition, epoch });
        if let Some(to) = part.giver.take() {
            let message = PeerMessage::Serves { partition, epoch };
            if self.links.contains_key(&to) {
                effects.push(Effect::Send { to, message });
            }
        }
        self.adopt_names(partition, effects);
    }

    /// Stop to serve a partition, to hand it over.
    pub(super) fn close(&mut self, partition: u32, to: Incarnation, effects: &mut Vec<Effect>) {
        let part = self.parts.get_mut(&partition).expect("it is owned");
        let epoch = part.epoch;
        let closed = false;
        part.phase = PartPhase::Closing { to, closed };
        effects.push(Effect::Close { partition, epoch });
    }

    /// Decide what to take and what to give, as often as anything changes.
    pub(super) fn plan(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.watch.reading {
            return;
        }
        self.take_orphans(now, effects);
        self.end_move(now);
        if self.moving.is_none() {
            self.begin_move(now, effects);
        }
        self.hand_over(now, effects);
        if self.draining == Draining::Told && self.parts.is_empty() && self.owns_nothing() {
            self.draining = Draining::Done;
            effects.push(Effect::Drained);
        }
    }

    fn owns_nothing(&self) -> bool {
        let is_mine = |record: &OwnerRecord| record.owner == self.me;
        let mut owners = self.table.owners();
        !owners.any(|(_, row)| row.record.as_ref().is_some_and(is_mine))
    }

    fn take_orphans(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for partition in 0..self.options.partitions {
            if self.table.is_orphan(partition) {
                self.orphans.entry(partition).or_insert(now);
            } else {
                self.orphans.remove(&partition);
            }
        }
        let Stage::Live { joined } = self.stage else {
            return;
        };
        if self.orphans.is_empty() || joined + self.options.settle > now {
            return;
        }
        let wait = nanos(self.options.rank_wait);
        let targets = self.targets(None);
        let orphans: Vec<_> = self
            .orphans
            .iter()
            .map(|(at, since)| (*at, *since))
            .collect();
        for (partition, since) in orphans {
            let target = targets[partition as usize].as_deref();
            // A rank among many nodes takes long to find. Only the first may be due by now.
            let is_first = target.is_none_or(|name| name == self.options.name);
            if !is_first && since.after(wait) > now {
                continue;
            }
            let place = self.place(partition, target);
            let due = place.map(|place| since.after(wait.saturating_mul(place)));
            let purpose = Purpose::Takeover(partition);
            if due.is_some_and(|due| due <= now) && !self.is_busy(purpose) {
                self.issue(purpose, now, effects);
            }
        }
    }

    /// How many nodes come before this one for a partition without owner.
    fn place(&self, partition: u32, target: Option<&str>) -> Option<u64> {
        let me = self.options.name.as_str();
        let by_rank = |name: &str| {
            let is_target = target == Some(name);
            (is_target, rank(partition as usize, name), name.to_owned())
        };
        let mine = by_rank(me);
        let names = self.table.nodes().keys().map(String::as_str);
        let mut names = names
            .filter(|name| !self.table.is_draining(name))
            .peekable();
        names.peek()?;
        (!self.table.is_draining(me)).then(|| {
            let before = names.filter(|name| by_rank(name) > mine);
            before.count() as u64
        })
    }

    /// The node that each partition should belong to. With an instant, only nodes count
    /// that have settled by then.
    fn targets(&self, settled_by: Option<Instant>) -> Vec<Option<String>> {
        let counts = |name: &str, since: Instant| {
            let is_settled = settled_by.is_none_or(|now| since + self.options.settle <= now);
            is_settled && !self.table.is_draining(name)
        };
        let nodes = self.table.nodes().iter();
        let nodes: Vec<_> = nodes
            .filter(|(name, known)| counts(name, known.since))
            .collect();
        let owners = self.table.owners().map(|(_, row)| {
            let owner = &row.record.as_ref()?.owner;
            let owns = |(name, known): &(&String, &super::KnownNode)| {
                **name == owner.name && known.fence == owner.fence
            };
            nodes.iter().position(owns)
        });
        let owners: Vec<_> = owners.collect();
        let all = nodes.iter().map(|(name, known)| Node {
            name,
            weight: known.record.weight,
        });
        let all: Vec<_> = all.collect();
        let targets = shares(&owners, &all).into_iter();
        targets
            .map(|at| at.map(|at| all[at].name.to_owned()))
            .collect()
    }

    /// One partition that another node should have is closed, to be handed over.
    fn begin_move(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.parts.is_empty() || !self.orphans.is_empty() {
            return;
        }
        let targets = self.targets(Some(now));
        let open = |part: &OwnedPart| part.phase == PartPhase::Open;
        let found = self
            .parts
            .iter()
            .filter(|(_, part)| open(part))
            .find_map(|(at, _)| {
                let name = targets[*at as usize].as_ref()?;
                let fence = self.table.nodes().get(name)?.fence;
                let to = Incarnation::new(name, fence);
                (to != self.me && self.links.contains_key(&to)).then_some((*at, to))
            });
        if let Some((partition, to)) = found {
            self.close(partition, to.clone(), effects);
            let until = now + self.options.move_wait;
            self.moving = Some(Moving {
                partition,
                to,
                until,
                is_served: false,
            });
        }
    }

    /// A move is over when the taker says that it serves, or dies, or takes too long.
    fn end_move(&mut self, now: Instant) {
        let Some(moving) = &self.moving else {
            return;
        };
        let part = self.parts.get(&moving.partition);
        let is_leaving = part.is_some_and(|part| {
            matches!(
                part.phase,
                PartPhase::Closing { .. } | PartPhase::Handed { .. }
            )
        });
        let is_back = part.is_some() && !is_leaving;
        let is_waiting = !moving.is_served && moving.until > now;
        let is_over = part.is_none() && !(is_waiting && self.table.is_live(&moving.to));
        if is_back || is_over {
            self.moving = None;
        }
    }

    /// Hand over what is closed and written. What need not be handed over any more is
    /// opened again, unless the hand-over was sent. Both wait until the shell has said that
    /// it is closed: else that word would count for a later closing.
    fn hand_over(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let closing = self
            .parts
            .iter()
            .filter_map(|(at, part)| match &part.phase {
                PartPhase::Closing { to, closed: true } => Some((*at, to.clone(), part.last)),
                _ => None,
            });
        let closing: Vec<_> = closing.collect();
        for (partition, to, last) in closing {
            let part = self.parts.get_mut(&partition).expect("it was just found");
            if !self.table.is_live(&to) {
                part.phase = PartPhase::Unlisted;
                self.open(partition, effects);
            } else if last.is_none_or(|last| last < self.log.written()) {
                part.phase = PartPhase::Handed { to, sent: None };
                part.snapshot = SnapshotPhase::None;
                self.issue(Purpose::HandOver(partition), now, effects);
            }
        }
    }

    pub(super) fn takeover_request(
        &mut self,
        partition: u32,
        now: Instant,
    ) -> Option<StoreRequest> {
        let row = self.table.owner(partition);
        let (changed, old) = (row.changed, row.record.clone());
        let is_planted = planted!(self.options, TakeoverOfLiving);
        let is_mine = old.as_ref().is_some_and(|old| old.owner == self.me);
        if is_mine || (!self.table.is_orphan(partition) && !is_planted) {
            return None;
        }
        let epoch = self.next_epoch(old.as_ref(), now);
        let from = Some(self.log.seal());
        let mut compares = vec![Compare::changed_at(self.keys.owner(partition), changed)];
        if let Some(old) = &old
            && !is_planted
        {
            let key = self.keys.node(&old.owner.name);
            let holds = if planted!(self.options, NamesWithoutFence) {
                Holds::CreatedAt(0)
            } else {
                Holds::NotCreatedAt(old.owner.fence)
            };
            compares.push(Compare { key, holds });
        }
        compares.push(self.fence());
        let next = self.successor(old, epoch, self.me.clone(), from);
        Some(self.put_owner(partition, compares, &next))
    }

    pub(super) fn hand_over_request(
        &mut self,
        partition: u32,
        now: Instant,
    ) -> Option<StoreRequest> {
        let row = self.table.owner(partition);
        let (changed, mut old) = (row.changed, row.record.clone()?);
        let part = self.parts.get(&partition)?;
        let PartPhase::Handed { to, .. } = &part.phase else {
            return None;
        };
        // To give up, the node hands over to itself: that is decided by the same compare.
        let is_live = self.table.is_live(to) && !self.table.is_draining(&to.name);
        let to = if is_live { to.clone() } else { self.me.clone() };
        let (from, last) = (part.from, part.last);
        if let Some(segment) = old.segments.last_mut().filter(|it| it.epoch == part.epoch) {
            segment.from = segment.from.or(Some(from));
            // A segment without any batch ends before it begins.
            let begin = segment.from.unwrap_or_default();
            segment.to = Some(last.unwrap_or(begin.saturating_sub(1)));
            if last.is_none_or(|last| last < begin) {
                old.segments.pop();
            }
        }
        let is_self = to == self.me;
        let epoch = if is_self && planted!(self.options, EpochKept) {
            old.epoch
        } else {
            self.next_epoch(Some(&old), now)
        };
        let from = is_self.then(|| self.log.seal());
        let next = self.successor(Some(old), epoch, to.clone(), from);
        let compares = vec![
            Compare::changed_at(self.keys.owner(partition), changed),
            self.fence(),
            Compare::created_at(self.keys.node(&to.name), to.fence),
        ];
        let part = self.parts.get_mut(&partition)?;
        let sent = Some(next.clone());
        part.phase = PartPhase::Handed { to, sent };
        Some(self.put_owner(partition, compares, &next))
    }

    pub(super) fn hand_over_answered(
        &mut self,
        partition: u32,
        outcome: &StoreOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let held = matches!(
            outcome,
            StoreOutcome::Done(StoreReply::Txn(TxnReply { held: true, .. }))
        );
        if planted!(self.options, ReopenedHandOver)
            && !held
            && let Some(part) = self.parts.get_mut(&partition)
            && matches!(part.phase, PartPhase::Handed { .. })
        {
            part.phase = PartPhase::Unlisted;
            self.open(partition, effects);
            return;
        }
        self.issue_later(Purpose::HandOver(partition), now);
    }

    /// The record of the next ownership.
    fn successor(
        &self,
        old: Option<OwnerRecord>,
        epoch: u64,
        owner: Incarnation,
        from: Option<u64>,
    ) -> OwnerRecord {
        let mut old = old.unwrap_or_else(|| OwnerRecord {
            epoch: 0,
            owner: owner.clone(),
            snapshot: None,
            segments: Vec::new(),
        });
        let max = self.options.segments_max;
        if planted!(self.options, SegmentForgotten) && old.segments.len() >= max {
            old.segments.remove(0);
        }
        old.succeeded_by(epoch, owner, from, max)
    }

    /// The number of the next ownership: above the last, above the fences of a node that
    /// was alone, and above those of an etcd that was lost.
    fn next_epoch(&self, old: Option<&OwnerRecord>, now: Instant) -> u64 {
        let next = old.map_or(0, |old| old.epoch) + 1;
        let wall = (self.wall(now) >> 32) + 1;
        if wall > WALL_EPOCH_MAX {
            next
        } else {
            next.max(wall)
        }
    }

    /// The compare that fences every write of this life. What is loaded is read with it,
    /// too: once this life is over, snapshots and batches go without its knowledge.
    pub fn fence(&self) -> Compare {
        let key = self.keys.node(&self.options.name);
        if planted!(self.options, NamesWithoutFence) {
            let holds = Holds::NotCreatedAt(0);
            return Compare { key, holds };
        }
        Compare::created_at(key, self.me.fence)
    }

    pub(super) fn put_owner(
        &self,
        partition: u32,
        compares: Vec<Compare>,
        record: &OwnerRecord,
    ) -> StoreRequest {
        let put = StoreOp::Put {
            key: self.keys.owner(partition),
            value: record.to_string().into_bytes(),
            lease: None,
        };
        StoreRequest::Txn(StoreTxn {
            compares,
            then: vec![put],
            otherwise: Vec::new(),
        })
    }
}
