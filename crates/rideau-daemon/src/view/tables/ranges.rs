//! Ranges and their views, as tables.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau::allocator::{RangeStats, Size};
use rideau_config::{Hold, class_word};

use super::{Cell, Table};
use crate::state::daemon::Daemon;
use crate::state::values::NamedRange;
use crate::state::viewer::Viewer;

pub(super) fn ranges(daemon: &Daemon) -> Table {
    let mut table = Table::new(&[
        "name",
        "base",
        "used",
        "free",
        "reserved",
        "quarantined",
        "detached",
        "cooling",
        "size",
        "given",
        "leases_s",
        "ending_1h",
        "none",
        "p99_us",
        "class",
        "hold",
        "state",
    ]);
    let places = daemon.places.load();
    let known: HashMap<&str, &Arc<NamedRange>> = places
        .ranges
        .all()
        .into_iter()
        .map(|place| (&*place.name, place))
        .collect();
    // Those that drain have no place any more, but are there.
    let ending = daemon.values.ending();
    let has_failed = daemon.values.ranges.failed().is_some();
    for stats in daemon.values.ranges.all_stats() {
        let place = known.get(stats.name.as_str()).copied();
        let ending = ending.as_ref().map(|ending| {
            let id = daemon.values.ranges.range(&stats.name);
            id.and_then(|id| ending.get(&id).copied()).unwrap_or(0)
        });
        let mut row = row(&stats, place, ending);
        if let (true, Some(state)) = (has_failed, row.last_mut()) {
            *state = "failed".into();
        }
        table.rows.push(row);
    }
    table
}

/// The views of which a user may use all ranges.
pub(super) fn views(daemon: &Daemon, sight: Viewer<'_>) -> Table {
    let mut table = Table::new(&[
        "name",
        "values",
        "size",
        "free",
        "quarantined",
        "held",
        "used",
    ]);
    let places = daemon.places.load();
    for view in places.views.all() {
        let mut touched = view.counted.touched(&places.ranges);
        if !touched.all(|range| sight.sees("range", &range.name)) {
            continue;
        }
        let count = daemon.values.count(&view.counted);
        table.rows.push(vec![
            view.config.name.as_str().into(),
            view.config.values.join(" ").into(),
            size(count.size),
            size(count.free),
            size(count.quarantined),
            size(count.held),
            used(count.free, count.size).into(),
        ]);
    }
    table
}

fn row(stats: &RangeStats, place: Option<&Arc<NamedRange>>, ending: Option<u64>) -> Vec<Cell> {
    let hold = place.map(|place| match place.config.hold {
        Hold::Lease => "lease",
        Hold::Connection => "connection",
    });
    let counts = place.map(|place| &place.counts);
    let p99 = counts.map(|counts| counts.took.lock().quantile(0.99));
    let state = match (stats.is_draining, stats.quarantined.is_zero()) {
        (true, _) => "draining",
        (false, false) => "quarantine",
        (false, true) if stats.free.is_zero() => "exhausted",
        (false, true) => "ok",
    };
    vec![
        stats.name.as_str().into(),
        stats.kind.print(stats.first).into(),
        used(stats.free, stats.size).into(),
        size(stats.free),
        stats.reserved.into(),
        size(stats.quarantined),
        stats.detached.into(),
        stats.cooling.into(),
        size(stats.size),
        stats.tiers.iter().sum::<u64>().into(),
        counts.map(|counts| counts.rate().round() as u64).into(),
        ending.into(),
        counts
            .map(|counts| counts.exhausted.load(Ordering::Relaxed))
            .into(),
        p99.into(),
        place
            .map(|place| class_word(place.config.options.class))
            .into(),
        hold.into(),
        state.into(),
    ]
}

/// How many of all values are not free, in percent.
fn used(free: Size, all: Size) -> String {
    let (free, all) = (free.to_f64(), all.to_f64());
    let part = if all > 0.0 { 1.0 - free / all } else { 0.0 };
    format!("{:.0} %", part * 100.0)
}

/// A number if one can say it so.
fn size(size: Size) -> Cell {
    match size.to_u128().and_then(|size| i64::try_from(size).ok()) {
        Some(size) => Cell::Number(size),
        None => size.to_string().into(),
    }
}
