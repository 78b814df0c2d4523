//! The last answers of an app: how many failed, and how long they took.

use std::f64::consts::LN_2;
use std::time::Duration;

use crate::time::{Instant, nanos};

/// How many answers are remembered.
const ANSWERS: usize = 1_000;
/// Fewer say nothing of how often answers fail.
const ANSWERS_MIN: usize = 50;
/// How many times are remembered.
const TIMES: usize = 256;
/// Fewer say nothing of how long answers take.
const TIMES_MIN: usize = 64;

/// The last answers of an app.
#[derive(Debug)]
pub(super) struct Past {
    /// Whether each failed, a bit each.
    failed: [u64; ANSWERS.div_ceil(64)],
    at: usize,
    len: usize,
    failures: usize,
    times: Times,
}

/// The last times, in microseconds.
#[derive(Debug)]
pub(super) struct Times {
    micros: Box<[u32; TIMES]>,
    at: usize,
    len: usize,
}

/// How much comes, with a half-life.
#[derive(Debug, Default)]
pub(super) struct Rate {
    count: f64,
    at: Instant,
}

/// An answer this long ago counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);

impl Rate {
    pub(super) fn add(&mut self, now: Instant) {
        self.count = self.left(now) + 1.0;
        self.at = now;
    }

    fn left(&self, now: Instant) -> f64 {
        let lives = now.since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.count * (-lives).exp2()
    }

    pub(super) fn per_second(&self, now: Instant) -> f64 {
        self.left(now) * LN_2 / HALF_LIFE.as_secs_f64()
    }
}

impl Default for Past {
    fn default() -> Self {
        Self {
            failed: [0; ANSWERS.div_ceil(64)],
            at: 0,
            len: 0,
            failures: 0,
            times: Times::default(),
        }
    }
}

impl Past {
    pub(super) fn add(&mut self, failed: bool, took: Duration) {
        let (word, bit) = (&mut self.failed[self.at / 64], 1 << (self.at % 64));
        self.failures -= usize::from(*word & bit != 0);
        *word = if failed { *word | bit } else { *word & !bit };
        self.failures += usize::from(failed);
        self.at = (self.at + 1) % ANSWERS;
        self.len = (self.len + 1).min(ANSWERS);
        self.times.add(took);
    }

    /// The share of the last answers that failed; none of them if there were few.
    pub(super) fn failure_rate(&self) -> f64 {
        match self.len {
            len if len < ANSWERS_MIN => 0.0,
            len => self.failures as f64 / len as f64,
        }
    }

    pub(super) fn median(&self) -> Option<Duration> {
        self.times.median(TIMES_MIN)
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            micros: Box::new([0; TIMES]),
            at: 0,
            len: 0,
        }
    }
}

impl Times {
    pub(super) fn add(&mut self, took: Duration) {
        let micros = nanos(took) / 1_000;
        self.micros[self.at] = u32::try_from(micros).unwrap_or(u32::MAX);
        self.at = (self.at + 1) % TIMES;
        self.len = (self.len + 1).min(TIMES);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time that half of them were under, if there are enough.
    pub(super) fn median(&self, min: usize) -> Option<Duration> {
        if self.len < min.max(1) {
            return None;
        }
        let mut known = self.micros[..self.len].to_vec();
        let (_, median, _) = known.select_nth_unstable(self.len / 2);
        Some(Duration::from_micros(u64::from(*median)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_thousand_answers_count() {
        let mut past = Past::default();
        for _ in 0..49 {
            past.add(true, Duration::ZERO);
        }
        assert_eq!(past.failure_rate(), 0.0, "too few to tell");
        past.add(true, Duration::ZERO);
        assert_eq!(past.failure_rate(), 1.0);
        for _ in 0..950 {
            past.add(false, Duration::ZERO);
        }
        assert_eq!(past.failure_rate(), 0.05);
        for _ in 0..50 {
            past.add(false, Duration::ZERO);
        }
        assert_eq!(past.failure_rate(), 0.0);
    }

    #[test]
    fn the_median_is_that_of_the_last_times() {
        let mut past = Past::default();
        for _ in 0..63 {
            past.add(false, Duration::from_millis(7));
        }
        assert_eq!(past.median(), None);
        past.add(false, Duration::from_millis(7));
        assert_eq!(past.median(), Some(Duration::from_millis(7)));
        for millis in 0..256 {
            past.add(false, Duration::from_millis(millis));
        }
        assert_eq!(past.median(), Some(Duration::from_millis(128)));
    }
}
