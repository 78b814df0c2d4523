//! How often an app is asked for, looked at over four spans of time.
//!
//! Counts are kept relative to a landmark that all apps share. So the powers
//! that decay needs are taken once for each moment and not for each app.

use std::array;
use std::f64::consts::LN_2;
use std::time::Duration;

/// An ask counts half after this many seconds.
const HALF_LIVES: [f64; 4] = [5.0, 30.0, 300.0, 3600.0];
const SCALES: usize = HALF_LIVES.len();

/// Decayed counts of asks, as they would have been at the landmark.
#[derive(Debug)]
pub(super) struct Rates([f64; SCALES]);

/// The decay of a count after some time, for each half-life.
pub(super) struct Decay {
    left: [f64; SCALES],
    /// Asks a second for each that was counted.
    rates: [f64; SCALES],
}

impl Rates {
    pub(super) const ZERO: Self = Self([0.0; SCALES]);

    /// Count an ask for so much, so long after the landmark.
    pub(super) fn count(&mut self, weight: f64, decay: &Decay) {
        for (count, left) in self.0.iter_mut().zip(decay.left) {
            *count += weight / left;
        }
    }

    /// Asks a second by all half-lives together.
    pub(super) fn sum(&self, decay: &Decay) -> f64 {
        (0..SCALES).map(|at| self.rate(at, decay)).sum()
    }

    /// Asks a second by the longest half-life.
    pub(super) fn longest(&self, decay: &Decay) -> f64 {
        self.rate(SCALES - 1, decay)
    }

    /// Take a landmark so much later.
    pub(super) fn rebase(&mut self, decay: &Decay) {
        for (count, left) in self.0.iter_mut().zip(decay.left) {
            *count *= left;
        }
    }

    fn rate(&self, at: usize, decay: &Decay) -> f64 {
        self.0[at] * decay.rates[at]
    }
}

impl Decay {
    pub(super) fn over(span: Duration) -> Self {
        let seconds = span.as_secs_f64();
        let left = HALF_LIVES.map(|half_life| (-seconds / half_life).exp2());
        let rates = array::from_fn(|at| left[at] * (LN_2 / HALF_LIVES[at]));
        Self { left, rates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scale_counts_half_after_its_half_life() {
        for (at, half_life) in HALF_LIVES.into_iter().enumerate() {
            let rates = counted_at(0);
            let now = rates.rate(at, &decay(0.0));
            let later = rates.rate(at, &decay(half_life));
            assert!((later / now - 0.5).abs() < 1e-12, "{half_life} s");
        }
    }

    #[test]
    fn steady_asks_show_their_rate_at_every_scale() {
        let mut rates = Rates::ZERO;
        for second in 0..900 {
            rates.count(1.0, &decay(f64::from(second)));
        }
        for at in 0..3 {
            // As good as half-lives of the past permit.
            let rate = rates.rate(at, &decay(899.5));
            assert!((0.85..1.01).contains(&rate), "{rate} at scale {at}");
        }
    }

    #[test]
    fn a_new_landmark_changes_no_rate() {
        let mut rates = counted_at(40);
        let before = (rates.sum(&decay(100.0)), rates.longest(&decay(100.0)));
        rates.rebase(&decay(60.0));
        let after = (rates.sum(&decay(40.0)), rates.longest(&decay(40.0)));
        assert!((before.0 / after.0 - 1.0).abs() < 1e-12);
        assert!((before.1 / after.1 - 1.0).abs() < 1e-12);
    }

    fn counted_at(second: u32) -> Rates {
        let mut rates = Rates::ZERO;
        rates.count(1.0, &decay(f64::from(second)));
        rates
    }

    fn decay(seconds: f64) -> Decay {
        Decay::over(Duration::from_secs_f64(seconds))
    }
}
