//! What the runs of one subject say, alone and beside those of another.

use super::{Metric, Sample};

/// Cores that others may use during a run before it counts as disturbed.
pub(super) const FOREIGN_MAX: f64 = 0.15;
/// Runs that are kept at least, be they disturbed.
const KEPT_MIN: usize = 3;

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

pub(super) struct Run {
    pub(super) sample: Sample,
    pub(super) stalls: usize,
    pub(super) foreign: f64,
}

/// The runs of one subject.
pub(crate) struct Row {
    pub(crate) subject: &'static str,
    /// What each round says, in their order; nothing where the run does not count.
    rounds: Vec<Option<Sample>>,
    /// Tries that stalled on the way.
    pub(crate) stalls: usize,
    /// Cores that others used during the runs that count.
    pub(crate) foreign: Spread,
}

impl Row {
    /// Leaves out disturbed runs while enough quiet ones remain.
    pub(super) fn of(subject: &'static str, runs: Vec<Run>) -> Self {
        let stalls = runs.iter().map(|run| run.stalls).sum();
        let mut foreign: Vec<f64> = runs.iter().map(|run| run.foreign).collect();
        foreign.sort_by(f64::total_cmp);
        let quiet = foreign.partition_point(|&foreign| foreign < FOREIGN_MAX);
        foreign.truncate(quiet.max(KEPT_MIN));
        let most = foreign[foreign.len() - 1];
        let rounds = runs
            .into_iter()
            .map(|run| (run.foreign <= most).then_some(run.sample));
        Self {
            subject,
            rounds: rounds.collect(),
            stalls,
            foreign: Spread::of(foreign.into_iter()),
        }
    }

    /// Whether others were too busy for these numbers to be compared.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.foreign.max >= FOREIGN_MAX
    }

    /// Runs that were made.
    pub(crate) fn runs(&self) -> usize {
        self.rounds.len()
    }

    /// Runs that count.
    pub(crate) fn kept(&self) -> usize {
        self.samples().count()
    }

    /// What was measured.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> {
        let first = self.samples().next().into_iter().flatten();
        first.map(|(metric, _)| *metric)
    }

    pub(crate) fn spread(&self, metric: Metric) -> Option<Spread> {
        let values: Option<Vec<f64>> = self.samples().map(|sample| value(sample, metric)).collect();
        values.map(|values| Spread::of(values.into_iter()))
    }

    /// How many times as much as the other: the middle of what the rounds say in
    /// which both count. A machine that is slow in one round and fast in the next
    /// is so to both, and their medians may come from different ones.
    pub(crate) fn over(&self, other: &Self, metric: Metric) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios: Vec<f64> = pairs
            .filter_map(|(ours, theirs)| {
                let [ours, theirs] = [ours, theirs].map(|side| value(side.as_ref()?, metric));
                Some(ours? / theirs?)
            })
            .collect();
        if ratios.len() < KEPT_MIN {
            return Some(self.spread(metric)?.median / other.spread(metric)?.median);
        }
        Some(Spread::of(ratios.into_iter()).median)
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.rounds.iter().flatten()
    }

    /// What quiet runs say.
    #[cfg(test)]
    pub(crate) fn quiet<const N: usize>(subject: &'static str, samples: [Sample; N]) -> Self {
        let runs = samples.map(|sample| Run {
            sample,
            stalls: 0,
            foreign: 0.0,
        });
        Self::of(subject, runs.into())
    }
}

fn value(sample: &Sample, metric: Metric) -> Option<f64> {
    let found = sample.iter().find(|(known, _)| *known == metric);
    found.map(|(_, value)| *value)
}

fn named<'a>(rows: &'a [Row], subject: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.subject == subject)
}

/// The median of a subject; nothing if it did not run.
pub(crate) fn median(rows: &[Row], subject: &str, metric: Metric) -> Option<f64> {
    Some(named(rows, subject)?.spread(metric)?.median)
}

/// How many times as much as another; nothing if one did not run.
pub(crate) fn ratio(rows: &[Row], subject: &str, than: &str, metric: Metric) -> Option<f64> {
    named(rows, subject)?.over(named(rows, than)?, metric)
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
        let row = row(&[(1.0, 0.9), (2.0, 0.1), (3.0, 0.0), (4.0, 0.1), (5.0, 0.4)]);
        assert_eq!((row.kept(), row.runs(), row.foreign.max), (3, 5, 0.1));
        assert_eq!(row.spread(Metric::Cpu).unwrap().median, 3.0);
        let row = self::row(&[(1.0, 0.9), (1.0, 0.8), (1.0, 0.7), (1.0, 0.1)]);
        assert_eq!((row.kept(), row.foreign.max), (3, 0.8));
    }

    #[test]
    fn a_machine_that_changes_its_speed_does_not_change_a_ratio() {
        let ours = row(&[(10.0, 0.0), (20.0, 0.0), (40.0, 0.0), (40.0, 0.0)]);
        let theirs = row(&[(20.0, 0.0), (40.0, 0.0), (80.0, 0.0), (20.0, 0.0)]);
        assert_eq!(ours.over(&theirs, Metric::Cpu), Some(0.5));
        assert_eq!(theirs.over(&ours, Metric::Cpu), Some(2.0));
        assert_eq!(ours.over(&theirs, Metric::Ops), None);
    }

    #[test]
    fn a_round_counts_for_a_ratio_when_it_counts_for_both() {
        let ours = [(9.0, 0.9), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)];
        let theirs = [(1.0, 0.0), (9.0, 0.9), (2.0, 0.0), (2.0, 0.0), (2.0, 0.0)];
        let ratio = row(&ours).over(&row(&theirs), Metric::Cpu);
        assert_eq!(ratio, Some(0.5));
    }

    #[test]
    fn with_few_rounds_in_common_medians_are_compared() {
        let ours = [(4.0, 0.9), (4.0, 0.9), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)];
        let theirs = [(2.0, 0.0), (2.0, 0.0), (2.0, 0.0), (9.0, 0.9), (9.0, 0.9)];
        let ratio = row(&ours).over(&row(&theirs), Metric::Cpu);
        assert_eq!(ratio, Some(0.5));
    }

    fn row(runs: &[(f64, f64)]) -> Row {
        let runs = runs.iter().map(|&(cpu, foreign)| Run {
            sample: vec![(Metric::Cpu, cpu)],
            stalls: 0,
            foreign,
        });
        Row::of("peer", runs.collect())
    }
}
