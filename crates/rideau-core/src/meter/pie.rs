//! Publishes chances at which asks and offers are refused at admission, so that
//! waits stay near a target: the controller of RFC 8033, with `interval` as its
//! burst allowance.

use std::time::Duration;

use super::{Effect, Reading, check_more_than_zero};
use crate::protector::{Chance, Row};
use crate::settings::{OptionError, Rule, Settings};
use crate::time::{Instant, nanos};

/// Chances at which a protector refuses asks and offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pie {
    /// The target of asks.
    pub ask: PieSide,
    /// The target of offers.
    pub offer: PieSide,
    /// How often the chances are corrected.
    pub update: Duration,
    /// Chance refuses nothing while this many or fewer are on their way in.
    pub min: u32,
    /// Nothing is admitted while this many are on their way in.
    pub max: Option<u32>,
    /// How many go in after each correction even where all others are refused,
    /// so that a closed admission finds out when to open.
    pub probes: u32,
}

/// The target of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieSide {
    /// The wait that the chance of this side aims at.
    pub target: Duration,
    /// How long a burst may last before anything is refused.
    pub interval: Duration,
}

#[derive(Debug)]
pub(super) struct PieMeter {
    options: Pie,
    ask: Controller,
    offer: Controller,
    backlog: u32,
    next: Instant,
}

/// The chance of one side.
///
/// Invariant: the allowance is at most the interval.
#[derive(Debug)]
struct Controller {
    target: u64,
    interval: u64,
    probability: f64,
    /// The rest of the burst allowance, in nanoseconds.
    allowance: u64,
    last: Option<Sample>,
}

/// The wait at the last correction.
#[derive(Clone, Copy, Debug)]
struct Sample {
    waited: u64,
    at: Instant,
}

/// A correction is this much per second over the target,
const ALPHA: f64 = 0.125;
/// and this much per second of growth.
const BETA: f64 = 1.25;
/// From this chance on, it grows by [`STEP_MAX`] at most in each [`STEP_EVERY`].
const CAPPED: f64 = 0.1;
/// One long wait must not close the admission at once.
const STEP_MAX: f64 = 0.02;
/// Nanoseconds: the period for which RFC 8033 means the step.
const STEP_EVERY: f64 = 15e6;
/// The factor by which a probability falls while nothing waits.
const DECAY: f64 = 0.98;
/// Below this chance, short waits refuse nothing.
const NEGLIGIBLE: f64 = 0.2;
/// A chance below the first number is corrected by a fraction: small chances
/// would swing otherwise.
const FRACTIONS: [(f64, f64); 6] = [
    (1e-6, 2048.0),
    (1e-5, 512.0),
    (1e-4, 128.0),
    (1e-3, 32.0),
    (1e-2, 8.0),
    (1e-1, 2.0),
];

impl Default for Pie {
    fn default() -> Self {
        Self {
            ask: PieSide::default(),
            offer: PieSide::default(),
            update: Duration::from_millis(100),
            min: 0,
            max: None,
            probes: 1,
        }
    }
}

impl Default for PieSide {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(100),
            interval: Duration::from_secs(1),
        }
    }
}

impl Pie {
    pub(super) fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        let mut side = |target, interval| -> Result<PieSide, OptionError> {
            let default = PieSide::default();
            Ok(PieSide {
                target: settings.span(target)?.unwrap_or(default.target),
                interval: settings.span(interval)?.unwrap_or(default.interval),
            })
        };
        Ok(Self {
            ask: side("ask.target", "ask.interval")?,
            offer: side("offer.target", "offer.interval")?,
            update: settings.span("update")?.unwrap_or(default.update),
            min: settings.number("min")?.unwrap_or(default.min),
            max: settings.number("max")?.or(default.max),
            probes: settings.number("probes")?.unwrap_or(default.probes),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_more_than_zero("ask.interval", self.ask.interval)?;
        check_more_than_zero("offer.interval", self.offer.interval)?;
        check_more_than_zero("update", self.update)?;
        if self.max.is_some_and(|max| self.min > max) {
            return Err(OptionError::new("min", Rule::Over { bound: "max" }));
        }
        Ok(())
    }
}

impl PieMeter {
    pub(super) fn new(options: Pie, now: Instant, effects: &mut Vec<Effect>) -> Self {
        let meter = Self {
            ask: Controller::new(options.ask),
            offer: Controller::new(options.offer),
            options,
            backlog: 0,
            next: now,
        };
        effects.push(meter.publication(0.0, 0.0, meter.options.probes));
        meter
    }

    pub(super) fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        let delay = nanos(reading.queue_delay);
        let ask = delay.saturating_add(nanos(reading.lead.waited()));
        let offer = delay.saturating_add(nanos(reading.lead.reversed().waited()));
        // The first of the backlog is as good as in.
        let backlog = reading.backlog.saturating_sub(1);
        self.backlog = u32::try_from(backlog).unwrap_or(u32::MAX);

        // A probe is itself a reason for a reading: if that published new
        // probes, a closed admission would let all in.
        let mut probes = 0;
        if self.next <= now {
            self.ask.correct(ask, now);
            self.offer.correct(offer, now);
            self.next = now + self.options.update;
            probes = self.options.probes;
        }
        let (ask, offer) = (self.ask.control(ask), self.offer.control(offer));
        effects.push(self.publication(ask, offer, probes));
    }

    pub(super) fn reconfigure(&mut self, options: Pie, now: Instant, effects: &mut Vec<Effect>) {
        self.options = options;
        self.ask.reconfigure(self.options.ask);
        self.offer.reconfigure(self.options.offer);
        self.next = self.next.max(now).min(now + self.options.update);
        let (ask, offer) = (self.ask.control_last(), self.offer.control_last());
        effects.push(self.publication(ask, offer, self.options.probes));
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.next
    }

    fn publication(&self, ask: f64, offer: f64, probes: u32) -> Effect {
        let row = Row {
            min: self.options.min,
            max: self.options.max,
            probes,
            backlog: self.backlog,
            p_ask: Chance::of(ask),
            p_offer: Chance::of(offer),
        };
        Effect::Protect { row }
    }
}

impl Controller {
    fn new(options: PieSide) -> Self {
        Self {
            target: nanos(options.target),
            interval: nanos(options.interval),
            probability: 0.0,
            allowance: nanos(options.interval),
            last: None,
        }
    }

    /// Correct the probability by a wait, whether or not it will be published.
    fn correct(&mut self, waited: u64, now: Instant) {
        let sample = Sample { waited, at: now };
        let last = self.last.replace(sample).unwrap_or(sample);
        let over = seconds(waited, self.target);
        let growth = seconds(waited, last.waited);
        let mut step = ALPHA * over + BETA * growth;
        let mut fractions = FRACTIONS.iter();
        if let Some((_, fraction)) = fractions.find(|(below, _)| self.probability < *below) {
            step /= fraction;
        }
        let spent = now.nanos_since(last.at);
        if self.probability >= CAPPED {
            let periods = (spent as f64 / STEP_EVERY).max(1.0);
            step = step.min((STEP_MAX * periods).min(1.0));
        }
        self.probability = (self.probability + step).clamp(0.0, 1.0);
        if waited == 0 && last.waited == 0 {
            self.probability *= DECAY;
        }
        self.allowance = self.allowance.saturating_sub(spent);
    }

    /// The probability to publish while an ask or offer waits this long.
    fn control(&mut self, waited: u64) -> f64 {
        let Some(last) = self.last else {
            return 0.0;
        };
        let half = self.target / 2;
        if self.probability == 0.0 && waited < half && last.waited < half {
            self.allowance = self.interval;
        }
        let short = last.waited < half && self.probability < NEGLIGIBLE;
        if self.allowance > 0 || short {
            0.0
        } else {
            self.probability
        }
    }

    /// As [`control`](Self::control), for the wait at the last correction.
    fn control_last(&mut self) -> f64 {
        let waited = self.last.map_or(0, |last| last.waited);
        self.control(waited)
    }

    /// Take other numbers over. A spent allowance stays spent.
    fn reconfigure(&mut self, options: PieSide) {
        let spent = self.interval - self.allowance;
        self.target = nanos(options.target);
        self.interval = nanos(options.interval);
        if self.allowance > 0 {
            self.allowance = self.interval.saturating_sub(spent);
        }
    }
}

/// The difference of two spans of nanoseconds in seconds.
fn seconds(one: u64, other: u64) -> f64 {
    (i128::from(one) - i128::from(other)) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_follows_the_excess_and_the_growth_of_the_wait() {
        // Probability, wait before and now in milliseconds, then the
        // probability after, as exact as it is written.
        let table = "
            0      100   100  0
            0        0   200  1.28173828e-4
            0      200   200  6.103516e-6
            5e-6   200   200  2.9414063e-5
            5e-5   200   200  1.4765625e-4
            5e-4   200   200  8.90625e-4
            5e-3   200   200  6.5625e-3
            0.05   200   200  5.625e-2
            0.5    200   200  5.125e-1
            0.5    200   100  3.75e-1
            0.5      0     0  4.7775e-1
            0.995  100  1000  1
            1e-7   100     0  0
            1      300     0  6.125e-1
        ";
        for line in table.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| -> f64 { words[at].parse().unwrap() };
            let (last, waited) = (number(1) as u64 * 1_000_000, number(2) as u64 * 1_000_000);
            let probability = corrected(number(0), last, waited);
            let digits = words[3].split('e').next().unwrap().len().saturating_sub(2);
            let expected = format!("{:.digits$e}", number(3));
            assert_eq!(format!("{probability:.digits$e}"), expected, "{line}");
        }
    }

    #[test]
    fn a_high_probability_grows_by_two_hundredths_at_most_but_falls_freely() {
        assert_eq!(corrected(0.1, 0, 10_000_000_000), 0.1 + 0.02);
        assert!(corrected(0.099, 0, 10_000_000_000) > 0.99);
        assert_eq!(corrected(1.0, 900_000_000, 0), 0.0);
    }

    #[test]
    fn the_step_is_meant_for_fifteen_milliseconds() {
        for (after_ms, grown) in [(1, 0.02), (15, 0.02), (30, 0.04), (100, 2.0 / 15.0)] {
            let mut controller = Controller::new(PieSide::default());
            controller.probability = 0.5;
            controller.correct(0, Instant::START);
            controller.probability = 0.5;
            controller.correct(10_000_000_000, Instant::from_nanos(after_ms * 1_000_000));
            let growth = controller.probability - 0.5;
            assert!(
                (growth - grown).abs() < 1e-12,
                "{growth} after {after_ms} ms"
            );
        }
        let mut controller = Controller::new(PieSide::default());
        controller.correct(0, Instant::START);
        controller.probability = 0.5;
        controller.correct(100_000_000_000, Instant::from_nanos(10_000_000_000));
        assert_eq!(controller.probability, 1.0);
    }

    #[test]
    fn a_burst_refuses_no_ask_until_its_allowance_is_spent() {
        let mut controller = Controller::new(PieSide::default());
        let wait = 5_000_000_000;
        for millis in (0..=1000).step_by(100) {
            controller.correct(wait, Instant::from_nanos(millis * 1_000_000));
            let published = controller.control(wait);
            assert_eq!(published > 0.0, millis == 1000, "at {millis} ms");
        }
    }

    #[test]
    fn probes_come_with_corrections_and_not_with_the_readings_they_cause() {
        let mut meter = PieMeter::new(Pie::default(), Instant::START, &mut Vec::new());
        let mut probes = |millis: u64| {
            let mut effects = Vec::new();
            let now = Instant::from_nanos(millis * 1_000_000);
            meter.feed(&Reading::default(), now, &mut effects);
            match effects[..] {
                [Effect::Protect { row }] => row.probes,
                _ => panic!("{effects:?} is not one row"),
            }
        };
        assert_eq!([0, 1, 99, 100, 101].map(&mut probes), [1, 0, 0, 1, 0]);
    }

    fn corrected(probability: f64, last: u64, waited: u64) -> f64 {
        let mut controller = Controller::new(PieSide::default());
        controller.probability = probability;
        controller.last = Some(Sample {
            waited: last,
            at: Instant::START,
        });
        controller.correct(waited, Instant::START);
        controller.probability
    }
}
