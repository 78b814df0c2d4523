//! The chance that an app is asked for soon, estimated in several ways.

use super::history::{History, Moment};

/// How to estimate the chance in a second that an app is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Estimate {
    /// As often as it was recently, over seconds, minutes and an hour together.
    Rates,
    /// As spans between its asks usually end.
    Gaps,
    /// The less the longer it was not.
    Recency,
    /// As often as it was in the last hour.
    Hour,
}

/// An app that was asked for this very moment is as one asked for then.
const AGE_MIN: f64 = 1e-6;

impl Estimate {
    /// All, the one first that is used as long as nothing is known.
    pub(super) const ALL: [Self; 4] = [Self::Rates, Self::Gaps, Self::Recency, Self::Hour];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rates => "rates",
            Self::Gaps => "gaps",
            Self::Recency => "recency",
            Self::Hour => "hour",
        }
    }

    pub(super) fn hazard(self, history: &History, moment: &Moment) -> f64 {
        match self {
            Self::Rates => history.rates.sum(&moment.decay),
            Self::Gaps => history.gaps.hazard(history.age(moment)),
            Self::Recency => 1.0 / history.age(moment).max(AGE_MIN),
            Self::Hour => history.rates.longest(&moment.decay),
        }
    }

    /// The value of keeping a process of the app.
    pub(super) fn value(self, history: &History, moment: &Moment) -> f64 {
        moment.cost(history.start_time) * self.hazard(history, moment)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rates::Decay;
    use super::*;
    use crate::time::Instant;

    #[test]
    fn by_recency_twice_the_age_is_half_the_chance() {
        let [at_4, at_8] = [4, 8].map(|second| hazard(Estimate::Recency, &[0], second));
        assert_eq!((at_4, at_8), (0.25, 0.125));
        assert!(hazard(Estimate::Recency, &[3], 3).is_finite());
    }

    #[test]
    fn by_the_hour_many_asks_a_while_ago_beat_one_just_now() {
        let (often, once) = ([0, 60, 120, 180], [900]);
        let more = |estimate| hazard(estimate, &often, 901) > hazard(estimate, &once, 901);
        assert!(more(Estimate::Hour));
        assert!(!more(Estimate::Rates));
        assert!(!more(Estimate::Recency));
        assert!(!more(Estimate::Gaps));
    }

    #[test]
    fn by_rates_and_gaps_a_regular_beats_a_stranger_of_the_same_age() {
        let regular = [0, 20, 40, 60, 80, 100];
        for estimate in [Estimate::Rates, Estimate::Gaps, Estimate::Hour] {
            let (known, unknown) = (
                hazard(estimate, &regular, 120),
                hazard(estimate, &[100], 120),
            );
            assert!(known > unknown, "{estimate:?} {known} {unknown}");
        }
    }

    /// The hazard of an app that was asked for in these seconds.
    fn hazard(estimate: Estimate, asked: &[u64], second: u64) -> f64 {
        let mut history = History::first(1, 1.0, &moment(asked[0]));
        for second in &asked[1..] {
            history.asked(1.0, &moment(*second));
        }
        estimate.hazard(&history, &moment(second))
    }

    fn moment(second: u64) -> Moment {
        Moment {
            now: Instant::START + Duration::from_secs(second),
            decay: Decay::over(Duration::from_secs(second)),
            counts_only: true,
        }
    }
}
