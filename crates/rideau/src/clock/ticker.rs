//! A reading of the clock that costs as little as a variable.
//!
//! One thread reads the clock every few milliseconds for the whole process, as long
//! as callers look. When none did for a while it sleeps, and a caller that looks
//! then reads the clock itself and wakes the thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// The fields that all threads read, side by side.
struct Ticker {
    /// The last reading of the clock, in nanoseconds; 0 while the thread sleeps.
    tick: AtomicU64,
    /// A caller looked since the thread last wondered.
    used: AtomicBool,
}

static TICKER: Ticker = Ticker {
    tick: AtomicU64::new(0),
    used: AtomicBool::new(false),
};
static THREAD: OnceLock<Thread> = OnceLock::new();
/// From where ticks are counted, on the processor's own counter.
static EPOCH: OnceLock<u64> = OnceLock::new();

/// How old a reading is, if the system wakes the thread in time.
const PERIOD: Duration = Duration::from_millis(2);
/// The thread sleeps when no caller looked during this many periods.
const UNUSED_MAX: u32 = 64;

/// From where ticks are counted: now, if that was not yet said.
pub(super) fn epoch(clock: &quanta::Clock) -> u64 {
    *EPOCH.get_or_init(|| clock.raw())
}

/// What the clock showed some milliseconds ago, in nanoseconds from the epoch;
/// none if that is not known yet.
#[inline]
pub(super) fn recent() -> Option<u64> {
    let tick = TICKER.tick.load(Ordering::Relaxed);
    if tick == 0 {
        wake();
        return None;
    }
    // Written seldom, so that reading it costs nothing.
    if !TICKER.used.load(Ordering::Relaxed) {
        TICKER.used.store(true, Ordering::Relaxed);
    }
    Some(tick)
}

#[cold]
fn wake() {
    TICKER.used.store(true, Ordering::Relaxed);
    let thread = THREAD.get_or_init(|| {
        let started = thread::Builder::new()
            .name("rideau-clock".into())
            .spawn(tick);
        started
            .expect("a process can start one more thread")
            .thread()
            .clone()
    });
    thread.unpark();
}

fn tick() {
    let clock = quanta::Clock::new();
    let epoch = epoch(&clock);
    loop {
        for _ in 0..UNUSED_MAX {
            let tick = clock.delta_as_nanos(epoch, clock.raw());
            TICKER.tick.store(tick.max(1), Ordering::Relaxed);
            thread::sleep(PERIOD);
        }
        if !TICKER.used.swap(false, Ordering::Relaxed) {
            TICKER.tick.store(0, Ordering::Relaxed);
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Instant;

    #[test]
    fn a_recent_reading_follows_the_clock_and_comes_back_after_a_rest() {
        let clock = quanta::Clock::new();
        let limit = Instant::now() + Duration::from_secs(20);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            assert!(Instant::now() < limit, "it stands still");
            if let Some(tick) = recent()
                && seen.last() != Some(&tick)
            {
                let now = clock.delta_as_nanos(epoch(&clock), clock.raw());
                assert!(tick <= now, "it is never ahead");
                assert!(seen.last().is_none_or(|last| *last < tick), "nor goes back");
                seen.push(tick);
            }
        }
        // No caller looks for a while.
        while TICKER.tick.load(Ordering::Relaxed) != 0 {
            assert!(Instant::now() < limit, "it never rests");
            thread::sleep(PERIOD);
        }
        while recent().is_none() {
            assert!(Instant::now() < limit, "it does not come back");
            thread::sleep(PERIOD);
        }
    }
}
