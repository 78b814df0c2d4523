//! None for a while after too many went wrong.
//!
//! A closed circuit admits up to `max`. It trips when `failures` of the last
//! `window` leases that ended went wrong: then no lease is admitted or renewed
//! for a `pause`. After that `probes` leases are. When all of them ended well
//! the circuit is closed again; when one went wrong it trips for twice as long
//! as before, up to `pause_max`. Probes that do not end within another pause
//! are given up, and as many new ones are admitted.
//!
//! A lease is judged only in the round it was granted in: what was granted
//! before the circuit tripped says nothing about whether things are well again.

use std::time::Duration;

use crate::settings::{OptionError, Rule, Settings, check_not_zero};
use crate::time::{Instant, nanos};

use super::bounds::Bounds;

/// The most leases that a window can remember: they are bits of a word.
const WINDOW_MAX: u32 = u64::BITS;

/// None for a while after too many went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breaker {
    /// This many failures among the last `window` leases trip the circuit.
    pub failures: u32,
    /// From 1 to 64. If it equals `failures`, only failures in a row trip.
    pub window: u32,
    /// How long the circuit stays tripped at first.
    pub pause: Duration,
    /// How long it stays tripped at most, when pauses double.
    pub pause_max: Duration,
    /// How many leases have to end well before the circuit closes.
    pub probes: u32,
    /// Never exceeded.
    pub max: usize,
}

/// The state of a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// All is well enough.
    Closed {
        /// Failures among the last leases.
        failures: u32,
    },
    /// Too much went wrong.
    Tripped {
        /// From then on probes are admitted.
        until: Instant,
    },
    /// A few leases find out whether all is well again.
    Probing {
        /// Probes that were admitted.
        granted: u32,
        /// How many of them succeeded.
        passed: u32,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            window: 10,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            probes: 1,
            max: usize::MAX,
        }
    }
}

impl Breaker {
    pub(super) fn parse(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            failures: settings.number("failures")?.unwrap_or(default.failures),
            window: settings.number("window")?.unwrap_or(default.window),
            pause: settings.span("pause")?.unwrap_or(default.pause),
            pause_max: settings.span("pause_max")?.unwrap_or(default.pause_max),
            probes: settings.number("probes")?.unwrap_or(default.probes),
            max: settings.number("max")?.unwrap_or(default.max),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_not_zero("failures", self.failures == 0)?;
        check_not_zero("pause", self.pause.is_zero())?;
        check_not_zero("probes", self.probes == 0)?;
        let (option, rule) = if !(1..=WINDOW_MAX).contains(&self.window) {
            let (least, most) = (1, u64::from(WINDOW_MAX));
            ("window", Rule::Outside { least, most })
        } else if self.failures > self.window {
            ("failures", Rule::Over { bound: "window" })
        } else if self.pause > self.pause_max {
            ("pause", Rule::Over { bound: "pause_max" })
        } else {
            return Ok(());
        };
        Err(OptionError::new(option, rule))
    }
}

/// Remembers how the last leases ended.
#[derive(Clone, Debug)]
pub(super) struct Law {
    options: Breaker,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The last lease is the lowest bit of `history`; failures are ones.
    Closed { since: Instant, history: u64 },
    /// `pause` is how long, to be doubled.
    Tripped { until: Instant, pause: u64 },
    /// The last of the probes was granted at `last`.
    Probing {
        since: Instant,
        pause: u64,
        granted: u32,
        passed: u32,
        last: Instant,
    },
}

impl Law {
    pub(super) fn new(options: Breaker) -> Self {
        Self {
            options,
            state: State::Closed {
                since: Instant::START,
                history: 0,
            },
        }
    }

    /// A tripped circuit waits no longer than the options allow now, and
    /// probing starts anew.
    pub(super) fn reconfigure(&mut self, options: Breaker, now: Instant) {
        self.options = options;
        let pause_max = nanos(options.pause_max);
        self.state = match self.state {
            closed @ State::Closed { .. } => closed,
            State::Tripped { until, pause } => State::Tripped {
                until: until.min(now.after(pause_max)),
                pause: pause.min(pause_max),
            },
            State::Probing { pause, .. } => State::Tripped {
                until: now,
                pause: pause.min(pause_max),
            },
        };
    }

    pub(super) fn learn(&mut self, held: Duration, ok: bool, now: Instant) {
        let granted_at = now.as_nanos().saturating_sub(nanos(held));
        let granted_at = Instant::from_nanos(granted_at);
        match &mut self.state {
            State::Closed { since, history } if *since <= granted_at => {
                *history = *history << 1 | u64::from(!ok);
                if !ok && self.failures() >= self.options.failures {
                    self.trip(nanos(self.options.pause), now);
                }
            }
            State::Probing { since, passed, .. } if *since <= granted_at && ok => {
                *passed += 1;
                if *passed == self.options.probes {
                    let (since, history) = (now, 0);
                    self.state = State::Closed { since, history };
                }
            }
            &mut State::Probing { since, pause, .. } if since <= granted_at => {
                self.trip(pause.saturating_mul(2), now);
            }
            _ => (),
        }
    }

    /// Admit a probe.
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let opening = self.opening()?;
        self.state = match self.state {
            State::Probing {
                since,
                pause,
                granted,
                passed,
                ..
            } if granted < self.options.probes => State::Probing {
                since,
                pause,
                granted: granted + 1,
                passed,
                last: now,
            },
            State::Tripped { pause, .. } | State::Probing { pause, .. } => State::Probing {
                since: opening,
                pause,
                granted: 1,
                passed: 0,
                last: now,
            },
            closed @ State::Closed { .. } => closed,
        };
        Some(opening)
    }

    /// A renewed lease is no probe.
    pub(super) fn may_renew(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } | State::Probing { .. } => true,
            State::Tripped { until, .. } => until <= now,
        }
    }

    pub(super) fn opening(&self) -> Option<Instant> {
        match self.state {
            State::Closed { .. } => None,
            State::Tripped { until, .. } => until.finite(),
            State::Probing { since, granted, .. } if granted < self.options.probes => Some(since),
            State::Probing { last, pause, .. } => last.after(pause).finite(),
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        let max = self.options.max;
        match self.state {
            State::Closed { .. } => Bounds { min: max, max },
            State::Tripped { .. } | State::Probing { .. } => Bounds { min: 0, max },
        }
    }

    pub(super) fn circuit(&self) -> Circuit {
        match self.state {
            State::Closed { .. } => Circuit::Closed {
                failures: self.failures(),
            },
            State::Tripped { until, .. } => Circuit::Tripped { until },
            State::Probing {
                granted, passed, ..
            } => Circuit::Probing { granted, passed },
        }
    }

    fn trip(&mut self, pause: u64, now: Instant) {
        let pause = pause.min(nanos(self.options.pause_max));
        let until = now.after(pause);
        self.state = State::Tripped { until, pause };
    }

    /// Failures within the window.
    fn failures(&self) -> u32 {
        match self.state {
            State::Closed { history, .. } => {
                (history << (WINDOW_MAX - self.options.window)).count_ones()
            }
            State::Tripped { .. } | State::Probing { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::valve::script::check;

    #[test]
    fn failures_within_the_window_trip_it() {
        check(
            "kind=breaker failures=2 window=3 pause=100ms max=9",
            "
              1 ask             -> 0, open
              1 ask             -> 0, open
              1 ask             -> 0, open
              1 ask             -> 0, open
              1 ask             -> 0, open
              1 ask             -> 0, open
              2 fail after 1    -> open
              3 release after 2 -> open
              4 release after 3 -> open
              5 fail after 4    -> open
              5 stats           -> circuit closed 1, open
              6 fail after 5    -> closed until 106
              6 stats           -> circuit tripped 106, closed until 106
              7 renew           -> stop, closed until 106
            106 wait            -> open
            ",
        );
    }

    #[test]
    fn probes_that_pass_close_it() {
        check(
            "kind=breaker failures=1 pause=100ms probes=2 max=2",
            "
              0 ask              -> 0, open
              0 ask              -> 0, closed
             10 fail after 10    -> closed until 110
            115 ask              -> 110, closed
            120 release after 120 -> open
            121 stats            -> circuit probing 0/1, open
            130 ask              -> 110, closed
            140 renew            -> go 140, closed
            150 release after 35 -> closed until 230
            160 release after 30 -> open
            160 stats            -> circuit closed 0, open
            170 ask              -> 160, open
            ",
        );
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        check(
            "kind=breaker failures=1 pause=100ms pause_max=300ms",
            "
               0 ask             -> 0, open
               0 ask             -> 0, open
               0 fail after 0    -> closed until 100
             100 ask             -> 100, closed until 200
             110 fail after 10   -> closed until 310
             310 ask             -> 310, closed until 510
             310 fail after 0    -> closed until 610
             610 ask             -> 610, closed until 910
             620 fail after 620  -> closed until 910
             620 fail after 10   -> closed until 920
             920 ask             -> 920, closed until 1220
             920 release after 0 -> open
             921 ask             -> 920, open
             922 fail after 1    -> closed until 1022
            ",
        );
    }

    #[test]
    fn probes_that_do_not_end_are_given_up() {
        check(
            "kind=breaker failures=1 pause=100ms",
            "
               0 ask             -> 0, open
               0 fail after 0    -> closed until 100
             150 ask             -> 100, closed until 250
             250 wait            -> open
             260 ask             -> 250, closed until 360
             270 fail after 120  -> closed until 360
             280 release after 20 -> open
            ",
        );
    }

    #[test]
    fn other_options_shorten_the_pause_and_start_probing_anew() {
        check(
            "kind=breaker failures=1 pause=60s",
            "
               0 ask             -> 0, open
               0 fail after 0    -> closed until 60000
              10 options kind=breaker pause=50ms pause_max=50ms -> closed until 60
              70 ask             -> 60, closed until 120
              80 options kind=breaker -> open
              90 ask             -> 80, closed until 140
             100 fail after 30   -> closed until 140
             101 release after 11 -> open
            ",
        );
    }
}
