//! The blocks that pages are made of, as JSON.

use std::cmp::Ordering;
use std::time::Duration;

use rideau_config::human::{self, Span};
use serde_json::{Value as Json, json};

use super::Look;
use crate::view::facts::{Fact, Facts, Surface, Type, Value, bare};
use crate::view::history::{BOUNDS_US, Column as HeatColumn, HistoryRow};
use crate::view::worst::{Level, grouped};

/// Values of the small chart beside a number.
const SPARK: usize = 60;

/// A page that is being made.
pub(super) struct Blocks<'a> {
    pub look: &'a Look<'a>,
    title: String,
    all: Vec<Json>,
}

/// A column of a table.
pub(super) struct ColumnHead {
    pub name: &'static str,
    pub label: String,
    pub help: &'static str,
    pub is_number: bool,
}

/// A row of a table.
#[derive(Default)]
pub(super) struct PageRow {
    pub link: Option<String>,
    pub level: Level,
    pub why: String,
    pub fill: Option<(f64, String)>,
    pub cells: Vec<ShownCell>,
    pub actions: Vec<Json>,
}

/// A cell of a table.
pub(super) enum ShownCell {
    Text(String),
    /// With the address of a page.
    Link(String, String),
    /// Something to copy.
    Id(String),
}

/// A table, or a page of one.
#[derive(Default)]
pub(super) struct Listing {
    pub id: &'static str,
    pub title: String,
    pub heads: Vec<ColumnHead>,
    pub rows: Vec<PageRow>,
    pub total: usize,
    pub from: usize,
    /// Rows can be sorted, searched and paged.
    pub is_whole: bool,
    /// Where the whole of it is.
    pub more: Option<&'static str>,
    pub note: String,
    /// What to say if there are no rows.
    pub none: String,
}

/// A line of a chart.
pub(super) struct Line {
    pub kind: &'static str,
    pub name: String,
    pub of: &'static str,
    pub label: String,
}

/// A number that stands alone.
pub(super) struct Tile {
    pub label: &'static str,
    pub text: String,
    pub help: &'static str,
    /// The series beside it.
    pub of: Option<&'static str>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(look: &'a Look<'a>) -> Self {
        Self {
            look,
            title: String::new(),
            all: Vec::new(),
        }
    }

    /// The title and the blocks.
    pub(super) fn finish(self) -> (String, Vec<Json>) {
        (self.title, self.all)
    }

    pub(super) fn title(&mut self, title: impl Into<String>) {
        self.title = title.into();
    }

    /// Any block.
    pub(super) fn add(&mut self, block: Json) {
        self.all.push(block);
    }

    /// Sentences, a line each.
    pub(super) fn text(&mut self, title: &str, text: &str) {
        self.add(json!({ "type": "text", "title": title, "text": text.trim_end() }));
    }

    pub(super) fn actions(&mut self, actions: Vec<Json>) {
        if !actions.is_empty() {
            self.add(json!({ "type": "actions", "actions": actions }));
        }
    }

    /// Every fact of a thing that has a column.
    pub(super) fn facts<T: Facts>(&mut self, title: &str, one: &T) {
        let all = T::ALL.iter().filter_map(|fact| {
            let column = fact.about.column()?;
            let text = shown(fact, one);
            let help = fact.about.help;
            (!text.is_empty())
                .then(|| json!({ "label": label(column), "text": text, "help": help }))
        });
        let all: Vec<_> = all.collect();
        self.add(json!({ "type": "facts", "title": title, "rows": all }));
    }

    pub(super) fn tiles(&mut self, tiles: Vec<Tile>) {
        let span = Duration::from_secs(60).max(self.look.history.step(Duration::ZERO) * 60);
        let all = tiles.into_iter().map(|tile| {
            let spark = tile.of.and_then(|of| self.look.history.values(of, span));
            let spark = spark.unwrap_or_default().into_iter().rev().take(SPARK);
            let mut spark: Vec<_> = spark.map(|(_, value)| rounded(f64::from(value))).collect();
            spark.reverse();
            json!({ "label": tile.label, "text": tile.text, "help": tile.help, "spark": spark })
        });
        let all: Vec<_> = all.collect();
        self.add(json!({ "type": "tiles", "tiles": all }));
    }

    /// Lines over time; `unit` is that of their values: `us`, `/s`, or none.
    pub(super) fn chart(&mut self, id: &str, title: &str, unit: &str, lines: &[Line]) {
        if lines.is_empty() {
            return;
        }
        let look = self.look;
        let now: Vec<_> = lines.iter().map(|line| line.now(look)).collect();
        let data = look.span.map(|span| past(look, lines, span));
        let series = lines.iter().map(|line| json!({ "label": line.label }));
        self.add(json!({
            "type": "chart",
            "id": id,
            "title": title,
            "unit": unit,
            "series": series.collect::<Vec<_>>(),
            "now": now,
            "past": data,
        }));
    }

    /// How long the waits of a thing were, over the last minutes.
    pub(super) fn heat(&mut self, title: &str, kind: &str, name: &str) {
        let (columns, each) = self.look.history.heat(kind, name);
        let bounds = BOUNDS_US
            .iter()
            .map(|bound| Span::micros(*bound).to_string());
        self.add(json!({
            "type": "heat",
            "title": title,
            "text": heat_text(&columns, each),
            "bounds": bounds.collect::<Vec<_>>(),
            "columns": columns.iter().map(|column| column.to_vec()).collect::<Vec<_>>(),
            "step_s": each.as_secs_f64(),
        }));
    }

    /// Counts side by side, the highest first.
    pub(super) fn bars(&mut self, title: &str, rows: Vec<(String, u64, Option<String>)>) {
        let mut rows = rows;
        rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let rows = rows.into_iter().map(|(label, count, link)| {
            let text = grouped(i64::try_from(count).unwrap_or(i64::MAX));
            json!({ "label": label, "count": count, "text": text, "link": link })
        });
        let rows: Vec<_> = rows.collect();
        self.add(json!({ "type": "bars", "title": title, "rows": rows }));
    }

    pub(super) fn table(&mut self, listing: Listing) {
        let heads = listing.heads.iter().map(|head| {
            json!({
                "name": head.name,
                "label": head.label,
                "help": head.help,
                "is_number": head.is_number,
            })
        });
        let has_fill = listing.rows.iter().any(|row| row.fill.is_some());
        let rows: Vec<_> = listing.rows.iter().map(PageRow::json).collect();
        self.add(json!({
            "type": "table",
            "id": listing.id,
            "title": listing.title,
            "heads": heads.collect::<Vec<_>>(),
            "has_fill": has_fill,
            "rows": rows,
            "total": listing.total.max(listing.rows.len()),
            "from": listing.from,
            "count": self.look.count,
            "is_whole": listing.is_whole,
            "sort": self.look.sort,
            "find": self.look.find,
            "only": self.look.only,
            "more": listing.more,
            "note": listing.note,
            "none": listing.none,
        }));
    }
}

impl PageRow {
    fn json(&self) -> Json {
        let cells = self.cells.iter().map(|cell| match cell {
            ShownCell::Text(text) => json!(text),
            ShownCell::Link(text, link) => json!({ "text": text, "link": link }),
            ShownCell::Id(text) => json!({ "text": text, "is_id": true }),
        });
        json!({
            "link": self.link,
            "level": self.level.word(),
            "why": self.why,
            "fill": self.fill.as_ref().map(|(fill, text)| json!({ "part": fill, "text": text })),
            "cells": cells.collect::<Vec<_>>(),
            "actions": self.actions,
        })
    }
}

impl Line {
    pub(super) fn of(kind: &'static str, name: &str, of: &'static str, label: &str) -> Self {
        Self {
            kind,
            name: name.into(),
            of,
            label: label.into(),
        }
    }

    fn series(&self) -> String {
        match self.name.as_str() {
            "" => format!("{}.{}", self.kind, self.of),
            name => format!("{}.{name}.{}", self.kind, self.of),
        }
    }

    fn is_row(&self, row: &HistoryRow) -> bool {
        row.kind == self.kind && row.name == self.name
    }

    fn now(&self, look: &Look<'_>) -> Json {
        let row = look.sample.rows.iter().find(|row| self.is_row(row));
        let values = row.map(|row| row.values.iter());
        let value = values.and_then(|mut values| values.find(|(name, _)| name == self.of));
        value.map_or(Json::Null, |(_, value)| rounded(*value))
    }
}

/// The values of some lines: the instants in seconds, and a list for each line.
fn past(look: &Look<'_>, lines: &[Line], span: Duration) -> Json {
    let of = |line: &Line| {
        look.history
            .values(&line.series(), span)
            .unwrap_or_default()
    };
    let all: Vec<_> = lines.iter().map(of).collect();
    // Those of a younger line are missing at the beginning.
    let longest = all.iter().max_by_key(|values| values.len());
    let at: Vec<_> = longest.into_iter().flatten().map(|(at, _)| *at).collect();
    let values = all.iter().map(|values| {
        let missing = at.len() - values.len();
        let known = values.iter().map(|(_, value)| rounded(f64::from(*value)));
        let all = std::iter::repeat_n(Json::Null, missing).chain(known);
        all.collect::<Vec<_>>()
    });
    json!({ "at_ms": at, "values": values.collect::<Vec<_>>() })
}

/// A number with few digits: charts have many.
fn rounded(value: f64) -> Json {
    if !value.is_finite() {
        return Json::Null;
    }
    match (value * 100.0).round() / 100.0 {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => json!(whole as i64),
        value => json!(value),
    }
}

/// A heat map for a reader that does not see it.
fn heat_text(columns: &[HeatColumn], each: Duration) -> String {
    let minutes = Span(each * u32::try_from(columns.len()).unwrap_or(u32::MAX));
    let mut sums = vec![0_u64; BOUNDS_US.len() + 1];
    for column in columns {
        for (sum, count) in sums.iter_mut().zip(column) {
            *sum += u64::from(*count);
        }
    }
    let all: u64 = sums.iter().sum();
    let Some(most) = (0..sums.len())
        .max_by_key(|row| sums[*row])
        .filter(|_| all > 0)
    else {
        return "No wait has ended yet.".into();
    };
    let last = (0..sums.len()).rev().find(|row| sums[*row] > 0);
    let part = sums[most] as f64 / all as f64;
    let bound = |row: usize| match BOUNDS_US.get(row) {
        Some(bound) => format!("up to {}", Span::micros(*bound)),
        None => format!("over {}", Span::micros(BOUNDS_US[row - 1])),
    };
    format!(
        "{} waits in {minutes}. {:.0} % of them took {}; the longest {}.",
        grouped(i64::try_from(all).unwrap_or(i64::MAX)),
        part * 100.0,
        bound(most),
        bound(last.unwrap_or(most)),
    )
}

/// The columns of a kind that there is room for.
pub(super) fn heads<T: Facts>(
    is_wanted: fn(Surface) -> bool,
) -> Vec<(ColumnHead, &'static Fact<T>)> {
    let all = T::ALL.iter().filter_map(|fact| {
        let name = fact.about.names(is_wanted).next()?;
        let head = ColumnHead {
            name,
            label: label(name),
            help: fact.about.help,
            is_number: !matches!(
                fact.about.is,
                Type::Text | Type::Flag | Type::Names | Type::Shape(_)
            ),
        };
        Some((head, fact))
    });
    all.collect()
}

/// Columns with room on the page.
pub(super) const fn on_page(on: Surface) -> bool {
    matches!(
        on,
        Surface::Show {
            is_on_page: true,
            ..
        }
    )
}

/// All columns.
pub(super) const fn anywhere(on: Surface) -> bool {
    matches!(on, Surface::Show { .. })
}

/// Numbers that are names: they are written as they are typed.
const NAMES: [&str; 4] = ["pid", "id", "connection", "life"];

/// A fact as text, with its unit.
pub(super) fn shown<T: Facts>(fact: &Fact<T>, one: &T) -> String {
    match (fact.value)(one) {
        Value::Count(count) if fact.about.is == Type::Bytes => human::Size(count).to_string(),
        Value::Count(number) if NAMES.contains(&fact.about.name) => number.to_string(),
        Value::Count(count) => grouped(i64::try_from(count).unwrap_or(i64::MAX)),
        Value::Ratio(ratio) => format!("{ratio:.3}"),
        Value::Span(span) => Span(span).to_string(),
        Value::Instant(at) => format!("{} ago", Span(at.elapsed().unwrap_or_default())),
        Value::Text(text) => human::shown(&text).into_owned(),
        Value::Flag(is) => if is { "yes" } else { "no" }.into(),
        Value::Names(names) => human::shown(&names.join(", ")).into_owned(),
        Value::Size(size) => size
            .to_u128()
            .and_then(|size| i64::try_from(size).ok())
            .map_or_else(|| size.to_string(), grouped),
        // What takes more than a cell is in no column.
        _ => String::new(),
    }
}

/// Which of two things comes first by a fact.
pub(super) fn order<T: Facts>(fact: &Fact<T>, one: &T, other: &T) -> Ordering {
    let number = |value: &Value<'_>| match value {
        Value::Count(count) => Some(*count as f64),
        Value::Ratio(ratio) => Some(*ratio),
        Value::Span(span) => Some(span.as_secs_f64()),
        Value::Flag(is) => Some(f64::from(u8::from(*is))),
        Value::Size(size) => Some(size.to_f64()),
        Value::Instant(at) => Some(crate::view::facts::since_1970(*at).as_secs_f64()),
        _ => None,
    };
    let (one_is, other_is) = ((fact.value)(one), (fact.value)(other));
    match (number(&one_is), number(&other_is)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (None, None) => shown(fact, one).cmp(&shown(fact, other)),
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
}

/// The name of a column without its unit, which the cells have.
pub(super) fn label(column: &str) -> String {
    bare(column).replace('_', " ")
}

/// The address of a thing's page.
pub(super) fn link(page: &str, name: &str) -> String {
    let mut link = format!("{page}/");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                link.push(byte.into());
            }
            byte => link += &format!("%{byte:02X}"),
        }
    }
    link
}

/// The page of a thing of this kind.
pub(super) fn page_of(kind: &str, name: &str) -> Option<String> {
    let page = match kind {
        "pool" | "member" => "pools",
        "broker" | "match" => "brokers",
        "regulator" | "lease" => "regulators",
        "lock" => "locks",
        "app" | "request" => "apps",
        "range" | "value" => "ranges",
        _ => return None,
    };
    (!name.is_empty() && !name.starts_with('@')).then(|| link(page, name))
}

/// How long ago that was.
pub(super) fn ago(at: std::time::SystemTime) -> String {
    format!("{} ago", Span(at.elapsed().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_an_address() {
        assert_eq!(link("locks", "tenant/4 2"), "locks/tenant%2F4%202");
        assert_eq!(page_of("pool", "pg-1").as_deref(), Some("pools/pg-1"));
        assert_eq!(page_of("client", "a"), None);
    }

    #[test]
    fn a_heat_map_is_a_sentence_too() {
        let mut column = [0; BOUNDS_US.len() + 1];
        (column[3], column[8]) = (90, 10);
        let text = heat_text(&[column], Duration::from_secs(5));
        let expected =
            "100 waits in 5.0 s. 90 % of them took up to 1.0 ms; the longest up to 50 ms.";
        assert_eq!(text, expected);
        assert_eq!(heat_text(&[], Duration::ZERO), "No wait has ended yet.");
    }

    #[test]
    fn charts_have_few_digits() {
        let all = [1.0, 0.123_456, f64::NAN, -2.0].map(|value| rounded(value).to_string());
        assert_eq!(all, ["1", "0.12", "null", "-2"]);
    }
}
