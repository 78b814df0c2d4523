//! Ever more leases while leads stay below a target.
//!
//! CoDel turned round: when leads have been small for a whole interval there
//! is one opening, and the next ones follow at `interval / sqrt(count)`, each
//! only after a fresh small lead. One lead at or over the target ends it.

use std::time::Duration;

use crate::settings::{OptionError, Settings, check_not_zero};
use crate::time::{Instant, Lead, nanos};

use super::bounds::{Bounds, check_bounds};

/// Ever more leases while leads stay below a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoDel {
    /// A lead below this is small; may be negative.
    pub target: Lead,
    /// How long leads have to be small before the first opening.
    pub interval: Duration,
    /// Granted whatever the leads.
    pub min: usize,
    /// Never exceeded.
    pub max: usize,
}

impl Default for CoDel {
    fn default() -> Self {
        Self {
            target: Lead::from_nanos(100_000_000),
            interval: Duration::from_secs(1),
            min: 0,
            max: usize::MAX,
        }
    }
}

impl CoDel {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            target: settings.lead("target")?.unwrap_or(default.target),
            interval: settings.span("interval")?.unwrap_or(default.interval),
            min: settings.number("min")?.unwrap_or(default.min),
            max: settings.number("max")?.unwrap_or(default.max),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_not_zero("interval", self.interval.is_zero())?;
        check_bounds(self.min, self.max)
    }
}

/// Counts the openings of an episode of small leads.
#[derive(Clone, Debug)]
pub(super) struct Law {
    options: CoDel,
    count: u64,
    open_next: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The last lead was not small.
    Above,
    /// Leads are small; the first opening is at `until`.
    Below { until: Instant },
    /// An opening was used, and no lead came since.
    Used,
    /// Leads are still small; the next opening is at `open_next`.
    Opening,
}

impl Law {
    pub(super) fn new(options: CoDel, now: Instant) -> Self {
        Self {
            options,
            count: 0,
            open_next: now,
            phase: Phase::Above,
        }
    }

    pub(super) fn reconfigure(&mut self, options: CoDel, now: Instant) {
        self.options = options;
        let latest = now + options.interval;
        self.open_next = self.open_next.min(latest);
        if let Phase::Below { until } = &mut self.phase {
            *until = latest.min(*until);
        }
    }

    pub(super) fn update(&mut self, lead: Lead, now: Instant) {
        self.phase = match self.phase {
            _ if lead >= self.options.target => Phase::Above,
            Phase::Above => Phase::Below {
                until: now + self.options.interval,
            },
            Phase::Used => Phase::Opening,
            same @ (Phase::Below { .. } | Phase::Opening) => same,
        };
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let opening = self.opening()?;
        let interval = nanos(self.options.interval);
        if let Phase::Opening = self.phase {
            self.count += 1;
            self.open_next = opening.after(self.spacing());
        } else if self.count > 2 && now < self.open_next.after(interval.saturating_mul(8)) {
            // The last episode is not long over: go on nearly where it was.
            self.count -= 2;
            self.open_next = now.after(self.spacing());
        } else {
            self.count = 1;
            self.open_next = now.after(interval);
        }
        self.phase = Phase::Used;
        Some(opening)
    }

    pub(super) fn opening(&self) -> Option<Instant> {
        match self.phase {
            Phase::Above | Phase::Used => None,
            Phase::Below { until } => Some(until),
            Phase::Opening => Some(self.open_next),
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            min: self.options.min,
            max: self.options.max,
        }
    }

    /// The square-root law, truncated to nanoseconds.
    fn spacing(&self) -> u64 {
        (nanos(self.options.interval) as f64 / (self.count as f64).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::valve::script::check;

    #[test]
    fn openings_come_faster_while_leads_stay_small() {
        check(
            "kind=codel target=10ms interval=100ms",
            "
              0 update 10         -> closed
             10 update 9          -> closed
            109.999999 update 9   -> closed
            110 wait              -> open
            120 ask               -> 110, closed
            400 wait              -> closed
            401 update 9          -> open
            402 ask               -> 220, closed
            403 update 9          -> open
            404 ask               -> 290.710678, closed
            405 update 9          -> open
            406 ask               -> 348.445704, closed
            407 update 9          -> open
            407 renew             -> go 398.445704, closed
            408 update 9          -> closed
            443.167062 wait       -> closed
            443.167063 wait       -> open
            444 update 10         -> closed
            ",
        );
    }

    #[test]
    fn a_new_episode_goes_on_nearly_where_the_last_was() {
        check(
            "kind=codel target=0 interval=100ms",
            "
               0 update -1 -> closed
             100 ask       -> 100, closed
             200 update -1 -> open
             200 ask       -> 200, closed
             300 update -1 -> open
             300 ask       -> 270.710678, closed
             301 update 0  -> closed
             302 update -1 -> closed
             402 ask       -> 402, closed
             403 update -1 -> closed
             502 ask       -> 502, closed
            ",
        );
    }

    #[test]
    fn an_episode_is_long_over_after_eight_intervals() {
        // The next opening would have been at 378.445704.
        for (start, first, second) in [
            ("1078.445703", "1178.445703", "1249.156381"),
            ("1078.445704", "1178.445704", "1278.445704"),
        ] {
            check(
                "kind=codel target=0 interval=100ms",
                &format!(
                    "
                       0 update -1    -> closed
                     100 ask          -> 100, closed
                     200 update -1    -> open
                     200 ask          -> 200, closed
                     300 update -1    -> open
                     300 ask          -> 270.710678, closed
                     400 update -1    -> open
                     400 ask          -> 328.445704, closed
                     401 update 0     -> closed
                     {start} update -1 -> closed
                     {first} ask      -> {first}, closed
                    1300 update -1    -> open
                    1300 ask          -> {second}, closed
                    "
                ),
            );
        }
    }

    #[test]
    fn an_episode_long_over_is_forgotten() {
        check(
            "kind=codel target=0 interval=100ms",
            "
               0 update -1 -> closed
             100 ask       -> 100, closed
             200 update -1 -> open
             200 ask       -> 200, closed
             300 update -1 -> open
             300 ask       -> 270.710678, closed
             301 update 0  -> closed
            1200 update -1 -> closed
            1300 ask       -> 1300, closed
            1301 update -1 -> closed
            1399 wait      -> closed
            1400 ask       -> 1400, closed
            ",
        );
    }

    #[test]
    fn a_shorter_interval_draws_openings_near() {
        check(
            "kind=codel target=0 interval=1s",
            "
              0 update -1                           -> closed
             10 options kind=codel target=0 interval=20ms -> closed
             29 wait                                -> closed
             30 ask                                 -> 30, closed
             31 options kind=codel target=0 interval=5ms -> closed
             32 update -1                           -> closed
             36 ask                                 -> 36, closed
            ",
        );
    }
}
