//! Whether processes of an app can be started, and when to try again.
//!
//! Starts that fail one after the other are tried ever more seldom. A start
//! went well only when its process has run for a while.

use std::time::Duration;

use crate::rng::Rng;
use crate::time::{Instant, nanos};

use super::options::Options;

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

    /// One more start failed; how long to wait before the next. Those that were
    /// under way when a wait began belong to the failure before it: none.
    pub(super) fn add(
        &mut self,
        options: &Options,
        rng: &mut Rng,
        now: Instant,
    ) -> Option<Duration> {
        if self.count > 0 && now < self.retry_at {
            return None;
        }
        self.count = self.count.saturating_add(1);
        let doublings = (self.count - 1).min(63);
        let wait = nanos(options.backoff_first)
            .saturating_mul(1 << doublings)
            .min(nanos(options.backoff_max));
        // Give or take a fifth: apps that failed together do not come back together.
        let fifth = wait / 5;
        let wait = wait - fifth + rng.below(2 * fifth + 1);
        self.retry_at = now.after(wait);
        Some(Duration::from_nanos(wait))
    }

    /// A start went well so far.
    pub(super) fn pause(&mut self, now: Instant) {
        self.retry_at = self.retry_at.min(now);
    }

    /// Starts may begin; only one at a time while the last ones failed.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.count == 0 || self.retry_at <= now
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_failing(&self) -> bool {
        self.count > 0
    }

    pub(super) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.retry_at.max(now).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_give_or_take_a_fifth() {
        let options = Options::default();
        let (mut rng, mut failures, mut now) = (Rng::new(1), Failures::NONE, Instant::START);
        let halves = [1, 2, 4, 8, 16, 32, 64, 120, 120];
        for (about, count) in halves.into_iter().zip(1..) {
            let about = Duration::from_millis(500) * about;
            let wait = failures.add(&options, &mut rng, now);
            let wait = wait.expect("the wait before is over");
            assert!(about * 4 / 5 <= wait && wait <= about * 6 / 5, "{wait:?}");
            assert_eq!(failures.add(&options, &mut rng, now), None, "one wave");
            assert_eq!(failures.count(), count);
            assert!(!failures.may_start(now) && failures.may_start(now + wait));
            now = now + wait;
        }
        failures.end();
        assert!(failures.may_start(Instant::START));
    }
}
