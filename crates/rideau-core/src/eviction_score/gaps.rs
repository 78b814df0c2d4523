//! The spans between asks, as a mixture of short and long ones.
//!
//! People come, ask several times in a row and go: spans within a visit and
//! between visits differ by orders of magnitude, and one rate fits neither.
//! What an app is worth when its last ask was some time ago follows from which
//! of the two it is by now likely to be.

/// Two exponential distributions, fitted as gaps come by.
#[derive(Debug)]
pub(super) struct Gaps {
    short: Kind,
    long: Kind,
}

/// How many gaps were of a kind, and how long they were together, both fading.
#[derive(Clone, Copy, Debug)]
struct Kind {
    count: f64,
    seconds: f64,
    /// The first by the second, for it is read more often than they change.
    rate: f64,
}

/// The weight of a gap one gap later.
const FADE: f64 = 0.98;

/// What is assumed of either kind before the first gap. It does not fade, so
/// that a kind that is rare is not forgotten.
const SHORT: Kind = Kind::one_of(5.0);
const LONG: Kind = Kind::one_of(600.0);

/// Far from the end of what a float can hold.
const EXPONENT_MAX: f64 = 500.0;

impl Gaps {
    pub(super) const PRIOR: Self = Self {
        short: SHORT,
        long: LONG,
    };

    /// Count a gap of this many seconds for so much, for either kind as far as
    /// it is likely to be of it.
    pub(super) fn learn(&mut self, gap: f64, weight: f64) {
        let short = self.short.count * self.short.density(gap);
        let long = self.long.count * self.long.density(gap);
        let likely = if short > 0.0 {
            short / (short + long)
        } else {
            0.0
        };
        let fade = 1.0 - weight * (1.0 - FADE);
        self.short.learn(gap, weight * likely, fade, SHORT);
        self.long.learn(gap, weight * (1.0 - likely), fade, LONG);
    }

    /// Chance in a second that a gap ends that has lasted `age` seconds.
    pub(super) fn hazard(&self, age: f64) -> f64 {
        let Self { short, long } = self;
        // How much of the short ones is left for what is left of the long.
        let exponent = age * (long.rate - short.rate);
        let left = short.count * exponent.min(EXPONENT_MAX).exp();
        // The present gap counts: it is long by now, or none of these.
        let long_rate = long.count / (long.seconds + age);
        (left * short.rate + long.count * long_rate) / (left + long.count)
    }
}

impl Kind {
    const fn one_of(seconds: f64) -> Self {
        Self {
            count: 1.0,
            seconds,
            rate: 1.0 / seconds,
        }
    }

    fn learn(&mut self, gap: f64, weight: f64, fade: f64, prior: Self) {
        self.count = prior.count + (self.count - prior.count) * fade + weight;
        self.seconds = prior.seconds + (self.seconds - prior.seconds) * fade + weight * gap;
        self.rate = self.count / self.seconds;
    }

    fn density(&self, gap: f64) -> f64 {
        self.rate * (-gap * self.rate).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn both_kinds_of_gaps_are_found() {
        let mut gaps = Gaps::PRIOR;
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            // Three of four are short.
            let mean = if rng.below(4) > 0 { 0.5 } else { 900.0 };
            gaps.learn(mean * exponential(&mut rng), 1.0);
        }
        let (short, long) = (1.0 / gaps.short.rate, 1.0 / gaps.long.rate);
        assert!((0.25..1.0).contains(&short), "{short}");
        assert!((450.0..1800.0).contains(&long), "{long}");
        let share = gaps.short.count / (gaps.short.count + gaps.long.count);
        assert!((0.6..0.9).contains(&share), "{share}");
    }

    #[test]
    fn the_hazard_falls_from_that_of_a_visit_to_that_between_visits() {
        let mut gaps = Gaps::PRIOR;
        for _ in 0..100 {
            for gap in [1.0, 1.0, 1.0, 400.0] {
                gaps.learn(gap, 1.0);
            }
        }
        let hazards = [0.0, 2.0, 5.0, 10.0, 60.0].map(|age| gaps.hazard(age));
        assert!(hazards.is_sorted_by(|one, next| one > next), "{hazards:?}");
        assert!((0.5..1.5).contains(&hazards[0]), "{hazards:?}");
        assert!((0.001..0.01).contains(&hazards[4]), "{hazards:?}");
    }

    #[test]
    fn an_app_that_is_late_is_less_and_less_likely_to_come() {
        let mut gaps = Gaps::PRIOR;
        for _ in 0..100 {
            gaps.learn(60.0, 1.0);
        }
        let hazards = [100.0, 1e3, 1e4, 1e5].map(|age| gaps.hazard(age));
        assert!(hazards.is_sorted_by(|one, next| one > next), "{hazards:?}");
        assert!(hazards[3] < hazards[0] / 10.0, "{hazards:?}");
    }

    #[test]
    fn gaps_that_count_little_change_little() {
        let mut gaps = Gaps::PRIOR;
        for _ in 0..50 {
            gaps.learn(100.0, 1.0);
        }
        let before = gaps.hazard(50.0);
        for _ in 0..20 {
            gaps.learn(0.01, 0.003);
        }
        let change = gaps.hazard(50.0) / before;
        assert!((0.9..1.1).contains(&change), "{change}");
    }

    #[test]
    fn no_gap_makes_a_hazard_that_is_no_number() {
        let mut gaps = Gaps::PRIOR;
        for gap in [0.0, 1e9, 0.0, 1e-9, 1e6] {
            for _ in 0..50_000 {
                gaps.learn(gap, 1.0);
                for age in [0.0, 1.0, 1e9] {
                    let hazard = gaps.hazard(age);
                    assert!(hazard.is_finite() && hazard > 0.0, "{hazard} after {gap}");
                }
            }
        }
    }

    fn exponential(rng: &mut Rng) -> f64 {
        let uniform = (rng.below(1 << 53) as f64 + 0.5) / 2_f64.powi(53);
        -uniform.ln()
    }
}
