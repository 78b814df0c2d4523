//! Keeps the system's coarse clock in step with the processor's counter.
//!
//! The system corrects its clock and the counter runs free: they part by some
//! 30 µs every second, which is seconds in a day. So the two are compared
//! again in each segment of about a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far the counter is ahead of the system's clock, as of a segment:
/// `[segment: 24][drift: 40]`, the drift in units of 1024 ns.
///
/// A segment has one drift, that of who came first, so that a reading follows
/// from the coarse clock alone and never goes back.
#[derive(Debug)]
pub(super) struct Coarse(AtomicU64);

/// A segment has `1 << 30` ns.
const SEGMENT: u32 = 30;
const SEGMENTS: u64 = (1 << 24) - 1;
const UNIT: u32 = 10;
const DRIFT: u32 = 40;

/// The most that the two may part in a segment, in units: 488 in a million, and
/// less than a tick of any coarse clock.
const STEP_MAX: i64 = 512;

impl Coarse {
    /// As of the first segment, when both clocks show 0.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(pack(0, -STEP_MAX)))
    }

    /// What the counter showed at the last tick of the coarse clock, or up to a
    /// millisecond less. `coarse` reads the coarse clock, `both` the counter and
    /// then the system's precise clock; all count from the same start.
    #[inline]
    pub(super) fn recent(&self, coarse: impl Fn() -> u64, both: impl Fn() -> (u64, u64)) -> u64 {
        loop {
            // Before the clock, which can then not be in an older segment.
            let word = self.0.load(Ordering::Acquire);
            let ticked = coarse();
            if word >> DRIFT == segment(ticked) {
                return ticked.saturating_add_signed(drift(word) << UNIT);
            }
            self.compare(word, segment(ticked), both());
        }
    }

    /// Begin a segment, unless somebody else just did.
    #[cold]
    fn compare(&self, before: u64, segment: u64, (counter, system): (u64, u64)) {
        let elapsed = segment.wrapping_sub(before >> DRIFT) & SEGMENTS;
        // Who was interrupted between the two readings takes the counter for
        // slower than it can be.
        let slowest = drift(before) - STEP_MAX * elapsed.cast_signed();
        // The counter may fall back until the segment is over.
        let ahead = (counter.wrapping_sub(system).cast_signed() >> UNIT) - STEP_MAX;
        let word = pack(segment, ahead.max(slowest));
        // Whoever was faster compared as well.
        let _ = self
            .0
            .compare_exchange(before, word, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn pack(segment: u64, drift: i64) -> u64 {
    segment << DRIFT | drift.cast_unsigned() & ((1 << DRIFT) - 1)
}

#[inline]
fn segment(ticked: u64) -> u64 {
    (ticked >> SEGMENT) & SEGMENTS
}

#[inline]
fn drift(word: u64) -> i64 {
    let above = u64::BITS - DRIFT;
    (word << above).cast_signed() >> above
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MILLISECOND;
    const TICK: u64 = 4 * MILLISECOND;

    /// Read the coarse clock at these times by a system from whose clock the
    /// counter parts by so many nanoseconds in each millisecond.
    fn follow(parts: i64, times: impl Iterator<Item = u64>) {
        let coarse = Coarse::new();
        let mut last = 0;
        for system in times {
            let counter = system.saturating_add_signed(parts * (system / MILLISECOND) as i64);
            let recent = coarse.recent(|| system / TICK * TICK, || (counter, system));
            assert!(recent <= counter, "ahead by {}", recent - counter);
            let behind = counter - recent;
            assert!(
                behind < TICK + 2 * MILLISECOND,
                "behind by {behind} at {system}"
            );
            assert!(recent >= last, "back by {} at {system}", last - recent);
            last = recent;
        }
    }

    #[test]
    fn a_recent_time_is_never_ahead_and_little_behind_however_fast_the_counter_runs() {
        for parts in [-400, -30, 0, 30, 400] {
            follow(parts, (0..10_000).map(|step| step * MILLISECOND));
        }
    }

    #[test]
    fn clocks_that_nobody_read_for_long_are_in_step_at_once() {
        for parts in [-400, 30, 400] {
            let days = (0..1000).map(|day| day * 86_400 * SECOND);
            follow(parts, days.flat_map(|day| [day, day + TICK, day + SECOND]));
        }
    }

    #[test]
    fn who_is_interrupted_between_two_clocks_sets_nobody_far_back() {
        let coarse = Coarse::new();
        let late = SECOND + 80 * MILLISECOND;
        let before = coarse.recent(|| SECOND, || (SECOND, SECOND));
        let after = coarse.recent(|| late, || (late, late + 50 * MILLISECOND));
        assert!(after > before);
        assert!(late - after < 2 * MILLISECOND);
    }
}
