//! What our pool should reach beside its peers, and whether it did.

use crate::measure::{Metric, Row, Spread, median, ratio};
use crate::report::{OURS, Verdict};

/// A task alone finds a member at once.
pub(super) const ALONE: &[Goal] = &[
    Goal::Cheaper {
        than: &["deadpool"],
        times: 4.0,
    },
    Goal::Cheaper {
        than: &["bb8"],
        times: 4.0,
    },
    Goal::Near {
        to: "mutex-vec",
        times: 1.5,
    },
];

/// Two cores want members at once, and find them.
pub(super) const TOGETHER: &[Goal] = &[
    Goal::Cheaper {
        than: &["deadpool"],
        times: 4.0,
    },
    Goal::Cheaper {
        than: &["bb8"],
        times: 4.0,
    },
    Goal::Fair { max: 1.2 },
];

/// All members are out, and most tasks wait.
pub(super) const EXHAUSTED: &[Goal] = &[
    Goal::Cheaper {
        than: FULL,
        times: 1.7,
    },
    Goal::Sooner { than: FULL },
    Goal::Fair { max: 1.2 },
];

/// Peers that start, check and retire members as we do.
const FULL: &[&str] = &["deadpool", "bb8", "mobc", "asyncband"];

pub(super) enum Goal {
    /// The cheapest of these costs this many times as much processor time.
    Cheaper {
        than: &'static [&'static str],
        times: f64,
    },
    /// We cost at most this many times the processor time of a bare structure.
    Near { to: &'static str, times: f64 },
    /// Our p99 is below the lowest of those that starve no task: a wait that
    /// never ends is in no percentile.
    Sooner { than: &'static [&'static str] },
    /// Our luckiest task has at most this many times the turns of the unluckiest.
    Fair { max: f64 },
}

impl Goal {
    /// How far we got; nothing if we or those we compare with did not run.
    pub(super) fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let verdict = match *self {
            Self::Cheaper { than, times } => {
                let ratios = than.iter().filter_map(|peer| {
                    let ratio = ratio(rows, peer, OURS, Metric::Cpu)?;
                    Some((peer, ratio))
                });
                let (peer, ratio) = ratios.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
                Verdict::at_least(format!("cpu of {peer} / ours"), ratio, times)
            }
            Self::Near { to, times } => {
                let ratio = ratio(rows, OURS, to, Metric::Cpu)?;
                Verdict::at_most(format!("cpu of ours / {to}"), ratio, times)
            }
            Self::Sooner { than } => {
                let peers = fed(rows).filter(|row| than.contains(&row.subject));
                let ratios = peers.filter_map(|row| {
                    let ratio = ratio(rows, OURS, row.subject, Metric::P99)?;
                    Some((row.subject, ratio))
                });
                let (peer, ratio) = ratios.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
                Verdict::at_most(format!("p99 of ours / {peer}"), ratio, 1.0)
            }
            Self::Fair { max } => {
                let fairness = median(rows, OURS, Metric::Fairness)?;
                Verdict::at_most("fairness of ours".into(), fairness, max)
            }
        };
        Some(verdict)
    }
}

/// Those whose tasks all had their turns.
fn fed(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let is_fed = |fairness: Spread| fairness.median <= STARVING;
    rows.iter()
        .filter(move |row| row.spread(Metric::Fairness).is_none_or(is_fed))
}

/// Where a task has had this many times fewer turns than another, it starves.
const STARVING: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_peer_is_the_one_to_beat() {
        let rows = [
            row(OURS, Metric::Cpu, 100.0),
            row("bb8", Metric::Cpu, 160.0),
            row("deadpool", Metric::Cpu, 200.0),
        ];
        let than = &["deadpool", "bb8"];
        let wanted = |times| Goal::Cheaper { than, times }.judge(&rows).unwrap();
        assert!(wanted(1.6).met);
        assert!(!wanted(1.7).met);
        assert_eq!(wanted(1.7).what, "cpu of bb8 / ours");
    }

    #[test]
    fn sooner_is_below_the_lowest() {
        let than = &["deadpool", "bb8"];
        let judge = |ours| {
            let rows = [
                row(OURS, Metric::P99, ours),
                row("bb8", Metric::P99, 900.0),
                row("deadpool", Metric::P99, 100.0),
            ];
            Goal::Sooner { than }.judge(&rows).unwrap().met
        };
        assert!(judge(90.0));
        assert!(!judge(110.0));
    }

    #[test]
    fn a_pool_that_starves_tasks_is_not_sooner() {
        let starving = vec![(Metric::P99, 1.0), (Metric::Fairness, 9980.0)];
        let rows = [
            row(OURS, Metric::P99, 90.0),
            Row::quiet("bb8", [starving]),
            row("deadpool", Metric::P99, 100.0),
        ];
        let verdict = Goal::Sooner { than: FULL }.judge(&rows).unwrap();
        assert_eq!(
            (&*verdict.what, verdict.met),
            ("p99 of ours / deadpool", true)
        );
    }

    #[test]
    fn no_subject_is_judged_alone() {
        let ours = [row(OURS, Metric::Cpu, 1.0)];
        let peer = [row("mutex-vec", Metric::Cpu, 1.0)];
        for rows in [ours, peer] {
            let goal = Goal::Near {
                to: "mutex-vec",
                times: 1.5,
            };
            assert_eq!(goal.judge(&rows), None);
        }
    }

    fn row(subject: &'static str, metric: Metric, value: f64) -> Row {
        Row::quiet(subject, [vec![(metric, value)]])
    }
}
