//! Rows under a header, as wide as the terminal allows.

use std::io::{self, IsTerminal, Write};

use rideau_config::human::Size;
use rideau_resp::Value;
use serde_json::{Map, Value as Json};

use super::{has_colours, show, span, terminal};

/// Rows, all as long as the header.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Value>>,
}

/// The least that is left of a column.
const NARROW: usize = 8;
const GAP: usize = 2;
/// The columns whose unit may stand in the row.
const SIZED: [&str; 2] = ["max", "now"];

impl Table {
    /// The table in an answer whose first element is a row of names.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let (head, rows) = show::elements(answer).split_first()?;
        let head = show::elements(head);
        let is_name = |value: &Value| matches!(value, Value::Bulk(_) | Value::Simple(_));
        let fits = |row: &Value| show::elements(row).len() == head.len();
        if head.is_empty() || !head.iter().all(is_name) || !rows.iter().all(fits) {
            return None;
        }
        Some(Self {
            head: head.iter().map(show::text).collect(),
            rows: rows
                .iter()
                .map(|row| show::elements(row).to_vec())
                .collect(),
        })
    }

    /// The rows, each with what it is known by and as one line.
    pub(crate) fn named_lines(&self) -> Vec<(String, String)> {
        let line = |row: &Vec<Value>| {
            let name = row.first().map_or_else(String::new, show::text);
            (name, self.cells(row).join("  "))
        };
        self.rows.iter().map(line).collect()
    }

    /// The text of a cell by the name of its column; none if there is nothing.
    pub(crate) fn cell(&self, row: usize, name: &str) -> Option<String> {
        let column = self.head.iter().position(|head| head == name)?;
        let value = self.rows.get(row)?.get(column)?;
        (*value != Value::Null).then(|| show::text(value))
    }

    /// How many rows there are.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// There are no rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keep these columns, as far as there are any, and call the first one `title`.
    pub(crate) fn pick(&mut self, columns: &[&str], title: &str) {
        let is_wanted = |name: &String| columns.contains(&name.as_str());
        if self.head.iter().any(is_wanted) {
            let kept: Vec<bool> = self.head.iter().map(is_wanted).collect();
            for row in &mut self.rows {
                let mut kept = kept.iter();
                row.retain(|_| kept.next().is_some_and(|kept| *kept));
            }
            self.head.retain(is_wanted);
        }
        if let Some(first) = self.head.first_mut() {
            title.clone_into(first);
        }
    }

    /// Keep the rows that have this text in a cell.
    pub(crate) fn keep(&mut self, wanted: &str) {
        let has = |row: &Vec<Value>| row.iter().any(|cell| show::text(cell) == wanted);
        self.rows.retain(has);
    }

    /// The rows as objects.
    pub(crate) fn json(&self) -> Json {
        let object = |row: &Vec<Value>| {
            let pairs = self.head.iter().cloned().zip(row.iter().map(show::json));
            Json::Object(pairs.collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }

    /// Print it to standard output.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let width = width(&out);
        for (at, line) in self.lines(width).iter().enumerate() {
            if at == 0 && has_colours(&out) {
                writeln!(out, "\x1b[1m{line}\x1b[0m")?;
            } else {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    /// Its lines, no longer than `width` if they can be cut to it.
    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let heads: Vec<_> = self
            .head
            .iter()
            .map(|name| terminal::one_line(bare(name).0).to_uppercase())
            .collect();
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        let widest = |column: usize| {
            let cells = cells.iter().map(|row| row[column].chars().count());
            cells
                .chain([heads[column].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..heads.len()).map(widest).collect();
        if let Some(width) = width {
            squeeze(&mut widths, width);
        }
        let right: Vec<bool> = (0..heads.len())
            .map(|column| self.is_right(column))
            .collect();
        std::iter::once(&heads)
            .chain(&cells)
            .map(|row| line(row, &widths, &right))
            .collect()
    }

    fn cells(&self, row: &[Value]) -> Vec<String> {
        // A row may say the unit of its numbers in a cell.
        let unit = self.head.iter().position(|name| name == "unit");
        let is_size = unit.is_some_and(|at| show::text(&row[at]) == "bytes");
        let pairs = self.head.iter().zip(row);
        pairs
            .map(|(name, value)| match value {
                Value::Integer(bytes) if is_size && SIZED.contains(&name.as_str()) => {
                    Size(bytes.unsigned_abs()).to_string()
                }
                value => cell(name, value),
            })
            .collect()
    }

    /// Numbers and times stand below each other by their last digit.
    fn is_right(&self, column: usize) -> bool {
        let is_number = |row: &Vec<Value>| match &row[column] {
            Value::Integer(_) | Value::Double(_) | Value::Big(_) | Value::Null => true,
            value => show::text(value).parse::<f64>().is_ok(),
        };
        !self.rows.is_empty() && self.rows.iter().all(is_number)
    }
}

/// The unit of a column, by the end of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    None,
    /// A span in this many microseconds each.
    Span(i64),
    /// Milliseconds since 1970.
    Instant,
    /// Bytes.
    Size,
}

/// The name of a column without its unit, which the cells have.
fn bare(name: &str) -> (&str, Unit) {
    match name {
        "memory" => return (name, Unit::Size),
        "at_ms" => return ("at", Unit::Instant),
        _ => (),
    }
    let units = [
        ("_bytes", Unit::Size),
        ("_us", Unit::Span(1)),
        ("_s", Unit::Span(1_000_000)),
        ("_ms", Unit::Span(1_000)),
    ];
    let mut found = units
        .iter()
        .filter_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    found.next().unwrap_or((name, Unit::None))
}

fn cell(name: &str, value: &Value) -> String {
    let text = terminal::one_line(&show::text(value)).into_owned();
    let number = text.parse::<f64>().ok();
    match (number, bare(name).1) {
        (Some(number), Unit::Span(scale)) => span::shown((number * scale as f64) as i64),
        (Some(number), Unit::Instant) => span::clock(number as u64),
        (Some(number), Unit::Size) => Size(number as u64).to_string(),
        _ => text,
    }
}

/// Take from the widest column until all fit.
fn squeeze(widths: &mut [usize], most: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > most {
        let widest = widths.iter_mut().max();
        match widest.filter(|width| **width > NARROW) {
            Some(width) => *width -= 1,
            None => return,
        }
    }
}

fn line(row: &[String], widths: &[usize], right: &[bool]) -> String {
    let mut line = String::new();
    for ((cell, &width), &right) in row.iter().zip(widths).zip(right) {
        let cell = cut(cell, width);
        line += &if right {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        };
        line += &" ".repeat(GAP);
    }
    line.trim_end().into()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let short: String = text.chars().take(width.saturating_sub(1)).collect();
    short + "…"
}

/// How wide the terminal is, if it is one.
fn width(out: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn sample() -> Table {
        let row = |name: &str, held, waited| {
            Value::Array(vec![
                bulk(name),
                Value::Integer(held),
                Value::Integer(waited),
            ])
        };
        let head = Value::Array(vec![bulk("pool"), bulk("held"), bulk("wait_p99_us")]);
        let answer = Value::Array(vec![head, row("pg-1", 9, 180_000), row("licences", 13, 0)]);
        Table::of(&answer).unwrap()
    }

    #[test]
    fn numbers_stand_right_and_times_have_their_units() {
        assert_eq!(
            sample().lines(None),
            [
                "POOL      HELD  WAIT_P99",
                "pg-1         9    180 ms",
                "licences    13         0",
            ]
        );
    }

    #[test]
    fn milliseconds_are_a_span_but_for_those_at_which_something_was() {
        let head = ["name", "keepalive_ms", "at_ms"].map(bulk).to_vec();
        let row = vec![bulk("n1"), Value::Integer(339), Value::Integer(43_471_882)];
        let answer = Value::Array(vec![Value::Array(head), Value::Array(row)]);
        assert_eq!(
            Table::of(&answer).unwrap().lines(None),
            [
                "NAME  KEEPALIVE                        AT",
                "n1       339 ms  1970-01-01 12:04:31.882Z",
            ]
        );
    }

    #[test]
    fn sizes_have_units_by_their_column_or_by_their_row() {
        let head = ["name", "max", "unit", "memory"].map(bulk).to_vec();
        let row = |name: &str, unit: &str| {
            let (max, memory) = (Value::Integer(65_536), Value::Integer(5_452_595));
            Value::Array(vec![bulk(name), max, bulk(unit), memory])
        };
        let rows = [row("frame_max", "bytes"), row("keys_max", "")];
        let answer = [vec![Value::Array(head)], rows.to_vec()].concat();
        let lines = Table::of(&Value::Array(answer)).unwrap().lines(None);
        assert_eq!(lines[1], "frame_max  64 KiB  bytes  5.2 MiB");
        assert_eq!(lines[2], "keys_max    65536         5.2 MiB");
    }

    #[test]
    fn a_narrow_terminal_cuts_the_widest_column() {
        let mut table = sample();
        table.rows[0][0] = bulk("a-pool-with-a-very-long-name");
        let lines = table.lines(Some(30));
        assert!(
            lines.iter().all(|line| line.chars().count() <= 30),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("a-pool-with"), "{lines:?}");
        assert!(lines[1].contains('…'), "{lines:?}");
    }

    #[test]
    fn rows_become_objects_and_can_be_picked() {
        let mut table = sample();
        table.keep("pg-1");
        let wanted = serde_json::json!([{ "pool": "pg-1", "held": 9, "wait_p99_us": 180_000 }]);
        assert_eq!(table.json(), wanted);
    }

    #[test]
    fn columns_can_be_picked_and_the_first_is_renamed() {
        let mut table = sample();
        table.pick(&["pool", "wait_p99_us", "no_such"], "POOL");
        assert_eq!(table.lines(None)[0], "POOL      WAIT_P99");
        table.pick(&["no_such"], "all");
        assert_eq!(table.lines(None)[1], "pg-1        180 ms");
    }

    #[test]
    fn an_answer_without_a_header_is_no_table() {
        let no = Value::Array(vec![bulk("full"), Value::Integer(3), Value::Integer(3)]);
        assert!(Table::of(&no).is_none());
    }
}
