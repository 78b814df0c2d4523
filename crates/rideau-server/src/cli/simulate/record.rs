//! A file of recorded arrivals.
//!
//! One line for each: when it came in seconds and, if there is a second column, how long it was
//! served in seconds. Or, under a header with `rate`, how many came in a second from that time
//! on. `at_ms` and `service_ms` in the header mean milliseconds.

use std::sync::Arc;

use rideau_simulate::{Arrivals, RateStep, Service};

/// What a file says.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ArrivalRecord {
    pub(super) arrivals: Arrivals,
    /// If it says so.
    pub(super) service: Option<Service>,
    /// How many came; none if the file has rates.
    pub(super) count: Option<u64>,
}

/// More are not kept in memory.
const LINES_MAX: usize = 20_000_000;
const SECOND: f64 = 1e9;

/// A column, and by how much it is multiplied.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Column {
    At(f64),
    Service(f64),
    Rate,
    Other,
}

/// Read a file.
///
/// # Errors
///
/// The first line that cannot be read, and why.
pub(super) fn read(text: &str) -> Result<ArrivalRecord, String> {
    let mut columns = vec![Column::At(SECOND), Column::Service(SECOND)];
    let mut rows: Vec<(f64, Option<f64>)> = Vec::new();
    let (mut is_first, mut has_rates) = (true, false);
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let cells: Vec<_> = line.split([',', ';', '\t']).map(str::trim).collect();
        if std::mem::take(&mut is_first) && cells[0].parse::<f64>().is_err() {
            columns = cells.iter().map(|name| column(name)).collect();
            has_rates = columns.contains(&Column::Rate);
            if !matches!(columns[0], Column::At(_)) {
                return Err(format!(
                    "line {number}: the first column has to be `at` or `at_ms`, not {:?}",
                    cells[0]
                ));
            }
            continue;
        }
        let (mut at, mut more) = (None, None);
        for (cell, column) in cells.iter().zip(&columns) {
            let times = match column {
                Column::At(times) | Column::Service(times) => *times,
                Column::Rate => 1.0,
                Column::Other => continue,
            };
            let value = cell.parse::<f64>().ok().filter(|value| *value >= 0.0);
            let value = value.filter(|value| value * times < 9e18);
            let value = value
                .ok_or_else(|| format!("line {number}: {cell:?} is no number of at least zero"))?;
            match column {
                Column::At(_) => at = Some(value * times),
                _ => more = Some(value * times),
            }
        }
        rows.push((
            at.ok_or_else(|| format!("line {number} has no time"))?,
            more,
        ));
        if rows.len() > LINES_MAX {
            return Err(format!(
                "there are over {LINES_MAX} lines; take a part of them"
            ));
        }
    }
    if rows.is_empty() {
        return Err("it has no arrivals".into());
    }
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    let begin = rows[0].0;
    rows.iter_mut().for_each(|(at, _)| *at -= begin);
    match has_rates {
        true => of_rates(&rows),
        false => Ok(of_arrivals(&rows)),
    }
}

fn column(name: &str) -> Column {
    match name.to_ascii_lowercase().as_str() {
        "at" | "at_s" | "time" | "seconds" => Column::At(SECOND),
        "at_ms" => Column::At(SECOND / 1e3),
        "service" | "service_s" => Column::Service(SECOND),
        "service_ms" => Column::Service(SECOND / 1e3),
        "rate" | "per_s" => Column::Rate,
        _ => Column::Other,
    }
}

fn of_arrivals(rows: &[(f64, Option<f64>)]) -> ArrivalRecord {
    let served: Option<Arc<[u64]>> = rows
        .iter()
        .map(|(_, took)| took.map(|it| it as u64))
        .collect();
    ArrivalRecord {
        arrivals: Arrivals::Recorded(rows.iter().map(|(at, _)| *at as u64).collect()),
        service: served.map(Service::Recorded),
        count: Some(rows.len() as u64),
    }
}

/// The last rate holds as long as the one before.
fn of_rates(rows: &[(f64, Option<f64>)]) -> Result<ArrivalRecord, String> {
    let spans = rows.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let mut spans: Vec<f64> = spans.collect();
    let Some(last) = spans.last().copied() else {
        return Err("one rate alone says nothing of how long it holds".into());
    };
    spans.push(last);
    let steps = rows.iter().zip(spans).map(|((_, rate), span)| RateStep {
        nanos: span as u64,
        per_s: rate.unwrap_or(0.0),
    });
    Ok(ArrivalRecord {
        arrivals: Arrivals::Curve {
            steps: steps.collect(),
            repeats: false,
        },
        service: None,
        count: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_instants_from_the_first_on() {
        let record = read("# a day\n10.5\n10\n\n11\n").unwrap();
        let at = [0, 500_000_000, 1_000_000_000];
        assert_eq!(record.arrivals, Arrivals::Recorded(Arc::new(at)));
        assert_eq!((record.service, record.count), (None, Some(3)));
    }

    #[test]
    fn times_may_stand_beside_them() {
        let record = read("at_ms,path,service_ms\n5,/a,20\n7,/b,1.5\n").unwrap();
        let at = [0, 2_000_000];
        assert_eq!(record.arrivals, Arrivals::Recorded(Arc::new(at)));
        let spans = [20_000_000, 1_500_000];
        assert_eq!(record.service, Some(Service::Recorded(Arc::new(spans))));
    }

    #[test]
    fn rates_hold_until_the_next() {
        let record = read("at,rate\n0,100\n10,200\n").unwrap();
        let nanos = 10_000_000_000;
        let step = |per_s| RateStep { nanos, per_s };
        let wanted = Arrivals::Curve {
            steps: Arc::new([step(100.0), step(200.0)]),
            repeats: false,
        };
        assert_eq!(record.arrivals, wanted);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for (text, said) in [
            ("", "no arrivals"),
            ("1\nx\n", "line 2"),
            ("1\n-1\n", "line 2"),
            ("1\nnan\n", "line 2"),
            ("rate,at\n1,1\n", "line 1"),
            ("at,rate\n1,1\n", "one rate"),
            ("1e30\n", "line 1"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(said), "{text:?}: {fault}");
        }
    }
}
