//! One line: the asks that want equally many units and see the same capacity.
//!
//! Either all of a line fit or none, so within it the queue alone decides.

use super::claim::Claim;
use crate::ids::Ticket;
use crate::ledger::{Ledger, Reply};
use crate::queue::{self, AskOptions, Capacity, Load, Queue};
use crate::time::Instant;
use crate::waiting::{Tally, Waiting};

/// The asks that wait for the same.
#[derive(Debug)]
pub(super) struct Line<R> {
    claim: Claim,
    pub(super) waiting: Waiting<R>,
    /// The first serial of its tickets, and how far apart they are.
    first: u64,
    stride: u64,
    /// Which line it was, in the order in which they ceased to be empty.
    turn: u64,
}

/// Older is less: when the oldest asked, and of equals which line was there
/// first.
pub(super) type Age = (Instant, u64);

impl<R: Reply> Line<R> {
    /// A line whose options have been validated.
    pub(super) fn new(
        claim: Claim,
        (first, stride): (u64, u64),
        options: &queue::Options,
        now: Instant,
    ) -> Self {
        let queue = Queue::new(options.clone(), now).expect("the options were validated");
        let mut line = Self {
            claim,
            waiting: Waiting::new(queue, Ledger::new(first, stride)),
            first,
            stride,
            turn: 0,
        };
        line.tell_load();
        line
    }

    /// Let the law know how many can hold at once, and for how long they do. No
    /// hold is timed: while all units are held and some wait, a hold takes as
    /// long as it takes to serve that many.
    pub(super) fn tell_load(&mut self) {
        let holders = self.claim.capacity.units() / u64::from(self.claim.units.max(1));
        let capacity = u32::try_from(holders).unwrap_or(u32::MAX);
        let mut load = Load::new(Capacity::Units(capacity));
        if let Some(gap) = self.waiting.queue().gap() {
            load.expect_hold(gap.saturating_mul(holders));
        }
        self.waiting.bear(load);
    }

    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }

    /// How old its oldest is; none if no ask waits in it.
    pub(super) fn age(&self) -> Option<Age> {
        self.waiting.oldest().map(|sent| (sent, self.turn))
    }

    /// Let an ask wait, or shed it if it must not; `turn` is for a line that
    /// was empty.
    pub(super) fn join(&mut self, terms: &AskOptions, reply: R, turn: u64, now: Instant) -> Ticket {
        if self.is_empty() {
            self.turn = turn;
            // What was released while no ask waited did not come here, so it is
            // not known whether there was any. But a line that was empty did
            // not stand, and its law is to know that.
            let served = self.waiting.serve(now);
            debug_assert!(served.is_none(), "no ask waits in an empty queue");
        }
        self.waiting.join(terms, reply, now)
    }

    /// Give the place of an empty line to another claim, with a law that knows
    /// nothing. What became of the asks so far is handed back.
    pub(super) fn give_to(&mut self, claim: Claim, now: Instant) -> Tally {
        debug_assert!(
            self.is_empty() && !self.waiting.has_ended(),
            "no ask is forgotten"
        );
        let tally = self.waiting.tally().clone();
        // All asks that came had a ticket, and no serial is given twice.
        let first = self.first + tally.came * self.stride;
        let options = self.waiting.queue().options();
        *self = Self::new(claim, (first, self.stride), options, now);
        tally
    }
}
