//! What an entry node keeps of the things in memory that its clients hold and ask for.
//!
//! A holder is a connection at an entry node. The entry node has a row for each lease and
//! each ask of its holders, wherever the owner is. An owner that dies takes nothing along
//! that the rows of others do not show: each new owner is told of them in a report. After
//! its report a node takes no notice of what owners before decided.
//!
//! The shell carries what is sent, also to the node itself, and asks
//! [`Cluster`](super::Cluster) for the route of each ask.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::{Instant, nanos};

use super::messages::{ReportedRow, RowAnswer, RowMessage};
use super::options::Options;
use super::planted::planted;
use super::records::Incarnation;

/// The rows of one life of an entry node.
///
/// Invariants: a row that was sent went to the owner that this node has reported to last.
/// A ticket is a row, or an end on its way, or neither.
#[derive(Clone, Debug)]
pub struct EntryRows {
    options: Options,
    me: Incarnation,
    rows: BTreeMap<u64, EntryRow>,
    /// Ends that are not acknowledged, by ticket.
    ends: BTreeMap<u64, PendingEnd>,
    owners: Vec<ReportedOwner>,
    links: BTreeMap<Incarnation, u64>,
    /// How far the node has vouched for what a holder has.
    vouched: BTreeMap<u64, Instant>,
    /// Holders that the node itself has ended, and when their rows go.
    ending: BTreeMap<u64, Instant>,
    /// Leases that the node itself has ended, and when each goes, and how.
    ending_rows: BTreeMap<u64, (Instant, Vec<u8>)>,
}

/// Something that the rows want done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowEffect {
    /// Tell another node, or this one.
    Send {
        /// Which one.
        to: Incarnation,
        /// What.
        message: RowMessage,
    },
    /// Tell the client what became of its ask or its lease.
    Tell {
        /// Which one.
        ticket: u64,
        /// Whose.
        holder: u64,
        /// The outcome.
        news: RowNews,
    },
}

/// The outcome of an ask or a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowNews {
    /// The ask is a lease now.
    Granted {
        /// The fence of the lease.
        fence: u64,
    },
    /// There is nothing for the ask.
    Refused,
    /// The owner is another by now. The shell asks for a route once more, or gives up.
    NotMine,
    /// The owner cannot be reached; nothing is held.
    Down,
    /// The lease is over: it was given back at another node, or by another party.
    Dropped,
}

/// A lease or an ask.
#[derive(Clone, Debug)]
struct EntryRow {
    partition: u32,
    holder: u64,
    what: Vec<u8>,
    since: Instant,
    phase: RowPhase,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RowPhase {
    /// It has no route yet.
    Unrouted,
    /// The owner was told of it.
    Sent,
    /// It is a lease.
    Held { fence: u64 },
}

/// An end that the owner has to hear of.
#[derive(Clone, Debug)]
struct PendingEnd {
    partition: u32,
    how: Vec<u8>,
}

/// The newest owner of a partition that this node knows of, and what it was told.
#[derive(Clone, Debug, Default)]
struct ReportedOwner {
    epoch: u64,
    owner: Option<Incarnation>,
    /// The report, until it is acknowledged. Copies of it are all alike: what came after it
    /// is told by itself.
    report: Option<Vec<ReportedRow>>,
}

impl EntryRows {
    /// No rows, before the node is part of the cluster.
    pub fn new(options: Options) -> Self {
        let owners = vec![ReportedOwner::default(); options.partitions as usize];
        Self {
            me: Incarnation::new(&options.name, 0),
            rows: BTreeMap::new(),
            ends: BTreeMap::new(),
            owners,
            links: BTreeMap::new(),
            vouched: BTreeMap::new(),
            ending: BTreeMap::new(),
            ending_rows: BTreeMap::new(),
            options,
        }
    }

    /// A life of the node begins. What there was of another is forgotten, and its links:
    /// the holders are told by the shell that everything is lost.
    pub fn joined(&mut self, me: Incarnation) {
        *self = Self {
            me,
            ..Self::new(self.options.clone())
        };
    }

    /// A client asks for something of a partition. The shell gives each ask a ticket.
    pub fn asked(&mut self, ticket: u64, partition: u32, holder: u64, what: &[u8], now: Instant) {
        let row = EntryRow {
            partition,
            holder,
            what: what.to_vec(),
            since: now,
            phase: RowPhase::Unrouted,
        };
        self.rows.insert(ticket, row);
    }

    /// An ask has a route: to this owner, in this epoch.
    pub fn routed(
        &mut self,
        ticket: u64,
        to: &Incarnation,
        epoch: u64,
        now: Instant,
        effects: &mut Vec<RowEffect>,
    ) {
        let Some(row) = self.rows.get_mut(&ticket) else {
            return;
        };
        let partition = row.partition;
        let known = &self.owners[partition as usize];
        let is_known = known.epoch == epoch && known.owner.as_ref() == Some(to);
        let is_linked = *to == self.me || self.links.contains_key(to);
        if row.phase != RowPhase::Unrouted || !is_known || !is_linked {
            self.give_up(ticket, effects);
            return;
        }
        row.phase = RowPhase::Sent;
        let row = row.reported(ticket, now);
        effects.push(RowEffect::Send {
            to: to.clone(),
            message: RowMessage::Ask {
                partition,
                epoch,
                row,
            },
        });
    }

    /// An ask has no route: its client is told.
    pub fn give_up(&mut self, ticket: u64, effects: &mut Vec<RowEffect>) {
        if let Some(row) = self.rows.remove(&ticket) {
            effects.push(row.tell(ticket, RowNews::Down));
        }
    }

    /// What is reported of an ask or a lease.
    pub fn what(&self, ticket: u64) -> Option<&[u8]> {
        self.rows.get(&ticket).map(|row| &*row.what)
    }

    /// What is reported of a lease from now on. Until then it is what was asked for.
    pub fn describe(&mut self, ticket: u64, what: Vec<u8>) {
        if let Some(row) = self.rows.get_mut(&ticket) {
            row.what = what;
        }
    }

    /// A client cancels an ask or gives a lease back. Returns whether there is a row.
    pub fn released(&mut self, ticket: u64, effects: &mut Vec<RowEffect>) -> bool {
        self.ended(ticket, Vec::new(), effects)
    }

    /// The same, with what the owner is told of it.
    pub fn ended(&mut self, ticket: u64, how: Vec<u8>, effects: &mut Vec<RowEffect>) -> bool {
        self.ending_rows.remove(&ticket);
        let Some(row) = self.rows.remove(&ticket) else {
            return false;
        };
        if row.phase != RowPhase::Unrouted {
            self.end(ticket, row.partition, how, effects);
        }
        true
    }

    /// A client has closed its connection: all that it held and asked for ends at once.
    pub fn closed(&mut self, holder: u64, effects: &mut Vec<RowEffect>) {
        self.vouched.remove(&holder);
        self.ending.remove(&holder);
        let of = |(_, row): &(&u64, &EntryRow)| row.holder == holder;
        let tickets: Vec<_> = self.rows.iter().filter(of).map(|(it, _)| *it).collect();
        for ticket in tickets {
            self.released(ticket, effects);
        }
    }

    /// The node itself ends a holder, which may not know. Its asks end at once. All that it
    /// held ends when the node does not vouch for it any more.
    pub fn evicted(&mut self, holder: u64, now: Instant, effects: &mut Vec<RowEffect>) {
        let is_ask = |row: &EntryRow| !matches!(row.phase, RowPhase::Held { .. });
        let asks = self
            .rows
            .iter()
            .filter(|(_, row)| row.holder == holder && is_ask(row));
        let asks: Vec<_> = asks.map(|(ticket, _)| *ticket).collect();
        for ticket in asks {
            self.released(ticket, effects);
        }
        let until = self.vouched.get(&holder).copied();
        self.ending.insert(holder, until.unwrap_or(now));
        self.advance(now, effects);
    }

    /// The node itself ends a lease, and its holder may not know. It goes when the node does
    /// not vouch for it any more.
    pub fn revoked(
        &mut self,
        ticket: u64,
        how: Vec<u8>,
        now: Instant,
        effects: &mut Vec<RowEffect>,
    ) {
        let holder = self.rows.get(&ticket).map(|row| row.holder);
        let until = holder.and_then(|holder| self.vouched.get(&holder).copied());
        match until.filter(|until| *until > now) {
            Some(until) => _ = self.ending_rows.insert(ticket, (until, how)),
            None => _ = self.ended(ticket, how, effects),
        }
    }

    /// A holder is gone, and the end of each of its rows was told one by one.
    pub fn left(&mut self, holder: u64) {
        self.vouched.remove(&holder);
    }

    /// For how long from the question on a holder may rely on what it holds. The node
    /// remembers that it said so.
    pub fn sure(&mut self, holder: u64, valid_until: Instant, now: Instant) -> Duration {
        if self.ending.contains_key(&holder) {
            return Duration::ZERO;
        }
        let valid = valid_until.max(now).since(now);
        let vouched = valid.min(self.options.lease / 2);
        // The holder counts by its own clock, which may be slow while this one is fast, each
        // by a tenth.
        let until = now.after(nanos(vouched) / 50 * 62);
        let known = self.vouched.entry(holder).or_insert(until);
        *known = until.max(*known);
        vouched
    }

    /// A partition has a new owner. Everything behind this node is reported to it. Without a
    /// link to it, asks are given up and only leases are reported.
    pub fn owned(
        &mut self,
        partition: u32,
        epoch: u64,
        owner: &Incarnation,
        now: Instant,
        effects: &mut Vec<RowEffect>,
    ) {
        if epoch <= self.owners[partition as usize].epoch {
            return;
        }
        // The report does not have what has ended, so that need not be told any more.
        self.ends.retain(|_, end| end.partition != partition);
        let is_linked = *owner == self.me || self.links.contains_key(owner);
        let is_sent = |row: &EntryRow| row.partition == partition && row.phase == RowPhase::Sent;
        if !is_linked {
            let waiting = self.rows.iter().filter(|(_, row)| is_sent(row));
            let waiting: Vec<_> = waiting.map(|(ticket, _)| *ticket).collect();
            for ticket in waiting {
                self.give_up(ticket, effects);
            }
        }
        let rows = self.rows.iter().filter(|(_, row)| {
            let is_told = row.phase != RowPhase::Unrouted;
            row.partition == partition && is_told
        });
        let report = rows.map(|(ticket, row)| row.reported(*ticket, now));
        self.owners[partition as usize] = ReportedOwner {
            epoch,
            owner: Some(owner.clone()),
            report: Some(report.collect()),
        };
        if is_linked {
            self.send_report(partition, effects);
        }
        if planted!(self.options, ReportedOnce) {
            self.owners[partition as usize].report = None;
        }
    }

    /// The reports that no owner has heard, as there is no link to it: of a partition and an
    /// epoch, with the rows.
    pub fn unlinked_reports(&self) -> impl Iterator<Item = (u32, u64, &[ReportedRow])> {
        (0..).zip(&self.owners).filter_map(|(partition, owner)| {
            let report = owner.report.as_deref()?;
            let to = owner.owner.as_ref()?;
            let is_linked = self.links.contains_key(to);
            (!is_linked).then_some((partition, owner.epoch, report))
        })
    }

    /// There is a new link to another node. An older one is not read any more. What ended
    /// is told first, and then what has to be repeated.
    pub fn linked(&mut self, node: &Incarnation, link: u64, effects: &mut Vec<RowEffect>) {
        if let Some(older) = self.links.get(node).copied() {
            self.unlinked(node, older, effects);
        }
        self.links.insert(node.clone(), link);
        let of = |partition: u32| self.owners[partition as usize].owner.as_ref() == Some(node);
        for (ticket, end) in self.ends.iter().filter(|(_, end)| of(end.partition)) {
            self.send_end(*ticket, end, effects);
        }
        for partition in 0..self.options.partitions {
            if self.owners[partition as usize].owner.as_ref() == Some(node) {
                self.send_report(partition, effects);
            }
        }
    }

    /// A link is gone. Both nodes live, so nothing is released; but what became of an ask
    /// is not known, so it is given up, and the owner has to end what it became.
    pub fn unlinked(&mut self, node: &Incarnation, link: u64, effects: &mut Vec<RowEffect>) {
        if self.links.get(node) != Some(&link) {
            return;
        }
        self.links.remove(node);
        let of = |partition: u32| self.owners[partition as usize].owner.as_ref() == Some(node);
        let is_planted = planted!(self.options, FreedOnLinkLoss);
        let is_lost = |row: &EntryRow| match row.phase {
            RowPhase::Unrouted => false,
            RowPhase::Sent => of(row.partition),
            RowPhase::Held { .. } => is_planted && of(row.partition),
        };
        let lost = self.rows.iter().filter(|(_, row)| is_lost(row));
        let lost: Vec<_> = lost.map(|(it, row)| (*it, row.partition)).collect();
        for (ticket, partition) in lost {
            match self.rows.get(&ticket).map(|row| &row.phase) {
                Some(RowPhase::Held { .. }) => _ = self.rows.remove(&ticket),
                _ => self.give_up(ticket, effects),
            }
            self.end(ticket, partition, Vec::new(), effects);
        }
    }

    /// Another node, or this one, said something of a row.
    pub fn heard(
        &mut self,
        from: &Incarnation,
        link: u64,
        message: &RowMessage,
        effects: &mut Vec<RowEffect>,
    ) {
        let is_read = *from == self.me || self.links.get(from) == Some(&link);
        if !is_read && !planted!(self.options, OldLinkRead) {
            return;
        }
        match *message {
            RowMessage::Answer {
                partition,
                epoch,
                ticket,
                answer,
            } if self.is_newest(partition, epoch) => {
                self.answered(ticket, partition, answer, effects);
            }
            RowMessage::Ended {
                partition,
                epoch,
                ticket,
            } if self.is_newest(partition, epoch) => _ = self.ends.remove(&ticket),
            RowMessage::Reported { partition, epoch } if self.is_newest(partition, epoch) => {
                self.owners[partition as usize].report = None;
            }
            RowMessage::DropRow {
                partition,
                epoch,
                ticket,
                ..
            } if self.is_newest(partition, epoch) => {
                if let Some(row) = self.rows.remove(&ticket) {
                    effects.push(row.tell(ticket, RowNews::Dropped));
                }
                effects.push(RowEffect::Send {
                    to: from.clone(),
                    message: RowMessage::RowDropped {
                        partition,
                        epoch,
                        ticket,
                    },
                });
            }
            _ => (),
        }
    }

    /// When rows of a holder go that the node has ended.
    pub fn deadline(&self) -> Option<Instant> {
        let rows = self.ending_rows.values().map(|(until, _)| until);
        self.ending.values().chain(rows).min().copied()
    }

    /// Let the rows go whose time is over.
    pub fn advance(&mut self, now: Instant, effects: &mut Vec<RowEffect>) {
        let due = self.ending.iter().filter(|(_, until)| **until <= now);
        let due: Vec<_> = due.map(|(holder, _)| *holder).collect();
        for holder in due {
            self.closed(holder, effects);
        }
        let rows = self.ending_rows.iter();
        let due = rows.filter(|(_, (until, _))| *until <= now);
        let due: Vec<_> = due.map(|(it, (_, how))| (*it, how.clone())).collect();
        for (ticket, how) in due {
            self.ended(ticket, how, effects);
        }
    }

    /// The newest owner of a partition that this node has reported to, and its epoch.
    pub fn owner(&self, partition: u32) -> Option<(&Incarnation, u64)> {
        let known = self.owners.get(partition as usize)?;
        known.owner.as_ref().map(|owner| (owner, known.epoch))
    }

    /// Whether there is a link to a node, or it is this one.
    pub fn reaches(&self, node: &Incarnation) -> bool {
        *node == self.me || self.links.contains_key(node)
    }

    /// All leases behind this node: the ticket, the partition and the fence.
    pub fn leases(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        self.rows.iter().filter_map(|(ticket, row)| {
            let RowPhase::Held { fence } = row.phase else {
                return None;
            };
            Some((*ticket, row.partition, fence))
        })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many reports and ends no owner has acknowledged.
    pub fn unheard(&self) -> usize {
        let reports = self.owners.iter().filter(|owner| owner.report.is_some());
        self.ends.len() + reports.count()
    }

    /// Whether this node has reported for no newer ownership.
    fn is_newest(&self, partition: u32, epoch: u64) -> bool {
        self.owners[partition as usize].epoch == epoch
    }

    fn answered(
        &mut self,
        ticket: u64,
        partition: u32,
        answer: RowAnswer,
        effects: &mut Vec<RowEffect>,
    ) {
        let row = self.rows.get_mut(&ticket);
        match (row, answer) {
            (Some(row), RowAnswer::Granted { fence }) if row.phase == RowPhase::Sent => {
                row.phase = RowPhase::Held { fence };
                effects.push(row.tell(ticket, RowNews::Granted { fence }));
            }
            // A grant that finds no ask is given back.
            (None, RowAnswer::Granted { .. }) => {
                self.end(ticket, partition, Vec::new(), effects);
            }
            (Some(row), RowAnswer::NotMine) if row.phase == RowPhase::Sent => {
                row.phase = RowPhase::Unrouted;
                effects.push(row.tell(ticket, RowNews::NotMine));
            }
            (Some(row), RowAnswer::Refused) if row.phase == RowPhase::Sent => {
                effects.push(row.tell(ticket, RowNews::Refused));
                self.rows.remove(&ticket);
            }
            _ => (),
        }
    }

    /// The owner has to hear that an ask or a lease is over.
    fn end(&mut self, ticket: u64, partition: u32, how: Vec<u8>, effects: &mut Vec<RowEffect>) {
        let end = PendingEnd { partition, how };
        self.send_end(ticket, &end, effects);
        self.ends.insert(ticket, end);
    }

    fn send_end(&self, ticket: u64, end: &PendingEnd, effects: &mut Vec<RowEffect>) {
        let partition = end.partition;
        let epoch = self.owners[partition as usize].epoch;
        let message = RowMessage::End {
            partition,
            epoch,
            ticket,
            how: end.how.clone(),
        };
        self.send(partition, message, effects);
    }

    fn send_report(&self, partition: u32, effects: &mut Vec<RowEffect>) {
        let owner = &self.owners[partition as usize];
        if let Some(rows) = owner.report.clone() {
            let epoch = owner.epoch;
            let message = RowMessage::Report {
                partition,
                epoch,
                rows,
            };
            self.send(partition, message, effects);
        }
    }

    /// Tell the owner of a partition, if there is a link to it.
    fn send(&self, partition: u32, message: RowMessage, effects: &mut Vec<RowEffect>) {
        if let Some(to) = &self.owners[partition as usize].owner
            && (*to == self.me || self.links.contains_key(to))
        {
            let to = to.clone();
            effects.push(RowEffect::Send { to, message });
        }
    }
}

impl EntryRow {
    fn reported(&self, ticket: u64, now: Instant) -> ReportedRow {
        ReportedRow {
            ticket,
            fence: match self.phase {
                RowPhase::Held { fence } => Some(fence),
                RowPhase::Unrouted | RowPhase::Sent => None,
            },
            age: now.since(self.since),
            what: self.what.clone(),
        }
    }

    const fn tell(&self, ticket: u64, news: RowNews) -> RowEffect {
        let holder = self.holder;
        RowEffect::Tell {
            ticket,
            holder,
            news,
        }
    }
}
