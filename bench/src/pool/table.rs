//! A table of many subjects: a line for each, within a hundred columns.

use super::{Case, Hold, MEMBERS};
use crate::measure::{Metric, Row, Spread};
use crate::report::{DISTURBED, OURS, short};

/// What a line says of its subject, from left to right.
const METRICS: [Metric; 5] = [
    Metric::Ops,
    Metric::Cpu,
    Metric::P50,
    Metric::P99,
    Metric::P999,
];

pub(super) fn print(case: &Case, rows: &[Row]) {
    let ours = rows.iter().find(|row| row.subject == OURS);
    let legend = if ours.is_some() {
        ", x: times ours"
    } else {
        ""
    };
    println!(
        "pool {}: {} (median ± half the spread{legend})",
        case.name,
        describe(case)
    );
    println!("{}", head(ours.is_some()));
    for row in rows {
        println!("{}", line(row, ours));
    }
    for verdict in case.goals.iter().filter_map(|goal| goal.judge(rows)) {
        println!("  goal: {verdict}");
    }
    for row in rows.iter().filter(|row| row.stalls > 0) {
        println!("  ! {} stalled, times: {}", row.subject, row.stalls);
    }
    if rows.iter().any(Row::is_disturbed) {
        println!("  ! {DISTURBED}");
    }
    println!();
}

fn describe(case: &Case) -> String {
    let tasks = case.crowd.tasks;
    let noun = if tasks == 1 { "task" } else { "tasks" };
    let hold = match case.crowd.hold {
        Hold::Touch => "given back at once",
        Hold::Yield => "held over a yield",
    };
    format!("{tasks} {noun} on {MEMBERS} members, {hold}")
}

fn head(with_ratios: bool) -> String {
    let metrics = METRICS.map(|metric| format!(" {:<11}", metric.name()));
    let ratios = if with_ratios { " cpu x p99 x" } else { "" };
    format!("  {:<9}{}fairness foreign{ratios}", "", metrics.concat())
}

fn line(row: &Row, ours: Option<&Row>) -> String {
    let metrics = METRICS.map(|metric| {
        let cell = row.spread(metric).map_or_else(String::new, cell);
        format!("{cell:<12}")
    });
    let fairness = row.spread(Metric::Fairness);
    let fairness = fairness.map_or_else(String::new, |spread| short(spread.median));
    let mark = if row.is_disturbed() { "!" } else { " " };
    let ratios = ours.map_or_else(String::new, |ours| {
        [Metric::Cpu, Metric::P99]
            .map(|metric| ratio(metric, row, ours))
            .concat()
    });
    let line = format!(
        "  {:<9}{}{fairness:>8} {:>6.2}{mark}{ratios}",
        row.subject,
        metrics.concat(),
        row.foreign.max
    );
    line.trim_end().into()
}

fn cell(spread: Spread) -> String {
    let median = short(spread.median);
    let percent = (spread.max - spread.min) / 2.0 / spread.median * 100.0;
    format!("{median:>6} ±{:.0}%", percent.min(999.0))
}

fn ratio(metric: Metric, row: &Row, ours: &Row) -> String {
    let both = row.spread(metric).zip(ours.spread(metric));
    both.map_or_else(String::new, |(theirs, ours)| {
        let ratio = format!("{}x", short(theirs.median / ours.median));
        format!("{ratio:>6}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_line_fits_a_hundred_columns() {
        let spread = Spread {
            median: 999_499.0,
            min: 1.0,
            max: 999e6,
        };
        let metrics = METRICS.iter().chain(&[Metric::Fairness]);
        let row = Row {
            subject: "asyncband",
            spreads: metrics.map(|metric| (*metric, spread)).collect(),
            runs: 9,
            stalls: 0,
            kept: 9,
            foreign: Spread {
                max: 64.0,
                ..spread
            },
        };
        for line in [head(true), line(&row, Some(&row))] {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
