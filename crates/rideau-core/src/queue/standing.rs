//! Lets no ask wait long while a queue has not been empty for an interval.
//!
//! Arithmetic on time only. How long an entry may wait is settled when it
//! comes: `target` behind a standing queue, `interval` otherwise.

use std::collections::VecDeque;

use crate::ids::Ticket;
use crate::time::Instant;

/// When the line was last empty, and which limits came too early.
#[derive(Debug)]
pub(crate) struct Standing {
    target: u64,
    interval: u64,
    empty: Instant,
    /// Those whose limit came while the minimum protected them, in the order of
    /// their limits. Some may be gone.
    spared: VecDeque<Ticket>,
}

/// How many more than twice the minimum may be remembered as spared before
/// those that are gone are forgotten.
const SPARED_STALE: usize = 64;

impl Standing {
    pub(crate) fn new(target: u64, interval: u64, now: Instant) -> Self {
        Self {
            target,
            interval,
            empty: now,
            spared: VecDeque::new(),
        }
    }

    /// How long an entry that comes now may wait.
    pub(crate) fn allows(&mut self, line_is_empty: bool, now: Instant) -> u64 {
        if line_is_empty {
            self.empty = now;
        }
        if self.sheds_from() <= now {
            self.target
        } else {
            self.interval
        }
    }

    pub(crate) fn sheds_from(&self) -> Instant {
        self.empty.after(self.interval)
    }

    /// Remember one whose limit came while the minimum protects it.
    pub(crate) fn spare(&mut self, ticket: Ticket, min: u32, waits: impl Fn(Ticket) -> bool) {
        if self.spared.len() > 2 * min as usize + SPARED_STALE {
            self.spared.retain(|ticket| waits(*ticket));
        }
        self.spared.push_back(ticket);
    }

    /// The next to go that the minimum protected, be it there or not.
    pub(crate) fn next_spared(&mut self) -> Option<Ticket> {
        self.spared.pop_front()
    }

    pub(crate) fn reconfigure(&mut self, target: u64, interval: u64) {
        (self.target, self.interval) = (target, interval);
    }
}
