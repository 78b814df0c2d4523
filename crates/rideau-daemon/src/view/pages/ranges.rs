//! Ranges: how full they are, a map of one, a look-up, and how many values end when.

use std::time::Duration;

use rideau::allocator::{Interval, RangeOptions, Size};
use rideau_config::human::Span;
use serde_json::{Value, json};

use super::blocks::{Blocks, Line, Listing};
use super::lists::{Things, rows_of};
use super::things;
use crate::view::explain;
use crate::view::facts::{RangeNow, ViewNow};
use crate::view::worst::short;

/// Cells of the map of a range.
const CELLS: u128 = 256;
/// Ends of values are counted within these many minutes.
const WITHIN: [u64; 4] = [15, 30, 45, 60];
/// With more values than this, those that end are not counted: it takes a look at each.
const COUNTED_MAX: u64 = 200_000;

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Ranges");
    let look = blocks.look;
    let mut all = RangeNow::all(look.daemon, false);
    all.sort_by(|one, other| one.name().cmp(other.name()));
    let all = std::cell::RefCell::new(all);
    let of = |name: &str| take(&mut all.borrow_mut(), name);
    Things {
        kind: "range",
        page: "ranges",
        title: "Ranges",
        of: &of,
    }
    .whole(blocks);
    let views = ViewNow::all(
        &look.daemon.catalog.load(),
        &look.daemon.values,
        look.viewer,
    );
    if !views.is_empty() {
        let (heads, rows) = rows_of(&views, None);
        blocks.table(Listing {
            id: "views",
            title: "Views".into(),
            heads,
            total: rows.len(),
            rows,
            ..Listing::default()
        });
    }
}

pub(super) fn few(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let all = std::cell::RefCell::new(RangeNow::all(look.daemon, false));
    let of = |name: &str| take(&mut all.borrow_mut(), name);
    Things {
        kind: "range",
        page: "ranges",
        title: "Ranges",
        of: &of,
    }
    .few(blocks);
}

fn take(all: &mut Vec<RangeNow>, name: &str) -> Option<RangeNow> {
    let at = all.iter().position(|range| range.name() == name)?;
    Some(all.swap_remove(at))
}

pub(super) fn one(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look = blocks.look;
    look.viewer.sees("range", name).then_some(())?;
    let ranges = &look.daemon.values.ranges;
    let id = ranges.range(name)?;
    let (stats, options) = (ranges.stats(id)?, ranges.options(id)?);
    blocks.title(format!("Range {name}"));
    let found = explain::explain(look.daemon, &format!("range:{name}"), look.viewer)?;
    blocks.text("Now", &found.text);
    look_up(blocks, name);
    map(blocks, &options, stats.size);
    let lines = ["free", "reserved", "quarantined"].map(|of| Line::of("range", name, of, of));
    blocks.chart("use", "Values", "", &lines);
    things::rates(blocks, "range", name);
    endings(blocks, id, stats.reserved);
    let now = RangeNow::all(look.daemon, false).into_iter();
    if let Some(now) = now.into_iter().find(|range| range.name() == name) {
        blocks.facts("All numbers", &now);
    }
    Some(())
}

/// A value that one looks for: its holder, and for how long.
fn look_up(blocks: &mut Blocks<'_>, name: &str) {
    let look = blocks.look;
    let found = (!look.find.is_empty()).then(|| {
        let word = format!("value:{}", look.find);
        let found = explain::explain(look.daemon, &word, look.viewer);
        found.map_or_else(
            || format!("No range here has a value {:?}.", look.find),
            |found| found.text,
        )
    });
    blocks.add(json!({
        "type": "lookup",
        "title": "Look up a value",
        "hint": "10.20.3.7",
        "name": name,
        "find": look.find,
        "text": found.unwrap_or_default().trim_end(),
    }));
}

/// The range in cells of as many values each: how much of each is used, and quarantined.
fn map(blocks: &mut Blocks<'_>, options: &RangeOptions, size: Size) {
    let Some(all) = size.to_u128().filter(|all| *all > 0) else {
        return;
    };
    let each = all.div_ceil(CELLS);
    let mut cells = Vec::new();
    for span in &options.spans {
        let (mut first, end) = (span.interval.first(), span.interval.last());
        // A list of single values has no more cells than a long interval.
        while cells.len() < CELLS as usize + options.spans.len().min(CELLS as usize) {
            let last = first.saturating_add(each - 1).min(end);
            let Some(interval) = Interval::new(first, last) else {
                break;
            };
            let (from, to) = (span.kind.print(first), span.kind.print(last));
            cells.push(cell(blocks, interval, &from, &to));
            if last == end {
                break;
            }
            first = last + 1;
        }
    }
    let text = format!(
        "{} cells of {} values each; the darker, the more of them are used. A cell with a bar has \
         quarantined values.",
        cells.len(),
        short(each as f64)
    );
    blocks.add(json!({ "type": "map", "title": "Map", "text": text, "cells": cells }));
}

fn cell(blocks: &Blocks<'_>, interval: Interval, from: &str, to: &str) -> Value {
    let count = blocks.look.daemon.values.ranges.count(interval);
    let size = count.size.to_f64();
    let part = |of: Size| if size > 0.0 { of.to_f64() / size } else { 0.0 };
    let (used, apart) = (part(count.held), part(count.quarantined));
    let text = format!(
        "{from} to {to}: {} used, {} quarantined, {} free",
        count.held, count.quarantined, count.free
    );
    json!({ "used": (used * 100.0).round() / 100.0, "is_apart": apart > 0.0, "text": text })
}

/// How many values end in the next hour unless they are renewed.
fn endings(blocks: &mut Blocks<'_>, id: rideau::allocator::RangeId, reserved: u64) {
    let title = "Values that end unless they are renewed";
    if reserved > COUNTED_MAX {
        let text = format!(
            "Not counted: it has more than {} values.",
            short(COUNTED_MAX as f64)
        );
        return blocks.text(title, &text);
    }
    let ranges = &blocks.look.daemon.values.ranges;
    let mut before = 0;
    let mut bars = Vec::new();
    for minutes in WITHIN {
        let within = ranges.ending_within(Duration::from_secs(minutes * 60));
        let count = within.get(&id).copied().unwrap_or(0);
        bars.push((minutes, count.saturating_sub(before)));
        before = count;
    }
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let rows = bars.iter().map(|(minutes, count)| {
        let to = Span(Duration::from_secs(minutes * 60));
        json!({ "label": format!("{} to {to}", minutes - 15), "count": count,
            "text": count.to_string() })
    });
    let rows: Vec<_> = rows.collect();
    if most > 0 {
        blocks.add(json!({ "type": "bars", "title": title, "rows": rows }));
    } else {
        blocks.text(title, "None within an hour.");
    }
}
