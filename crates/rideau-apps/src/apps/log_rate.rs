//! How many lines of the log an app may have: where all its requests fail, not each of
//! them is worth one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lines for one app in one second.
const LINES_MAX: u64 = 10;
/// For how many of them there is room in what is counted, in bits.
const COUNT_BITS: u32 = 24;

/// How many lines there were recently; the second above their number.
#[derive(Default, Debug)]
pub struct LogRate(AtomicU64);

impl LogRate {
    /// Whether there is room for another line now, and if so how many there was
    /// none for before.
    pub(crate) fn admit(&self, now: Duration) -> Option<u64> {
        let second = now.as_secs();
        let before = self.0.load(Ordering::Relaxed);
        if before >> COUNT_BITS == second {
            let count = self.0.fetch_add(1, Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
            return (count < LINES_MAX).then_some(0);
        }
        let first = second << COUNT_BITS | 1;
        let begun = (self.0).compare_exchange(before, first, Ordering::Relaxed, Ordering::Relaxed);
        let count = before & ((1 << COUNT_BITS) - 1);
        // A caller that lost began the same second, and is counted with the next.
        begun.ok().map(|_| count.saturating_sub(LINES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_few_lines_and_the_next_says_how_many_were_left_out() {
        let rate = LogRate::default();
        let at = |second: u64| Duration::from_secs(1_700_000_000 + second);
        let lines = |second, asked| {
            let admitted = (0..asked).map(|_| rate.admit(at(second)));
            admitted.collect::<Vec<_>>()
        };
        assert_eq!(lines(0, 10), [Some(0); 10]);
        assert_eq!(lines(0, 990), [None; 990]);
        assert_eq!(lines(1, 2), [Some(990), Some(0)]);
        assert_eq!(lines(7, 1), [Some(0)]);
    }
}
