//! Whether members can be started, and when to try again.

use std::time::Duration;

use crate::rng::Rng;
use crate::time::{Instant, nanos};

use super::options::Backoff;

/// How starting goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// The last start went well.
    Closed,
    /// The last starts failed.
    Failing {
        /// How often in a row.
        failures: u32,
        /// In how long the next start is tried.
        retry_after: Duration,
    },
    /// Enough failed in a row that one start at a time is tried.
    Open {
        /// How often in a row.
        failures: u32,
        /// In how long the next start is tried.
        retry_after: Duration,
    },
}

/// The failures in a row.
#[derive(Debug)]
pub(super) struct Failures {
    count: u32,
    retry_at: Instant,
}

impl Failures {
    pub(super) const NONE: Self = Self {
        count: 0,
        retry_at: Instant::START,
    };

    pub(super) fn end(&mut self) {
        *self = Self::NONE;
    }

    /// One more start failed. Those that were under way when the last wait
    /// began belong to the failure before it.
    pub(super) fn add(&mut self, backoff: Backoff, rng: &mut Rng, now: Instant) {
        if self.count > 0 && now < self.retry_at {
            return;
        }
        self.count = self.count.saturating_add(1);
        let doublings = (self.count - 1).min(63);
        let longest = nanos(backoff.first)
            .saturating_mul(1 << doublings)
            .min(nanos(backoff.max));
        // Half for certain, half by chance: pools that failed together do not
        // come back together.
        let half = longest / 2;
        self.retry_at = now.after(half + rng.below(longest - half + 1));
    }

    /// Starts may begin.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.count == 0 || self.retry_at <= now
    }

    pub(super) fn is_open(&self, backoff: Backoff) -> bool {
        self.count >= backoff.failures
    }

    pub(super) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    pub(super) fn circuit(&self, backoff: Backoff, now: Instant) -> Circuit {
        let failures = self.count;
        let retry_after = self.retry_at.max(now).since(now);
        match failures {
            0 => Circuit::Closed,
            _ if self.is_open(backoff) => Circuit::Open {
                failures,
                retry_after,
            },
            _ => Circuit::Failing {
                failures,
                retry_after,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_half_of_each_is_chance() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_millis(300),
            failures: 2,
        };
        let (mut rng, mut failures, mut now) = (Rng::new(1), Failures::NONE, Instant::START);
        for (count, longest) in [(1, 100), (2, 200), (3, 300), (4, 300)] {
            failures.add(backoff, &mut rng, now);
            failures.add(backoff, &mut rng, now);
            assert_eq!(failures.count, count, "failures of one wave count once");
            let wait = failures.retry_at.since(now);
            let longest = Duration::from_millis(longest);
            assert!(longest / 2 <= wait && wait <= longest, "{wait:?}");
            assert!(!failures.may_start(now) && failures.may_start(now + wait));
            assert_eq!(failures.is_open(backoff), count >= 2);
            now = now + wait;
        }
        failures.end();
        assert_eq!(failures.circuit(backoff, now), Circuit::Closed);
    }
}
