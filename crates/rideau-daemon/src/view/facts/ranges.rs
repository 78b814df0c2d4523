//! Facts of a range, and of a view of ranges.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau::Histogram;
use rideau::allocator::{Count, RangeStats, Size};
use rideau_config::{Hold, ViewConfig, class_word};

use super::{Columns, Value, facts};
use crate::state::catalog::Catalog;
use crate::state::daemon::Daemon;
use crate::state::values::{NamedRange, Values};
use crate::state::viewer::Viewer;

/// The bounds of how many nodes are asked.
const HOPS: [f64; 5] = [0.0, 1.0, 2.0, 3.0, f64::INFINITY];

/// A range at one moment.
pub(crate) struct RangeNow {
    stats: RangeStats,
    /// One that drains has none any more, but is there.
    place: Option<Arc<NamedRange>>,
    ending: Option<u64>,
    has_failed: bool,
    took: OnceCell<Histogram>,
}

impl RangeNow {
    /// Every range. How many values end soon takes a look at all of them.
    pub(crate) fn all(daemon: &Daemon, looks_ahead: bool) -> Vec<Self> {
        let (catalog, values) = (daemon.catalog.load(), &daemon.values);
        let ending = looks_ahead.then(|| values.ending()).flatten();
        let has_failed = values.ranges.failed().is_some();
        let one = |stats: RangeStats| {
            let place = catalog.ranges.find(&stats.name);
            let ending = ending.as_ref().map(|ending| {
                let id = values.ranges.range(&stats.name);
                id.and_then(|id| ending.get(&id).copied()).unwrap_or(0)
            });
            Self {
                place: place.cloned(),
                stats,
                ending,
                has_failed,
                took: OnceCell::new(),
            }
        };
        values.ranges.all_stats().into_iter().map(one).collect()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.stats.name
    }

    fn state(&self) -> &'static str {
        match (self.stats.is_draining, self.stats.quarantined.is_zero()) {
            _ if self.has_failed => "failed",
            (true, _) => "draining",
            (false, false) => "quarantine",
            (false, true) if self.stats.free.is_zero() => "exhausted",
            (false, true) => "ok",
        }
    }

    fn took(&self) -> Option<&Histogram> {
        let place = self.place.as_ref()?;
        let took = self.took.get_or_init(|| place.counts.took.lock().clone());
        Some(took)
    }

    fn rate(&self) -> Option<u64> {
        let place = self.place.as_ref()?;
        Some(place.counts.rate().round() as u64)
    }

    fn none(&self) -> Option<u64> {
        let place = self.place.as_ref()?;
        Some(place.counts.exhausted.load(Ordering::Relaxed))
    }

    fn hold(&self) -> Option<&'static str> {
        let place = self.place.as_ref()?;
        Some(match place.config.hold {
            Hold::Lease => "lease",
            Hold::Connection => "connection",
        })
    }

    /// How often a value was given out in each tier. Hardly any range has more than two.
    fn tiers(&self) -> impl Iterator<Item = (String, u64)> {
        let tiers = self.stats.tiers.iter().enumerate();
        let used = tiers.filter(|(tier, given)| *tier < 2 || **given > 0);
        used.map(|(tier, given)| (tier.to_string(), *given))
    }

    /// There is one node, and no other is asked.
    fn hops(&self) -> Vec<Columns> {
        let columns = |(of, given): (String, u64)| {
            let counts = HOPS.map(|hops| (hops, if hops == 0.0 { given } else { 0 }));
            let counts = counts.to_vec();
            Columns {
                of,
                sum: 0.0,
                counts,
            }
        };
        self.tiers().map(columns).collect()
    }
}

/// How many of all values are not free, in percent.
fn used(free: Size, all: Size) -> String {
    let (free, all) = (free.to_f64(), all.to_f64());
    let part = if all > 0.0 { 1.0 - free / all } else { 0.0 };
    format!("{:.0} %", part * 100.0)
}

facts! { RangeNow: "range" by "range", joined {
        "values": "Values of the range.",
        "reserves": "Asks for a value by outcome."
    };
    name: Text, [NARROW, JSON], |it| &*it.stats.name, "Its name.";
    base: Text, [PAGE, JSON], |it| it.stats.kind.print(it.stats.first), "Its lowest value.";
    used: Text, [BRIEF, JSON],
        |it| used(it.stats.free, it.stats.size), "How many of its values are not free.";
    free: Size, [NARROW, JSON, HISTORY, GAUGE.named("values").with(&[("state", "free")])],
        |it| it.stats.free, "Values that can be given out.";
    reserved: Count, [NARROW, JSON, HISTORY, GAUGE.named("values").with(&[("state", "reserved")])],
        |it| it.stats.reserved, "Values that have a holder.";
    quarantined: Size, [NARROW, JSON, HISTORY,
            GAUGE.named("values").with(&[("state", "quarantined")])],
        |it| it.stats.quarantined, "Values that may have a holder.";
    detached: Count, [SHOW, JSON, GAUGE.named("values").with(&[("state", "detached")])],
        |it| it.stats.detached, "Values that had a holder and wait for a client to decide about \
            them.";
    cooling: Count, [SHOW, JSON, GAUGE.named("values").with(&[("state", "cooling")])],
        |it| it.stats.cooling, "Values that were released a short time ago and are not given out \
            yet.";
    size: Size, [PAGE, JSON, HISTORY], |it| it.stats.size, "All its values.";
    given: Count, [SHOW, JSON, RATE.named("grants")],
        |it| it.stats.tiers.iter().sum::<u64>(), "How often a value was given out.";
    given: Counts, [COUNTER.named("reserves").with(&[("tier", "*"), ("outcome", "go")])],
        |it| Value::Counts(it.tiers().map(|(tier, given)| (tier.into(), given)).collect()),
        "How often a value was given out in each tier.";
    leases_s: Count|null, [BRIEF, JSON],
        |it| it.rate(), "Values that are given out per second, on average over the last seconds.";
    ending_1h: Count|null, [BRIEF, JSON],
        |it| it.ending, "Values that end within an hour unless they are renewed.";
    none: Count|null, [BRIEF, JSON, RATE.named("refusals"),
            COUNTER.named("reserves").with(&[("tier", "0"), ("outcome", "none")])],
        |it| it.none(), "Asks that found no free value.";
    hops: Columns, [HISTOGRAM.with(&[("tier", "*"), ("outcome", "go")])],
        |it| it.hops(), "How many other nodes were asked before a value was given out.";
    p99_us: Span|null, [BRIEF, JSON], |it| it.took().map(|took| took.quantile(0.99)),
        "99 of 100 values were given out, and that was safe, within this time.";
    reserve: Spans, [HISTOGRAM],
        |it| it.took(), "How long it took to give a value out, until that was safe.";
    class: Text|null, [SHOW, JSON],
        |it| it.place.as_ref().map(|place| class_word(place.config.options.class)),
        "When a value is given out: after a sync, from values claimed before, or at once.";
    hold: Text|null, [SHOW, JSON], |it| it.hold(), "How long a value is held: lease or connection.";
    state: Text, [NARROW, JSON],
        |it| it.state(), "The word ok, exhausted, quarantine, draining or failed.";
}

/// A view at one moment.
pub(crate) struct ViewNow {
    config: ViewConfig,
    count: Count,
}

impl ViewNow {
    /// The views of which a user may use all ranges.
    pub(crate) fn all(catalog: &Catalog, values: &Values, viewer: Viewer<'_>) -> Vec<Self> {
        let seen = catalog.views.all().filter(|view| {
            let mut touched = view.counted.touched(&catalog.ranges);
            touched.all(|range| viewer.sees("range", &range.name))
        });
        seen.map(|view| Self {
            config: view.config.clone(),
            count: values.count(&view.counted),
        })
        .collect()
    }
}

facts! { ViewNow: "view" by "view", joined { "values": "Values that the view counts." };
    name: Text, [NARROW, JSON], |it| &*it.config.name, "Its name.";
    values: Text, [NARROW, JSON], |it| it.config.values.join(" "), "The values that it counts.";
    size: Size, [NARROW, JSON], |it| it.count.size, "All of them.";
    free: Size, [NARROW, JSON, GAUGE.named("values").with(&[("state", "free")])],
        |it| it.count.free, "Values that can be given out.";
    quarantined: Size, [NARROW, JSON, GAUGE.named("values").with(&[("state", "quarantined")])],
        |it| it.count.quarantined, "Values that may have a holder.";
    held: Size, [NARROW, JSON, GAUGE.named("values").with(&[("state", "held")])],
        |it| it.count.held, "Values that are neither free nor quarantined.";
    used: Text, [BRIEF, JSON],
        |it| used(it.count.free, it.count.size), "How many of its values are not free.";
}
