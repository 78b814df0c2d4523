//! A goal in words: `p99 wait < 50ms and shed < 1% at 2x`.

use std::fmt;
use std::time::Duration;

use rideau_core::Settings;

use crate::outcome::RunOutcome;

/// What is wanted at a load.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal {
    /// All of these have to hold.
    pub bounds: Vec<Bound>,
    /// At this many times the arrivals.
    pub load: f64,
}

/// A number that has to stay below another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// Which number.
    pub measure: Measure,
    /// Seconds of a wait, or a part of all requests.
    pub most: f64,
}

/// A number of an outcome.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Measure {
    /// The mean wait.
    Mean,
    /// The wait that this part of all does not exceed.
    Quantile(f64),
    /// The longest wait.
    Longest,
    /// The part of the requests that got nothing.
    Shed,
}

/// Words that are no goal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoalFault(String);

impl Goal {
    /// Read `p99 wait < 50ms at 2x`. Without `at`, the load is one.
    ///
    /// # Errors
    ///
    /// Says what is wrong, and how to write it.
    pub fn parse(text: &str) -> Result<Self, GoalFault> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (words, load) = match words.as_slice() {
            [words @ .., "at", load] => (words, read_load(load)?),
            words => (words, 1.0),
        };
        let bounds = words.split(|word| matches!(*word, "and" | ","));
        let bounds = bounds.map(Bound::read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { bounds, load })
    }

    /// Whether all of it holds.
    pub fn holds(&self, outcome: &mut RunOutcome) -> bool {
        self.bounds.iter().all(|bound| bound.holds(outcome))
    }

    /// The part of the requests that may get nothing, if the goal says so.
    pub fn shed_most(&self) -> Option<f64> {
        let mut bounds = self.bounds.iter();
        let shed = bounds.find(|bound| bound.measure == Measure::Shed);
        shed.map(|bound| bound.most)
    }
}

impl Bound {
    fn read(words: &[&str]) -> Result<Self, GoalFault> {
        let joined = words.join(" ");
        let fault = || {
            GoalFault(format!(
                "{joined:?} is no bound: write `p99 wait < 50ms`, `mean wait < 5ms`, `max wait < \
                 1s` or `shed < 1%`"
            ))
        };
        let (left, right) = joined.split_once('<').ok_or_else(fault)?;
        let (left, right) = (left.trim(), right.trim_start_matches('=').trim());
        let left = left.strip_suffix("wait").unwrap_or(left).trim();
        let measure = match left {
            "mean" => Measure::Mean,
            "max" => Measure::Longest,
            "shed" => Measure::Shed,
            _ => {
                let percent = left.strip_prefix('p').and_then(|text| text.parse().ok());
                let percent: f64 = percent.ok_or_else(fault)?;
                if !(0.0..100.0).contains(&percent) {
                    return Err(fault());
                }
                Measure::Quantile(percent / 100.0)
            }
        };
        let most = match measure {
            Measure::Shed => {
                let percent = right.strip_suffix('%').ok_or_else(fault)?;
                percent.trim().parse::<f64>().ok().map(|part| part / 100.0)
            }
            _ => span(right).map(|span| span.as_secs_f64()),
        };
        let most = most.filter(|most| most.is_finite() && *most >= 0.0);
        let most = most.ok_or_else(fault)?;
        Ok(Self { measure, most })
    }

    fn holds(self, outcome: &mut RunOutcome) -> bool {
        let waits = &mut outcome.waits;
        let is = match self.measure {
            // If none was served, none was served in time.
            _ if outcome.granted == 0 && outcome.requests > 0 => return false,
            Measure::Mean => waits.mean().as_secs_f64(),
            Measure::Quantile(part) => waits.quantile(part).as_secs_f64(),
            Measure::Longest => waits.longest().as_secs_f64(),
            Measure::Shed => outcome.lost(),
        };
        is <= self.most
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, bound) in self.bounds.iter().enumerate() {
            let and = if at > 0 { " and " } else { "" };
            let most = Duration::from_secs_f64(bound.most.min(1e9));
            match bound.measure {
                Measure::Mean => write!(f, "{and}mean wait < {most:?}")?,
                Measure::Longest => write!(f, "{and}max wait < {most:?}")?,
                Measure::Shed => write!(f, "{and}shed < {}%", 100.0 * bound.most)?,
                Measure::Quantile(part) => {
                    let percent = (1e6 * part).round() / 1e4;
                    write!(f, "{and}p{percent} wait < {most:?}")?;
                }
            }
        }
        write!(f, " at {}x", self.load)
    }
}

impl fmt::Display for GoalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GoalFault {}

fn read_load(text: &str) -> Result<f64, GoalFault> {
    let number = text.strip_suffix('x').and_then(|text| text.parse().ok());
    let number = number.filter(|load: &f64| load.is_finite() && *load > 0.0);
    number.ok_or_else(|| GoalFault(format!("{text:?} is no load: write `at 2x`")))
}

/// A span by the rules of all options.
fn span(text: &str) -> Option<Duration> {
    let mut settings = Settings::new([("span", text)]).ok()?;
    settings.span("span").ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_read_as_people_write_it() {
        for (text, shown) in [
            ("p99 wait < 50ms at 2x", "p99 wait < 50ms at 2x"),
            ("p99.9 <= 1s", "p99.9 wait < 1s at 1x"),
            ("mean wait<5ms", "mean wait < 5ms at 1x"),
            (
                "max wait < 2s and shed < 0.5% at 1.5x",
                "max wait < 2s and shed < 0.5% at 1.5x",
            ),
        ] {
            assert_eq!(Goal::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in [
            "",
            "fast",
            "p99 wait < 50",
            "p100 wait < 1s",
            "wait < 1s",
            "p99 wait > 1s",
            "shed < 1",
            "p99 wait < 1s at two",
            "p99 wait < 1s at 0x",
            "p99 wait < 1s and",
        ] {
            assert!(Goal::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_goal_holds_if_all_its_bounds_do() {
        let mut outcome = RunOutcome {
            requests: 100,
            granted: 98,
            left: 2,
            ..RunOutcome::default()
        };
        (0..98).for_each(|n| outcome.waits.record(n * 1_000_000));
        let mut holds = |text| Goal::parse(text).unwrap().holds(&mut outcome);
        assert!(holds("p50 wait < 50ms and shed < 2%"));
        assert!(!holds("p50 wait < 50ms and shed < 1%"));
        assert!(!holds("max wait < 96ms"));
        assert!(holds("mean wait < 49ms"));
        let mut none = RunOutcome {
            requests: 1,
            ..RunOutcome::default()
        };
        assert!(!Goal::parse("p99 wait < 1s").unwrap().holds(&mut none));
    }
}
