//! Coming to a broker in two parts: find the other side, else wait or be turned
//! away.
//!
//! For a driver that makes a reply only for an ask or offer that waits.

use super::{Broker, Came, Effect, Found};
use crate::ids::{Side, Ticket};
use crate::ledger::Reply;
use crate::queue::AskOptions;
use crate::refusal::Refusal;
use crate::time::Instant;

impl<A: Reply, O: Reply> Broker<A, O> {
    /// The first part of an [`ask`](Self::ask): the offer whose turn it is, if
    /// one waits. If none does, the ask has to be queued or turned away next.
    #[inline]
    pub fn find_offer(
        &mut self,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<Found<O>> {
        let (ticket, sent, reply) = self.offer_for(terms, now, effects)?;
        self.count_prompt(Side::Ask, terms.sent, now);
        self.offers.count_served(sent, now);
        let found = Found {
            ticket,
            reply,
            sent: terms.sent,
            found_sent: sent,
            now,
        };
        self.finish(terms.sent, now, effects);
        Some(found)
    }

    /// The first part of an [`offer`](Self::offer), as
    /// [`find_offer`](Self::find_offer) is of an ask.
    #[inline]
    pub fn find_ask(
        &mut self,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<Found<A>> {
        let (ticket, sent, reply) = self.ask_for(terms, now, effects)?;
        self.count_prompt(Side::Offer, terms.sent, now);
        self.asks.count_served(sent, now);
        let found = Found {
            ticket,
            reply,
            sent: terms.sent,
            found_sent: sent,
            now,
        };
        self.finish(terms.sent, now, effects);
        Some(found)
    }

    /// An ask or offer that finds nothing on these terms may wait.
    #[inline]
    pub fn may_wait(&self, terms: &AskOptions) -> bool {
        terms.wait && !self.closed
    }

    /// The second part of an [`ask`](Self::ask) that found nothing and may
    /// wait.
    #[inline]
    pub fn queue_ask(
        &mut self,
        terms: &AskOptions,
        ask: A,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        let ticket = self.asks.join(terms, ask, now);
        self.both |= self.active == Side::Offer;
        let end = self.asks.take_ended(ticket);
        self.finish(terms.sent, now, effects);
        match end {
            None => Came::Waits(ticket),
            Some(end) => Came::Answered(ticket, end.into_ask_effect()),
        }
    }

    /// The second part of an [`offer`](Self::offer) that found nothing and may
    /// wait.
    #[inline]
    pub fn queue_offer(
        &mut self,
        terms: &AskOptions,
        offer: O,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        let ticket = self.offers.join(terms, offer, now);
        self.both |= self.active == Side::Ask;
        let end = self.offers.take_ended(ticket);
        self.finish(terms.sent, now, effects);
        match end {
            None => Came::Waits(ticket),
            Some(end) => Came::Answered(ticket, end.into_offer_effect()),
        }
    }

    /// The second part for an ask or offer that found nothing and may not wait.
    pub fn turn_away(
        &mut self,
        side: Side,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> (Ticket, Refusal) {
        let reason = self.reason();
        let no = match side {
            Side::Ask => self.asks.refuse(terms, reason, now),
            Side::Offer => self.offers.refuse(terms, reason, now),
        };
        match side {
            Side::Ask => self.asks.advance(now),
            Side::Offer => self.offers.advance(now),
        }
        self.finish(terms.sent, now, effects);
        no
    }
}
