//! How often new code on trial is rejected, and what that costs: a table, by the very machine.
//! A soak has as many trials as those who wrote the table.
//!
//! Nothing is asked again of the old code here, so every failure is one that a client sees.

use std::f64::consts::LN_2;
use std::time::Duration;

use crate::traffic::{Code, Traffic, code};

/// The percent of trials that reject the new code, and behind a stroke the middle of what it
/// failed by then. A row has requests in a second, and the share that the old code fails; a
/// column has new code that fails as much, twice as much, 5 or 20 points more, half or all.
const TABLE: &str = "
     per_s    old   same  twice     +5    +20   half    all
         1      0      0      -      2   64/7  100/3  100/3
         1  0.001      0      0      1   63/7  100/3  100/3
         1   0.01      0      0      1     59 99.7/4  100/3
         1    0.1      0      1    0.1      8  63/14  100/6
        10      0      0      -      7   98/7  100/3  100/3
        10  0.001      0      0      7   97/7  100/3  100/3
        10   0.01      0      0      5     88  100/4    100
        10    0.1      0      3    0.5     23  89/17  100/6
      1000      0      0      -  100/4    100    100  100/3
      1000  0.001    0.3      0  100/4    100    100  100/3
      1000   0.01      0      8  99/10    100    100    100
      1000    0.1      0     73      4 100/20    100    100";

fn is_soak() -> bool {
    std::env::var_os("RIDEAU_SOAK").is_some()
}

/// Trials of a cell.
fn trials(per_s: f64) -> u64 {
    match (per_s >= 1_000.0, is_soak()) {
        (false, false) => 100,
        (false, true) => 1_000,
        (true, false) => 12,
        (true, true) => 120,
    }
}

/// The share of trials that rejected the new code, and the middle of its failures by then.
fn rejected(per_s: f64, old: Code, new: Code, trials: u64) -> (f64, u64) {
    let judged = (0..trials).map(|seed| Traffic::new(per_s, old, new, seed).judged());
    let bad = judged.filter(|(verdict, _)| !verdict.is_good());
    let mut failures: Vec<_> = bad.map(|(_, seen)| seen.new.failures).collect();
    failures.sort_unstable();
    let middle = failures.get(failures.len() / 2).copied();
    (failures.len() as f64 / trials as f64, middle.unwrap_or(0))
}

/// A share of this many trials may differ from the table: by chance, and as the table was
/// made with another model of traffic.
fn slack(share: f64, trials: u64) -> f64 {
    let variance = (share * (1.0 - share)).max(0.01);
    0.05 + 3.0 * (variance / trials as f64).sqrt()
}

#[test]
fn code_that_fails_is_rejected_and_code_that_does_not_is_kept() {
    let mut rows = TABLE.trim_start().lines().map(str::split_whitespace);
    let columns: Vec<_> = rows.next().unwrap().collect();
    let mut faults = Vec::new();
    for row in rows {
        let cells: Vec<_> = columns.iter().zip(row).collect();
        let [(_, per_s), (_, old), cells @ ..] = &cells[..] else {
            panic!("a short row");
        };
        let (per_s, old) = (per_s.parse().unwrap(), old.parse().unwrap());
        for (column, wanted) in cells.iter().filter(|(_, wanted)| *wanted != "-") {
            let told = judge_cell(per_s, old, column, wanted);
            faults.extend(told.err());
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Say what is wrong with a cell of the table.
fn judge_cell(per_s: f64, old: f64, column: &str, wanted: &str) -> Result<(), String> {
    let new = match column {
        "same" => old,
        "twice" => 2.0 * old,
        "half" => 0.5,
        "all" => 1.0,
        points => old + points.parse::<f64>().unwrap() / 100.0,
    };
    let trials = trials(per_s);
    let (share, middle) = rejected(per_s, code(old), code(new), trials);
    let told = format!(
        "{per_s}/s, {old}, {column}: {:.1} %, {middle} failures, where {wanted} is wanted",
        100.0 * share
    );
    println!("{told}");
    let (percent, failures) = wanted.split_once('/').unwrap_or((wanted, ""));
    let percent: f64 = percent.parse().unwrap();
    let most = match column {
        // Good code: about one of a thousand, whatever the traffic.
        "same" => 0.01 + 1.0 / trials as f64,
        _ => slack(percent / 100.0, trials),
    };
    let failures: u64 = failures.parse().unwrap_or(u64::MAX / 2);
    let is_far = (share - percent / 100.0).abs() > most;
    match is_far || middle > failures + 1 + failures / 4 {
        true => Err(told),
        false => Ok(()),
    }
}

/// Answers take as long as in an exponential distribution, with a median of 10 and of 100 ms.
#[test]
fn code_that_is_much_slower_is_rejected() {
    let mut faults = Vec::new();
    // Requests in a second, how many times as slow, the least and the most percent of trials.
    let rows = [
        (1.0, 1, 0.0, 0.0),
        (1.0, 2, 0.0, 1.0),
        (1.0, 3, 0.0, 20.0),
        (1.0, 5, 28.0, 60.0),
        (1.0, 20, 86.0, 98.0),
        (10.0, 1, 0.0, 0.0),
        (10.0, 2, 0.0, 2.0),
        (10.0, 3, 0.0, 73.0),
        (10.0, 5, 88.0, 98.0),
        (10.0, 20, 100.0, 100.0),
        (1_000.0, 1, 0.0, 0.0),
        (1_000.0, 3, 5.0, 100.0),
        (1_000.0, 5, 100.0, 100.0),
        (1_000.0, 20, 100.0, 100.0),
    ];
    for (per_s, times, least, most) in rows {
        for millis in [10, 100] {
            let takes = |times: u32| Code {
                fails: 0.0,
                takes: Duration::from_millis(millis).div_f64(LN_2) * times,
            };
            let trials = match is_soak() {
                true => trials(per_s),
                false => trials(per_s) / 4,
            };
            let (share, _) = rejected(per_s, takes(1), takes(times), trials);
            let percent = 100.0 * share;
            let told = format!("{per_s}/s, {times} times {millis} ms: {percent:.1} %");
            println!("{told}, where {least} to {most} % are wanted");
            let slack = 100.0 * slack(share, trials);
            if !(least - slack..=most + slack).contains(&percent) {
                faults.push(told);
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
