//! One lease for each lead below a target.
//!
//! The holders of leases are scarce when their lead is small: they are waited
//! for. Each such lead makes room for one more, or keeps one that wants to be
//! renewed; a lead that is not small takes the room back.

use crate::settings::{OptionError, Settings};
use crate::time::{Instant, Lead};

use super::bounds::{Bounds, check_bounds};

/// One lease for each lead below a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relative {
    /// A lead below this makes room; may be negative.
    pub target: Lead,
    /// Granted whatever the leads.
    pub min: usize,
    /// Never exceeded.
    pub max: usize,
}

impl Default for Relative {
    fn default() -> Self {
        Self {
            target: Lead::from_nanos(100_000_000),
            min: 0,
            max: usize::MAX,
        }
    }
}

impl Relative {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            target: settings.lead("target")?.unwrap_or(default.target),
            min: settings.number("min")?.unwrap_or(default.min),
            max: settings.number("max")?.unwrap_or(default.max),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_bounds(self.min, self.max)
    }
}

/// Remembers the last lead until it is used.
#[derive(Clone, Debug)]
pub(super) struct Law {
    options: Relative,
    last: Option<(Lead, Instant)>,
}

impl Law {
    pub(super) fn new(options: Relative) -> Self {
        Self {
            options,
            last: None,
        }
    }

    pub(super) fn reconfigure(&mut self, options: Relative) {
        self.options = options;
    }

    pub(super) fn update(&mut self, lead: Lead, now: Instant) {
        self.last = Some((lead, now));
    }

    pub(super) fn take(&mut self) -> Option<Instant> {
        let opening = self.opening()?;
        self.last = None;
        Some(opening)
    }

    pub(super) fn opening(&self) -> Option<Instant> {
        let (lead, updated) = self.last?;
        (lead < self.options.target).then_some(updated)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            min: self.options.min,
            max: self.options.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::valve::script::check;

    #[test]
    fn a_small_lead_makes_room_for_one() {
        check(
            "kind=relative target=100ms min=1 max=3",
            "
             0 ask              -> 0, closed
            20 update 150       -> closed
            25 update 100       -> closed
            30 update 99        -> open
            31 ask              -> 30, closed
            50 renew            -> stop, closed
            60 update -5        -> open
            65 ask              -> 60, closed
            70 renew            -> stop, closed
            75 renew            -> go 75, closed
            80 release after 20 -> open
            90 ask              -> 80, closed
            ",
        );
    }

    #[test]
    fn room_is_kept_below_min_and_useless_at_max() {
        check(
            "kind=relative target=-10ms min=1 max=2",
            "
             1 update -11       -> open
             2 ask              -> 0, open
             3 renew            -> go 3, open
             4 ask              -> 1, closed
             5 update -20       -> closed
             6 renew            -> go 5, closed
             7 update -20       -> closed
             8 update -10       -> closed
             9 release after 1  -> closed
            ",
        );
    }

    #[test]
    fn another_target_judges_the_lead_that_is_there() {
        check(
            "kind=relative target=10ms",
            "
            1 update 10                         -> closed
            2 options kind=relative target=11ms -> open
            3 options kind=relative target=10ms -> closed
            4 options kind=relative             -> open
            5 ask                               -> 1, closed
            ",
        );
    }
}
