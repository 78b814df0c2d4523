//! The spans between asks, as a mixture of short and long ones.
//!
//! People come, ask several times in a row and go: spans within a visit and
//! between visits differ by orders of magnitude, and one rate fits neither.

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
}

/// What a gap counts for one gap later.
const FADE: f64 = 0.98;

/// What is assumed of either kind before the first gap. It does not fade, so
/// that a kind that is rare is not forgotten.
const SHORT: Kind = Kind {
    count: 1.0,
    seconds: 5.0,
};
const LONG: Kind = Kind {
    count: 1.0,
    seconds: 600.0,
};

impl Gaps {
    pub(super) const PRIOR: Self = Self {
        short: SHORT,
        long: LONG,
    };

    /// Count a gap of so many seconds for either kind, as likely as it is of it.
    pub(super) fn learn(&mut self, gap: f64) {
        let short = self.short.count * self.short.density(gap);
        let long = self.long.count * self.long.density(gap);
        let likely = if short + long > 0.0 {
            short / (short + long)
        } else {
            0.0
        };
        self.short.learn(likely, gap, SHORT);
        self.long.learn(1.0 - likely, gap, LONG);
    }

    /// Chance in a second that a gap ends that has lasted `age` seconds.
    pub(super) fn hazard(&self, age: f64) -> f64 {
        let short = self.short.count * self.short.survival(age);
        let long = self.long.count * self.long.survival(age);
        if short + long > 0.0 {
            (short * self.short.rate() + long * self.long.rate()) / (short + long)
        } else {
            self.long.rate()
        }
    }
}

impl Kind {
    fn learn(&mut self, likely: f64, gap: f64, prior: Self) {
        self.count = prior.count + (self.count - prior.count) * FADE + likely;
        self.seconds = prior.seconds + (self.seconds - prior.seconds) * FADE + likely * gap;
    }

    fn rate(&self) -> f64 {
        self.count / self.seconds
    }

    fn survival(&self, age: f64) -> f64 {
        (-age * self.rate()).exp()
    }

    fn density(&self, gap: f64) -> f64 {
        self.rate() * self.survival(gap)
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
            gaps.learn(mean * exponential(&mut rng));
        }
        let (short, long) = (1.0 / gaps.short.rate(), 1.0 / gaps.long.rate());
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
                gaps.learn(gap);
            }
        }
        let hazards = [0.0, 2.0, 5.0, 10.0, 60.0].map(|age| gaps.hazard(age));
        assert!(hazards.is_sorted_by(|one, next| one > next), "{hazards:?}");
        assert!((0.5..1.5).contains(&hazards[0]), "{hazards:?}");
        assert!((0.001..0.01).contains(&hazards[4]), "{hazards:?}");
    }

    #[test]
    fn no_gap_makes_a_hazard_that_is_no_number() {
        let mut gaps = Gaps::PRIOR;
        for gap in [0.0, 1e9, 0.0, 1e-9, 1e6] {
            for _ in 0..50_000 {
                gaps.learn(gap);
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
