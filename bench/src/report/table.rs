//! A table of many subjects: a line for each, within a hundred columns.

use std::fmt::Display;

use super::{DISTURBED, OURS, short};
use crate::measure::{Metric, Row, Spread};

/// What a line may say of its subject, from left to right.
const METRICS: [Metric; 6] = [
    Metric::Ops,
    Metric::Cpu,
    Metric::P50,
    Metric::P99,
    Metric::P999,
    Metric::Bytes,
];

/// What a line may say in times of ours, and the head of that column.
const RATIOS: [(Metric, &str); 2] = [(Metric::Cpu, " cpu x"), (Metric::P99, " p99 x")];

pub(crate) fn print(title: &str, rows: &[Row], verdicts: impl Iterator<Item: Display>) {
    let columns = Columns::of(rows);
    let legend = match columns.ours {
        Some(_) => ", x: times ours",
        None => "",
    };
    println!("{title} (median ± half the spread{legend})");
    println!("{}", columns.head());
    for row in rows {
        println!("{}", columns.line(row));
    }
    for verdict in verdicts {
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

/// What the rows of a table say; all have the same metrics.
struct Columns<'a> {
    subject_width: usize,
    metrics: Vec<Metric>,
    fairness: bool,
    /// The row that ratios refer to, if there are any.
    ours: Option<&'a Row>,
}

impl<'a> Columns<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let has = |metric: &Metric| rows[0].spread(*metric).is_some();
        let with_ratios = RATIOS.iter().any(|(metric, _)| has(metric));
        let widths = rows.iter().map(|row| row.subject.len());
        Self {
            subject_width: widths.max().expect("a case has subjects"),
            metrics: METRICS.into_iter().filter(has).collect(),
            fairness: has(&Metric::Fairness),
            ours: rows.iter().find(|row| with_ratios && row.subject == OURS),
        }
    }

    fn head(&self) -> String {
        let metrics: String = self
            .metrics
            .iter()
            .map(|metric| format!(" {:<11}", metric.name()))
            .collect();
        let fairness = if self.fairness { "fairness" } else { "" };
        let ratios = self.ours.map_or_else(String::new, |_| {
            RATIOS.iter().map(|(_, head)| *head).collect()
        });
        let width = self.subject_width;
        format!("  {:<width$}{metrics}{fairness} foreign{ratios}", "")
    }

    fn line(&self, row: &Row) -> String {
        let metrics: String = self
            .metrics
            .iter()
            .map(|metric| {
                let cell = row.spread(*metric).map_or_else(String::new, cell);
                format!("{cell:<12}")
            })
            .collect();
        let fairness = row
            .spread(Metric::Fairness)
            .map_or_else(String::new, |spread| format!("{:>8}", short(spread.median)));
        let mark = if row.is_disturbed() { "!" } else { " " };
        let ratios = self.ours.map_or_else(String::new, |ours| {
            RATIOS.map(|(metric, _)| ratio(metric, row, ours)).concat()
        });
        let width = self.subject_width;
        let line = format!(
            "  {:<width$}{metrics}{fairness} {:>6.2}{mark}{ratios}",
            row.subject, row.foreign.max
        );
        line.trim_end().into()
    }
}

fn cell(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    let percent = if min < max {
        (max - min) / 2.0 / median * 100.0
    } else {
        0.0
    };
    format!("{:>6} ±{:.0}%", short(median), percent.min(999.0))
}

fn ratio(metric: Metric, row: &Row, ours: &Row) -> String {
    row.over(ours, metric).map_or_else(String::new, |ratio| {
        let ratio = format!("{}x", short(ratio));
        format!("{ratio:>6}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_lines_fit_a_hundred_columns() {
        let timed = [
            Metric::Ops,
            Metric::Cpu,
            Metric::P50,
            Metric::P99,
            Metric::P999,
        ];
        check_width("asyncband", &[&timed[..], &[Metric::Fairness]].concat());
        check_width("rideau-handle", &timed);
        check_width("rideau-handle", &[Metric::Bytes]);
    }

    fn check_width(subject: &'static str, metrics: &[Metric]) {
        let samples = [1.0, 999_499.0, 999e6]
            .map(|value| metrics.iter().map(|metric| (*metric, value)).collect());
        let row = |subject| {
            let mut row = Row::quiet(subject, samples.clone());
            row.foreign.max = 64.0;
            row
        };
        let rows = [row(OURS), row(subject)];
        let columns = Columns::of(&rows);
        for line in [columns.head(), columns.line(&rows[1])] {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
