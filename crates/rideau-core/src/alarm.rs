//! Says when an alarm is on, and when its state is worth a message.
//!
//! The machine gets a value again and again, and compares it with a limit. It knows neither
//! what the value is of nor where a message goes.

use std::time::Duration;

use crate::time::Instant;

/// When an alarm is on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AlarmOptions {
    /// Which values are beyond the limit.
    pub comparison: Comparison,
    /// The limit.
    pub limit: f64,
    /// The value has to be beyond the limit for this long without a break.
    pub hold: Duration,
    /// Messages are at least this far apart.
    pub gap: Duration,
}

/// Which values are beyond a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Lower ones.
    Below,
    /// Lower ones and the limit itself.
    AtMost,
    /// Higher ones.
    Above,
    /// Higher ones and the limit itself.
    AtLeast,
}

/// How an alarm is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmPhase {
    /// The value is not beyond the limit. It was since then, if it ever was.
    Off {
        /// When the alarm went off last; none if it was never on.
        since: Option<Instant>,
    },
    /// The value is beyond the limit, but not for long enough.
    Pending {
        /// Since when the value is beyond the limit.
        since: Instant,
        /// When the alarm went off last.
        off_since: Option<Instant>,
    },
    /// The alarm is on.
    On {
        /// Since when it is on.
        since: Instant,
    },
}

/// What an alarm decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmEffect {
    /// It is on from now on.
    Begin,
    /// It is off from now on.
    End,
    /// Send a message: it is on, or off, since then.
    Tell {
        /// Whether it is on.
        is_on: bool,
        /// Since when.
        since: Instant,
    },
}

/// An alarm.
///
/// Invariants: it begins and ends in turns, and messages say that it is on and off in turns. A
/// message follows every change, unless the next change takes it back within the gap.
#[derive(Clone, Debug)]
pub struct Alarm {
    options: AlarmOptions,
    phase: AlarmPhase,
    /// The last message said that it is on.
    is_told: bool,
    told_at: Option<Instant>,
}

impl Comparison {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Below, Self::AtMost, Self::Above, Self::AtLeast];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::AtLeast => ">=",
        }
    }

    /// Whether a value is beyond the limit. What is no number never is.
    pub fn is_beyond(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
        }
    }
}

impl Alarm {
    /// An alarm that is off.
    pub const fn new(options: AlarmOptions) -> Self {
        Self {
            options,
            phase: AlarmPhase::Off { since: None },
            is_told: false,
            told_at: None,
        }
    }

    /// How it is.
    pub const fn phase(&self) -> AlarmPhase {
        self.phase
    }

    /// Whether it is on.
    pub const fn is_on(&self) -> bool {
        matches!(self.phase, AlarmPhase::On { .. })
    }

    /// Other options, which count from the next value on.
    pub const fn change(&mut self, options: AlarmOptions) {
        self.options = options;
    }

    /// The value now; none if there is none, which is not beyond any limit.
    pub fn step(&mut self, value: Option<f64>, now: Instant, effects: &mut Vec<AlarmEffect>) {
        let AlarmOptions {
            comparison, limit, ..
        } = self.options;
        match value.is_some_and(|value| comparison.is_beyond(value, limit)) {
            true => self.beyond(now, effects),
            false => self.within(now, effects),
        }
        self.tell(now, effects);
    }

    fn beyond(&mut self, now: Instant, effects: &mut Vec<AlarmEffect>) {
        if let AlarmPhase::Off { since } = self.phase {
            self.phase = AlarmPhase::Pending {
                since: now,
                off_since: since,
            };
        }
        if let AlarmPhase::Pending { since, .. } = self.phase
            && now.since(since) >= self.options.hold
        {
            self.phase = AlarmPhase::On { since: now };
            effects.push(AlarmEffect::Begin);
        }
    }

    fn within(&mut self, now: Instant, effects: &mut Vec<AlarmEffect>) {
        match self.phase {
            AlarmPhase::Off { .. } => (),
            AlarmPhase::Pending { off_since, .. } => {
                self.phase = AlarmPhase::Off { since: off_since };
            }
            AlarmPhase::On { .. } => {
                self.phase = AlarmPhase::Off { since: Some(now) };
                effects.push(AlarmEffect::End);
            }
        }
    }

    /// Tell how it is, unless that was told already, or a message was sent just now.
    fn tell(&mut self, now: Instant, effects: &mut Vec<AlarmEffect>) {
        let is_soon = |at: Instant| now.since(at) < self.options.gap;
        if self.is_on() == self.is_told || self.told_at.is_some_and(is_soon) {
            return;
        }
        let since = match self.phase {
            AlarmPhase::On { since } => since,
            AlarmPhase::Off { since } => since.unwrap_or(now),
            AlarmPhase::Pending { off_since, .. } => off_since.unwrap_or(now),
        };
        let is_on = self.is_on();
        (self.is_told, self.told_at) = (is_on, Some(now));
        effects.push(AlarmEffect::Tell { is_on, since });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const SECOND: Duration = Duration::from_secs(1);

    fn options(hold: u32, gap: u32) -> AlarmOptions {
        AlarmOptions {
            comparison: Comparison::Above,
            limit: 5.0,
            hold: SECOND * hold,
            gap: SECOND * gap,
        }
    }

    fn at(second: u32) -> Instant {
        Instant::START + SECOND * second
    }

    /// What is decided, a value each second, as `7:begin`.
    fn decided(alarm: &mut Alarm, values: &[f64]) -> Vec<String> {
        let mut said = Vec::new();
        for (second, value) in values.iter().enumerate() {
            let mut effects = Vec::new();
            alarm.step(Some(*value), at(second as u32), &mut effects);
            said.extend(effects.into_iter().map(|effect| match effect {
                AlarmEffect::Begin => format!("{second}:begin"),
                AlarmEffect::End => format!("{second}:end"),
                AlarmEffect::Tell { is_on, since } => {
                    let since = since.since(Instant::START).as_secs();
                    let state = if is_on { "on" } else { "off" };
                    format!("{second}:tell {state} since {since}")
                }
            }));
        }
        said
    }

    #[test]
    fn an_alarm_is_on_when_the_value_was_beyond_the_limit_for_long_enough() {
        let mut alarm = Alarm::new(options(3, 0));
        let values = [9.0, 9.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 5.0, 1.0];
        let said = decided(&mut alarm, &values);
        let wanted = [
            "6:begin",
            "6:tell on since 6",
            "8:end",
            "8:tell off since 8",
        ];
        assert_eq!(said, wanted);
        assert_eq!(alarm.phase(), AlarmPhase::Off { since: Some(at(8)) });
    }

    #[test]
    fn without_a_span_it_is_on_at_once() {
        let mut alarm = Alarm::new(options(0, 30));
        assert_eq!(
            decided(&mut alarm, &[9.0]),
            ["0:begin", "0:tell on since 0"]
        );
        assert!(alarm.is_on());
    }

    #[test]
    fn an_alarm_that_flaps_is_not_told_each_time() {
        let mut alarm = Alarm::new(options(0, 30));
        let values: Vec<_> = (0..90).map(|at| f64::from(9 * (1 - at % 2))).collect();
        let said = decided(&mut alarm, &values);
        let told: Vec<_> = said.iter().filter(|said| said.contains("tell")).collect();
        let wanted = [
            "0:tell on since 0",
            "31:tell off since 31",
            "62:tell on since 62",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_is_over_before_the_gap_is_told_behind_it() {
        let mut alarm = Alarm::new(options(0, 30));
        let mut values = vec![1.0; 40];
        values[0] = 9.0;
        let said = decided(&mut alarm, &values);
        assert_eq!(said[2..], ["1:end", "30:tell off since 1"]);
    }

    #[test]
    fn no_value_is_beyond_no_limit() {
        let mut alarm = Alarm::new(options(0, 0));
        let mut effects = Vec::new();
        alarm.step(Some(9.0), at(0), &mut effects);
        alarm.step(None, at(1), &mut effects);
        assert!(!alarm.is_on());
        alarm.step(Some(f64::NAN), at(2), &mut effects);
        assert!(!alarm.is_on());
        for comparison in Comparison::ALL {
            assert!(!comparison.is_beyond(f64::NAN, 1.0), "{comparison:?}");
            let has_limit = comparison.word().len() == 2;
            assert_eq!(comparison.is_beyond(1.0, 1.0), has_limit, "{comparison:?}");
        }
    }

    /// Whatever values come: it begins and ends in turns, never before its time; messages come
    /// in turns and never too soon, and in the end they say what is so.
    #[test]
    fn every_schedule_of_values_is_told_in_turns() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let mut draw = |below: u64| rng.below(below) as u32;
            let wanted = options(draw(5), draw(10));
            let mut alarm = Alarm::new(wanted);
            let (mut now, mut is_on, mut beyond_since) = (at(0), false, None);
            let (mut told, mut told_at): (bool, Option<Instant>) = (false, None);
            for _ in 0..200 {
                now = now + Duration::from_millis(u64::from(draw(2_500)));
                let value = match draw(8) {
                    0 => None,
                    _ => Some(f64::from(draw(10))),
                };
                let is_beyond = value.is_some_and(|value| value > 5.0);
                beyond_since = beyond_since
                    .filter(|_| is_beyond)
                    .or(is_beyond.then_some(now));
                let mut effects = Vec::new();
                alarm.step(value, now, &mut effects);
                for effect in effects {
                    match effect {
                        AlarmEffect::Begin => {
                            assert!(!is_on, "seed {seed}");
                            let since = beyond_since.expect("the value is beyond the limit");
                            assert!(now.since(since) >= wanted.hold, "seed {seed}");
                            is_on = true;
                        }
                        AlarmEffect::End => {
                            assert!(is_on && !is_beyond, "seed {seed}");
                            is_on = false;
                        }
                        AlarmEffect::Tell { is_on: said, since } => {
                            assert!(said != told && said == is_on, "seed {seed}");
                            let gap = told_at.map(|at| now.since(at));
                            assert!(gap.is_none_or(|gap| gap >= wanted.gap), "seed {seed}");
                            assert!(since <= now, "seed {seed}");
                            (told, told_at) = (said, Some(now));
                        }
                    }
                }
                assert_eq!(alarm.is_on(), is_on, "seed {seed}");
                let since = beyond_since.filter(|since| now.since(*since) >= wanted.hold);
                assert_eq!(
                    is_on,
                    since.is_some(),
                    "seed {seed}: it is on when it should be"
                );
            }
            alarm.step(None, now + wanted.gap, &mut Vec::new());
            assert!(!alarm.is_on() && !alarm.is_told, "seed {seed}");
        }
    }
}
