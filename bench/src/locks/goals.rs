//! What our locks should reach beside their peers, and whether they did.

use crate::measure::{Metric, Row, median, ratio};
use crate::report::{OURS, Verdict};

/// One thread counts.
pub(super) const ALONE: &[Goal] = &[NEAR, faster(&[SEMAPHORES], 1.2)];

/// Two cores count at once, or more threads than there are cores.
pub(super) const TOGETHER: &[Goal] = &[NEAR, faster(&[SEMAPHORES], 1.5)];

/// Two threads are refused.
pub(super) const REFUSED: &[Goal] = &[faster(&[SEMAPHORES], 5.0)];

/// Two threads that are refused get this many times the answers of one.
const SCALING_MIN: f64 = 1.7;

/// Bytes for a key that is held, beside the key itself.
const HELD_MAX: f64 = 110.0;
/// For one that is not: nothing, as far as pages can tell.
const IDLE_MAX: f64 = 1.0;

/// Ours for a key that was looked up beforehand.
pub(super) const HANDLE: &str = "rideau-handle";
const ROOF: &str = "cas";
const SEMAPHORES: &str = "semaphores";

const NEAR: Goal = Goal::Near { times: 1.5 };

const fn faster(than: &'static [&'static str], times: f64) -> Goal {
    Goal::Faster { than, times }
}

pub(super) enum Goal {
    /// By handle we cost at most this many times the processor time of the roof.
    Near { times: f64 },
    /// By key we do this many times as much as the best of these.
    Faster {
        than: &'static [&'static str],
        times: f64,
    },
}

impl Goal {
    /// How far we got; nothing if we or those we compare with did not run.
    pub(super) fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let verdict = match *self {
            Self::Near { times } => {
                let ratio = ratio(rows, HANDLE, ROOF, Metric::Cpu)?;
                Verdict::at_most(format!("cpu of {HANDLE} / {ROOF}"), ratio, times)
            }
            Self::Faster { than, times } => {
                let ratios = than
                    .iter()
                    .filter_map(|peer| Some((peer, ratio(rows, OURS, peer, Metric::Ops)?)));
                let (peer, ratio) = ratios.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
                Verdict::at_least(format!("ops of {OURS} / {peer}"), ratio, times)
            }
        };
        Some(verdict)
    }
}

/// How refusals of `subject` scale from one thread to two.
pub(super) fn judge_scaling(subject: &str, times: f64) -> Option<Verdict> {
    [OURS, HANDLE].contains(&subject).then(|| {
        let what = format!("ops of {subject}, 2 threads / 1");
        Verdict::at_least(what, times, SCALING_MIN)
    })
}

pub(super) fn judge_held(rows: &[Row]) -> Option<Verdict> {
    let bytes = median(rows, OURS, Metric::Bytes)?;
    Some(Verdict::at_most(
        "bytes of a held key".into(),
        bytes,
        HELD_MAX,
    ))
}

pub(super) fn judge_idle(rows: &[Row]) -> Option<Verdict> {
    let bytes = median(rows, OURS, Metric::Bytes)?;
    Some(Verdict::at_most(
        "bytes of an idle key".into(),
        bytes,
        IDLE_MAX,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::CONTESTANTS;

    #[test]
    fn the_best_peer_is_the_one_to_beat() {
        let rows = [
            row(OURS, Metric::Ops, 30.0),
            row("papaya-2", Metric::Ops, 20.0),
            row(SEMAPHORES, Metric::Ops, 10.0),
            row(ROOF, Metric::Ops, 90.0),
        ];
        let goal = faster(&[SEMAPHORES, "papaya-2"], 1.0);
        let verdict = goal.judge(&rows).unwrap();
        let wanted = "ops of rideau / papaya-2";
        assert_eq!((&*verdict.what, verdict.met), (wanted, true));
        assert!(faster(&[SEMAPHORES], 3.0).judge(&rows).unwrap().met);
        assert!(!faster(&[SEMAPHORES], 3.1).judge(&rows).unwrap().met);
    }

    #[test]
    fn a_handle_is_measured_against_the_roof() {
        let judge = |cpu| {
            let rows = [row(HANDLE, Metric::Cpu, cpu), row(ROOF, Metric::Cpu, 10.0)];
            NEAR.judge(&rows).unwrap().met
        };
        assert!(judge(14.9));
        assert!(!judge(15.1));
    }

    #[test]
    fn no_subject_is_judged_alone() {
        let ours = [row(OURS, Metric::Ops, 1.0)];
        let peer = [row(SEMAPHORES, Metric::Ops, 1.0)];
        for rows in [ours, peer] {
            assert_eq!(faster(&[SEMAPHORES], 1.0).judge(&rows), None);
        }
    }

    #[test]
    fn goals_name_subjects_that_exist() {
        for name in [SEMAPHORES, ROOF, OURS, HANDLE] {
            let known = CONTESTANTS.iter().any(|known| known.name == name);
            assert!(known, "{name}");
        }
    }

    fn row(subject: &'static str, metric: Metric, value: f64) -> Row {
        Row::quiet(subject, [vec![(metric, value)]])
    }
}
