//! How a new owner learns what is held in memory: from the reports of all nodes that were
//! live when it became the owner.
//!
//! Durable values need no reports: they are loaded, and then
//! [`Begin`](super::Effect::Begin) says that they are served. Names come later, with
//! [`Adopt`](super::Effect::Adopt), when the partition is open and the last report is in.
//! What is to end before that waits behind the reports: else a report would bring it back.

use std::collections::BTreeSet;

use crate::time::Instant;

use super::effect::Effect;
use super::member::{Cluster, Moving};
use super::messages::{EarlyMessage, PeerMessage, ReportedRow, RowMessage};
use super::owned::{AwaitedReports, OwnedPart, PartPhase};
use super::planted::planted;
use super::records::Incarnation;

/// At most this many messages wait for the watch. Each is repeated by its sender.
const EARLY_MAX: usize = 65_536;

impl Cluster {
    /// The nodes whose reports a new owner waits for. The watch has just reached the
    /// revision of its own write, so these are the nodes that were live then.
    pub(super) fn awaited(&self, now: Instant) -> AwaitedReports {
        let lag = self.options.lease / 2;
        let is_seen = |known: &super::KnownNode| {
            !planted!(self.options, LaggingSet) || known.since + lag <= now
        };
        let nodes = self.table.nodes().iter();
        let nodes = nodes.filter(|(_, known)| is_seen(known));
        AwaitedReports::of(
            nodes
                .map(|(name, known)| Incarnation::new(name, known.fence))
                .collect(),
        )
    }

    /// The epoch in which this node may grant what is kept in memory, if it may.
    pub fn serves_names(&self, partition: u32, now: Instant) -> Option<u64> {
        self.adopted_in(partition).filter(|_| self.is_sure(now))
    }

    /// The epoch in which a partition is open for names, if it is: it changes as
    /// [`open_in`](Self::open_in) does, and with [`Adopt`](Effect::Adopt).
    pub fn adopted_in(&self, partition: u32) -> Option<u64> {
        let part = self.parts.get(&partition)?;
        let is_open = part.phase == PartPhase::Open && part.reports.is_adopted;
        is_open.then_some(part.epoch)
    }

    /// The nodes that a partition waits for, as long as it is not open for names.
    pub fn awaited_reports(&self, partition: u32) -> impl Iterator<Item = &Incarnation> {
        let part = self.parts.get(&partition);
        part.into_iter().flat_map(|part| &part.reports.awaited)
    }

    /// Whether a message counts: the newest link to a node is read, and no other.
    pub fn reads(&self, from: &Incarnation, link: u64) -> bool {
        let is_read = *from == self.me || self.links.get(from) == Some(&link);
        is_read || planted!(self.options, OldLinkRead)
    }

    /// The machine of another node said something.
    pub fn heard(
        &mut self,
        from: &Incarnation,
        message: &PeerMessage,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let PeerMessage::Serves { partition, .. } = message;
        let is_it = |moving: &&mut Moving| moving.partition == *partition && moving.to == *from;
        if let Some(moving) = self.moving.as_mut().filter(is_it) {
            // It may know of the hand-over before this node does.
            moving.is_served = true;
            self.is_stirred = true;
        }
        self.finish(now, effects);
    }

    /// An entry node reports, or says that something ended. What a life of a node says that
    /// the watch has not shown yet waits for the watch. Other messages are not for the
    /// machine.
    pub fn row_heard(
        &mut self,
        from: &Incarnation,
        link: u64,
        message: RowMessage,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if self.reads(from, link) {
            self.take_message(from.clone(), message, effects);
        }
        self.finish(now, effects);
    }

    /// The report of a life of a node was found in etcd. Neither has a link to the other.
    pub fn report_found(
        &mut self,
        from: Incarnation,
        (partition, epoch): (u32, u64),
        rows: Vec<ReportedRow>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let message = RowMessage::Report {
            partition,
            epoch,
            rows,
        };
        self.take_message(from, message, effects);
        self.finish(now, effects);
    }

    /// The partitions that are not open for names, as nodes without a link have not reported
    /// to this one, with their epochs.
    pub fn awaits_unlinked(&self) -> Vec<(u32, u64)> {
        let is_unlinked = |node: &Incarnation| *node != self.me && !self.links.contains_key(node);
        let waits = |(at, part): (&u32, &OwnedPart)| {
            let is_open = part.phase == PartPhase::Open && !part.reports.is_adopted;
            let is_it = is_open && part.reports.awaited.iter().any(is_unlinked);
            is_it.then_some((*at, part.epoch))
        };
        self.parts.iter().filter_map(waits).collect()
    }

    fn take_message(&mut self, from: Incarnation, message: RowMessage, effects: &mut Vec<Effect>) {
        if self.is_gone(&from) {
            return;
        }
        let (partition, epoch) = match message {
            RowMessage::Report {
                partition, epoch, ..
            }
            | RowMessage::End {
                partition, epoch, ..
            } if partition < self.options.partitions => (partition, epoch),
            _ => return,
        };
        let record = self.table.owner(partition).record.as_ref();
        let known = record.map_or(0, |record| record.epoch);
        if epoch > known || !self.table.is_live(&from) {
            if self.early.len() < EARLY_MAX {
                self.early.push(EarlyMessage { from, message });
            }
            return;
        }
        if self
            .parts
            .get(&partition)
            .is_none_or(|part| part.epoch != epoch)
        {
            return;
        }
        match message {
            RowMessage::Report { rows, .. } => self.report(&from, partition, rows, effects),
            RowMessage::End { ticket, how, .. } => {
                self.end_row((&from, ticket), partition, how, effects);
            }
            _ => (),
        }
    }

    /// The first report of a life of a node counts. Copies are acknowledged.
    fn report(
        &mut self,
        from: &Incarnation,
        partition: u32,
        rows: Vec<ReportedRow>,
        effects: &mut Vec<Effect>,
    ) {
        let is_planted = planted!(self.options, ReportsCountTwice);
        let part = self.parts.get_mut(&partition).expect("it is owned");
        let epoch = part.epoch;
        let reports = &mut part.reports;
        let is_first = reports.awaited.remove(from);
        if is_first || (is_planted && !reports.is_adopted) {
            reports.received.push((from.clone(), rows));
        }
        let message = RowMessage::Reported { partition, epoch };
        self.send_row(from, message, effects);
        self.adopt_names(partition, effects);
    }

    /// An ask or a lease is over, as its entry node says.
    fn end_row(
        &mut self,
        (from, ticket): (&Incarnation, u64),
        partition: u32,
        how: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        let is_planted = planted!(self.options, EndedBeforeReports);
        let part = self.parts.get_mut(&partition).expect("it is owned");
        let epoch = part.epoch;
        if !part.reports.is_adopted && !is_planted {
            // A copy says the same.
            let ends = &mut part.reports.ends;
            ends.entry((from.clone(), ticket)).or_insert(how);
            return;
        }
        effects.push(Effect::EndRow {
            partition,
            epoch,
            node: from.clone(),
            ticket,
            how,
        });
        let message = RowMessage::Ended {
            partition,
            epoch,
            ticket,
        };
        self.send_row(from, message, effects);
    }

    /// Take over what is held in memory, if the partition is open and all reports are in.
    pub(super) fn adopt_names(&mut self, partition: u32, effects: &mut Vec<Effect>) {
        let is_early = planted!(self.options, ReportsNotAwaited);
        let Some(part) = self.parts.get_mut(&partition) else {
            return;
        };
        let is_complete = part.reports.awaited.is_empty() || is_early;
        let is_complete = is_complete && !self.resting.holds(partition);
        if part.phase != PartPhase::Open || part.reports.is_adopted || !is_complete {
            return;
        }
        part.reports.is_adopted = true;
        self.parked.stirred = true;
        let reports = std::mem::take(&mut part.reports.received);
        let ends = std::mem::take(&mut part.reports.ends);
        effects.push(Effect::Adopt {
            partition,
            epoch: part.epoch,
            reports,
        });
        for ((node, ticket), how) in ends {
            self.end_row((&node, ticket), partition, how, effects);
        }
    }

    /// The watch showed something: what waited for it may be taken, and nodes that are gone
    /// report nothing any more.
    pub(super) fn nodes_changed(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let table = &self.table;
        let nodes = table.nodes().iter();
        let nodes: BTreeSet<_> = nodes
            .map(|(name, known)| Incarnation::new(name, known.fence))
            .collect();
        let former = std::mem::replace(&mut self.members, nodes);
        self.is_stirred |= former != self.members;
        let gone: Vec<Incarnation> = former.difference(&self.members).cloned().collect();
        for node in gone {
            for part in self.parts.values_mut() {
                part.reports.strike(&node);
            }
            self.links.remove(&node);
            self.rest_node(node, now, effects);
        }
        for early in std::mem::take(&mut self.early) {
            self.take_message(early.from, early.message, effects);
        }
        let partitions: Vec<_> = self.parts.keys().copied().collect();
        for partition in partitions {
            self.adopt_names(partition, effects);
        }
    }

    /// A node whose link breaks is not waited for.
    #[cfg(feature = "planted")]
    pub(super) fn strike_unlinked(&mut self, node: &Incarnation, effects: &mut Vec<Effect>) {
        let partitions: Vec<_> = self.parts.keys().copied().collect();
        for partition in partitions {
            let part = self.parts.get_mut(&partition).expect("it is owned");
            part.reports.awaited.remove(node);
            self.adopt_names(partition, effects);
        }
    }

    /// This node owns a partition from now on, which another had. One that lives has handed it
    /// over, and nothing of it is in doubt.
    pub(super) fn rest_partition(
        &mut self,
        partition: u32,
        former: Option<&Incarnation>,
        now: Instant,
    ) {
        self.resting.partitions.remove(&partition);
        let is_dead = former.is_some_and(|former| !self.table.is_live(former));
        if is_dead && !self.options.rest.is_zero() {
            let until = now + self.options.rest;
            self.resting.partitions.insert(partition, until);
        }
    }

    /// A node is gone: what its clients held is free after the rest.
    pub(super) fn rest_node(&mut self, node: Incarnation, now: Instant, effects: &mut Vec<Effect>) {
        if self.options.rest.is_zero() {
            effects.push(Effect::Gone { node });
            return;
        }
        let until = now + self.options.rest;
        self.resting.nodes.push((until, node));
    }

    /// End what has rested.
    pub(super) fn end_rest(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.resting.deadline() > now {
            return;
        }
        let due = |(until, _): &mut (Instant, Incarnation)| *until <= now;
        for (_, node) in self.resting.nodes.extract_if(.., due) {
            effects.push(Effect::Gone { node });
        }
        let due = self
            .resting
            .partitions
            .iter()
            .filter(|(_, until)| **until <= now);
        let due: Vec<u32> = due.map(|(partition, _)| *partition).collect();
        for partition in due {
            self.resting.partitions.remove(&partition);
            self.adopt_names(partition, effects);
        }
    }

    /// Tell another node, if there is a link, or this one.
    fn send_row(&self, to: &Incarnation, message: RowMessage, effects: &mut Vec<Effect>) {
        if *to == self.me || self.links.contains_key(to) {
            let to = to.clone();
            effects.push(Effect::SendRow { to, message });
        }
    }
}
