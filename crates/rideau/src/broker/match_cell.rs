//! Where a waiter at a broker finds its answer, and later learns of its peer's
//! end.
//!
//! The one memory of a wait: the machine's reply and the waiting future share
//! it, and after a match the two parties do.

use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau_core::{Lead, Ticket};

use super::{Answer, Refused};
use crate::after::After;
use crate::peer::{Match, Peer};
use crate::reply_slot::{Bond, Ended, MatchSide};
use crate::sync::{Latch, into_inner, latch};

/// The wait of a party that brought a `V` for a party that brings a `W`.
pub(crate) struct MatchCell<V, W>(Latch<Stage<V, W>>);

/// How far a match has come. Small, for a million of them may wait: the ends
/// stand beside the tag, and what is rare lies behind a pointer.
enum Stage<V, W> {
    /// No other party has come yet.
    Waits(Option<Waker>),
    /// No other party will come; this is what was brought.
    Refused(Box<Refused<V>>),
    /// The other party came, and the waiter has not taken what it brought yet.
    Met {
        ends: Ends,
        value: W,
        lead: Lead,
        waited_nanos: u64,
    },
    /// There is nothing left to take.
    Taken { ends: Ends },
    /// As the two before, and one party wants to know of the other's end.
    Watched(Box<Watched<W>>),
}

struct Watched<W> {
    ends: Ends,
    met: Option<Met<W>>,
    wakers: [Option<Waker>; 2],
}

/// A match as a waiter is told of it.
pub(super) struct Met<W> {
    pub(super) value: W,
    pub(super) lead: Lead,
    pub(super) waited_nanos: u64,
}

/// The answer of a waiter.
pub(super) enum Told<V, W> {
    Met(Met<W>),
    Refused(Box<Refused<V>>),
}

/// How each of the two has ended the match: done and down, two bits for each.
#[derive(Clone, Copy, Default)]
struct Ends(u8);

const DONE: u8 = 1;
const DOWN: u8 = 2;

impl Ends {
    fn end(&mut self, side: MatchSide, how: Ended) {
        let bit = match how {
            Ended::Done => DONE,
            Ended::Down => DOWN,
        };
        self.0 |= bit << (2 * side as usize);
    }

    /// How the party on this side has ended the match.
    fn of(self, side: MatchSide) -> Option<Ended> {
        let bits = self.0 >> (2 * side as usize);
        if bits & DONE != 0 {
            Some(Ended::Done)
        } else {
            (bits & DOWN != 0).then_some(Ended::Down)
        }
    }
}

impl<W> Met<W> {
    /// The match with a peer.
    #[inline(always)]
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

impl<V, W> MatchCell<V, W> {
    /// A party waits, and wants to be woken so if it says how already.
    pub(super) fn new(waker: Option<Waker>) -> Self {
        Self(Latch::new(Stage::Waits(waker)))
    }

    /// Tell the waiter of its match. One that has left meanwhile has said so.
    #[inline(always)]
    pub(super) fn meet(&self, met: Met<W>, after: &mut After) {
        let mut stage = latch(&self.0);
        let Stage::Waits(waker) = &mut *stage else {
            drop(stage);
            // What was brought is dropped here, and not under the latch.
            return drop(met);
        };
        let waker = waker.take();
        *stage = Stage::met(met);
        drop(stage);
        waker.into_iter().for_each(|waker| after.wake(waker));
    }

    /// Tell the waiter no.
    pub(super) fn refuse(&self, refused: Refused<V>, after: &mut After) {
        let refused = Stage::Refused(Box::new(refused));
        match mem::replace(&mut *latch(&self.0), refused) {
            Stage::Waits(waker) => waker.into_iter().for_each(|waker| after.wake(waker)),
            _ => unreachable!("an ask is answered once"),
        }
    }

    /// The waiter is gone, and its answer, if there is or will be one, is not
    /// wanted: the peer that it met, or is about to, learns that it went away.
    pub(super) fn abandon(&self) {
        let mut stage = latch(&self.0);
        let waker = match &mut *stage {
            Stage::Watched(watched) => watched.end(MatchSide::Waiter, Ended::Down),
            _ => None,
        };
        let mut ends = Ends::default();
        ends.end(MatchSide::Waiter, Ended::Down);
        let answer = match &mut *stage {
            Stage::Watched(watched) => watched.met.take().map(Stage::met),
            other => Some(mem::replace(other, Stage::Taken { ends })),
        };
        drop(stage);
        drop(answer);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Take the answer, or be woken when it is there.
    #[inline(always)]
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Told<V, W>> {
        let mut stage = latch(&self.0);
        if let Some(told) = stage.take() {
            return Poll::Ready(told);
        }
        let Stage::Waits(waker) = &mut *stage else {
            unreachable!("a party with an answer waits no more");
        };
        let known = waker.as_ref();
        if !known.is_some_and(|waker| waker.will_wake(context.waker())) {
            let before = waker.replace(context.waker().clone());
            drop(stage);
            drop(before);
        }
        Poll::Pending
    }

    /// The answer, for a waiter that alone is left: its peer has ended the
    /// match.
    #[inline(always)]
    pub(super) fn into_answer(self, ticket: Ticket) -> Answer<V, W> {
        let (met, ends) = match into_inner(self.0) {
            Stage::Met {
                ends,
                value,
                lead,
                waited_nanos,
            } => {
                let met = Met {
                    value,
                    lead,
                    waited_nanos,
                };
                (met, ends)
            }
            Stage::Refused(refused) => return Err(*refused),
            Stage::Watched(watched) => {
                let met = watched.met.expect("it was not taken before");
                (met, watched.ends)
            }
            Stage::Waits(_) | Stage::Taken { .. } => {
                unreachable!("the party that is left was answered")
            }
        };
        let how = ends
            .of(MatchSide::Comer)
            .expect("a party that lets go has ended");
        Ok(met.into_match(ticket, Peer::that_ended(how)))
    }

    /// The waiter leaves: no answer should come any more while what is returned
    /// is there.
    pub(super) fn leave(self: &Arc<Self>) -> Weak<Self> {
        Arc::downgrade(self)
    }

    /// The waiter is about to leave. There is no other weak pointer, and so no
    /// match needs room for a flag.
    pub(super) fn is_left(self: &Arc<Self>) -> bool {
        Arc::weak_count(self) > 0
    }
}

impl<V, W> Stage<V, W> {
    #[inline(always)]
    fn met(met: Met<W>) -> Self {
        let Met {
            value,
            lead,
            waited_nanos,
        } = met;
        Self::Met {
            ends: Ends::default(),
            value,
            lead,
            waited_nanos,
        }
    }

    #[inline(always)]
    fn take(&mut self) -> Option<Told<V, W>> {
        let ends = match self {
            Self::Met { ends, .. } => *ends,
            Self::Refused(_) => Ends::default(),
            Self::Watched(watched) => return watched.met.take().map(Told::Met),
            Self::Waits(_) | Self::Taken { .. } => return None,
        };
        match mem::replace(self, Self::Taken { ends }) {
            Self::Met {
                value,
                lead,
                waited_nanos,
                ..
            } => Some(Told::Met(Met {
                value,
                lead,
                waited_nanos,
            })),
            Self::Refused(refused) => Some(Told::Refused(refused)),
            _ => unreachable!("it was just seen"),
        }
    }

    fn ends(&self) -> Ends {
        match self {
            Self::Met { ends, .. } | Self::Taken { ends } => *ends,
            Self::Watched(watched) => watched.ends,
            Self::Waits(_) | Self::Refused(_) => unreachable!("only a matched party has a peer"),
        }
    }

    /// A party wants to know of the other's end from now on.
    fn watched(&mut self) -> &mut Watched<W> {
        if !matches!(self, Self::Watched(_)) {
            let ends = self.ends();
            let met = self.take().map(|told| match told {
                Told::Met(met) => met,
                Told::Refused(_) => unreachable!("only a matched party has a peer"),
            });
            let wakers = [None, None];
            *self = Self::Watched(Box::new(Watched { ends, met, wakers }));
        }
        match self {
            Self::Watched(watched) => watched,
            _ => unreachable!("it was just made so"),
        }
    }
}

impl<W> Watched<W> {
    /// One of the two ends the match; the other's waker, if it wants to know.
    #[must_use]
    fn end(&mut self, side: MatchSide, how: Ended) -> Option<Waker> {
        self.ends.end(side, how);
        self.wakers[side.other() as usize].take()
    }
}

impl<V: Send, W: Send> Bond for MatchCell<V, W> {
    fn end(&self, side: MatchSide, how: Ended) {
        let waker = match &mut *latch(&self.0) {
            Stage::Met { ends, .. } | Stage::Taken { ends } => {
                ends.end(side, how);
                None
            }
            Stage::Watched(watched) => watched.end(side, how),
            Stage::Waits(_) | Stage::Refused(_) => unreachable!("only a matched party has a peer"),
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn ended(&self, side: MatchSide) -> Option<Ended> {
        latch(&self.0).ends().of(side.other())
    }

    fn poll_ended(&self, side: MatchSide, context: &Context<'_>) -> Poll<Ended> {
        let waker = context.waker().clone();
        let mut stage = latch(&self.0);
        if let Some(ended) = stage.ends().of(side.other()) {
            drop(stage);
            return Poll::Ready(ended);
        }
        let before = stage.watched().wakers[side as usize].replace(waker);
        drop(stage);
        drop(before);
        Poll::Pending
    }
}
