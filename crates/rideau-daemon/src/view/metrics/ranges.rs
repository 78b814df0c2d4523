//! The numbers of ranges and of their views.

use std::fmt;
use std::sync::atomic::Ordering;

use super::page::{Labels, Page};
use crate::state::catalog::Catalog;
use crate::state::values::Values;

/// The bounds of how many nodes are asked.
const HOPS: [f64; 5] = [0.0, 1.0, 2.0, 3.0, f64::INFINITY];

pub(super) fn ranges(page: &mut Page<'_, '_>, places: &Catalog, values: &Values) -> fmt::Result {
    let all = values.ranges.all_stats();
    let rows = all.iter().flat_map(|stats| {
        let states = [
            ("free", stats.free.to_f64()),
            ("reserved", stats.reserved as f64),
            ("quarantined", stats.quarantined.to_f64()),
            ("detached", stats.detached as f64),
            ("cooling", stats.cooling as f64),
        ];
        states.map(|(state, count)| {
            let labels: Labels = vec![("range", stats.name.clone()), ("state", state.into())];
            (labels, count)
        })
    });
    page.gauges("rideau_range_values", "Values of the range", rows)?;
    let given = all.iter().flat_map(|stats| {
        let tiers = stats.tiers.iter().enumerate();
        // Hardly any range has more than two.
        let tiers = tiers.filter(|(tier, given)| *tier < 2 || **given > 0);
        tiers.map(|(tier, given)| (labels(&stats.name, &tier.to_string(), "go"), *given))
    });
    let places = places.ranges.all();
    let none = places.iter().map(|place| {
        let count = place.counts.exhausted.load(Ordering::Relaxed);
        (labels(&place.name, "0", "none"), count)
    });
    page.counters(
        "rideau_range_reserves",
        "What became of asks for a value",
        given.chain(none),
    )?;
    let hops = all.iter().flat_map(|stats| {
        let tiers = stats.tiers.iter().enumerate();
        let tiers = tiers.filter(|(tier, given)| *tier < 2 || **given > 0);
        tiers.map(|(tier, given)| {
            // There is one node, and no other is asked.
            let columns = HOPS.map(|hops| (hops, if hops == 0.0 { *given } else { 0 }));
            (
                labels(&stats.name, &tier.to_string(), "go"),
                0.0,
                columns.to_vec(),
            )
        })
    });
    page.columns(
        "rideau_range_hops",
        "How many other nodes were asked before a value was given out",
        hops,
    )?;
    let took: Vec<_> = places
        .iter()
        .map(|place| (place.name.to_string(), place.counts.took.lock().clone()))
        .collect();
    let took = took.iter().map(|(name, took)| {
        let labels: Labels = vec![("range", name.clone())];
        (labels, took)
    });
    page.histograms(
        "rideau_range_reserve_seconds",
        "How long it took to give a value out, until that was safe",
        took,
    )?;
    page.gauge(
        "rideau_range_waiting",
        "How many wait for a value of any range",
        values.ranges.waiting().0 as f64,
    )?;
    page.gauge(
        "rideau_range_store_failed",
        "Whether the store has failed and no range answers any more",
        f64::from(u8::from(values.ranges.failed().is_some())),
    )
}

pub(super) fn views(page: &mut Page<'_, '_>, places: &Catalog, values: &Values) -> fmt::Result {
    let rows = places.views.all().flat_map(|view| {
        let count = values.count(&view.counted);
        let states = [
            ("free", count.free),
            ("quarantined", count.quarantined),
            ("held", count.held),
        ];
        states.map(|(state, count)| {
            let view = view.config.name.clone();
            let labels: Labels = vec![("view", view), ("state", state.into())];
            (labels, count.to_f64())
        })
    });
    page.gauges("rideau_view_values", "Values that the view counts", rows)
}

fn labels(range: &str, tier: &str, outcome: &str) -> Labels {
    vec![
        ("range", range.to_owned()),
        ("tier", tier.to_owned()),
        ("outcome", outcome.to_owned()),
    ]
}
