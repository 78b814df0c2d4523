//! What our front should reach beside others.

use super::{BY_HAND, NGINX, NGINX_SOCKET, OURS_SOCKET, PASSENGER};
use crate::measure::{Metric, Row, median, ratio};
use crate::report::{OURS, Verdict};

/// Of the requests that nginx answers, over the same kind of connection.
const OPS_MIN: f64 = 0.9;
const P99_MAX: f64 = 1.0;
/// The same for requests of other kinds.
const KIND_OPS_MIN: f64 = 0.85;
/// Of the requests that Passenger answers.
const PASSENGER_OPS_MIN: f64 = 3.0;
/// Milliseconds that a start takes longer than one by hand.
const COLD_MAX: f64 = 30.0;

/// Both sides of one that compares.
const PAIRS: [(&str, &str); 2] = [(OURS, NGINX), (OURS_SOCKET, NGINX_SOCKET)];

/// How our front does beside nginx; a front that did not run is not judged.
pub(super) fn beside_nginx(rows: &[Row]) -> Vec<Verdict> {
    let verdicts = PAIRS.iter().flat_map(|(ours, nginx)| {
        let ops = ratio(rows, ours, nginx, Metric::Ops);
        let p99 = ratio(rows, ours, nginx, Metric::P99);
        [
            ops.map(|ops| Verdict::at_least(format!("req/s of {ours} / {nginx}"), ops, OPS_MIN)),
            p99.map(|p99| Verdict::at_most(format!("p99 of {ours} / {nginx}"), p99, P99_MAX)),
        ]
    });
    verdicts.flatten().collect()
}

/// The same for requests that are not small and plain.
pub(super) fn kind_beside_nginx(rows: &[Row]) -> Vec<Verdict> {
    let ops = ratio(rows, OURS, NGINX, Metric::Ops);
    let what = format!("req/s of {OURS} / {NGINX}");
    let verdict = ops.map(|ops| Verdict::at_least(what, ops, KIND_OPS_MIN));
    verdict.into_iter().collect()
}

pub(super) fn beside_passenger(rows: &[Row]) -> Vec<Verdict> {
    let verdicts = [OURS, OURS_SOCKET].into_iter().filter_map(|ours| {
        let ops = ratio(rows, ours, PASSENGER, Metric::Ops)?;
        let what = format!("req/s of {ours} / {PASSENGER}");
        Some(Verdict::at_least(what, ops, PASSENGER_OPS_MIN))
    });
    verdicts.collect()
}

pub(super) fn cold(rows: &[Row]) -> Vec<Verdict> {
    let verdicts = [OURS, OURS_SOCKET].into_iter().filter_map(|ours| {
        let more = median(rows, ours, Metric::P50)? - median(rows, BY_HAND, Metric::P50)?;
        let what = format!("ms of {ours} over {BY_HAND}");
        Some(Verdict::at_most(what, more / 1e6, COLD_MAX))
    });
    verdicts.collect()
}

pub(super) fn no_failure(contestant: &str, failed: u64) -> Verdict {
    Verdict::at_most(
        format!("failed requests of {contestant}"),
        failed as f64,
        0.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_less_than_nginx_is_enough_but_no_later_answer() {
        let rows = [row(OURS, 90.0, 1.01), row(NGINX, 100.0, 1.0)];
        assert_eq!(met(&beside_nginx(&rows)), [true, false]);
        let rows = [row(OURS, 89.0, 1.0), row(NGINX, 100.0, 1.0)];
        assert_eq!(met(&beside_nginx(&rows)), [false, true]);
    }

    #[test]
    fn sockets_are_judged_beside_sockets() {
        let rows = [
            row(OURS, 100.0, 1.0),
            row(OURS_SOCKET, 50.0, 1.0),
            row(NGINX, 100.0, 1.0),
            row(NGINX_SOCKET, 100.0, 1.0),
        ];
        assert_eq!(met(&beside_nginx(&rows)), [true, true, false, true]);
        assert!(beside_nginx(&rows[1..3]).is_empty());
    }

    #[test]
    fn other_kinds_are_judged_by_their_number_alone() {
        let judge = |ours| kind_beside_nginx(&[row(OURS, ours, 9.0), row(NGINX, 100.0, 1.0)]);
        assert_eq!(met(&judge(85.0)), [true]);
        assert_eq!(met(&judge(84.0)), [false]);
        assert!(kind_beside_nginx(&[row(OURS, 1.0, 1.0)]).is_empty());
    }

    #[test]
    fn passenger_has_to_be_beaten_thrice() {
        let judge = |ours| beside_passenger(&[row(OURS, ours, 1.0), row(PASSENGER, 100.0, 1.0)]);
        assert_eq!(met(&judge(300.0)), [true]);
        assert_eq!(met(&judge(299.0)), [false]);
    }

    #[test]
    fn a_start_counts_without_what_the_application_takes_itself() {
        let rows = [cold_row(OURS, 329e6), cold_row(BY_HAND, 300e6)];
        assert_eq!(met(&cold(&rows)), [true]);
        let rows = [cold_row(OURS, 331e6), cold_row(BY_HAND, 300e6)];
        assert_eq!(met(&cold(&rows)), [false]);
    }

    #[test]
    fn one_failure_is_too_many() {
        assert!(no_failure("kill", 0).met);
        assert!(!no_failure("kill", 1).met);
    }

    fn met(verdicts: &[Verdict]) -> Vec<bool> {
        verdicts.iter().map(|verdict| verdict.met).collect()
    }

    fn row(subject: &'static str, ops: f64, p99: f64) -> Row {
        Row::quiet(subject, [vec![(Metric::Ops, ops), (Metric::P99, p99)]])
    }

    fn cold_row(subject: &'static str, first: f64) -> Row {
        Row::quiet(subject, [vec![(Metric::P50, first)]])
    }
}
