//! Matches clients that ask with workers that offer themselves.
//!
//! The broker forgets both as soon as it has introduced them: it grants no
//! lease and watches no work.

mod effect;
mod parts;

use std::time::Duration;

use crate::ids::{Side, Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::machine::Machine;
use crate::meter::{self, Panel};
use crate::queue::{self, AskOptions, Queue};
use crate::refusal::{Reason, Refusal};
use crate::settings::OptionError;
use crate::time::Instant;
use crate::waiting::{Account, End, Waiting};

pub use crate::waiting::Tally;
pub use effect::{Came, Effect, Found, Gone};

/// The two queues of a broker, and the meters that watch them.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Where asks wait.
    pub asks: queue::Options,
    /// Where offers wait.
    pub offers: queue::Options,
    /// The meters that are told the waits.
    pub meters: Vec<meter::Options>,
    /// The meters are fed after this many inputs, and whenever time alone
    /// moves the broker on. Zero counts as one.
    pub read_after: u32,
}

/// A snapshot of a broker's numbers.
#[derive(Clone, Debug)]
pub struct Stats {
    /// How many ask and wait.
    pub asks_len: usize,
    /// How many offer themselves and wait.
    pub offers_len: usize,
    /// How long the oldest of either has waited.
    pub oldest_waited: Duration,
    /// The side that waits, or waited last.
    pub active: Side,
    /// Outcomes of asks.
    pub asks: Tally,
    /// Outcomes of offers.
    pub offers: Tally,
    /// The queue of each side is overloaded as its law sees it, asks first.
    pub are_shedding: [bool; 2],
}

/// The asks, the offers, and which of them wait for the other side.
///
/// Invariants: at most one of the queues is not empty, it is the active
/// side's, and every open ticket waits in one of them.
#[derive(Debug)]
#[repr(C)]
pub struct Broker<A, O> {
    active: Side,
    closed: bool,
    /// Both sides wait, for one of them is behind with ending waits.
    both: bool,
    /// There are meters that want readings.
    metered: bool,
    /// The active side has had no waiter that came before this.
    empty: Instant,
    /// How many of each side met the other side the instant they came; they are
    /// in no tally.
    prompt: [u64; 2],
    asks: Waiting<A>,
    offers: Waiting<O>,
    panel: Panel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            asks: queue::Options::default(),
            offers: queue::Options {
                shedding: queue::Shedding::Never,
                ..queue::Options::default()
            },
            meters: Vec::new(),
            read_after: meter::READ_AFTER,
        }
    }
}

impl<A: Reply, O: Reply> Broker<A, O> {
    /// A broker in which nothing waits.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Result<Self, OptionError> {
        let asks = Queue::new(options.asks, now).map_err(|error| error.within("asks"))?;
        let offers = Queue::new(options.offers, now).map_err(|error| error.within("offers"))?;
        let panel = Panel::new(options.meters, options.read_after, now, effects)?;
        // Asks have odd serials and offers even ones, so that a ticket knows
        // its side.
        Ok(Self {
            asks: Waiting::new(asks, Ledger::new(1, 2)),
            offers: Waiting::new(offers, Ledger::new(2, 2)),
            active: Side::Offer,
            closed: false,
            both: false,
            metered: !panel.is_empty(),
            empty: now,
            prompt: [0; 2],
            panel,
        })
    }

    /// A client wants a worker. Its own answer, if there is one at once, is
    /// returned; the effects concern others.
    pub fn ask(
        &mut self,
        terms: &AskOptions,
        ask: A,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        match self.find_offer(terms, now, effects) {
            Some(found) => Came::Answered(found.ticket, found.into_match_for_ask(ask)),
            None if self.may_wait(terms) => self.queue_ask(terms, ask, now, effects),
            None => {
                let (ticket, refusal) = self.turn_away(Side::Ask, terms, now, effects);
                let shed = Effect::ShedAsk {
                    ticket,
                    ask,
                    refusal,
                };
                Came::Answered(ticket, shed)
            }
        }
    }

    /// A worker offers itself. Its own answer, if there is one at once, is
    /// returned; the effects concern others.
    pub fn offer(
        &mut self,
        terms: &AskOptions,
        offer: O,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        match self.find_ask(terms, now, effects) {
            Some(found) => Came::Answered(found.ticket, found.into_match_for_offer(offer)),
            None if self.may_wait(terms) => self.queue_offer(terms, offer, now, effects),
            None => {
                let (ticket, refusal) = self.turn_away(Side::Offer, terms, now, effects);
                let shed = Effect::ShedOffer {
                    ticket,
                    offer,
                    refusal,
                };
                Came::Answered(ticket, shed)
            }
        }
    }

    /// The ask or offer with this ticket is not to wait any longer. The refusal
    /// is for one that did not ask for this itself. None if it does not wait:
    /// it has been answered.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<(Gone<A, O>, Refusal)> {
        let gone = match side_of(ticket) {
            Side::Ask => {
                let gone = self.asks.cancel(ticket, now);
                gone.map(|(ask, refusal)| (Gone::Ask(ask), refusal))
            }
            Side::Offer => {
                let gone = self.offers.cancel(ticket, now);
                gone.map(|(offer, refusal)| (Gone::Offer(offer), refusal))
            }
        };
        self.settle(now);
        self.finish(now, now, effects);
        gone
    }

    /// Cancel all that wait with this tag, the newest first.
    pub fn cancel_tag(
        &mut self,
        tag: Tag,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Vec<(Gone<A, O>, Refusal)> {
        let mut gone = Vec::new();
        while let Some(ticket) = self.asks.newest(tag) {
            let left = self.asks.cancel(ticket, now);
            gone.extend(left.map(|(ask, refusal)| (Gone::Ask(ask), refusal)));
        }
        while let Some(ticket) = self.offers.newest(tag) {
            let left = self.offers.cancel(ticket, now);
            gone.extend(left.map(|(offer, refusal)| (Gone::Offer(offer), refusal)));
        }
        self.settle(now);
        self.finish(now, now, effects);
        gone
    }

    /// Answer every ask and offer that waits, and from now on refuse all that
    /// come.
    pub fn close(&mut self, now: Instant, effects: &mut Vec<Effect<A, O>>) {
        self.closed = true;
        self.asks.close(now);
        self.offers.close(now);
        self.panel.end(effects);
        self.finish(now, now, effects);
    }

    /// Change everything at once; all that wait keep their places, but those
    /// for which a lower `max` leaves no room.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Result<(), OptionError> {
        options
            .asks
            .validate()
            .map_err(|error| error.within("asks"))?;
        options
            .offers
            .validate()
            .map_err(|error| error.within("offers"))?;
        self.panel
            .reconfigure(options.meters, options.read_after, now, effects)?;
        if self.closed {
            self.panel.end(effects);
        }
        self.metered = !self.panel.is_empty();
        self.asks.reconfigure(options.asks, now);
        self.offers.reconfigure(options.offers, now);
        self.finish(now, now, effects);
        Ok(())
    }

    /// How the broker is set up.
    pub fn options(&self) -> Options {
        Options {
            asks: self.asks.queue().options().clone(),
            offers: self.offers.queue().options().clone(),
            meters: self.panel.options().to_vec(),
            read_after: self.panel.read_after(),
        }
    }

    /// How many wait on a side.
    pub fn len(&self, side: Side) -> usize {
        match side {
            Side::Ask => self.asks.len(),
            Side::Offer => self.offers.len(),
        }
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len(Side::Ask) == 0 && self.len(Side::Offer) == 0
    }

    /// How to answer an ask that waits, to change.
    pub fn ask_mut(&mut self, ticket: Ticket) -> Option<&mut A> {
        self.asks.reply_mut(ticket)
    }

    /// How to answer an offer that waits, to change.
    pub fn offer_mut(&mut self, ticket: Ticket) -> Option<&mut O> {
        self.offers.reply_mut(ticket)
    }

    /// A refusal with the numbers of a side, for an ask or offer turned away
    /// before it came.
    pub fn refusal(&self, side: Side, reason: Reason, sent: Instant, now: Instant) -> Refusal {
        match side {
            Side::Ask => self.asks.queue().refusal(reason, sent, now),
            Side::Offer => self.offers.queue().refusal(reason, sent, now),
        }
    }

    /// The broker's numbers.
    pub fn stats(&self, now: Instant) -> Stats {
        Stats {
            asks_len: self.len(Side::Ask),
            offers_len: self.len(Side::Offer),
            oldest_waited: self.oldest().map_or(Duration::ZERO, |sent| now.since(sent)),
            active: self.active,
            asks: self
                .asks
                .tally()
                .and_prompt(self.prompt[Side::Ask as usize]),
            offers: self
                .offers
                .tally()
                .and_prompt(self.prompt[Side::Offer as usize]),
            are_shedding: [self.asks.is_shedding(now), self.offers.is_shedding(now)],
        }
    }

    /// Why the last asks were shed and what would help, in plain words.
    pub fn explain(&self) -> String {
        let offered = self.offers.tally().came + self.prompt[Side::Offer as usize];
        let scarce = if offered == 0 {
            "No worker has offered itself yet: start workers, or see why they do not come."
        } else {
            "Workers are scarce: add some, or make each match shorter."
        };
        let account = Account {
            served: "matched",
            scarce,
            machine: "broker",
        };
        let tally = self
            .asks
            .tally()
            .and_prompt(self.prompt[Side::Ask as usize]);
        self.asks.explain(&account, &tally).unwrap_or_else(|| {
            format!(
                "No ask has been refused or shed. {} ask and {} offer themselves now.",
                self.asks.len(),
                self.offers.len()
            )
        })
    }

    /// The offer whose turn it is, if offers wait.
    fn offer_for(
        &mut self,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<(Ticket, Instant, O)> {
        if self.active == Side::Ask || self.both {
            return None;
        }
        let served = self.offers.serve(now);
        if self.offers.has_ended() {
            self.report_each(effects);
        }
        if served.is_none() && self.offers.len() == 0 {
            (self.active, self.empty) = (Side::Ask, terms.sent);
        }
        served
    }

    /// The ask whose turn it is, if asks wait.
    fn ask_for(
        &mut self,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<(Ticket, Instant, A)> {
        if self.active == Side::Offer || self.both {
            return None;
        }
        let served = self.asks.serve(now);
        if self.asks.has_ended() {
            self.report_each(effects);
        }
        if served.is_none() && self.asks.len() == 0 {
            (self.active, self.empty) = (Side::Offer, terms.sent);
        }
        served
    }

    /// Match the asks and offers that had to wait although the other side was
    /// not empty: it had to end more waits than one call may.
    #[cold]
    fn pair(&mut self, now: Instant, effects: &mut Vec<Effect<A, O>>) {
        while self.asks.len() > 0 && self.offers.len() > 0 {
            let Some(ask) = self.asks.take(now) else {
                break;
            };
            let Some((_, sent, offer)) = self.offers.serve(now) else {
                self.asks.put_back(ask, now);
                break;
            };
            let (ticket, found_sent, reply) = self.asks.close_taken(ask);
            let found = Found {
                ticket,
                reply,
                sent,
                found_sent,
                now,
            };
            self.asks.count_served(found_sent, now);
            self.offers.count_served(sent, now);
            effects.push(found.into_match_for_offer(offer));
        }
        self.report_each(effects);
        self.both = self.asks.len() > 0 && self.offers.len() > 0;
        let side = match (self.asks.len(), self.offers.len()) {
            (0, 1..) => Side::Offer,
            (1.., 0) => Side::Ask,
            _ => return,
        };
        if side != self.active {
            (self.active, self.empty) = (side, now);
        }
    }

    /// Count an ask or offer that came at `sent` and found the other side
    /// waiting. Most wait for nothing, and are counted where their own side
    /// need not be touched.
    #[inline]
    fn count_prompt(&mut self, side: Side, sent: Instant, now: Instant) {
        if sent == now {
            self.prompt[side as usize] += 1;
            return;
        }
        match side {
            Side::Ask => self.asks.count_passed(sent, now),
            Side::Offer => self.offers.count_passed(sent, now),
        };
    }

    /// Let the side that waits shed what it must by now.
    fn settle(&mut self, now: Instant) {
        match self.active {
            Side::Ask => self.asks.advance(now),
            Side::Offer => self.offers.advance(now),
        }
    }

    /// The work after every input, which was sent at `sent`.
    fn finish(&mut self, sent: Instant, now: Instant, effects: &mut Vec<Effect<A, O>>) {
        self.report(effects);
        if self.both {
            self.pair(now, effects);
        }
        if self.metered && self.panel.count(sent, now) {
            self.read(sent, now.since(sent), now, effects);
        }
        self.check();
    }

    /// Say which asks and offers were let go. Most inputs let none go.
    #[inline]
    fn report(&mut self, effects: &mut Vec<Effect<A, O>>) {
        if self.asks.has_ended() || self.offers.has_ended() {
            self.report_each(effects);
        }
    }

    #[cold]
    fn report_each(&mut self, effects: &mut Vec<Effect<A, O>>) {
        effects.extend(self.asks.ended().map(End::into_ask_effect));
        effects.extend(self.offers.ended().map(End::into_offer_effect));
    }

    /// Feed the meters.
    fn read(
        &mut self,
        sent: Instant,
        queue_delay: Duration,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) {
        // A late input may carry a stamp from before the oldest came. It leads
        // nothing then, and the oldest stays the oldest for the next reading.
        self.empty = self.oldest().unwrap_or(self.empty);
        let since = self.empty.min(sent);
        let lead = match self.active {
            Side::Ask => since.lead_over(sent),
            Side::Offer => sent.lead_over(since),
        };
        let is_deserted = self.is_empty();
        self.panel
            .feed(lead, is_deserted, queue_delay, now, effects);
    }

    /// Why there is nothing for an ask or offer that cannot wait.
    fn reason(&self) -> Reason {
        if self.closed {
            Reason::Closed
        } else {
            Reason::Busy
        }
    }

    fn oldest(&self) -> Option<Instant> {
        match self.active {
            Side::Ask => self.asks.oldest(),
            Side::Offer => self.offers.oldest(),
        }
    }

    fn check(&self) {
        let idle = match self.active {
            Side::Ask => self.len(Side::Offer),
            Side::Offer => self.len(Side::Ask),
        };
        let is_behind = self.asks.is_behind() || self.offers.is_behind();
        debug_assert!(idle == 0 || is_behind, "only the active side waits");
        debug_assert_eq!(
            self.asks.open(),
            self.len(Side::Ask),
            "an ask with a ticket waits"
        );
        debug_assert_eq!(
            self.offers.open(),
            self.len(Side::Offer),
            "an ask with a ticket waits"
        );
    }
}

impl<A: Reply, O: Reply> Machine for Broker<A, O> {
    type Effect = Effect<A, O>;

    fn deadline(&self) -> Option<Instant> {
        let queue = match self.active {
            Side::Ask => self.asks.deadline(),
            Side::Offer => self.offers.deadline(),
        };
        if !self.metered {
            return queue;
        }
        match (queue, self.panel.deadline()) {
            (Some(queue), Some(meters)) => Some(queue.min(meters)),
            (queue, meters) => queue.or(meters),
        }
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect<A, O>>) {
        self.settle(now);
        self.report(effects);
        if self.both {
            self.pair(now, effects);
        }
        if !self.panel.is_empty() {
            self.read(now, self.panel.unread_delay(), now, effects);
        }
        self.check();
    }
    #[inline]
    fn waiting(&self) -> usize {
        self.len(self.active)
    }
}

/// On which side a ticket was given.
fn side_of(ticket: Ticket) -> Side {
    if ticket.serial() % 2 == 1 {
        Side::Ask
    } else {
        Side::Offer
    }
}
