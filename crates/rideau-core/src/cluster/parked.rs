//! Where an ask goes: it is served here, hops to the owner, or waits for one.
//!
//! While a partition has no owner that this node can reach, an ask is parked for as long
//! as it would wait itself, and at most for the node's patience. Then it is told that the
//! cluster is down. Each ask gets one route.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Instant;

use super::effect::Effect;
use super::member::Cluster;
use super::owned::PartPhase;
use super::planted::planted;
use super::records::Incarnation;

/// At most this many asks of a node wait for an owner.
pub const PARKED_MAX: usize = 1_024;

/// The kind of an ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AskKind {
    /// A durable value: the owner has to have loaded the partition.
    Value,
    /// A name: the owner has to have the reports of all nodes, too.
    Name,
}

/// Where an ask goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskRoute {
    /// It is served here.
    Here {
        /// The ownership.
        epoch: u64,
    },
    /// It is sent to the owner.
    Hop {
        /// The owner.
        to: Incarnation,
        /// The ownership, which the owner compares.
        epoch: u64,
    },
    /// Another node sent it, and this one does not own the partition in that epoch.
    NotMine {
        /// The newest ownership that this node knows of.
        epoch: u64,
    },
    /// No owner was reached in time.
    Down(DownReason),
}

/// Why an ask is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// It waited for an owner as long as it may.
    NoOwner,
    /// Too many asks wait already.
    Full,
    /// This life of the node is over.
    Lost,
}

/// Asks that have no route yet, by the shell's ids.
#[derive(Clone, Debug, Default)]
pub(super) struct ParkedAsks {
    asks: BTreeMap<u64, ParkedAsk>,
    /// Something changed that may give them a route.
    pub(super) stirred: bool,
}

#[derive(Clone, Debug)]
struct ParkedAsk {
    partition: u32,
    until: Instant,
    kind: AskKind,
    /// Another node sent it, by what it knew of the owner.
    sent: Option<SentAsk>,
}

#[derive(Clone, Debug)]
struct SentAsk {
    /// The life of that node, if it matters.
    by: Option<Incarnation>,
    epoch: u64,
}

impl ParkedAsks {
    /// When the next of them has waited long enough.
    pub(super) fn deadline(&self) -> Instant {
        let untils = self.asks.values().map(|ask| ask.until);
        untils.min().unwrap_or(Instant::NEVER)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.asks.len()
    }
}

impl Cluster {
    /// A client's ask for something in a partition, which would wait so long by itself.
    /// The shell gives each ask an id of its own.
    pub fn asked(
        &mut self,
        ask: u64,
        partition: u32,
        wait: Option<Duration>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let parked = self.parked_ask(partition, AskKind::Value, wait, now);
        self.route(ask, parked, now, effects);
        self.finish(now, effects);
    }

    /// The same for a name, which is kept in memory.
    pub fn name_asked(
        &mut self,
        ask: u64,
        partition: u32,
        wait: Option<Duration>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let parked = self.parked_ask(partition, AskKind::Name, wait, now);
        self.route(ask, parked, now, effects);
        self.finish(now, effects);
    }

    /// Another node's ask for something in a partition that it takes for this node's in
    /// that epoch. It never hops again.
    pub fn asked_by_peer(
        &mut self,
        ask: u64,
        partition: u32,
        epoch: u64,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let mut parked = self.parked_ask(partition, AskKind::Value, None, now);
        parked.sent = Some(SentAsk { by: None, epoch });
        self.route(ask, parked, now, effects);
        self.finish(now, effects);
    }

    /// The same for a name. The lease belongs to a life of the sender, so that has to be one
    /// that the watch has shown.
    pub fn name_asked_by_peer(
        &mut self,
        ask: u64,
        by: &Incarnation,
        (partition, epoch): (u32, u64),
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let mut parked = self.parked_ask(partition, AskKind::Name, None, now);
        let by = Some(by.clone());
        parked.sent = Some(SentAsk { by, epoch });
        self.route(ask, parked, now, effects);
        self.finish(now, effects);
    }

    fn parked_ask(
        &self,
        partition: u32,
        kind: AskKind,
        wait: Option<Duration>,
        now: Instant,
    ) -> ParkedAsk {
        let patience = self.options.patience;
        let until = now + wait.map_or(patience, |wait| wait.min(patience));
        ParkedAsk {
            partition,
            until,
            kind,
            sent: None,
        }
    }

    /// An ask is not wanted any more. It gets no route if it has none yet.
    pub fn cancelled(&mut self, ask: u64, now: Instant, effects: &mut Vec<Effect>) {
        self.parked.asks.remove(&ask);
        self.finish(now, effects);
    }

    /// How many asks wait for an owner.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Give an ask its route, or park it.
    fn route(&mut self, ask: u64, parked: ParkedAsk, now: Instant, effects: &mut Vec<Effect>) {
        let found = self.route_of(&parked, now);
        let found = found.or_else(|| {
            let is_full = self.parked.len() >= PARKED_MAX;
            is_full.then_some(AskRoute::Down(DownReason::Full))
        });
        match found {
            Some(to) => effects.push(Effect::Route { ask, to }),
            None => _ = self.parked.asks.insert(ask, parked),
        }
    }

    /// Where an ask goes now, if it can go anywhere.
    fn route_of(&self, ask: &ParkedAsk, now: Instant) -> Option<AskRoute> {
        let partition = ask.partition;
        let serving = match ask.kind {
            AskKind::Value => self.serves(partition, now),
            AskKind::Name => self.serves_names(partition, now),
        };
        let Some(sent) = &ask.sent else {
            if let Some(epoch) = serving {
                return Some(AskRoute::Here { epoch });
            }
            let (to, epoch) = self.owner(partition)?;
            let is_linked = *to != self.me && self.links.contains_key(to);
            let to = to.clone();
            return is_linked.then_some(AskRoute::Hop { to, epoch });
        };
        let record = self.table.owner(partition).record.as_ref();
        let epoch = record.map_or(0, |record| record.epoch);
        let sent_for = sent.epoch;
        if sent.by.as_ref().is_some_and(|by| self.is_gone(by)) {
            return Some(AskRoute::NotMine { epoch });
        }
        let is_shown = sent.by.as_ref().is_none_or(|by| self.table.is_live(by));
        if serving == Some(sent_for) && is_shown {
            return Some(AskRoute::Here { epoch: sent_for });
        }
        // The sender may know more than this node, or the partition is not served yet.
        let part = self.parts.get(&partition);
        let is_coming = part.is_some_and(|part| {
            part.epoch == sent_for
                && matches!(
                    part.phase,
                    PartPhase::Loading | PartPhase::Unlisted | PartPhase::Open
                )
        });
        let waits = sent_for > epoch || is_coming;
        (!waits).then_some(AskRoute::NotMine { epoch })
    }

    /// Give parked asks their routes, and those their end that have waited long enough.
    pub(super) fn settle_parked(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if !self.parked.stirred && self.parked.deadline() > now {
            return;
        }
        self.parked.stirred = false;
        let all: Vec<_> = self
            .parked
            .asks
            .iter()
            .map(|(ask, it)| (*ask, it.clone()))
            .collect();
        for (ask, parked) in all {
            let found = self.route_of(&parked, now);
            let is_over = parked.until <= now;
            let down = is_over.then_some(AskRoute::Down(DownReason::NoOwner));
            if let Some(to) = found.or(down) {
                if !planted!(self.options, RoutedTwice) || is_over {
                    self.parked.asks.remove(&ask);
                }
                effects.push(Effect::Route { ask, to });
            }
        }
    }

    /// This life is over: no ask waits for the next.
    pub(super) fn drop_parked(&mut self, effects: &mut Vec<Effect>) {
        for ask in std::mem::take(&mut self.parked.asks).into_keys() {
            let to = AskRoute::Down(DownReason::Lost);
            effects.push(Effect::Route { ask, to });
        }
    }

    /// C3: a parked ask has an end.
    pub(super) fn check_parked(&self) {
        assert!(self.parked.len() <= PARKED_MAX);
        let mut asks = self.parked.asks.values();
        assert!(
            asks.all(|ask| ask.until.finite().is_some()),
            "C3: a parked ask has an end"
        );
    }
}
