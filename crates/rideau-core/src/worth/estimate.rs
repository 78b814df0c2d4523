//! The chance that an app is asked for soon, estimated in several ways.

use super::history::{History, Moment};

/// How to estimate the chance in a second that an app is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Estimate {
    /// As often as it was of late, over seconds, minutes and an hour together.
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

    /// What it is worth to keep a process of the app.
    pub(super) fn value(self, history: &History, moment: &Moment) -> f64 {
        moment.cost(history.start_time) * self.hazard(history, moment)
    }
}
