//! The history of one app's asks.

use super::gaps::Gaps;
use super::rates::{Decay, Rates};
use crate::time::Instant;

/// The history of an app, whether or not it has a process.
#[derive(Debug)]
pub(super) struct History {
    pub(super) app: u32,
    /// Which shadows have the app's name, a bit for each.
    pub(super) shadows: u8,
    /// When it was last asked for.
    pub(super) last: Instant,
    /// How many seconds its start was last expected to take.
    pub(super) start_time: f64,
    pub(super) rates: Rates,
    pub(super) gaps: Gaps,
}

/// Numbers that all compared values share.
pub(super) struct Moment {
    pub(super) now: Instant,
    /// Since the landmark.
    pub(super) decay: Decay,
    pub(super) counts_only: bool,
}

/// Asks so close to each other are one visit: a page and what belongs to it.
const VISIT_GAP: f64 = 3.0;
/// No start is so short that its app is worth nothing.
const START_TIME_MIN: f64 = 1e-3;

impl History {
    /// An ask comes for an app of which nothing is known.
    pub(super) fn first(app: u32, start_time: f64, moment: &Moment) -> Self {
        let mut rates = Rates::ZERO;
        rates.count(1.0, &moment.decay);
        Self {
            app,
            shadows: 0,
            last: moment.now,
            start_time,
            rates,
            gaps: Gaps::PRIOR,
        }
    }

    /// An ask comes for it again.
    pub(super) fn asked(&mut self, start_time: f64, moment: &Moment) {
        let gap = self.age(moment);
        let weight = (gap / VISIT_GAP).min(1.0);
        self.gaps.learn(gap, weight);
        self.rates.count(weight, &moment.decay);
        self.last = moment.now;
        self.start_time = start_time;
    }

    /// Seconds since the last ask.
    pub(super) fn age(&self, moment: &Moment) -> f64 {
        moment.now.nanos_since(self.last) as f64 / 1e9
    }
}

impl Moment {
    /// The cost of a start that takes this many seconds.
    pub(super) const fn cost(&self, start_time: f64) -> f64 {
        if self.counts_only {
            1.0
        } else {
            start_time.max(START_TIME_MIN)
        }
    }
}
