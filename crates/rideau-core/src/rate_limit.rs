//! How often each of many keys may pass: at a rate, and this many at once.
//!
//! It is the generic cell rate algorithm: of a key only the instant is kept at which its
//! burst is whole again. A key whose burst is whole, and one that is not known, are the
//! same.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Instant;

/// Keys that are looked at in one step, to forget those whose burst is whole.
const FORGOTTEN_MAX: usize = 2;

/// How often a key may pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimitOptions {
    /// This many pass
    pub count: u32,
    /// in each of these.
    pub per: Duration,
    /// This many may pass at once.
    pub burst: u32,
    /// This many keys are remembered; then the stalest is forgotten.
    pub keys_max: usize,
}

/// How often each of many keys passed.
///
/// Invariants: each key stands once in the order of the looks at it, and there are no more
/// than `keys_max`.
#[derive(Debug)]
pub struct RateLimits<K> {
    /// Nanoseconds after which a key may pass once more.
    step: u64,
    /// A key may be this many nanoseconds ahead of its rate.
    ahead_max: u64,
    keys_max: usize,
    keys: BTreeMap<K, PassedKey>,
    /// By the number of the last look at it.
    order: BTreeMap<u64, K>,
    looks: u64,
}

#[derive(Clone, Copy, Debug)]
struct PassedKey {
    /// When its burst is whole again.
    whole: Instant,
    look: u64,
}

impl<K: Ord + Clone> RateLimits<K> {
    /// No key has passed. A `count`, `per`, `burst` or `keys_max` of zero counts as one, or as a
    /// nanosecond.
    pub fn new(options: RateLimitOptions) -> Self {
        let per = u64::try_from(options.per.as_nanos()).unwrap_or(u64::MAX);
        // Rounded up: never more than the rate.
        let step = per.div_ceil(u64::from(options.count.max(1))).max(1);
        Self {
            step,
            ahead_max: step.saturating_mul(u64::from(options.burst.max(1)) - 1),
            keys_max: options.keys_max.max(1),
            keys: BTreeMap::new(),
            order: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Let a key pass once more.
    ///
    /// # Errors
    ///
    /// If it may not: after which time it may, if it does not pass before.
    pub fn pass(&mut self, key: &K, now: Instant) -> Result<(), Duration> {
        self.forget(now);
        let known = self.keys.get(key).copied();
        let whole = known.map_or(now, |known| known.whole.max(now));
        let ahead = whole.nanos_since(now);
        let passed = match ahead.checked_sub(self.ahead_max) {
            Some(wait @ 1..) => Err(Duration::from_nanos(wait)),
            _ => Ok(()),
        };
        let whole = match passed {
            Ok(()) => whole.after(self.step),
            Err(_) => whole,
        };
        match known {
            Some(known) => drop(self.order.remove(&known.look)),
            None if self.keys.len() >= self.keys_max => self.forget_stalest(),
            None => (),
        }
        let look = self.looks;
        self.looks += 1;
        self.order.insert(look, key.clone());
        self.keys.insert(key.clone(), PassedKey { whole, look });
        self.check();
        passed
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// No key is remembered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Forget some keys whose burst is whole, the stalest first.
    fn forget(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_MAX {
            let stalest = self.order.values().next();
            let known = stalest.and_then(|key| self.keys.get(key));
            if known.is_none_or(|known| known.whole > now) {
                return;
            }
            self.forget_stalest();
        }
    }

    fn forget_stalest(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.keys.remove(&key);
        }
    }

    fn check(&self) {
        debug_assert_eq!(self.keys.len(), self.order.len());
        debug_assert!(self.keys.len() <= self.keys_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: RateLimitOptions = RateLimitOptions {
        count: 20,
        per: Duration::from_secs(1),
        burst: 40,
        keys_max: 3,
    };

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        let mut limits = RateLimits::new(OPTIONS);
        let passed: Vec<_> = (0..100).map(|_| limits.pass(&"a", at(0))).collect();
        assert!(passed[..40].iter().all(Result::is_ok));
        assert!(
            passed[40..]
                .iter()
                .all(|no| *no == Err(Duration::from_millis(50)))
        );
        assert!(limits.pass(&"a", at(49)).is_err());
        assert!(limits.pass(&"a", at(50)).is_ok());
        assert_eq!(limits.pass(&"a", at(50)), Err(Duration::from_millis(50)));
        assert!(limits.pass(&"b", at(50)).is_ok(), "others have their own");
    }

    #[test]
    fn a_burst_is_whole_again_after_a_pause() {
        let mut limits = RateLimits::new(OPTIONS);
        for start in [0, 2_000] {
            let passed = (0..50).filter(|_| limits.pass(&"a", at(start)).is_ok());
            assert_eq!(passed.count(), 40);
        }
        let passed = (0..50).filter(|_| limits.pass(&"a", at(3_000)).is_ok());
        assert_eq!(passed.count(), 20, "half a pause, half a burst");
    }

    #[test]
    fn without_a_burst_one_passes_at_a_time() {
        let options = RateLimitOptions {
            count: 3,
            per: Duration::from_nanos(10),
            burst: 1,
            ..OPTIONS
        };
        let mut limits = RateLimits::new(options);
        let passed = (0..10).map(|nano| limits.pass(&(), Instant::from_nanos(nano)));
        let passed: Vec<_> = passed.map(|passed| passed.is_ok()).collect();
        // Every 4 ns: 3 1/3 would be too often.
        let expected = [0, 4, 8].map(|at| at as usize);
        let at = passed.iter().enumerate().filter(|(_, passed)| **passed);
        assert_eq!(at.map(|(at, _)| at).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_stalest_key_is_forgotten_when_there_are_too_many() {
        let mut limits = RateLimits::new(RateLimitOptions {
            burst: 1,
            ..OPTIONS
        });
        for key in ["a", "b", "c"] {
            assert!(limits.pass(&key, at(0)).is_ok());
        }
        // One that is refused was looked at, too.
        assert!(limits.pass(&"a", at(1)).is_err());
        assert!(limits.pass(&"d", at(1)).is_ok());
        assert_eq!(limits.len(), 3);
        assert!(limits.pass(&"a", at(2)).is_err(), "it is still known");
        assert!(limits.pass(&"b", at(2)).is_ok(), "it was forgotten");
    }

    #[test]
    fn keys_whose_burst_is_whole_need_no_room() {
        let mut limits = RateLimits::new(RateLimitOptions {
            keys_max: 1_000,
            ..OPTIONS
        });
        for key in 0..500 {
            assert!(limits.pass(&key, at(0)).is_ok());
        }
        for key in 500..1_000 {
            assert!(limits.pass(&key, at(5_000)).is_ok());
        }
        assert_eq!(limits.len(), 500);
    }
}
