//! Protects a number of asks, and sheds those beyond it by age.
//!
//! Arithmetic on waits only. An ask that named its wait is never shed after its
//! arrival. The others are shed, oldest first, while more than the protected
//! number wait and they waited over a bound: a few holds, or less once the
//! queue has been slow for long. Nothing is remembered over an empty queue.

use super::pace::{Capacity, Load, Pace};
use crate::time::Instant;

const MS: u64 = 1_000_000;

/// At least this many are protected: with fewer, one server with holds of
/// seconds idles between two asks.
const PROTECTED_MIN: u64 = 4;
/// And this many for each that can be served at once: they wait two holds.
const PROTECTED_PER: u64 = 2;
/// The bound while overload does not last, or three holds if they are longer.
const CALM: u64 = 400 * MS;
const CALM_HOLDS: u64 = 3;
/// The bound while overload lasts.
const TIGHT: u64 = 150 * MS;
/// A wait this long is slow.
const SLOW: u64 = 75 * MS;
/// Overload lasts if the queue has been slow for this long, or for twenty
/// holds if they are longer. A burst of a second passes.
const LASTING: u64 = 2_000 * MS;
const LASTING_HOLDS: u64 = 20;
/// An ask is hopeless if its expected wait is over its own wait by this factor.
const HOPE: u64 = 2;
/// Below this many the estimate might leave a server idle.
const HOPE_LEN: u32 = 8;

/// Since when the queue has been slow.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    /// Never, if it is not slow.
    slow: Instant,
    /// Since when there has been something to serve with. What was waited before does
    /// not count: a cold start is not overload. Never, while it starts.
    awake: Instant,
    /// When the queue was last looked at.
    looked: Instant,
}

impl Paced {
    pub(crate) const fn new() -> Self {
        Self {
            slow: Instant::NEVER,
            awake: Instant::START,
            looked: Instant::START,
        }
    }

    /// The queue is empty.
    #[inline]
    pub(crate) fn rest(&mut self, now: Instant) {
        self.slow = Instant::NEVER;
        self.awake = self.awake.min(now);
    }

    /// There is nothing to serve with yet.
    #[inline]
    pub(crate) fn sleep(&mut self) {
        self.slow = Instant::NEVER;
        self.awake = Instant::NEVER;
    }

    /// Since when an ask has waited, as far as the law goes.
    #[inline]
    pub(crate) fn since(&self, sent: Instant) -> Instant {
        sent.max(self.awake)
    }

    /// The oldest ask was sent so lately that no ask can be over its bound.
    #[inline(always)]
    pub(crate) fn is_fresh(&self, oldest: Instant, now: Instant) -> bool {
        // One that was asleep has to be looked at.
        self.awake != Instant::NEVER && self.since(oldest).after(SLOW) > now
    }

    /// The queue was looked at, and nothing in it is slow.
    #[inline(always)]
    pub(crate) fn glance(&mut self, now: Instant) {
        self.looked = now;
    }

    /// Look at the oldest ask that waits. Says how long an ask without a promise
    /// may wait beyond the protected number.
    #[inline]
    pub(crate) fn look(&mut self, oldest: Instant, hold: u64, now: Instant) -> u64 {
        self.awake = self.awake.min(now);
        if self.slow == Instant::NEVER && self.since(oldest).after(SLOW) <= now {
            self.slow = now;
        }
        self.looked = now;
        self.bound(hold)
    }

    /// An ask is served while the oldest was sent at `oldest`.
    #[inline]
    pub(crate) fn serve(&mut self, oldest: Instant, now: Instant) {
        if self.since(oldest).after(SLOW) > now {
            self.slow = Instant::NEVER;
        } else if self.slow == Instant::NEVER {
            self.slow = now;
        }
    }

    /// The bound as it was when the queue was last looked at.
    pub(crate) fn bound(&self, hold: u64) -> u64 {
        if self.lasting_from(hold) <= self.looked {
            TIGHT
        } else {
            calm_bound(hold)
        }
    }

    /// When overload will have lasted, if it goes on; never if it does not.
    pub(crate) fn lasting_from(&self, hold: u64) -> Instant {
        let lasting = LASTING.max(hold.saturating_mul(LASTING_HOLDS));
        self.slow.after(lasting)
    }

    /// When the queue has to be looked at next, if more than the protected
    /// number wait; `oldest` of all, `unpromised` of those without a promise.
    pub(crate) fn due(&self, oldest: Instant, unpromised: Instant, hold: u64) -> Instant {
        if self.awake == Instant::NEVER {
            // It can be served now, and the queue was not looked at since.
            return Instant::START;
        }
        if self.slow == Instant::NEVER {
            return self.since(oldest).after(SLOW);
        }
        let over = self.since(unpromised).after(self.bound(hold)).after(1);
        let lasting = self.lasting_from(hold);
        if lasting <= self.looked {
            over
        } else {
            over.min(lasting)
        }
    }

    /// An ask that would wait for `wait` behind `len` others has no chance: the
    /// queue has been slow for as long, and will take more than twice as long.
    pub(crate) fn is_hopeless(&self, len: u32, wait: u64, pace: &Pace, now: Instant) -> bool {
        if len < HOPE_LEN || self.slow == Instant::NEVER || self.slow.after(wait) > now {
            return false;
        }
        let gap = pace.gap().unwrap_or(0);
        let expected = gap
            .saturating_mul(len.into())
            .saturating_add(pace.since(now));
        expected > wait.saturating_mul(HOPE)
    }
}

/// The bound while overload does not last.
pub(crate) fn calm_bound(hold: u64) -> u64 {
    CALM.max(hold.saturating_mul(CALM_HOLDS))
}

/// How many asks may wait without one being shed, shared by this many flows.
#[inline]
pub(crate) fn protected(load: &Load, pace: &Pace, flows: u32) -> u32 {
    let hold = load.hold_nanos();
    let number = match (load.capacity, pace.gap()) {
        (Capacity::Units(units), _) => PROTECTED_PER * u64::from(units),
        (Capacity::Unknown, Some(gap)) if hold > 0 => {
            hold.saturating_mul(PROTECTED_PER) / gap.max(1)
        }
        (Capacity::Unknown | Capacity::Starting, _) => 0,
    };
    let number = number.max(PROTECTED_MIN);
    // Most queues are not fair, and a division costs as much as the rest.
    let each = if flows <= 1 {
        number
    } else {
        (number / u64::from(flows)).max(1)
    };
    u32::try_from(each).unwrap_or(u32::MAX)
}
