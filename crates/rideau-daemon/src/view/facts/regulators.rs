//! Facts of a regulator.

use std::sync::Arc;

use rideau::RegulatorStats;
use rideau_config::RegulatorConfig;
use serde_json::{Value as Json, json};

use super::{facts, refused};
use crate::state::catalog::{Catalog, NamedRegulator};

/// A regulator at one moment.
pub(crate) struct RegulatorNow {
    place: Arc<NamedRegulator>,
    stats: RegulatorStats,
    config: Arc<RegulatorConfig>,
}

impl RegulatorNow {
    pub(crate) fn of(place: &Arc<NamedRegulator>) -> Self {
        Self {
            stats: place.regulator.stats(),
            config: place.config.load_full(),
            place: Arc::clone(place),
        }
    }

    /// Every regulator, by name.
    pub(crate) fn all(catalog: &Catalog) -> Vec<Self> {
        let here = catalog.regulators.values().filter(|place| place.is_here());
        let mut all: Vec<_> = here.collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all.into_iter().map(Self::of).collect()
    }

    /// Why it is open or closed.
    pub(crate) fn explain(&self) -> String {
        self.place.regulator.explain()
    }

    fn source(&self) -> Option<&str> {
        let feed = self.config.feed.as_ref();
        feed.map(|feed| feed.source.named().1)
    }

    /// One closed part closes the whole valve.
    fn min(&self) -> Option<usize> {
        self.stats.valve.iter().map(|part| part.min).min()
    }

    fn max(&self) -> Option<usize> {
        self.stats.valve.iter().map(|part| part.max).min()
    }

    fn kinds(&self) -> Vec<String> {
        let parts = self.stats.valve.iter();
        parts.map(|part| part.kind.to_owned()).collect()
    }

    fn valve(&self) -> Json {
        let parts = self.stats.valve.iter();
        parts
            .map(|part| json!({ "kind": part.kind, "min": part.min, "max": part.max }))
            .collect()
    }
}

/// A bound that bounds.
fn bound(bound: Option<usize>) -> Option<usize> {
    bound.filter(|bound| *bound != usize::MAX)
}

facts! { RegulatorNow: "regulator" by "regulator", joined {
        "limit": "With fewer than min leases it is open, from max on it is closed."
    };
    name: Text, [NARROW, JSON], |it| &*it.place.name, "Its name.";
    broker: Text|null, [BRIEF], |it| it.source(), "The broker or regulator that it learns from.";
    leases: Count,
        [NARROW, JSON.named("held"), HISTORY.named("held"), GAUGE.named("workers")],
        |it| it.stats.size, "Leases that are held.";
    min: Count|null, [BRIEF], |it| bound(it.min()), "With fewer leases than this it is open.";
    max: Count|null, [NARROW, HISTORY],
        |it| bound(it.max()), "From this many leases on it is closed.";
    limit: Count, [GAUGE.with(&[("bound", "min")])],
        |it| it.min().unwrap_or(0), "With fewer leases than this it is open.";
    limit: Count, [GAUGE.with(&[("bound", "max")])],
        |it| it.max().unwrap_or(0), "From this many leases on it is closed.";
    is_open: Flag, [BRIEF, JSON], |it| it.stats.is_open, "Whether the next ask is granted at once.";
    waiting: Count, [NARROW, JSON, HISTORY, GAUGE], |it| it.stats.len, "Asks that wait.";
    oldest_wait_us: Span, [BRIEF, JSON, HISTORY],
        |it| it.stats.oldest_waited, "How long the oldest waiting ask has waited.";
    wait_p50_us: Span, [BRIEF],
        |it| it.stats.asks.waits.quantile(0.5), "Half of the asks waited no longer.";
    wait_p99_us: Span, [NARROW],
        |it| it.stats.asks.waits.quantile(0.99), "99 of 100 asks waited no longer.";
    wait: Spans, [HISTORY, HISTOGRAM],
        |it| &it.stats.asks.waits, "How long the asks waited that got a lease.";
    hold_p50_us: Span, [BRIEF],
        |it| it.stats.leases.held.quantile(0.5), "Half of the leases were held no longer.";
    ask: Tally, [JSON, COUNTER.named("asks").with(&[("outcome", "*")])],
        |it| &it.stats.asks, "Asks by outcome.";
    came: Count, [BRIEF], |it| it.stats.asks.came, "Asks in all.";
    granted: Count, [BRIEF, RATE.named("grants")],
        |it| it.stats.asks.served, "Asks that got a lease.";
    refused: Count, [BRIEF],
        |it| refused(&it.stats.asks), "Asks that got none, without those that were cancelled.";
    shed: Count, [RATE.named("refusals")], |it| it.stats.asks.shed_total(), "Asks that got none.";
    renewed: Count, [JSON], |it| it.stats.leases.renewed, "Renewals that were granted.";
    stopped: Count, [JSON], |it| it.stats.leases.stopped, "Leases that were not renewed.";
    released: Count, [JSON], |it| it.stats.leases.released, "Leases that ended well.";
    failed: Count, [JSON], |it| it.stats.leases.failed, "Leases that ended badly.";
    valve: Names, [NARROW], |it| it.kinds(), "The parts of its valve.";
    valve: Shape("[Valve]"), [JSON], |it| it.valve(), "The parts of its valve.";
}
