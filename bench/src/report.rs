//! Prints what was measured: a table per case for people, lines of JSON for
//! scripts.

mod table;
mod verdict;

pub(crate) use self::table::print as print_lines;
pub(crate) use self::verdict::Verdict;

use crate::measure::{Metric, Row, Spread};

/// The subject that ratios refer to.
pub(crate) const OURS: &str = "rideau";

/// How results are printed.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Table,
    /// One object a line; what is for people goes to standard error.
    Json,
}

pub(crate) const DISTURBED: &str =
    "others were busy: subjects that share a core collide less and look cheaper";

pub(crate) fn print(bench: &str, case: &str, rows: &[Row], format: Format) {
    match format {
        Format::Table => {
            println!("{bench} {case}");
            print_table(rows);
            if rows.iter().any(Row::is_disturbed) {
                println!("  ! {DISTURBED}");
            }
            println!();
        }
        Format::Json => {
            print_objects(bench, case, rows);
            for row in rows {
                eprintln!("{bench} {case} {}: foreign {}", row.subject, foreign(row));
            }
        }
    }
}

fn print_objects(bench: &str, case: &str, rows: &[Row]) {
    for row in rows {
        let subject = row.subject;
        for metric in row.metrics() {
            let value = row.spread(metric).expect("it was measured").median;
            let metric = metric.name();
            println!(
                "{{\"bench\":\"{bench}\",\"case\":\"{case}\",\"subject\":\"{subject}\",\
                 \"metric\":\"{metric}\",\"value\":{value:.3}}}"
            );
        }
    }
}

fn print_table(rows: &[Row]) {
    print_line("", rows, |row| row.subject.into());
    for metric in rows[0].metrics() {
        print_line(metric.name(), rows, |row| {
            row.spread(metric).map_or_else(String::new, cell)
        });
    }
    print_line("foreign", rows, foreign);
    if rows.iter().any(|row| row.stalls > 0) {
        print_line("stalls", rows, |row| row.stalls.to_string());
    }
    if let Some(ours) = rows.iter().find(|row| row.subject == OURS) {
        for metric in [Metric::Cpu, Metric::P99] {
            print_ratios(metric, ours, rows);
        }
    }
}

fn print_ratios(metric: Metric, ours: &Row, rows: &[Row]) {
    if ours.spread(metric).is_none() {
        return;
    }
    print_line(&format!("{} ratio", metric.name()), rows, |row| {
        let ratio = |ratio| format!("{ratio:.2}x");
        row.over(ours, metric).map_or_else(String::new, ratio)
    });
}

fn print_line(head: &str, rows: &[Row], cell: impl Fn(&Row) -> String) {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| format!("{:<24}", cell(row)))
        .collect();
    println!("{}", format!("  {head:<14}{}", cells.concat()).trim_end());
}

fn cell(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{} ({}..{})", short(median), short(min), short(max))
}

/// Cores that others used during the runs that count, and how many count.
fn foreign(row: &Row) -> String {
    let Spread { min, max, .. } = row.foreign;
    let mark = if row.is_disturbed() { " !" } else { "" };
    format!("{min:.2}..{max:.2} in {}/{}{mark}", row.kept(), row.runs())
}

/// Three digits and a unit.
pub(crate) fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    match scaled {
        100.0.. => format!("{scaled:.0}{unit}"),
        10.0.. => format!("{scaled:.1}{unit}"),
        _ => format!("{scaled:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.5, 12.34, 999.0, 1537.0, 68_400.0, 2_030_000.0].map(short);
        assert_eq!(shown, ["0.50", "12.3", "999", "1.54k", "68.4k", "2.03M"]);
    }
}
