//! Answers and effects of a broker.

use std::time::Duration;

use crate::ids::Ticket;
use crate::meter;
use crate::refusal::Refusal;
use crate::time::{Instant, Lead};
use crate::waiting::End;

/// The result of an ask or offer at its arrival.
#[derive(Clone, PartialEq, Debug)]
pub enum Came<A, O> {
    /// It waits.
    Waits(Ticket),
    /// It has its answer: a match, or a refusal of its own side.
    Answered(Ticket, Effect<A, O>),
}

impl<A, O> Came<A, O> {
    /// The ticket; an answer at once becomes one more effect, for drivers that
    /// treat all alike.
    pub fn into_effect(self, effects: &mut Vec<Effect<A, O>>) -> Ticket {
        match self {
            Self::Waits(ticket) => ticket,
            Self::Answered(ticket, own) => {
                effects.push(own);
                ticket
            }
        }
    }
}

/// An effect of a broker.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<A, O> {
    /// Introduce two to each other; the offer is told first.
    Match {
        /// The ticket of the one that waited: the same for both.
        ticket: Ticket,
        /// How to answer the ask.
        ask: A,
        /// How to answer the offer.
        offer: O,
        /// How much earlier the ask came than the offer.
        lead: Lead,
        /// How long the ask waited in all.
        ask_waited: Duration,
        /// How long the offer waited in all.
        offer_waited: Duration,
    },
    /// Say no to an ask.
    ShedAsk {
        /// Whose.
        ticket: Ticket,
        /// How to answer.
        ask: A,
        /// The refusal.
        refusal: Refusal,
    },
    /// Say no to an offer.
    ShedOffer {
        /// Whose.
        ticket: Ticket,
        /// How to answer.
        offer: O,
        /// The refusal.
        refusal: Refusal,
    },
    /// There is no asker to answer any more.
    Forget(Gone<A, O>),
    /// Pass on what a meter says.
    Meter(meter::Effect),
}

/// An ask or offer that waited, found by one that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<R> {
    /// The ticket of the one that waited: the same for both.
    pub ticket: Ticket,
    /// How to answer the one that waited.
    pub reply: R,
    /// When the one that came says it did.
    pub sent: Instant,
    /// When the one that was found says it came.
    pub found_sent: Instant,
    /// When they met.
    pub now: Instant,
}

impl<R> Found<R> {
    /// How much earlier the one that came did so.
    pub fn lead(&self) -> Lead {
        self.sent.lead_over(self.found_sent)
    }

    /// How long the one that came waited in all.
    pub fn waited(&self) -> Duration {
        self.now.since(self.sent)
    }

    /// How long the one that was found waited in all.
    pub fn found_waited(&self) -> Duration {
        self.now.since(self.found_sent)
    }

    /// The match, for an ask that came.
    pub(super) fn into_match_for_ask<A>(self, ask: A) -> Effect<A, R> {
        Effect::Match {
            ticket: self.ticket,
            ask,
            lead: self.lead(),
            ask_waited: self.waited(),
            offer_waited: self.found_waited(),
            offer: self.reply,
        }
    }

    /// The match, for an offer that came.
    pub(super) fn into_match_for_offer<O>(self, offer: O) -> Effect<R, O> {
        Effect::Match {
            ticket: self.ticket,
            offer,
            lead: self.lead().reversed(),
            ask_waited: self.found_waited(),
            offer_waited: self.waited(),
            ask: self.reply,
        }
    }
}

/// An ask or offer that left before an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gone<A, O> {
    /// It asked.
    Ask(A),
    /// It offered itself.
    Offer(O),
}

impl<R> End<R> {
    pub(super) fn into_ask_effect<O>(self) -> Effect<R, O> {
        match self {
            Self::Gone(ask) => Effect::Forget(Gone::Ask(ask)),
            Self::Shed {
                ticket,
                reply: ask,
                refusal,
            } => Effect::ShedAsk {
                ticket,
                ask,
                refusal,
            },
        }
    }

    pub(super) fn into_offer_effect<A>(self) -> Effect<A, R> {
        match self {
            Self::Gone(offer) => Effect::Forget(Gone::Offer(offer)),
            Self::Shed {
                ticket,
                reply: offer,
                refusal,
            } => Effect::ShedOffer {
                ticket,
                offer,
                refusal,
            },
        }
    }
}

impl<A, O> From<meter::Effect> for Effect<A, O> {
    fn from(said: meter::Effect) -> Self {
        Self::Meter(said)
    }
}
