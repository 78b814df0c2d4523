//! The two roles at a broker, so that what both do is written once.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::broker as core;
use rideau_core::queue;
use rideau_core::{Instant, Lead, Reason, Refusal, Side, Ticket};

use super::{Answer, Refused};
use crate::after::After;
use crate::cell::{Cell, Seat};
use crate::peer::{Match, Peer};

pub(super) type Machine<A, O> = core::Broker<Reply<A, O>, Reply<O, A>>;
pub(super) type Effect<A, O> = core::Effect<Reply<A, O>, Reply<O, A>>;
pub(super) type Came<A, O> = core::Came<Reply<A, O>, Reply<O, A>>;
type Gone<A, O> = core::Gone<Reply<A, O>, Reply<O, A>>;

/// What a party brought, and where it waits if it does: one who just came has
/// no cell yet and takes its answer itself.
pub(crate) struct Reply<V, W> {
    pub(super) value: V,
    pub(super) cell: Option<Arc<Cell<Told<V, W>>>>,
}

/// What a waiter is told. Small, for it is part of every wait.
pub(crate) enum Told<V, W> {
    Met(Met<W>),
    Refused(Box<Refused<V>>),
}

/// A match as a waiter is told of it.
pub(crate) struct Met<W> {
    value: W,
    lead: Lead,
    waited_nanos: u64,
}

/// One of the two sides: what it brings, what it receives, and how it speaks
/// to the machine.
pub(crate) trait Role<A, O> {
    type Brings: Send + 'static;
    type Gets: Send + 'static;
    const SIDE: Side;

    fn come(
        machine: &mut Machine<A, O>,
        terms: &queue::Terms,
        reply: Reply<Self::Brings, Self::Gets>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O>;

    fn reply_mut(
        machine: &mut Machine<A, O>,
        ticket: Ticket,
    ) -> Option<&mut Reply<Self::Brings, Self::Gets>>;

    /// The answer for one who just came, when its peer has been told.
    fn take_own(effect: Effect<A, O>, after: &mut After) -> Answer<Self::Brings, Self::Gets>;
}

pub(crate) struct AskRole;
pub(crate) struct OfferRole;

impl<A: Send + 'static, O: Send + 'static> Role<A, O> for AskRole {
    type Brings = A;
    type Gets = O;
    const SIDE: Side = Side::Ask;

    fn come(
        machine: &mut Machine<A, O>,
        terms: &queue::Terms,
        reply: Reply<A, O>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        machine.ask(terms, reply, now, effects)
    }

    fn reply_mut(machine: &mut Machine<A, O>, ticket: Ticket) -> Option<&mut Reply<A, O>> {
        machine.ask_mut(ticket)
    }

    fn take_own(effect: Effect<A, O>, after: &mut After) -> Answer<A, O> {
        match effect {
            Effect::Match {
                ticket,
                ask,
                offer,
                lead,
                ask_waited,
                offer_waited,
            } => {
                let met = Met {
                    value: ask.value,
                    lead: lead.reversed(),
                    waited_nanos: nanos(offer_waited),
                };
                let bond = tell(offer.cell, met, after);
                Ok(Match {
                    value: offer.value,
                    lead,
                    waited: ask_waited,
                    ticket,
                    peer: Peer::new(bond, Seat::Comer),
                })
            }
            Effect::ShedAsk { ask, refusal, .. } => Err(ask.refused(refusal)),
            _ => unreachable!("an ask's own answer is a match or a no"),
        }
    }
}

impl<A: Send + 'static, O: Send + 'static> Role<A, O> for OfferRole {
    type Brings = O;
    type Gets = A;
    const SIDE: Side = Side::Offer;

    fn come(
        machine: &mut Machine<A, O>,
        terms: &queue::Terms,
        reply: Reply<O, A>,
        now: Instant,
        effects: &mut Vec<Effect<A, O>>,
    ) -> Came<A, O> {
        machine.offer(terms, reply, now, effects)
    }

    fn reply_mut(machine: &mut Machine<A, O>, ticket: Ticket) -> Option<&mut Reply<O, A>> {
        machine.offer_mut(ticket)
    }

    fn take_own(effect: Effect<A, O>, after: &mut After) -> Answer<O, A> {
        match effect {
            Effect::Match {
                ticket,
                ask,
                offer,
                lead,
                ask_waited,
                offer_waited,
            } => {
                let met = Met {
                    value: offer.value,
                    lead,
                    waited_nanos: nanos(ask_waited),
                };
                let bond = tell(ask.cell, met, after);
                Ok(Match {
                    value: ask.value,
                    lead: lead.reversed(),
                    waited: offer_waited,
                    ticket,
                    peer: Peer::new(bond, Seat::Comer),
                })
            }
            Effect::ShedOffer { offer, refusal, .. } => Err(offer.refused(refusal)),
            _ => unreachable!("an offer's own answer is a match or a no"),
        }
    }
}

impl<V, W> Reply<V, W> {
    /// Say no to one who waits; it gets back what it brought.
    pub(super) fn refuse(mut self, refusal: Refusal, after: &mut After) {
        let cell = self.cell.take().expect("who comes takes its own refusal");
        cell.answer(Told::Refused(Box::new(self.refused(refusal))), after);
    }

    /// Nobody waits any more: whoever drops the cell drops what was brought, and
    /// not under the lock.
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

impl<V, W> rideau_core::Reply for Reply<V, W> {
    fn is_gone(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.is_gone())
    }
}

impl<W> Met<W> {
    /// The match as its waiter receives it.
    pub(super) fn into_match(self, ticket: Ticket, peer: Peer) -> Match<W> {
        Match {
            value: self.value,
            lead: self.lead,
            waited: Duration::from_nanos(self.waited_nanos),
            ticket,
            peer,
        }
    }
}

/// Say no to one that somebody else cancelled.
pub(super) fn refuse<A, O>((gone, refusal): (Gone<A, O>, Refusal), after: &mut After) {
    match gone {
        Gone::Ask(ask) => ask.refuse(refusal, after),
        Gone::Offer(offer) => offer.refuse(refusal, after),
    }
}

/// Tell a waiter of its match.
fn tell<V, W>(
    cell: Option<Arc<Cell<Told<V, W>>>>,
    met: Met<W>,
    after: &mut After,
) -> Arc<Cell<Told<V, W>>> {
    let cell = cell.expect("who was there first waits");
    cell.answer(Told::Met(met), after);
    cell
}

/// A wait in nanoseconds: it came from as many.
fn nanos(waited: Duration) -> u64 {
    u64::try_from(waited.as_nanos()).expect("the clock counts nanoseconds in 64 bits")
}
