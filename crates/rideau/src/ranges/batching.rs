//! Says how long to wait for more before a batch is written.
//!
//! Callers that were answered by one batch often come back at once. If the next
//! were written as soon as the first of them has, all others would wait for
//! the one after it, and each write would serve half of them. So on a slow disk
//! the thread waits for about the same number, though never longer than
//! a write takes. Where they do not come it soon gives up, and tries again now
//! and then.

use std::time::Duration;

/// A faster disk has written before it would be worth to wait.
const SLOW: Duration = Duration::from_micros(200);
/// No caller waits longer for others.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// After this many vain waits in a row, it does not wait less often any more: once
/// in two to the power of these batches.
const VAIN_MAX: u32 = 6;

/// Measurements of the disk and of the arriving callers.
#[derive(Debug, Default)]
pub(super) struct Batching {
    /// About how long a write takes.
    took: Duration,
    /// How many waited for an answer when the last batch was safe, or wrote.
    parties: u64,
    vain: u32,
    /// How many batches are written without a wait.
    skip: u32,
}

/// When a wait for more is over: as soon as this many came, or at last so much
/// later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) target: u64,
    pub(super) most: Duration,
}

impl Batching {
    /// A batch is safe that this many had waited for, and others wait by now for
    /// the next.
    pub(super) fn written(&mut self, took: Duration, answered: u64, waiting: u64) {
        // One that took long by chance counts little.
        self.took = (self.took * 7 + took.min(self.took * 4 + SLOW)) / 8;
        self.parties = answered + waiting;
    }

    /// How long to wait before the next batch, if at all.
    pub(super) fn wait(&mut self) -> Option<Wait> {
        if self.took < SLOW || self.parties < 2 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        // Some are always late.
        let target = self.parties - self.parties / 8;
        let most = self.took.min(WAIT_MAX);
        Some(Wait { target, most })
    }

    /// A wait is over, and this many came.
    pub(super) fn came(&mut self, wait: Wait, waiting: u64) {
        if waiting >= wait.target {
            self.vain = 0;
        } else if waiting > 0 {
            self.vain = (self.vain + 1).min(VAIN_MAX);
            self.skip = 1 << self.vain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn slow(answered: u64, waiting: u64) -> Batching {
        let mut gather = Batching::default();
        for _ in 0..100 {
            gather.written(4 * MS, answered, waiting);
        }
        gather
    }

    #[test]
    fn two_halves_become_one_batch() {
        let wait = slow(32, 32).wait().unwrap();
        assert_eq!(wait.target, 56);
        assert!(wait.most > 3 * MS && wait.most <= 4 * MS, "{wait:?}");
    }

    #[test]
    fn no_batch_waits_for_a_fast_disk_or_alone() {
        let mut gather = slow(1, 0);
        assert_eq!(gather.wait(), None);
        for _ in 0..100 {
            gather.written(MS / 10, 64, 64);
        }
        assert_eq!(gather.wait(), None);
    }

    #[test]
    fn waits_that_are_in_vain_become_less_and_less_often() {
        let mut gather = slow(10, 10);
        let mut batches_between = Vec::new();
        for _ in 0..8 {
            let mut batches = 0;
            let wait = loop {
                batches += 1;
                if let Some(wait) = gather.wait() {
                    break wait;
                }
            };
            gather.came(wait, 5);
            batches_between.push(batches);
        }
        assert_eq!(batches_between, [1, 3, 5, 9, 17, 33, 65, 65]);
    }

    #[test]
    fn a_wait_that_helped_is_followed_by_another() {
        let mut gather = slow(32, 32);
        for _ in 0..10 {
            let wait = gather.wait().unwrap();
            gather.came(wait, 60);
        }
    }

    #[test]
    fn one_write_that_hangs_is_no_slow_disk() {
        let mut gather = Batching::default();
        gather.written(MS / 20, 8, 8);
        gather.written(5000 * MS, 8, 8);
        assert_eq!(gather.wait(), None);
    }
}
