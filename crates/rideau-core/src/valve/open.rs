//! A fixed number of leases.
//!
//! There is nothing to decide: below `max` the valve is open, from there on it
//! is closed, and leads do not matter.

use crate::settings::{OptionError, Settings};

use super::bounds::Bounds;

/// A fixed number of leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// Never exceeded.
    pub max: usize,
}

impl Default for Open {
    fn default() -> Self {
        Self { max: usize::MAX }
    }
}

impl Open {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            max: settings.number("max")?.unwrap_or(default.max),
        })
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            min: self.max,
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::valve::script::check;

    #[test]
    fn it_is_open_since_it_was_last_full() {
        check(
            "kind=open max=2",
            "
             5 ask              -> 0, open
             7 ask              -> 0, closed
             9 renew            -> go 9, closed
            12 release after 5  -> open
            20 renew            -> go 12, open
            21 ask              -> 12, closed
            ",
        );
    }

    #[test]
    fn renewals_stop_until_a_lower_max_is_kept() {
        check(
            "kind=open",
            "
            1 ask                 -> 0, open
            2 ask                 -> 0, open
            3 ask                 -> 0, open
            4 options kind=open max=1 -> closed
            5 renew               -> stop, closed
            6 renew               -> stop, closed
            7 renew               -> go 7, closed
            8 update -5           -> closed
            9 release after 8     -> open
            ",
        );
    }

    #[test]
    fn a_higher_max_opens_it_only_from_then_on() {
        check(
            "kind=open max=1",
            "
            1 ask                     -> 0, closed
            4 options kind=open max=3 -> open
            5 ask                     -> 4, open
            6 options kind=open max=4 -> open
            7 ask                     -> 4, open
            ",
        );
    }

    #[test]
    fn a_max_of_zero_is_a_valve_that_stays_closed() {
        check("kind=open max=0", "1 wait -> closed");
    }
}
