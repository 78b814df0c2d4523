//! What it costs to be refused, and whether two threads are refused twice as
//! often as one.
//!
//! One operation is one acquire in vain of a key that is full all the time.

use std::hint::black_box;
use std::iter;

use super::goals::{REFUSED, judge_scaling};
use super::{CONTESTANTS, Counter, both_passes, keys, number, publish};
use crate::measure::{Metric, Plan, Row, Sample, Stall, Subject, compare, median, watch_threads};
use crate::report::{Format, short};

/// How many threads ask in vain. There are two cores, so no more than twice
/// the first number of answers can be had.
const THREADS: [usize; 3] = [1, 2, 8];

/// How many hold the key, and may.
const FULL: u64 = 3;

pub(super) fn run(plan: &Plan, format: Format) {
    // All in one contest: what is compared between cases must take turns too.
    let subjects: Vec<_> = THREADS
        .into_iter()
        .flat_map(|threads| CONTESTANTS.iter().zip(iter::repeat(threads)))
        .map(|(contestant, threads)| Subject {
            name: contestant.name,
            run: Box::new(move || (contestant.refuse)(threads, plan)),
        })
        .collect();
    let rows = compare(&subjects, plan);
    let cases: Vec<_> = rows.chunks(CONTESTANTS.len()).collect();
    for (threads, rows) in THREADS.into_iter().zip(&cases) {
        let case = format!("1 full key, {}", number(threads, "thread"));
        let goals = if threads == 2 { REFUSED } else { &[] };
        let verdicts = goals.iter().filter_map(|goal| goal.judge(rows));
        publish(&case, rows, verdicts, format);
    }
    if let Format::Table = format {
        print_scaling(&cases);
    }
}

fn print_scaling(cases: &[&[Row]]) {
    println!("locks: answers to {THREADS:?} threads in vain, in times of the first");
    let scaling = |subject, case: &[Row]| {
        Some(median(case, subject, Metric::Ops)? / median(cases[0], subject, Metric::Ops)?)
    };
    for row in cases[0] {
        let times = cases.iter().filter_map(|case| scaling(row.subject, case));
        let times: String = times.map(|times| format!("{:>6}x", short(times))).collect();
        println!("  {:<13}{times}", row.subject);
    }
    for row in cases[0] {
        let times = scaling(row.subject, cases[1]);
        if let Some(verdict) = times.and_then(|times| judge_scaling(row.subject, times)) {
            println!("  goal: {verdict}");
        }
    }
    if cases.iter().copied().flatten().any(Row::is_disturbed) {
        println!("  ! others were busy: two threads did not always have two cores");
    }
    println!();
}

pub(super) fn refuse<C: Counter>(threads: usize, plan: &Plan) -> Result<Sample, Stall> {
    let keys = keys(1);
    both_passes(|stamps| {
        let counter = C::start(&keys);
        let handle = counter.handle(0, &keys[0]);
        let held: Vec<_> = (0..FULL)
            .map(|_| {
                counter
                    .acquire(&handle, FULL)
                    .expect("the key is not full yet")
            })
            .collect();
        let sample = watch_threads(threads, stamps, plan, |pass, thread| {
            let handle = counter.handle(0, &keys[0]);
            while pass.goes_on() {
                pass.burst(thread, || {
                    let granted = counter.acquire(black_box(&handle), FULL);
                    assert!(granted.is_none(), "the key is full");
                });
            }
        });
        drop(held);
        sample
    })
}
