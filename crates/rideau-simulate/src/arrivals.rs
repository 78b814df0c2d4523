//! When requests come.

use std::sync::Arc;

use crate::chance::Chance;

/// When requests come. A load of two means twice as many in the same time.
#[derive(Clone, PartialEq, Debug)]
pub enum Arrivals {
    /// One after each of the same spans.
    Constant {
        /// How many come in a second.
        per_s: f64,
    },
    /// By chance, at a rate that stays the same.
    Poisson {
        /// How many come in a second, on average.
        per_s: f64,
    },
    /// By chance, at a rate that changes by steps.
    Curve {
        /// The rates, one after the other.
        steps: Arc<[RateStep]>,
        /// After the last step it begins again with the first; otherwise no more come.
        repeats: bool,
    },
    /// At these nanoseconds, in order, and then no more.
    Recorded(Arc<[u64]>),
}

/// A rate for a while.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateStep {
    /// For how many nanoseconds.
    pub nanos: u64,
    /// How many come in a second, on average.
    pub per_s: f64,
}

/// Steps of a day: one every five minutes if the day has 24 hours.
const DAY_STEPS: u32 = 288;

const SECOND: f64 = 1e9;

impl Arrivals {
    /// `peak` times the mean rate for the span `on`, and what is left of the mean for the span
    /// `off`. None if less than nothing would be left.
    pub fn bursts(per_s: f64, peak: f64, on: u64, off: u64) -> Option<Self> {
        let (on_span, off_span) = (on as f64, off as f64);
        let left = (on_span + off_span - peak * on_span) / off_span;
        // What is a little below zero is so for want of digits.
        if on == 0 || off == 0 || left < -1e-9 {
            return None;
        }
        let step = |nanos, times: f64| RateStep {
            nanos,
            per_s: per_s * times.max(0.0),
        };
        Some(Self::Curve {
            steps: Arc::new([step(on, peak), step(off, left)]),
            repeats: true,
        })
    }

    /// A wave of one day around the mean: `swing` of one reaches from nothing at night to twice
    /// the mean at noon. It begins at midnight.
    pub fn daily(per_s: f64, swing: f64, day: u64) -> Self {
        let step = |at: u32| {
            let part = (f64::from(at) + 0.5) / f64::from(DAY_STEPS);
            RateStep {
                nanos: (day / u64::from(DAY_STEPS)).max(1),
                per_s: per_s * (1.0 - swing * (std::f64::consts::TAU * part).cos()),
            }
        };
        Self::Curve {
            steps: (0..DAY_STEPS).map(step).collect(),
            repeats: true,
        }
    }

    /// How many come in a second on average, at a load of one; none of a record that has no
    /// length.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::Constant { per_s } | Self::Poisson { per_s } => Some(*per_s),
            Self::Curve { steps, .. } => {
                let span: f64 = steps.iter().map(|step| step.nanos as f64).sum();
                let come = steps.iter().map(|step| step.nanos as f64 * step.per_s);
                (span > 0.0).then(|| come.sum::<f64>() / span)
            }
            Self::Recorded(at) => {
                let (first, last) = (at.first()?, at.last()?);
                let span = (last - first) as f64 / SECOND;
                (span > 0.0).then(|| (at.len() - 1) as f64 / span)
            }
        }
    }

    /// How long it takes until no more come, at this load; none if they come for ever.
    pub fn span(&self, load: f64) -> Option<u64> {
        match self {
            Self::Constant { .. } | Self::Poisson { .. } | Self::Curve { repeats: true, .. } => {
                None
            }
            Self::Curve { steps, .. } => Some(steps.iter().map(|step| step.nanos).sum()),
            Self::Recorded(at) => Some((at.last().copied().unwrap_or(0) as f64 / load) as u64),
        }
    }
}

/// The instants of arrivals, one after the other.
#[derive(Debug)]
pub(crate) struct ArrivalTimes {
    arrivals: Arrivals,
    load: f64,
    chance: Chance,
    /// In nanoseconds.
    at: f64,
    /// How many have come.
    came: usize,
    /// The step of a curve, and when it ends.
    step: usize,
    step_until: f64,
}

impl ArrivalTimes {
    pub(crate) fn new(arrivals: Arrivals, load: f64, seed: u64) -> Self {
        let step_until = match &arrivals {
            Arrivals::Curve { steps, .. } => steps.first().map_or(0.0, |step| step.nanos as f64),
            _ => 0.0,
        };
        Self {
            arrivals,
            load,
            chance: Chance::new(seed),
            at: 0.0,
            came: 0,
            step: 0,
            step_until,
        }
    }

    fn in_curve(&mut self) -> Option<u64> {
        let Arrivals::Curve { steps, repeats } = &self.arrivals else {
            return None;
        };
        // A whole round without any is one of many.
        let mut empty = 0;
        loop {
            let step = steps.get(self.step)?;
            let rate = step.per_s * self.load / SECOND;
            let next = self.at + self.chance.exponential() / rate;
            if next <= self.step_until {
                self.at = next;
                return Some(next as u64);
            }
            // What comes next does not depend on what has come: the draw is made anew.
            empty = if rate > 0.0 { 0 } else { empty + 1 };
            self.at = self.step_until;
            self.step += 1;
            if self.step == steps.len() && *repeats {
                self.step = 0;
            }
            if empty > steps.len() {
                return None;
            }
            self.step_until += steps.get(self.step)?.nanos as f64;
        }
    }
}

impl Iterator for ArrivalTimes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = match &self.arrivals {
            Arrivals::Constant { per_s } => {
                let gap = SECOND / (per_s * self.load);
                Some((self.came as f64 * gap).round() as u64)
            }
            Arrivals::Poisson { per_s } => {
                self.at += self.chance.exponential() * SECOND / (per_s * self.load);
                Some(self.at as u64)
            }
            Arrivals::Curve { .. } => self.in_curve(),
            Arrivals::Recorded(at) => at.get(self.came).map(|at| (*at as f64 / self.load) as u64),
        };
        self.came += usize::from(at.is_some());
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn count(arrivals: &Arrivals, load: f64, until: u64) -> usize {
        let times = ArrivalTimes::new(arrivals.clone(), load, 7);
        times.take_while(|at| *at < until).count()
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let mut times = ArrivalTimes::new(Arrivals::Constant { per_s: 200.0 }, 1.0, 1);
        assert_eq!(times.next(), Some(0));
        assert_eq!(times.nth(3_999), Some(4_000 * 5_000_000));
    }

    #[test]
    fn the_mean_rate_is_the_one_that_was_named() {
        let bursts = Arrivals::bursts(100.0, 3.0, SECOND, 3 * SECOND).unwrap();
        let daily = Arrivals::daily(100.0, 0.8, 100 * SECOND);
        for arrivals in [Arrivals::Poisson { per_s: 100.0 }, bursts, daily] {
            assert!((arrivals.per_s().unwrap() - 100.0).abs() < 1e-6);
            for load in [0.5, 2.0] {
                let came = count(&arrivals, load, 1000 * SECOND) as f64;
                assert!((came / (100_000.0 * load) - 1.0).abs() < 0.03, "{came}");
            }
        }
    }

    #[test]
    fn bursts_come_at_their_rate_and_leave_the_rest() {
        let bursts = Arrivals::bursts(100.0, 4.0, SECOND, 3 * SECOND).unwrap();
        let times = ArrivalTimes::new(bursts, 1.0, 3);
        let mut times = times.take_while(|at| *at < 400 * SECOND);
        assert!(
            times.all(|at| at % (4 * SECOND) <= SECOND),
            "nothing is left"
        );
        assert_eq!(Arrivals::bursts(100.0, 5.0, SECOND, 3 * SECOND), None);
    }

    #[test]
    fn records_and_curves_end() {
        let recorded = Arrivals::Recorded(Arc::new([0, 10, 10, 30]));
        let times = ArrivalTimes::new(recorded.clone(), 2.0, 1);
        assert_eq!(times.collect::<Vec<_>>(), [0, 5, 5, 15]);
        assert_eq!(recorded.span(2.0), Some(15));
        let step = |per_s| RateStep {
            nanos: SECOND,
            per_s,
        };
        let curve = |repeats, rates: &[f64]| Arrivals::Curve {
            steps: rates.iter().map(|rate| step(*rate)).collect(),
            repeats,
        };
        let once = ArrivalTimes::new(curve(false, &[50.0, 0.0, 50.0, 0.0]), 1.0, 1);
        let came = once.count();
        assert!((70..130).contains(&came), "{came}");
        assert_eq!(count(&curve(true, &[0.0, 0.0]), 1.0, u64::MAX), 0);
        assert_eq!(count(&curve(true, &[]), 1.0, u64::MAX), 0);
    }
}
