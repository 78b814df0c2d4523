//! The two roles at a broker, so that what both do is written once.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::broker::{self as core, Found};
use rideau_core::queue;
use rideau_core::{Instant, Reason, Refusal, Side, Ticket};

use super::Refused;
use super::match_cell::{MatchCell, Met};
use crate::after::After;
use crate::peer::{Match, Peer};
use crate::reply_slot::MatchSide;

pub(super) type Machine<A, O> = core::Broker<AskReply<A, O>, AskReply<O, A>>;
pub(super) type Effect<A, O> = core::Effect<AskReply<A, O>, AskReply<O, A>>;
type Came<A, O> = core::Came<AskReply<A, O>, AskReply<O, A>>;
type Gone<A, O> = core::Gone<AskReply<A, O>, AskReply<O, A>>;

/// The value of a waiter, and where it finds its answer.
pub(crate) struct AskReply<V, W> {
    pub(super) value: V,
    pub(super) match_cell: Arc<MatchCell<V, W>>,
}

/// One of the two sides: what it brings, what it receives, and how it speaks
/// to the machine.
pub(crate) trait Role<A, O> {
    type Brings: Send + 'static;
    type Gets: Send + 'static;
    const SIDE: Side;

    /// The waiter on the other side whose turn it is.
    fn find(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<Found<AskReply<Self::Gets, Self::Brings>>>;

    /// Take a place, or be shed from it at once.
    fn queue(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        reply: AskReply<Self::Brings, Self::Gets>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Result<Ticket, Refused<Self::Brings>>;
}

pub(crate) struct AskRole;
pub(crate) struct OfferRole;

impl<A: Send + 'static, O: Send + 'static> Role<A, O> for AskRole {
    type Brings = A;
    type Gets = O;
    const SIDE: Side = Side::Ask;

    #[inline]
    fn find(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<Found<AskReply<O, A>>> {
        machine.find_offer(terms, now, effects)
    }

    #[inline]
    fn queue(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        reply: AskReply<A, O>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Result<Ticket, Refused<A>> {
        match machine.queue_ask(terms, reply, now, effects) {
            Came::Waits(ticket) => Ok(ticket),
            Came::Answered(_, Effect::ShedAsk { ask, refusal, .. }) => Err(ask.refused(refusal)),
            Came::Answered(..) => unreachable!("an ask without a match waits or is shed"),
        }
    }
}

impl<A: Send + 'static, O: Send + 'static> Role<A, O> for OfferRole {
    type Brings = O;
    type Gets = A;
    const SIDE: Side = Side::Offer;

    #[inline]
    fn find(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Option<Found<AskReply<A, O>>> {
        machine.find_ask(terms, now, effects)
    }

    #[inline]
    fn queue(
        machine: &mut Machine<A, O>,
        terms: &queue::AskOptions,
        reply: AskReply<O, A>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Result<Ticket, Refused<O>> {
        match machine.queue_offer(terms, reply, now, effects) {
            Came::Waits(ticket) => Ok(ticket),
            Came::Answered(_, Effect::ShedOffer { offer, refusal, .. }) => {
                Err(offer.refused(refusal))
            }
            Came::Answered(..) => unreachable!("an offer without a match waits or is shed"),
        }
    }
}

impl<V, W> AskReply<V, W> {
    /// Refuse a waiter; it gets back what it brought.
    pub(super) fn refuse(self, refusal: Refusal, after: &mut After) {
        let Self { value, match_cell } = self;
        match_cell.refuse(Refused { refusal, value }, after);
    }

    /// The waiter is gone: what drops the cell drops what was brought, and not
    /// under the lock.
    pub(super) fn forget(self, after: &mut After) {
        let refusal = Refusal {
            reason: Reason::Cancelled,
            waited: Duration::ZERO,
            len: 0,
            retry_after: Duration::ZERO,
        };
        self.refuse(refusal, after);
    }

    fn refused(self, refusal: Refusal) -> Refused<V> {
        let value = self.value;
        Refused { refusal, value }
    }
}

impl<V, W> rideau_core::Reply for AskReply<V, W> {
    fn is_gone(&self) -> bool {
        self.match_cell.is_left()
    }
}

/// Refuse a waiter that another caller cancelled.
pub(super) fn refuse<A, O>((gone, refusal): (Gone<A, O>, Refusal), after: &mut After) {
    match gone {
        Gone::Ask(ask) => ask.refuse(refusal, after),
        Gone::Offer(offer) => offer.refuse(refusal, after),
    }
}

/// Introduce a comer to the waiter it found: the waiter is told, and the comer
/// gets its match.
#[inline(always)]
pub(super) fn introduce<V, W>(value: V, found: Found<AskReply<W, V>>, after: &mut After) -> Match<W>
where
    V: Send + 'static,
    W: Send + 'static,
{
    let (lead, waited) = (found.lead(), found.waited());
    let met = Met {
        value,
        lead: lead.reversed(),
        waited_nanos: found.now.nanos_since(found.found_sent),
    };
    let AskReply { value, match_cell } = found.reply;
    match_cell.meet(met, after);
    Match {
        value,
        lead,
        waited,
        ticket: found.ticket,
        peer: Peer::new(match_cell, MatchSide::Comer),
    }
}
