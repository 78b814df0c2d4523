//! Limits leases within any span of time.
//!
//! There are `limit` slots for leases over `min`. A slot that a lease gives
//! back can be taken again an `interval` later, so that no more than `limit`
//! leases over `min` are granted within any interval. A new valve gives its
//! slots out only after one interval, so that a restart cannot double the rate.

use std::collections::VecDeque;
use std::time::Duration;

use crate::settings::{OptionError, Settings, check_not_zero};
use crate::time::Instant;

use super::bounds::{Bounds, check_bounds};

/// Limits leases within any span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How many leases over `min` are granted at most within any `interval`.
    pub limit: usize,
    /// How long a slot rests after its lease ended.
    pub interval: Duration,
    /// Granted whatever the rate.
    pub min: usize,
    /// Never exceeded.
    pub max: usize,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            limit: 100,
            interval: Duration::from_secs(1),
            min: 0,
            max: usize::MAX,
        }
    }
}

impl Rate {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            limit: settings.number("limit")?.unwrap_or(default.limit),
            interval: settings.span("interval")?.unwrap_or(default.interval),
            min: settings.number("min")?.unwrap_or(default.min),
            max: settings.number("max")?.unwrap_or(default.max),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_not_zero("interval", self.interval.is_zero())?;
        check_bounds(self.min, self.max)
    }
}

/// Remembers when each free slot was given back.
///
/// Invariant: a slot is free or in use, and none is free while more leases
/// than slots are in use, which a lower limit may cause.
#[derive(Clone, Debug)]
pub(super) struct Law {
    options: Rate,
    /// Earliest first, one run for all slots of an instant.
    free: VecDeque<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    since: Instant,
    slots: usize,
}

impl Law {
    pub(super) fn new(options: Rate, size: usize, now: Instant) -> Self {
        let mut law = Self {
            options,
            free: VecDeque::new(),
        };
        law.fit(size, now);
        law
    }

    pub(super) fn reconfigure(&mut self, options: Rate, size: usize, now: Instant) {
        self.options = options;
        self.fit(size, now);
    }

    pub(super) fn take(&mut self) -> Option<Instant> {
        let opening = self.opening()?;
        let run = self.free.front_mut()?;
        run.slots -= 1;
        if run.slots == 0 {
            self.free.pop_front();
        }
        Some(opening)
    }

    pub(super) fn renew(&mut self, now: Instant) -> Option<Instant> {
        let opening = self.take()?;
        self.give(1, now);
        Some(opening)
    }

    pub(super) fn end(&mut self, size: usize, now: Instant) {
        let used = self.used(size);
        if 0 < used && used <= self.options.limit {
            self.give(1, now);
        }
    }

    pub(super) fn opening(&self) -> Option<Instant> {
        let run = self.free.front()?;
        (run.since + self.options.interval).finite()
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            min: self.options.min,
            max: self.options.max,
        }
    }

    pub(super) fn check(&self, size: usize) {
        debug_assert_eq!(
            self.free.iter().map(|run| run.slots).sum::<usize>(),
            self.options.limit.saturating_sub(self.used(size)),
        );
    }

    /// Keep the earliest of the free slots that there may be, and add those
    /// that are missing as if they were given back now.
    fn fit(&mut self, size: usize, now: Instant) {
        let mut missing = self.options.limit.saturating_sub(self.used(size));
        self.free.retain_mut(|run| {
            run.slots = run.slots.min(missing);
            missing -= run.slots;
            run.slots > 0
        });
        self.give(missing, now);
    }

    fn give(&mut self, slots: usize, now: Instant) {
        match self.free.back_mut() {
            _ if slots == 0 => (),
            Some(run) if run.since == now => run.slots += slots,
            _ => self.free.push_back(Run { since: now, slots }),
        }
    }

    fn used(&self, size: usize) -> usize {
        size.saturating_sub(self.options.min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::valve::script::check;

    #[test]
    fn the_first_interval_grants_only_min() {
        check(
            "kind=rate limit=2 interval=100ms min=1 max=3",
            "
              0 wait             -> open
              5 ask              -> 0, closed until 100
             99 wait             -> closed until 100
            100 ask              -> 100, open
            110 ask              -> 100, closed
            120 release after 10 -> closed until 220
            130 release after 30 -> closed until 220
            140 release after 99 -> open
            150 ask              -> 140, closed until 220
            220 ask              -> 220, closed until 230
            230 ask              -> 230, closed
            ",
        );
    }

    #[test]
    fn a_renewal_takes_a_slot_and_gives_one_back() {
        check(
            "kind=rate limit=2 interval=100ms",
            "
            100 ask       -> 100, open
            105 renew     -> go 100, closed until 205
            110 renew     -> stop, closed until 205
            204 wait      -> closed until 205
            206 ask       -> 205, closed until 210
            215 renew     -> go 210, closed until 315
            ",
        );
    }

    #[test]
    fn a_slot_from_before_the_size_fell_counts_as_open_time() {
        check(
            "kind=rate limit=1 interval=100ms min=1",
            "
            100 ask              -> 0, open
            200 release after 99 -> open
            201 ask              -> 100, open
            202 renew            -> go 202, open
            ",
        );
    }

    #[test]
    fn other_options_shift_slots_and_keep_the_earliest() {
        check(
            "kind=rate limit=3 interval=100ms",
            "
            100 ask              -> 100, open
            110 ask              -> 100, open
            120 release after 20 -> open
            130 options kind=rate limit=2 interval=10ms -> open
            131 ask              -> 10, closed
            132 options kind=rate limit=4 interval=50ms -> closed until 182
            133 options kind=rate limit=1 interval=50ms -> closed
            134 release after 1  -> closed
            135 release after 1  -> closed until 185
            ",
        );
    }

    #[test]
    fn a_million_slots_are_one_run() {
        let options = Rate {
            limit: 1_000_000,
            ..Rate::default()
        };
        let mut law = Law::new(options, 0, Instant::START);
        assert_eq!(law.free.len(), 1);
        for size in 1..=1_000 {
            law.take().unwrap();
            law.check(size);
        }
        for size in (1..=1_000).rev() {
            law.end(size, Instant::from_nanos(7));
        }
        assert_eq!(law.free.len(), 2);
    }
}
