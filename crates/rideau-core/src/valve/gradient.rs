//! Limits leases to the number that do not make each other slower.
//!
//! The limit follows how long leases are held, after Netflix's second gradient
//! limit. Each lease that ended well is measured: if the average of the last
//! few is over that of many by more than the tolerance, the limit falls in
//! proportion, by half at most; otherwise it grows by its square root. A fifth
//! of each change is made at once, so that one odd lease does little. A limit
//! of which less than half is used does not grow: nothing shows that more would
//! do. A lease that went wrong is not measured: to fail fast is not to be fast.

use std::time::Duration;

use crate::settings::{OptionError, Rule, Settings, check_not_zero};
use crate::time::nanos;

use super::bounds::{Bounds, check_bounds};

/// How many leases the short average spans.
const SHORT: f64 = 10.0;
/// How many leases the long average spans.
const LONG: f64 = 600.0;
/// The share of a change that is made at once.
const SMOOTHING: f64 = 0.2;

/// Limits leases to the number that do not make each other slower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gradient {
    /// The limit never falls below this.
    pub min: usize,
    /// The limit never grows over this.
    pub max: usize,
    /// The limit before anything is known.
    pub initial: usize,
    /// By how many percent leases may take longer before the limit falls.
    pub tolerance: u32,
}

impl Default for Gradient {
    fn default() -> Self {
        Self {
            min: 20,
            max: 200,
            initial: 20,
            tolerance: 50,
        }
    }
}

impl Gradient {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            min: settings.number("min")?.unwrap_or(default.min),
            max: settings.number("max")?.unwrap_or(default.max),
            initial: settings.number("initial")?.unwrap_or(default.initial),
            tolerance: settings.number("tolerance")?.unwrap_or(default.tolerance),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_not_zero("min", self.min == 0)?;
        check_bounds(self.min, self.max)?;
        if !(self.min..=self.max).contains(&self.initial) {
            let (least, most) = (self.min as u64, self.max as u64);
            return Err(OptionError::new("initial", Rule::Outside { least, most }));
        }
        Ok(())
    }
}

/// Learns the limit.
#[derive(Clone, Debug)]
pub(super) struct Law {
    options: Gradient,
    limit: f64,
    short: Average,
    long: Average,
}

impl Law {
    pub(super) fn new(options: Gradient) -> Self {
        Self {
            options,
            limit: options.initial as f64,
            short: Average::new(SHORT),
            long: Average::new(LONG),
        }
    }

    pub(super) fn reconfigure(&mut self, options: Gradient) {
        self.options = options;
        self.limit_to(self.limit);
    }

    /// One of `size` leases ended.
    pub(super) fn learn(&mut self, held: Duration, ok: bool, size: usize) {
        if !ok {
            return;
        }
        let held = nanos(held).max(1) as f64;
        self.short.add(held);
        self.long.add(held);
        if self.long.mean > 2.0 * self.short.mean {
            // Load is gone: forget slow times sooner than by averaging.
            self.long.mean *= 0.9;
        }
        let tolerance = 1.0 + f64::from(self.options.tolerance) / 100.0;
        let gradient = (tolerance * self.long.mean / self.short.mean).clamp(0.5, 1.0);
        let wanted = gradient * self.limit + self.limit.sqrt();
        let next = (1.0 - SMOOTHING) * self.limit + SMOOTHING * wanted;
        if next < self.limit || size as f64 >= self.limit / 2.0 {
            self.limit_to(next);
        }
    }

    /// The limit is both bounds: below it there is nothing to decide.
    pub(super) fn bounds(&self) -> Bounds {
        let limit = self.limit as usize;
        Bounds {
            min: limit,
            max: limit,
        }
    }

    fn limit_to(&mut self, limit: f64) {
        self.limit = limit.clamp(self.options.min as f64, self.options.max as f64);
    }
}

/// A mean in which older samples fade; plain until it has seen enough.
#[derive(Clone, Debug)]
struct Average {
    span: f64,
    count: f64,
    mean: f64,
}

impl Average {
    fn new(span: f64) -> Self {
        Self {
            span,
            count: 0.0,
            mean: 0.0,
        }
    }

    fn add(&mut self, sample: f64) {
        self.count += 1.0;
        let weight = (2.0 / (self.span + 1.0)).max(1.0 / self.count);
        self.mean += weight * (sample - self.mean);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::valve::script::check;

    #[test]
    fn the_limit_grows_by_its_root_while_it_is_used() {
        check(
            "kind=gradient min=1 max=5 initial=4",
            "
            0 ask              -> 0, open
            0 ask              -> 0, open
            0 ask              -> 0, open
            0 ask              -> 0, closed
            5 renew            -> go 5, closed
            9 release after 9  -> open
            9 stats            -> from 4 to 4, open
            9 ask              -> 9, closed
           10 release after 10 -> open
           11 release after 11 -> open
           11 stats            -> from 5 to 5, open
           12 fail after 12    -> open
           13 release after 4  -> open
           13 stats            -> from 5 to 5, open
            ",
        );
    }

    #[test]
    fn the_limit_falls_when_leases_take_longer_than_tolerated() {
        let options = Gradient {
            initial: 100,
            ..Gradient::default()
        };
        let mut law = Law::new(options);
        learn(&mut law, 1_000, 10);
        assert_eq!(law.bounds().max, 100, "unused, so it does not grow");
        learn(&mut law, 40, 14);
        let tolerated = law.bounds().max;
        assert_eq!(tolerated, 100);
        learn(&mut law, 40, 60);
        assert_eq!(law.bounds().max, options.min);
    }

    #[test]
    fn the_limit_falls_by_a_fifth_of_half_at_most() {
        let options = Gradient {
            min: 1,
            initial: 100,
            ..Gradient::default()
        };
        let mut law = Law::new(options);
        learn(&mut law, 100, 1);
        learn(&mut law, 1, 1_000);
        assert_eq!(law.bounds().max, 92, "0.9 * 100 + 0.2 * 10");
        learn(&mut law, 1, 1_000);
        assert_eq!(law.bounds().max, 84, "0.9 * 92 + 0.2 * 9.59");
    }

    #[test]
    fn slow_times_are_soon_forgotten() {
        let options = Gradient {
            initial: 100,
            ..Gradient::default()
        };
        let mut law = Law::new(options);
        learn(&mut law, 100, 1_000);
        learn(&mut law, 40, 1);
        assert_eq!(law.bounds().max, 100);
        learn(&mut law, 10, 500);
        assert!(law.bounds().max < 100, "500 ms are slow again");
    }

    #[test]
    fn other_bounds_take_the_limit_along() {
        check(
            "kind=gradient min=1 max=9 initial=9",
            "
            1 options kind=gradient min=1 max=5 initial=1 -> open
            2 stats -> from 5 to 5, open
            3 options kind=gradient min=7 max=9 initial=9 -> open
            4 stats -> from 7 to 7, open
            ",
        );
    }

    fn learn(law: &mut Law, times: u32, millis: u64) {
        let held = Duration::from_millis(millis);
        for _ in 0..times {
            law.learn(held, true, 1);
        }
    }
}
