//! Prints a line for each kind of traffic, a column for each policy.

use super::BENCH;
use super::policy::CONTESTANTS;
use crate::report::{Format, Verdict};

pub(super) struct Table {
    /// For scripts, and for people.
    pub(super) case: &'static str,
    pub(super) title: &'static str,
    pub(super) metric: &'static str,
    pub(super) lines: Vec<Line>,
    pub(super) verdicts: Vec<Verdict>,
}

pub(super) struct Line {
    pub(super) name: String,
    /// What is possible, for a thousand requests; not a number for a mean.
    pub(super) best: f64,
    /// One for each of [`CONTESTANTS`].
    pub(super) values: Vec<f64>,
}

pub(super) fn print(table: &Table, format: Format) {
    match format {
        Format::Table => print_table(table),
        Format::Json => print_objects(table),
    }
}

fn print_table(table: &Table) {
    println!(
        "{BENCH} {}: {} (best: for a thousand requests)",
        table.case, table.title
    );
    let names = CONTESTANTS.iter().map(|contestant| cell(contestant.name));
    println!("{}{}", head(""), names.collect::<String>() + &cell("best"));
    for line in &table.lines {
        let numbers = line.values.iter().map(|value| cell(&number(*value)));
        let best = if line.best.is_nan() {
            String::new()
        } else {
            cell(&number(line.best))
        };
        println!("{}{}{best}", head(&line.name), numbers.collect::<String>());
    }
    for verdict in &table.verdicts {
        println!("  goal: {verdict}");
    }
    println!();
}

fn print_objects(table: &Table) {
    let Table { case, metric, .. } = table;
    for line in &table.lines {
        let name = &line.name;
        for (contestant, value) in CONTESTANTS.iter().zip(&line.values) {
            let subject = contestant.name;
            println!(
                "{{\"bench\":\"{BENCH}\",\"case\":\"{case} {name}\",\"subject\":\"{subject}\",\
                 \"metric\":\"{metric}\",\"value\":{value:.3}}}"
            );
        }
    }
    for verdict in &table.verdicts {
        eprintln!("{BENCH} {case}: {verdict}");
    }
}

fn head(name: &str) -> String {
    format!("  {name:<19}")
}

fn cell(words: &str) -> String {
    format!("{words:>7}")
}

fn number(value: f64) -> String {
    if value < 20.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}
