//! All waiting asks and offers, in two lists, and what may happen to them.
//!
//! What a law sheds the model takes from the broker, and checks that the law
//! may. Everything else it knows.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::broker::{Effect, Gone, Options, Stats, Tally};
use rideau_core::queue::{self, Index, Order, Overflow, Shedding};
use rideau_core::{Flow, Instant, Reason, Refusal, Reply, Side, Tag, Ticket};

use super::scripts::FLOWS;

/// How to answer an ask or offer; `replies` counts those that still exist.
#[derive(PartialEq, Debug)]
pub(super) struct Visitor {
    pub(super) id: usize,
    pub(super) gone: Rc<Cell<bool>>,
    pub(super) _replies: Rc<()>,
}

/// An ask or offer, as the model knows it.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) id: usize,
    pub(super) ticket: Option<Ticket>,
    pub(super) sent: Instant,
    pub(super) deadline: Option<Instant>,
    pub(super) flow: Flow,
    pub(super) tag: Option<Tag>,
    pub(super) wait: bool,
    pub(super) gone: Rc<Cell<bool>>,
}

/// Something that an ask or offer was told, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Match { ask: usize, offer: usize },
    Shed { id: usize, reason: Reason },
    Forget(usize),
}

pub(super) struct Model {
    pub(super) halves: [Half; 2],
    pub(super) active: Side,
    pub(super) closed: bool,
    pub(super) now: Instant,
    /// The waiters that this input takes from the queue, maybe before others
    /// are shed.
    taken: Vec<usize>,
}

/// One side.
pub(super) struct Half {
    pub(super) waiting: Vec<Waiter>,
    pub(super) options: queue::Options,
    lines: Lines,
    /// The least wait that a standing queue has allowed.
    allowed: Duration,
    came: u64,
    matched: u64,
    cancelled: u64,
    shed: [u64; Reason::ALL.len()],
}

/// Which waiters stand in one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lines {
    One,
    ByFlow,
    /// Flows share lines in a way that the model does not know.
    Unknown,
}

impl Reply for Visitor {
    fn is_gone(&self) -> bool {
        self.gone.get()
    }
}

impl Model {
    pub(super) fn new(options: &Options, now: Instant) -> Self {
        Self {
            halves: [Half::new(&options.asks), Half::new(&options.offers)],
            active: Side::Offer,
            closed: false,
            now,
            taken: Vec::new(),
        }
    }

    pub(super) fn half(&mut self, side: Side) -> &mut Half {
        &mut self.halves[at(side)]
    }

    /// An ask or offer came, whether to wait or not.
    pub(super) fn come(&mut self, side: Side, newcomer: Waiter) {
        let half = self.half(side);
        half.came += 1;
        half.waiting.push(newcomer);
    }

    /// An ask or offer was withdrawn.
    pub(super) fn cancel(&mut self, id: usize) -> (Side, Waiter) {
        let side = self.side_of(id).expect("an ask that withdraws has waited");
        let half = self.half(side);
        half.cancelled += 1;
        (side, half.end(id))
    }

    pub(super) fn change(&mut self, options: &Options) {
        self.half(Side::Ask).change(&options.asks);
        self.half(Side::Offer).change(&options.offers);
    }

    /// Look at what is about to be heard.
    pub(super) fn expect(&mut self, effects: &[Effect<Visitor, Visitor>]) {
        let taken = |effect: &Effect<Visitor, Visitor>| match effect {
            Effect::Match { ask, offer, .. } => vec![ask.id, offer.id],
            Effect::Forget(Gone::Ask(gone) | Gone::Offer(gone)) => vec![gone.id],
            Effect::ShedAsk { .. } | Effect::ShedOffer { .. } | Effect::Meter(_) => vec![],
        };
        self.taken = effects.iter().flat_map(taken).collect();
    }

    /// Check and carry out what the broker said; `newcomer` is the waiter that
    /// has just come.
    pub(super) fn hear(
        &mut self,
        effect: Effect<Visitor, Visitor>,
        newcomer: Option<usize>,
    ) -> Told {
        match effect {
            Effect::Match {
                ticket,
                ask,
                offer,
                lead,
                ask_waited,
                offer_waited,
            } => {
                let (ask, offer) = (ask.id, offer.id);
                let (asked, offered) = self.introduce(ask, offer, newcomer, ticket);
                assert_eq!(ask_waited, self.now.since(asked));
                assert_eq!(offer_waited, self.now.since(offered));
                let lead = i128::from(lead.as_nanos());
                assert_eq!(
                    lead,
                    i128::from(offered.as_nanos()) - i128::from(asked.as_nanos())
                );
                assert_eq!(signed(ask_waited) - lead, signed(offer_waited));
                Told::Match { ask, offer }
            }
            Effect::ShedAsk {
                ticket,
                ask,
                refusal,
            } => self.shed(Side::Ask, ask.id, ticket, &refusal, newcomer),
            Effect::ShedOffer {
                ticket,
                offer,
                refusal,
            } => self.shed(Side::Offer, offer.id, ticket, &refusal, newcomer),
            Effect::Forget(gone) => {
                let (side, visitor) = match gone {
                    Gone::Ask(ask) => (Side::Ask, ask),
                    Gone::Offer(offer) => (Side::Offer, offer),
                };
                assert!(visitor.gone.get(), "only the dead are forgotten");
                assert_eq!(self.cancel(visitor.id).0, side);
                Told::Forget(visitor.id)
            }
            Effect::Meter(said) => unreachable!("{said:?} was taken out before"),
        }
    }

    /// The numbers of the broker are those of the model.
    pub(super) fn check(&self, stats: &Stats) {
        let [asks, offers] = &self.halves;
        assert!(asks.waiting.is_empty() || offers.waiting.is_empty());
        assert_eq!(stats.asks_len, asks.waiting.len());
        assert_eq!(stats.offers_len, offers.waiting.len());
        assert_eq!(stats.active, self.active);
        asks.check(&stats.asks);
        offers.check(&stats.offers);
        for waiter in asks.waiting.iter().chain(&offers.waiting) {
            assert!(waiter.wait, "a try does not wait");
            assert!(!self.closed, "no ask waits once it is closed");
            let late = waiter.deadline.is_some_and(|due| due <= self.now);
            assert!(!late, "nobody waits beyond their own deadline");
        }
        let waited: Vec<_> = self.halves[at(self.active)]
            .oldest()
            .iter()
            .map(|sent| self.now.since(*sent))
            .collect();
        assert!(waited.contains(&stats.oldest_waited) || waited.is_empty());
    }

    fn introduce(
        &mut self,
        ask: usize,
        offer: usize,
        newcomer: Option<usize>,
        ticket: Ticket,
    ) -> (Instant, Instant) {
        let (side, waited) = if newcomer == Some(ask) {
            (Side::Offer, offer)
        } else {
            assert_eq!(newcomer, Some(offer), "the newcomer is matched");
            (Side::Ask, ask)
        };
        assert_eq!(side, self.active, "a matched ask has waited");
        let half = self.half(side);
        assert!(half.is_served(waited), "out of turn");
        let waiter = half.waiter(waited);
        assert!(!waiter.gone.get(), "the dead are not matched");
        assert_eq!(waiter.ticket, Some(ticket));
        let sent = |half: &mut Half, id| {
            half.matched += 1;
            half.end(id).sent
        };
        let [asks, offers] = &mut self.halves;
        (sent(asks, ask), sent(offers, offer))
    }

    fn shed(
        &mut self,
        side: Side,
        id: usize,
        ticket: Ticket,
        refusal: &Refusal,
        newcomer: Option<usize>,
    ) -> Told {
        let (now, reason) = (self.now, refusal.reason);
        self.check_shed(side, id, reason, newcomer);
        let half = self.half(side);
        half.shed[reason.index()] += 1;
        let waiter = half.end(id);
        assert_eq!(waiter.ticket, Some(ticket));
        assert_eq!(refusal.waited, now.since(waiter.sent));
        Told::Shed { id, reason }
    }

    fn check_shed(&self, side: Side, id: usize, reason: Reason, newcomer: Option<usize>) {
        let (half, now) = (&self.halves[at(side)], self.now);
        let waiter = half.waiter(id);
        let waited = now.since(waiter.sent);
        let line = half.line_of(id);
        let is_oldest = line.as_ref().is_none_or(|line| {
            let mut line = line.iter().filter(|other| !self.taken.contains(other));
            line.next() == Some(&id)
        });
        let left = line.map_or(usize::MAX, |line| line.len() - 1);
        let spared = left >= half.options.min as usize;
        let may = match (reason, half.options.shedding.clone()) {
            (Reason::Full, _) => {
                let max = half.options.max.expect("only a limit makes a queue full");
                let refused = half.options.overflow == Overflow::Newest || max == 0;
                let who = newcomer.is_none_or(|newcomer| refused == (newcomer == id));
                // A newcomer's own answer comes last, after what it set off.
                let own = newcomer == Some(id);
                who && (refused || is_oldest) && (own || left >= max as usize)
            }
            (Reason::Timeout, Shedding::Timeout { wait_max }) => {
                waited >= wait_max && is_oldest && spared
            }
            (
                Reason::CoDel,
                Shedding::CoDel { target, .. } | Shedding::BoundedCoDel { target, .. },
            ) => waited >= target && is_oldest && spared,
            (Reason::Bound, Shedding::BoundedCoDel { wait_max, .. }) => {
                // The waiter that would be served is judged too, and that may
                // be the newest.
                waited > wait_max && (is_oldest || half.is_served(id)) && spared
            }
            (Reason::MinDelay, Shedding::MinDelay { target, .. }) => waited > target * 2 && spared,
            (Reason::Standing, Shedding::Standing { .. }) => waited >= half.allowed && spared,
            (Reason::Deadline, _) => waiter.deadline.is_some_and(|due| due <= now),
            (Reason::Busy, _) => newcomer == Some(id) && !waiter.wait,
            (Reason::Closed, _) => self.closed,
            _ => false,
        };
        assert!(may, "{waiter:?} was shed for {reason:?} at {now:?}");
    }

    fn side_of(&self, id: usize) -> Option<Side> {
        [Side::Ask, Side::Offer].into_iter().find(|side| {
            self.halves[at(*side)]
                .waiting
                .iter()
                .any(|waiter| waiter.id == id)
        })
    }
}

impl Half {
    fn new(options: &queue::Options) -> Self {
        Self {
            waiting: Vec::new(),
            options: options.clone(),
            lines: Lines::of(options),
            allowed: allowed(options),
            came: 0,
            matched: 0,
            cancelled: 0,
            shed: [0; Reason::ALL.len()],
        }
    }

    /// New lines are filled in order of asking.
    fn change(&mut self, options: &queue::Options) {
        let index = |options: &queue::Options| options.fair.as_ref().map(|fair| fair.index);
        let same = index(&self.options) == index(options);
        if !same && self.options.fair.is_some() {
            self.waiting
                .sort_by_key(|waiter| (waiter.sent, waiter.ticket.map(Ticket::serial)));
        }
        if !(same && self.lines == Lines::Unknown) {
            self.lines = Lines::of(options);
        }
        self.allowed = self.allowed.min(allowed(options));
        self.options = options.clone();
    }

    fn waiter(&self, id: usize) -> &Waiter {
        let mut waiting = self.waiting.iter();
        waiting.find(|waiter| waiter.id == id).expect("it waits")
    }

    fn end(&mut self, id: usize) -> Waiter {
        let at = self.waiting.iter().position(|waiter| waiter.id == id);
        self.waiting.remove(at.expect("nobody ends twice"))
    }

    /// Those of one's line, oldest first; none if the model does not know.
    fn line_of(&self, id: usize) -> Option<Vec<usize>> {
        let flow = self.waiter(id).flow;
        let same = |waiter: &&Waiter| self.lines == Lines::One || waiter.flow == flow;
        let line = self.waiting.iter().filter(same).map(|waiter| waiter.id);
        (self.lines != Lines::Unknown).then(|| line.collect())
    }

    /// It is this waiter's turn, apart from those shed before.
    fn is_served(&self, id: usize) -> bool {
        self.line_of(id)
            .is_none_or(|line| match self.options.order {
                Order::Fifo => line[0] == id,
                Order::Lifo => line.last() == Some(&id),
                Order::Adaptive { .. } => line[0] == id || line.last() == Some(&id),
            })
    }

    /// When the oldest asked: the oldest of each line, of which the broker
    /// takes the first that was sent, or any.
    fn oldest(&self) -> Vec<Instant> {
        let sent = self.waiting.iter().map(|waiter| waiter.sent);
        match self.lines {
            Lines::One => sent.take(1).collect(),
            Lines::Unknown => sent.collect(),
            Lines::ByFlow => {
                let first = |waiter: &&Waiter| self.line_of(waiter.id).unwrap()[0] == waiter.id;
                let heads = self.waiting.iter().filter(first);
                heads.map(|waiter| waiter.sent).min().into_iter().collect()
            }
        }
    }

    fn check(&self, tally: &Tally) {
        assert_eq!(tally.came, self.came);
        assert_eq!(tally.served, self.matched);
        assert_eq!(tally.waits.len(), self.matched);
        assert_eq!(tally.cancelled, self.cancelled);
        assert_eq!(tally.shed, self.shed);
        let ended = tally.served + tally.cancelled + tally.shed_total();
        assert_eq!(tally.came, ended + self.waiting.len() as u64);
    }
}

impl Lines {
    fn of(options: &queue::Options) -> Self {
        match &options.fair {
            None => Self::One,
            Some(fair) if fair.index == Index::Flow && fair.flows_max.get() >= FLOWS => {
                Self::ByFlow
            }
            Some(_) => Self::Unknown,
        }
    }
}

pub(super) fn at(side: Side) -> usize {
    match side {
        Side::Ask => 0,
        Side::Offer => 1,
    }
}

pub(super) fn other(side: Side) -> Side {
    match side {
        Side::Ask => Side::Offer,
        Side::Offer => Side::Ask,
    }
}

fn allowed(options: &queue::Options) -> Duration {
    match options.shedding {
        Shedding::Standing { target, interval } => target.min(interval),
        _ => Duration::MAX,
    }
}

fn signed(span: Duration) -> i128 {
    span.as_nanos().try_into().unwrap()
}
