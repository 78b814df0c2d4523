//! New code on trial beside the old: what each answers is compared, and a verdict is given as
//! soon as there is enough to go by.
//!
//! A failure is worth more the less likely it would be if both codes were alike. The sums are
//! logarithms of likelihood ratios, so a verdict may be looked for after every answer: code
//! that is no worse than the old is rejected in one trial of a thousand at most, however long
//! the trial lasts.

use std::fmt;
use std::time::Duration;

use crate::time::{Brief, Instant};

use super::past::{Past, Times};

/// How the verdict is found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrialRules {
    /// The share of grants that the new code gets; none for one that follows the load.
    pub share: Option<f64>,
    /// The new code can be good after this many answers,
    pub answers: u64,
    /// but not before that time.
    pub time: Duration,
    /// After that time fewer answers will do.
    pub quiet: Duration,
    /// There is a verdict by then.
    pub max: Duration,
    /// Code that is much slower is bad, too.
    pub judges_slow: bool,
}

impl Default for TrialRules {
    fn default() -> Self {
        Self {
            share: None,
            answers: 50,
            time: Duration::from_secs(10),
            quiet: Duration::from_secs(60),
            max: Duration::from_secs(300),
            judges_slow: true,
        }
    }
}

/// The verdict of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialVerdict {
    /// The new code is no worse, as far as was seen.
    Good,
    /// It is slower, but not proven so. It is taken for good.
    GoodButSlow,
    /// It fails more often than the old code beside it.
    Fails,
    /// It fails more often than the old code did before.
    FailsMore,
    /// It is much slower.
    Slow,
    /// Nothing was proven either way in all that time.
    Unproven,
    /// The old code was lost: the new is all there is.
    Alone,
    /// A caller found it good.
    Accepted,
    /// A caller found it bad.
    Rejected,
}

impl TrialVerdict {
    /// The new code stays.
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            Self::Good | Self::GoodButSlow | Self::Alone | Self::Accepted
        )
    }

    /// The end of a sentence that begins with the code.
    const fn words(self) -> &'static str {
        match self {
            Self::Good => "is good",
            Self::GoodButSlow => "is taken, though it seems slower",
            Self::Alone => "is taken, as the old one is gone",
            Self::Accepted => "was accepted",
            Self::Rejected => "was rejected",
            Self::Fails => "fails more often than the old one beside it",
            Self::FailsMore => "fails more often than the old one did",
            Self::Slow => "is much slower than the old one",
            Self::Unproven => "was not proven good in all that time",
        }
    }
}

/// A trial that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedTrial {
    /// The code that was on trial.
    pub generation: u64,
    /// How it ended.
    pub verdict: TrialVerdict,
    /// What was seen by then.
    pub seen: TrialStats,
}

impl fmt::Display for EndedTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            generation,
            verdict,
            seen,
        } = self;
        let words = verdict.words();
        write!(f, "generation {generation} {words}, after {seen}")
    }
}

/// What was seen of new code on trial, and of the old beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrialStats {
    /// For how long.
    pub lasts: Duration,
    /// The old code.
    pub old: SideStats,
    /// The new one.
    pub new: SideStats,
}

impl fmt::Display for TrialStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasts, old, new } = self;
        write!(f, "{}: new {new}; old {old}", Brief(*lasts))
    }
}

/// What one code answered during a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideStats {
    /// How often.
    pub answers: u64,
    /// How many of them were failures.
    pub failures: u64,
    /// Half of them took no longer, if there were any.
    pub median: Option<Duration>,
}

impl fmt::Display for SideStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers, {} failed", self.answers, self.failures)?;
        match self.median {
            Some(median) => write!(f, ", {}", Brief(median)),
            None => Ok(()),
        }
    }
}

/// Which code answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TrialSide {
    Old,
    New,
}

/// An answer during a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) side: TrialSide,
    /// Chance led the request there, and not a cookie or want of room. With what chance it
    /// would have been led to the new code.
    pub(super) drawn: Option<f64>,
    pub(super) failed: bool,
    /// From the grant to the head of the answer.
    pub(super) took: Duration,
}

/// The answers of one code.
#[derive(Debug, Default)]
struct Tally {
    answers: u64,
    failures: u64,
    times: Times,
}

/// New code beside the old.
#[derive(Debug)]
pub(super) struct Trial {
    rules: TrialRules,
    began: Instant,
    old: Tally,
    new: Tally,
    /// The failure rate of the old code before.
    rate_before: f64,
    /// Slower answers than this are slow, if the old code's times are known.
    slow_over: Option<Duration>,
    failing: Ratios,
    slowing: Ratios,
    /// A pair of requests of our own was answered, and the new code did not fail alone.
    is_probed: bool,
    /// When the next pair is due.
    probe_due: Instant,
}

/// The new code would fail this many times as often as the old.
const TIMES_AS_OFTEN: [f64; 3] = [3.0, 10.0, 100.0];
/// Likelihood ratios, as logarithms: one for each of these.
#[derive(Debug, Default)]
struct Ratios([f64; TIMES_AS_OFTEN.len()]);

/// The first answers of a process are slow: it warms up.
const WARM_UP: u64 = 10;
/// Fewer failures prove nothing.
const FAILURES_MIN: u64 = 3;
/// How many times a median needs.
const TIMES_MIN: usize = 20;
/// Pairs of requests of our own are this far apart, if fewer than three answers came.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const ANSWERS_FEW: u64 = 3;

impl Ratios {
    /// Something that speaks against a code happened on this side, which had that chance of
    /// being the new one.
    fn add(&mut self, side: TrialSide, chance: f64) {
        for (sum, times) in self.0.iter_mut().zip(TIMES_AS_OFTEN) {
            let both = chance * times + 1.0 - chance;
            *sum += match side {
                TrialSide::New => (times / both).ln(),
                TrialSide::Old => (1.0 / both).ln(),
            };
        }
    }

    fn value(&self) -> f64 {
        ln_mean(self.0)
    }
}

/// The logarithm of the mean of what these are logarithms of.
fn ln_mean<const N: usize>(logs: [f64; N]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|log| (log - most).exp()).sum();
    most + (sum / N as f64).ln()
}

impl Tally {
    fn share(&self) -> f64 {
        match self.answers {
            0 => 0.0,
            answers => self.failures as f64 / answers as f64,
        }
    }
}

impl Tally {
    fn stats(&self) -> SideStats {
        SideStats {
            answers: self.answers,
            failures: self.failures,
            median: self.times.median(1),
        }
    }
}

impl Trial {
    pub(super) fn new(rules: TrialRules, past: &Past, now: Instant) -> Self {
        let median = past.median().filter(|_| rules.judges_slow);
        Self {
            rules,
            began: now,
            old: Tally::default(),
            new: Tally::default(),
            rate_before: past.failure_rate(),
            slow_over: median.map(|median| 4 * median + Duration::from_millis(50)),
            failing: Ratios::default(),
            slowing: Ratios::default(),
            is_probed: false,
            probe_due: now + PROBE_EVERY,
        }
    }

    /// The chance of a request to be led to the new code, at this many grants a second.
    pub(super) fn chance(&self, grants_per_s: f64) -> f64 {
        let chance = self.rules.share.unwrap_or(5.0 / grants_per_s.max(1e-9));
        chance.clamp(0.05, 0.5)
    }

    pub(super) fn answered(&mut self, answered: Answered) {
        let Answered { side, failed, .. } = answered;
        let tally = self.tally(side);
        tally.answers += 1;
        tally.failures += u64::from(failed);
        let is_warm = side == TrialSide::Old || tally.answers > WARM_UP;
        if is_warm {
            tally.times.add(answered.took);
        }
        let Some(chance) = answered.drawn else {
            return;
        };
        if failed {
            self.failing.add(side, chance);
        }
        let is_slow = self.slow_over.is_some_and(|over| answered.took > over);
        if is_slow && is_warm {
            self.slowing.add(side, chance);
        }
    }

    /// Both codes were asked the same by the server itself. If both failed, that says nothing
    /// of the new one.
    pub(super) fn probed(&mut self, old_failed: bool, new_failed: bool) {
        self.is_probed |= old_failed || !new_failed;
        if old_failed && new_failed {
            return;
        }
        for (side, failed) in [(TrialSide::Old, old_failed), (TrialSide::New, new_failed)] {
            let tally = self.tally(side);
            tally.answers += 1;
            tally.failures += u64::from(failed);
            if failed {
                self.failing.add(side, 0.5);
            }
        }
    }

    /// Whether so little comes that the server should ask for itself, now.
    pub(super) fn asks(&mut self, now: Instant) -> bool {
        let is_due = self.probe_due <= now;
        if is_due {
            self.probe_due = now + PROBE_EVERY;
        }
        is_due && self.is_quiet()
    }

    fn is_quiet(&self) -> bool {
        self.new.times.is_empty() && self.old.times.is_empty() || self.new.answers < ANSWERS_FEW
    }

    fn tally(&mut self, side: TrialSide) -> &mut Tally {
        match side {
            TrialSide::Old => &mut self.old,
            TrialSide::New => &mut self.new,
        }
    }

    /// The verdict, if there is enough to go by.
    pub(super) fn verdict(&self, now: Instant) -> Option<TrialVerdict> {
        const PROOF: f64 = 1_000.0;
        const DOUBT: f64 = 20.0;
        let (proof, doubt) = (PROOF.ln(), DOUBT.ln());
        let (old, new) = (&self.old, &self.new);
        let (beside, slowing) = (self.failing.value(), self.slowing.value());
        let before = self.against_the_past();
        let is_often = new.failures >= FAILURES_MIN;
        if is_often && beside >= proof && new.share() - old.share() >= 0.01 {
            return Some(TrialVerdict::Fails);
        }
        let is_seen = old.answers >= 8 || old.answers >= 3 && old.failures == 0;
        if is_often && before >= proof && is_seen && old.share() <= new.share() / 2.0 {
            return Some(TrialVerdict::FailsMore);
        }
        if slowing >= proof && self.is_slower() {
            return Some(TrialVerdict::Slow);
        }
        let is_open = beside >= doubt || before >= doubt;
        let took = now.since(self.began);
        let is_long = took >= self.rules.quiet;
        let is_enough = new.answers >= self.rules.answers && took >= self.rules.time || is_long;
        let is_answered = match new.answers {
            0 => self.is_probed,
            answers => answers > new.failures,
        };
        if is_enough && is_answered && !is_open && slowing < doubt {
            return Some(TrialVerdict::Good);
        }
        if took < self.rules.max {
            return None;
        }
        Some(match is_answered && !is_open {
            true => TrialVerdict::GoodButSlow,
            false => TrialVerdict::Unproven,
        })
    }

    /// How much more the new code fails than the old did before, as a logarithm.
    fn against_the_past(&self) -> f64 {
        let (old, new) = (&self.old, &self.new);
        let mut usual = (2.0 * self.rate_before).clamp(0.01, 0.5);
        if old.answers >= 10 {
            let now = 2.0 * (old.failures as f64 + 0.5) / (old.answers as f64 + 1.0);
            usual = usual.max(now.min(0.9));
        }
        let worse = [
            (3.0 * usual).clamp(0.1, 0.5),
            f64::max(0.5, f64::midpoint(1.0, usual)),
            f64::max(0.95, (9.0 + usual) / 10.0),
        ];
        let (failures, rest) = (new.failures as f64, (new.answers - new.failures) as f64);
        ln_mean(worse.map(|worse| {
            let worse = match worse <= usual {
                true => f64::midpoint(1.0, usual),
                false => worse,
            };
            failures * (worse / usual).ln() + rest * ((1.0 - worse) / (1.0 - usual)).ln()
        }))
    }

    fn is_slower(&self) -> bool {
        let medians = self.old.times.median(TIMES_MIN);
        let medians = medians.zip(self.new.times.median(TIMES_MIN));
        medians.is_some_and(|(old, new)| new >= 3 * old + Duration::from_millis(20))
    }

    /// When to look again though nothing happens.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let rules = &self.rules;
        let ends = [rules.time, rules.quiet, rules.max].map(|span| self.began + span);
        let next = ends.into_iter().filter(|end| *end > now).min();
        let probe = match self.is_quiet() {
            true => self.probe_due,
            false => Instant::NEVER,
        };
        next.unwrap_or(Instant::NEVER).min(probe)
    }

    pub(super) fn stats(&self, now: Instant) -> TrialStats {
        TrialStats {
            lasts: now.since(self.began),
            old: self.old.stats(),
            new: self.new.stats(),
        }
    }
}
