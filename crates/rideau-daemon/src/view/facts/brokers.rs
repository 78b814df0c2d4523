//! Facts of a broker.

use std::sync::Arc;

use rideau::{BrokerStats, Reason, Side, Tally};

use super::{Columns, facts, leads, reasons, refused};
use crate::state::catalog::{Catalog, NamedBroker};

/// A broker at one moment.
pub(crate) struct BrokerNow {
    place: Arc<NamedBroker>,
    stats: BrokerStats,
}

impl BrokerNow {
    pub(crate) fn of(place: &Arc<NamedBroker>) -> Self {
        Self {
            stats: place.broker.stats(),
            place: Arc::clone(place),
        }
    }

    /// Every broker, by name.
    pub(crate) fn all(catalog: &Catalog) -> Vec<Self> {
        let here = catalog.brokers.values().filter(|place| place.is_here());
        let mut all: Vec<_> = here.collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all.into_iter().map(Self::of).collect()
    }

    /// How long the oldest of a side has waited. Only one side waits at a time.
    fn oldest_of(&self, side: Side) -> std::time::Duration {
        let is_active = self.stats.active == side;
        let oldest = is_active.then_some(self.stats.oldest_waited);
        oldest.unwrap_or_default()
    }

    fn leads(&self) -> Vec<Columns> {
        let counts = leads(&self.stats.asks.waits, &self.stats.offers.waits);
        // What is below zero has no sum that only grows.
        vec![Columns {
            of: String::new(),
            sum: 0.0,
            counts,
        }]
    }
}

/// Why parties were refused, as far as brokers do that: other reasons are for pools,
/// regulators and locks.
fn drops(tally: &Tally) -> Vec<(&'static str, u64)> {
    let is_ours = |reason: &Reason| {
        !matches!(
            reason,
            Reason::Suspended | Reason::Starting | Reason::Nowhere | Reason::Excess | Reason::Keys
        )
    };
    let all = Reason::ALL.into_iter().filter(is_ours);
    all.map(|reason| (reason.word(), tally.shed[reason.index()]))
        .collect()
}

facts! { BrokerNow: "broker" by "broker", joined {
        "queue_length": "Parties that wait.",
        "sojourn_seconds": "How long matched asks and offers waited.",
        "drops": "Parties that were refused or shed.",
        "congested": "Whether the queue is overloaded, by its shedding policy.",
        "drop_probability": "Probability that the protector refuses an ask."
    };
    name: Text, [NARROW, JSON], |it| &*it.place.name, "Its name.";
    asks: Count, [NARROW, JSON, HISTORY, GAUGE.named("queue_length").with(&[("side", "ask")])],
        |it| it.stats.asks_len, "Asks that wait.";
    offers: Count, [NARROW, JSON, HISTORY, GAUGE.named("queue_length").with(&[("side", "offer")])],
        |it| it.stats.offers_len, "Offers that wait.";
    oldest_wait_us: Span, [SHOW, JSON, HISTORY],
        |it| it.stats.oldest_waited, "How long the oldest waiting ask or offer has waited.";
    oldest_wait_us: Span, [GAUGE.with(&[("side", "ask")])],
        |it| it.oldest_of(Side::Ask), "How long the oldest waiting ask has waited.";
    oldest_wait_us: Span, [GAUGE.with(&[("side", "offer")])],
        |it| it.oldest_of(Side::Offer), "How long the oldest waiting offer has waited.";
    ask_p50_us: Span, [BRIEF],
        |it| it.stats.asks.waits.quantile(0.5), "Half of the asks waited no longer.";
    ask_p99_us: Span, [NARROW],
        |it| it.stats.asks.waits.quantile(0.99), "99 of 100 asks waited no longer.";
    wait: Spans,
        [HISTORY, HISTOGRAM.named("sojourn").with(&[("side", "ask"), ("outcome", "go")])],
        |it| &it.stats.asks.waits, "How long matched asks waited.";
    offer_p50_us: Span, [SHOW],
        |it| it.stats.offers.waits.quantile(0.5), "Half of the offers waited no longer.";
    offer_wait: Spans, [HISTOGRAM.named("sojourn").with(&[("side", "offer"), ("outcome", "go")])],
        |it| &it.stats.offers.waits, "How long matched offers waited.";
    relative_seconds: Columns, [HISTOGRAM],
        |it| it.leads(), "How much earlier asks came than the offers they were matched with.";
    ask: Tally, [JSON], |it| &it.stats.asks, "Asks by outcome.";
    offer: Tally, [JSON], |it| &it.stats.offers, "Offers by outcome.";
    asks_came: Count, [SHOW], |it| it.stats.asks.came, "Asks in all.";
    matched: Count, [NARROW, RATE.named("grants"), COUNTER.named("matches")],
        |it| it.stats.asks.served, "Matches in all.";
    asks_refused: Count, [NARROW],
        |it| refused(&it.stats.asks), "Asks that were not matched, without those that were \
            cancelled.";
    shed: Count, [RATE.named("refusals")],
        |it| it.stats.asks.shed_total(), "Asks that were not matched.";
    drops: Counts, [COUNTER.with(&[("side", "ask"), ("cause", "*")])],
        |it| drops(&it.stats.asks), "Asks that were refused or shed.";
    offers_came: Count, [SHOW], |it| it.stats.offers.came, "Offers in all.";
    offers_refused: Count, [SHOW],
        |it| refused(&it.stats.offers), "Offers that were not matched, without those that were \
            cancelled.";
    offers_shed: Count, [RATE.named("offer_refusals")],
        |it| it.stats.offers.shed_total(), "Offers that were not matched.";
    drops: Counts, [COUNTER.with(&[("side", "offer"), ("cause", "*")])],
        |it| drops(&it.stats.offers), "Offers that were refused or shed.";
    refused_by: Text, [BRIEF],
        |it| reasons(&it.stats.asks), "Why asks were refused, the commonest reason first.";
    alarms: Names, [SHOW, JSON], |it| it.place.broker.alarms(), "Alarms that are raised.";
    ask_expects_us: Span|null, [SHOW, JSON],
        |it| it.place.broker.rank().expects(Side::Ask), "How long an ask should expect to wait.";
    offer_expects_us: Span|null, [SHOW, JSON],
        |it| it.place.broker.rank().expects(Side::Offer),
        "How long an offer should expect to wait.";
    congested: Flag, [GAUGE.with(&[("side", "ask")])],
        |it| it.stats.are_shedding[0], "Whether asks are overloaded, by their shedding policy.";
    congested: Flag, [GAUGE.with(&[("side", "offer")])],
        |it| it.stats.are_shedding[1], "Whether offers are overloaded, by their shedding policy.";
    drop_probability: Ratio, [GAUGE.with(&[("side", "ask")])],
        |it| it.place.broker.refused_chance(Side::Ask),
        "Probability that the protector refuses an ask.";
    drop_probability: Ratio, [GAUGE.with(&[("side", "offer")])],
        |it| it.place.broker.refused_chance(Side::Offer),
        "Probability that the protector refuses an offer.";
}
