//! Lets nobody wait long while a queue has not been empty for an interval.
//!
//! Arithmetic on time only. How long an entry may wait is settled when it
//! comes: `target` behind a standing queue, `interval` otherwise.

use crate::time::Instant;

/// When the line was last empty.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    target: u64,
    interval: u64,
    empty: Instant,
}

impl Standing {
    pub(crate) const fn new(target: u64, interval: u64, now: Instant) -> Self {
        Self {
            target,
            interval,
            empty: now,
        }
    }

    /// How long an entry that comes now may wait.
    pub(crate) fn allows(&mut self, line_is_empty: bool, now: Instant) -> u64 {
        if line_is_empty {
            self.empty = now;
        }
        if self.is_shedding(now) {
            self.target
        } else {
            self.interval
        }
    }

    pub(crate) fn is_shedding(&self, now: Instant) -> bool {
        self.empty.after(self.interval) <= now
    }

    pub(crate) fn reconfigure(&mut self, target: u64, interval: u64) {
        (self.target, self.interval) = (target, interval);
    }
}
