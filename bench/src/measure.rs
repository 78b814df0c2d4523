//! Repeats a case over its subjects in turn, and keeps what every round says.
//!
//! Subjects take turns (A, B, C, A, B, C, ...), so that a slow minute of the
//! machine hits all of them, and are compared round by round. What other
//! processes did meanwhile is noted with every run: disturbed runs are left out
//! while enough quiet ones remain, and after one the next waits a while for the
//! machine to calm down.

mod family;
mod load;
mod pass;
mod row;
mod scale;

use std::env;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

pub(crate) use self::family::Family;
pub(crate) use self::load::cpu_time;
pub(crate) use self::pass::{Pass, Stamps, watch, watch_threads};
pub(crate) use self::row::{Row, Spread, median, ratio};
pub(crate) use self::scale::{WEIGH, resident_bytes, weigh_apart};

use self::load::Load;
use self::row::{FOREIGN_MAX, Run};

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
    pub(crate) const fn full(runs: NonZeroUsize) -> Self {
        Self {
            runs,
            warm_up: Duration::from_millis(150),
            window: Duration::from_millis(500),
            patience: Duration::from_secs(60),
        }
    }

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
    /// Memory for one waiting ask, or for one key.
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

/// No party had a turn in a whole window.
#[derive(Debug)]
pub(crate) struct Stall {
    /// Turns that the parties had after all when given a second more. None
    /// means that they wait for each other; many, that the machine stood still.
    pub(crate) turns_late: u64,
}

/// Whether this variable of the environment names this, or nothing.
pub(crate) fn is_wanted(variable: &str, name: &str) -> bool {
    env::var(variable).map_or(true, |names| names.split(',').any(|known| known == name))
}

/// Runs every subject `plan.runs` times, in turn, and every other time from the
/// last to the first: no subject always comes after the same.
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
    rows.map(|(subject, runs)| Row::of(subject.name, runs))
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
