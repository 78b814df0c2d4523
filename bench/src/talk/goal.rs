//! What our server should reach beside others, and whether it did.

use std::fmt;

use crate::measure::{Metric, Row, ratio};
use crate::report::short;

/// We answer this many times as many commands a second.
pub(crate) struct Goal {
    ours: &'static str,
    than: &'static str,
    times: f64,
}

impl Goal {
    pub(crate) const fn new(ours: &'static str, than: &'static str, times: f64) -> Self {
        Self { ours, than, times }
    }

    /// How far we got; nothing if we or the other did not run.
    pub(crate) fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        Some(Verdict {
            ours: self.ours,
            than: self.than,
            ops: ratio(rows, self.ours, self.than, Metric::Ops)?,
            wanted: self.times,
            cpu: ratio(rows, self.than, self.ours, Metric::Cpu)?,
        })
    }
}

/// A goal beside what was measured.
pub(crate) struct Verdict {
    ours: &'static str,
    than: &'static str,
    ops: f64,
    wanted: f64,
    /// Its processor time over ours: where the machine is busy, or the clients
    /// cost more than the server, this says more than throughput.
    cpu: f64,
}

impl Verdict {
    fn is_met(&self) -> bool {
        self.ops >= self.wanted
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ours, than, wanted, ..
        } = self;
        let (ops, cpu) = (short(self.ops), short(self.cpu));
        let met = if self.is_met() { "met" } else { "MISSED" };
        let what = format!("ops of {ours} / {than}");
        write!(
            f,
            "{what:<36}{ops:>6}   at least {wanted:<4}{met:<7}   its cpu / ours {cpu}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::OURS;

    #[test]
    fn more_a_second_and_less_processor_time_are_both_above_one() {
        let rows = [row(OURS, 300.0, 2.0), row("redis-incr", 200.0, 5.0)];
        let verdict = Goal::new(OURS, "redis-incr", 1.5).judge(&rows).unwrap();
        assert_eq!((verdict.ops, verdict.cpu), (1.5, 2.5));
        assert!(verdict.is_met());
        assert!(
            !Goal::new(OURS, "redis-incr", 1.6)
                .judge(&rows)
                .unwrap()
                .is_met()
        );
    }

    #[test]
    fn a_server_that_did_not_run_is_not_judged() {
        let rows = [row(OURS, 300.0, 2.0)];
        assert!(Goal::new(OURS, "redis-incr", 1.0).judge(&rows).is_none());
    }

    fn row(subject: &'static str, ops: f64, cpu: f64) -> Row {
        Row::quiet(subject, [vec![(Metric::Ops, ops), (Metric::Cpu, cpu)]])
    }
}
