//! Repeats a case over its subjects in turn, and keeps medians and spreads.
//!
//! Subjects take turns (A, B, C, A, B, C, ...), so that a slow minute of the
//! machine hits all of them. What other processes did meanwhile is noted with
//! every run: disturbed runs are left out while enough quiet ones remain, and
//! after one the next waits a while for the machine to calm down.

mod family;
mod load;
mod pass;
mod scale;

use std::env;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

pub(crate) use self::family::Family;
pub(crate) use self::load::cpu_time;
pub(crate) use self::pass::{Pass, Stamps, watch, watch_threads};
pub(crate) use self::scale::{WEIGH, resident_bytes, weigh_apart};

use self::load::Load;

/// How often and how long everything is measured.
pub(crate) struct Plan {
    /// Runs of each subject in each case.
    pub(crate) runs: NonZeroUsize,
    /// Passed before counting begins, in every pass.
    pub(crate) warm_up: Duration,
    /// Counted, in every pass.
    pub(crate) window: Duration,
    /// Spent at most, in every case, on waiting for others to calm down.
    pub(crate) patience: Duration,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        runs: NonZeroUsize::new(9).expect("nine is not zero"),
        warm_up: Duration::from_millis(150),
        window: Duration::from_millis(500),
        patience: Duration::from_secs(60),
    };

    pub(crate) const QUICK: Self = Self {
        runs: NonZeroUsize::new(3).expect("three is not zero"),
        warm_up: Duration::from_millis(50),
        window: Duration::from_millis(200),
        patience: Duration::from_secs(1),
    };
}

/// What a number says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Operations a second.
    Ops,
    /// Processor time of the whole process for one operation.
    Cpu,
    /// Time from call to answer that this share of calls kept.
    P50,
    P99,
    P999,
    /// Turns of the luckiest party over those of the unluckiest; 1 is fair.
    Fairness,
    /// Memory for one who waits, or for one key.
    Bytes,
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops_s",
            Self::Cpu => "cpu_ns",
            Self::P50 => "p50_ns",
            Self::P99 => "p99_ns",
            Self::P999 => "p999_ns",
            Self::Fairness => "fairness",
            Self::Bytes => "bytes",
        }
    }
}

/// The numbers of one run; every run of a case has the same metrics.
pub(crate) type Sample = Vec<(Metric, f64)>;

/// One contestant of a case, and how to run it once from scratch.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn Fn() -> Result<Sample, Stall> + 'a>,
}

/// Nobody had a turn in a whole window.
#[derive(Debug)]
pub(crate) struct Stall {
    /// Turns that the parties had after all when given a second more. None
    /// means that they wait for each other; many, that the machine stood still.
    pub(crate) turns_late: u64,
}

/// The middle of several runs, and how far they lay apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// # Panics
    ///
    /// If there are no values.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }
}

/// What the kept runs of one subject say.
pub(crate) struct Row {
    pub(crate) subject: &'static str,
    pub(crate) spreads: Vec<(Metric, Spread)>,
    /// Runs that were made, and tries that stalled on the way.
    pub(crate) runs: usize,
    pub(crate) stalls: usize,
    /// Runs that count, and cores that others used during them.
    pub(crate) kept: usize,
    pub(crate) foreign: Spread,
}

impl Row {
    /// Whether others were too busy for these numbers to be compared.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.foreign.max >= FOREIGN_MAX
    }

    pub(crate) fn spread(&self, metric: Metric) -> Option<Spread> {
        let found = self.spreads.iter().find(|(known, _)| *known == metric);
        found.map(|(_, spread)| *spread)
    }
}

/// Whether this variable of the environment names this, or nothing.
pub(crate) fn is_wanted(variable: &str, name: &str) -> bool {
    env::var(variable).map_or(true, |names| names.split(',').any(|known| known == name))
}

/// Runs every subject `plan.runs` times, in turn, and every other time from the
/// last to the first: nobody always comes after the same.
pub(crate) fn compare(subjects: &[Subject<'_>], plan: &Plan) -> Vec<Row> {
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    let mut patience = plan.patience;
    for round in 0..plan.runs.get() {
        for step in 0..subjects.len() {
            let at = match round % 2 {
                0 => step,
                _ => subjects.len() - 1 - step,
            };
            let load = Load::start();
            let (sample, stalls) = run_until_moved(&subjects[at]);
            let foreign = load.foreign();
            runs[at].push(Run {
                sample,
                stalls,
                foreign,
            });
            if foreign >= FOREIGN_MAX {
                patience = wait_for_calm(patience);
            }
        }
    }
    let rows = subjects.iter().zip(runs);
    rows.map(|(subject, runs)| summarize(subject.name, runs))
        .collect()
}

/// Runs a subject again if it stalled, but not for ever, and counts the stalls.
///
/// # Panics
///
/// If every try stalls.
fn run_until_moved(subject: &Subject<'_>) -> (Sample, usize) {
    for stalls in 0..TRIES_MAX {
        match (subject.run)() {
            Ok(sample) => return (sample, stalls),
            Err(Stall { turns_late }) => {
                eprintln!(
                    "{} stalled; turns a second later: {turns_late}",
                    subject.name
                );
            }
        }
    }
    panic!("{} does not move", subject.name);
}

const TRIES_MAX: usize = 3;

/// Waits until others have left the machine alone for a glance, and returns
/// the patience that remains.
fn wait_for_calm(mut patience: Duration) -> Duration {
    while let Some(remaining) = patience.checked_sub(GLANCE) {
        patience = remaining;
        let load = Load::start();
        thread::sleep(GLANCE);
        if load.foreign() < FOREIGN_MAX {
            break;
        }
    }
    patience
}

/// Long enough that a single tick of the kernel is not a disturbance.
const GLANCE: Duration = Duration::from_millis(100);
/// Cores that others may use during a run before it counts as disturbed.
const FOREIGN_MAX: f64 = 0.15;
/// Runs that are kept at least, be they disturbed.
const KEPT_MIN: usize = 3;

struct Run {
    sample: Sample,
    stalls: usize,
    foreign: f64,
}

fn summarize(subject: &'static str, mut runs: Vec<Run>) -> Row {
    let made = runs.len();
    let stalls = runs.iter().map(|run| run.stalls).sum();
    runs.sort_by(|a, b| a.foreign.total_cmp(&b.foreign));
    let quiet = runs.partition_point(|run| run.foreign < FOREIGN_MAX);
    runs.truncate(quiet.max(KEPT_MIN));

    let metrics = runs[0].sample.iter().enumerate();
    let spreads = metrics
        .map(|(at, (metric, _))| (*metric, Spread::of(runs.iter().map(|run| run.sample[at].1))))
        .collect();
    Row {
        subject,
        spreads,
        runs: made,
        stalls,
        kept: runs.len(),
        foreign: Spread::of(runs.iter().map(|run| run.foreign)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 9.0].into_iter());
        assert_eq!(
            spread,
            Spread {
                median: 3.0,
                min: 1.0,
                max: 9.0
            }
        );
    }

    #[test]
    fn disturbed_runs_are_left_out_while_three_quiet_ones_remain() {
        let row = summarize("peer", runs(&[0.9, 0.1, 0.0, 0.1, 0.4]));
        assert_eq!((row.kept, row.foreign.max), (3, 0.1));
        let row = summarize("peer", runs(&[0.9, 0.8, 0.7, 0.1]));
        assert_eq!((row.kept, row.foreign.max), (3, 0.8));
    }

    fn runs(foreign: &[f64]) -> Vec<Run> {
        foreign
            .iter()
            .map(|foreign| Run {
                sample: vec![(Metric::Cpu, 1.0)],
                stalls: 0,
                foreign: *foreign,
            })
            .collect()
    }
}
