//! Sheds long waits once no ask was served quickly for an interval.
//!
//! Arithmetic on waits only. A queue is overloaded if the least wait of those
//! served within an interval was over the target; then asks that waited over
//! twice the target go.

use super::codel::{Progress, Verdict};
use crate::refusal::Reason;
use crate::time::Instant;

/// The least wait of the interval and what it says.
#[derive(Clone, Debug)]
pub(crate) struct MinDelay {
    target: u64,
    interval: u64,
    least: u64,
    until: Instant,
    overloaded: bool,
    /// When the line last served an entry, or last looked because it did not.
    looked: Instant,
    /// The last look ended before all had gone that must.
    unfinished: bool,
}

impl MinDelay {
    pub(crate) const fn new(target: u64, interval: u64, now: Instant) -> Self {
        Self {
            target,
            interval,
            least: 0,
            until: now,
            overloaded: false,
            looked: now,
            unfinished: false,
        }
    }

    /// Judge the entry that a dequeue would deliver; `spare` if more than the
    /// protected minimum wait. The first of an interval always passes: one
    /// entry alone proves no overload.
    pub(crate) fn judge(&mut self, waited: u64, spare: bool, now: Instant) -> Verdict {
        self.looked = now;
        if now > self.until {
            self.until = now.after(self.interval);
            self.overloaded = self.least > self.target;
            self.least = waited;
            return Verdict::Keep;
        }
        self.least = self.least.min(waited);
        if spare {
            self.over_slough(waited)
        } else {
            Verdict::Keep
        }
    }

    /// Judge the oldest entry; it only matters when no entry was served for an
    /// interval.
    pub(crate) fn scan(&mut self, sent: Instant, progress: &mut Progress, now: Instant) -> Verdict {
        let waited = now.nanos_since(sent);
        if *progress == Progress::Nothing {
            let goes_on = std::mem::take(&mut self.unfinished);
            if !goes_on && self.due(sent) > now {
                return Verdict::Keep;
            }
            *progress = Progress::Entered;
            self.looked = now;
            self.overloaded = goes_on || waited > self.target;
        }
        self.over_slough(waited)
    }

    /// A look has to be gone on with: one call sheds a limited number.
    pub(crate) fn go_on(&mut self) {
        self.unfinished = true;
    }

    /// The next look at a line that serves no entry.
    pub(crate) fn due(&self, sent: Instant) -> Instant {
        self.looked.max(sent).after(self.interval)
    }

    pub(crate) fn is_shedding(&self) -> bool {
        self.overloaded
    }

    pub(crate) fn reconfigure(&mut self, target: u64, interval: u64, now: Instant) {
        (self.target, self.interval) = (target, interval);
        self.until = self.until.min(now.after(interval));
    }

    fn over_slough(&self, waited: u64) -> Verdict {
        if self.overloaded && waited > self.target.saturating_mul(2) {
            Verdict::Shed(Reason::MinDelay)
        } else {
            Verdict::Keep
        }
    }
}
