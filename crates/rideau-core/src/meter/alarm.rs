//! Raises an alarm once a machine was slow for an interval, and clears it once
//! it was fast for one.

use std::time::Duration;

use super::{Effect, Reading, check_more_than_zero};
use crate::settings::{OptionError, Rule, Settings};
use crate::time::{Instant, Lead};

/// An alarm while inputs wait long for the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overload {
    /// The name of the alarm.
    pub alarm: String,
    /// From here on a queue delay is slow; at zero, any backlog is.
    pub target: Duration,
    /// How long it has to be slow, or fast again.
    pub interval: Duration,
}

/// An alarm while the machine waits long for asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Underload {
    /// The name of the alarm.
    pub alarm: String,
    /// From here on the lead of the machine over its asks is slow.
    pub target: Lead,
    /// How long it has to be slow, or fast again.
    pub interval: Duration,
}

/// The signal that an alarm watches.
#[derive(Debug)]
pub(super) struct Watch {
    alarm: String,
    signal: Signal,
    interval: Duration,
}

#[derive(Debug)]
enum Signal {
    Delay { target: Duration },
    Idleness { target: Lead },
}

/// An alarm with hysteresis: one contrary reading starts its patience anew.
#[derive(Debug)]
pub(super) struct AlarmMeter {
    watch: Watch,
    set: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The readings agree with the alarm.
    Settled,
    /// They contradict it `since` then, and are to be looked at `next`.
    Contrary { since: Instant, next: Instant },
}

/// A tenth of a second feels immediate.
const TARGET_NANOS: u32 = 100_000_000;
/// After a second a person still pays attention.
const INTERVAL: Duration = Duration::from_secs(1);

impl Default for Overload {
    fn default() -> Self {
        Self {
            alarm: "overload".into(),
            target: Duration::from_nanos(TARGET_NANOS.into()),
            interval: INTERVAL,
        }
    }
}

impl Default for Underload {
    fn default() -> Self {
        Self {
            alarm: "underload".into(),
            target: Lead::from_nanos(TARGET_NANOS.into()),
            interval: INTERVAL,
        }
    }
}

impl Overload {
    pub(super) fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            alarm: settings.take("alarm").unwrap_or(default.alarm),
            target: settings.span("target")?.unwrap_or(default.target),
            interval: settings.span("interval")?.unwrap_or(default.interval),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_named(&self.alarm)?;
        check_more_than_zero("interval", self.interval)
    }

    pub(super) fn watch(self) -> Watch {
        Watch {
            alarm: self.alarm,
            signal: Signal::Delay {
                target: self.target,
            },
            interval: self.interval,
        }
    }
}

impl Underload {
    pub(super) fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            alarm: settings.take("alarm").unwrap_or(default.alarm),
            target: settings.lead("target")?.unwrap_or(default.target),
            interval: settings.span("interval")?.unwrap_or(default.interval),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_named(&self.alarm)?;
        check_more_than_zero("interval", self.interval)
    }

    pub(super) fn watch(self) -> Watch {
        Watch {
            alarm: self.alarm,
            signal: Signal::Idleness {
                target: self.target,
            },
            interval: self.interval,
        }
    }
}

impl AlarmMeter {
    /// A meter whose alarm is clear, whatever raised it before.
    pub(super) fn new(watch: Watch, effects: &mut Vec<Effect>) -> Self {
        let meter = Self {
            watch,
            set: false,
            state: State::Settled,
        };
        effects.push(meter.tell());
        meter
    }

    pub(super) fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        if self.watch.signal.is_slow(reading) == self.set {
            self.state = State::Settled;
            return;
        }
        let since = match self.state {
            State::Settled => now,
            State::Contrary { since, .. } => since,
        };
        let next = since + self.watch.interval;
        if next > now {
            self.state = State::Contrary { since, next };
        } else {
            self.set = !self.set;
            self.state = State::Settled;
            effects.push(self.tell());
        }
    }

    pub(super) fn reconfigure(&mut self, watch: Watch, now: Instant, effects: &mut Vec<Effect>) {
        if watch.alarm != self.watch.alarm {
            self.end(effects);
            *self = Self::new(watch, effects);
            return;
        }
        self.watch = watch;
        if let State::Contrary { since, next } = &mut self.state {
            *next = now.max(*since + self.watch.interval);
        }
    }

    pub(super) fn end(&mut self, effects: &mut Vec<Effect>) {
        if self.set {
            self.set = false;
            effects.push(self.tell());
        }
    }

    pub(super) const fn deadline(&self) -> Instant {
        match self.state {
            State::Settled => Instant::NEVER,
            State::Contrary { next, .. } => next,
        }
    }

    fn tell(&self) -> Effect {
        Effect::Alarm {
            alarm: self.watch.alarm.clone(),
            set: self.set,
        }
    }
}

impl Signal {
    fn is_slow(&self, reading: &Reading) -> bool {
        match self {
            Self::Delay { target } if target.is_zero() && reading.queue_delay.is_zero() => {
                reading.backlog > 0
            }
            Self::Delay { target } => reading.queue_delay >= *target,
            // The lead goes on though nothing is there that it could be of.
            Self::Idleness { .. } if reading.is_deserted => false,
            Self::Idleness { target } => reading.lead.reversed() >= *target,
        }
    }
}

fn check_named(alarm: &str) -> Result<(), OptionError> {
    if alarm.is_empty() {
        return Err(OptionError::new("alarm", Rule::Empty));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_is_told_after_an_interval_of_slow_readings_and_again_of_fast_ones() {
        let meter = AlarmMeter::new(Overload::default().watch(), &mut Vec::new());
        let slow_for = |delay: i64| Reading {
            queue_delay: Duration::from_millis(delay.unsigned_abs()),
            ..Reading::default()
        };
        check(
            meter,
            slow_for,
            "
               0   50  never
             100  150   1100
             600   99  never
             700  100   1700
            1600  200   1700
            1700  200  set
            1800   10   2800
            2500  100  never
            2600   10   3600
            3599    0   3600
            3600   99  clear
            ",
        );
    }

    #[test]
    fn an_underload_is_told_when_the_lead_over_the_asks_reaches_a_negative_target() {
        let options = Underload {
            target: Lead::from_nanos(-10_000_000),
            interval: Duration::from_millis(100),
            ..Underload::default()
        };
        let meter = AlarmMeter::new(options.watch(), &mut Vec::new());
        let lead = |lead: i64| Reading {
            lead: Lead::from_nanos(lead * 1_000_000),
            ..Reading::default()
        };
        check(
            meter,
            lead,
            "
              0  20  never
             10  10    110
            110   9  set
            120  11    220
            219  50    220
            220  50  clear
            ",
        );
    }

    #[test]
    fn a_target_of_zero_counts_a_backlog_as_slow() {
        let signal = Signal::Delay {
            target: Duration::ZERO,
        };
        let reading = |nanos, backlog| Reading {
            queue_delay: Duration::from_nanos(nanos),
            backlog,
            ..Reading::default()
        };
        assert!(!signal.is_slow(&reading(0, 0)));
        assert!(signal.is_slow(&reading(0, 1)));
        assert!(signal.is_slow(&reading(1, 0)));
    }

    /// Feed lines of `milliseconds value expectation`: when the meter wants to
    /// be fed next, or what it tells.
    fn check(mut meter: AlarmMeter, reading: impl Fn(i64) -> Reading, script: &str) {
        let at = |millis: i64| Instant::from_nanos(millis.unsigned_abs() * 1_000_000);
        for line in script.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| -> i64 { word.parse().unwrap() };
            let mut effects = Vec::new();
            let now = at(number(words[0]));
            meter.feed(&reading(number(words[1])), now, &mut effects);
            let told: Vec<Effect> = match words[2] {
                "set" | "clear" => vec![meter.tell()],
                _ => Vec::new(),
            };
            assert_eq!(effects, told, "{line}");
            match words[2] {
                "set" => assert!(meter.set, "{line}"),
                "clear" => assert!(!meter.set, "{line}"),
                "never" => assert_eq!(meter.deadline(), Instant::NEVER, "{line}"),
                next => assert_eq!(meter.deadline(), at(number(next)), "{line}"),
            }
        }
    }
}
