//! The numbers of pools, brokers, regulators and locks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau::{BrokerStats, Locks, Reason, Side, Tally};
use rideau_config::Buckets;

use super::page::{Labels, Page};
use crate::state::answer;
use crate::state::catalog::{Catalog, NamedBroker, RulePlace};

/// The words a take or an ask can be answered with, apart from `go`.
const NOES: [&str; 5] = ["full", "shed", "timeout", "cancelled", "closed"];

pub(super) fn brokers(page: &mut Page<'_, '_>, places: &Catalog) -> fmt::Result {
    let mut brokers: Vec<_> = places.brokers.values().collect();
    brokers.sort_by(|one, other| one.name.cmp(&other.name));
    let all: Vec<_> = brokers
        .iter()
        .map(|place| (place.name.to_string(), place.broker.stats()))
        .collect();
    let queues = all.iter().flat_map(|(name, stats)| {
        let lens = [("ask", stats.asks_len), ("offer", stats.offers_len)];
        lens.map(|(side, len)| (with(name, "broker", "side", side), len as f64))
    });
    page.gauges("rideau_broker_queue_length", "Parties that wait", queues)?;
    let oldest = all.iter().flat_map(|(name, stats)| {
        [("ask", Side::Ask), ("offer", Side::Offer)].map(|(word, side)| {
            // Only one side waits at a time.
            let is_active = stats.active == side;
            let waited = stats.oldest_waited.as_secs_f64() * f64::from(u8::from(is_active));
            (with(name, "broker", "side", word), waited)
        })
    });
    page.gauges(
        "rideau_broker_oldest_wait_seconds",
        "How long the oldest waiting ask has waited",
        oldest,
    )?;
    let waits = all.iter().flat_map(|(name, stats)| {
        sides(&stats.asks, &stats.offers).map(|(side, tally)| {
            let mut labels = with(name, "broker", "side", side);
            labels.push(("outcome", "go".into()));
            (labels, &tally.waits)
        })
    });
    page.histograms(
        "rideau_broker_sojourn_seconds",
        "How long asks and offers waited that were matched",
        waits,
    )?;
    let leads = all.iter().map(|(name, stats)| {
        let waits = [&stats.asks.waits, &stats.offers.waits];
        (one("broker", name), waits)
    });
    page.leads(
        "How much earlier asks came than the offers they were matched with",
        leads,
    )?;
    broker_load(page, &brokers, &all)?;
    let matches = all.iter();
    let matches = matches.map(|(name, stats)| (one("broker", name), stats.asks.served));
    page.counters(
        "rideau_broker_matches",
        "Parties that were introduced",
        matches,
    )?;
    let drops = all.iter().flat_map(|(name, stats)| {
        let sides = sides(&stats.asks, &stats.offers).into_iter();
        sides.flat_map(move |(side, tally)| {
            let reasons = Reason::ALL.into_iter();
            let reasons = reasons.filter(|reason| can_shed(*reason));
            reasons.map(move |reason| {
                let mut labels = with(name, "broker", "side", side);
                labels.push(("cause", reason.word().into()));
                (labels, tally.shed[reason.index()])
            })
        })
    });
    page.counters(
        "rideau_broker_drops",
        "Parties that were refused or shed",
        drops,
    )
}

/// Whether brokers refuse on purpose.
fn broker_load(
    page: &mut Page<'_, '_>,
    brokers: &[&Arc<NamedBroker>],
    all: &[(String, BrokerStats)],
) -> fmt::Result {
    const SIDES: [(&str, Side); 2] = [("ask", Side::Ask), ("offer", Side::Offer)];
    let congested = all.iter().flat_map(|(name, stats)| {
        let sides = SIDES.into_iter().zip(stats.are_shedding);
        sides.map(move |((side, _), is)| {
            (with(name, "broker", "side", side), f64::from(u8::from(is)))
        })
    });
    page.gauges(
        "rideau_broker_congested",
        "Whether the queue is overloaded as its law sees it",
        congested,
    )?;
    let chances = brokers.iter().flat_map(|place| {
        SIDES.map(|(word, side)| {
            let chance = place.broker.refused_chance(side);
            (with(&place.name, "broker", "side", word), chance)
        })
    });
    page.gauges(
        "rideau_broker_drop_probability",
        "How likely the protector refuses an ask",
        chances,
    )
}

pub(super) fn regulators(page: &mut Page<'_, '_>, places: &Catalog) -> fmt::Result {
    let mut regulators: Vec<_> = places.regulators.values().collect();
    regulators.sort_by(|one, other| one.name.cmp(&other.name));
    let all: Vec<_> = regulators
        .iter()
        .map(|place| (place.name.to_string(), place.regulator.stats()))
        .collect();
    let name = |name: &String| one("regulator", name);
    let sizes = all.iter();
    let sizes = sizes.map(|(of, stats)| (name(of), stats.size as f64));
    page.gauges("rideau_regulator_workers", "Leases that are held", sizes)?;
    let waiting = all.iter();
    let waiting = waiting.map(|(of, stats)| (name(of), stats.len as f64));
    page.gauges("rideau_regulator_waiting", "Askers that wait", waiting)?;
    let limits = all.iter().flat_map(|(of, stats)| {
        let min = stats.valve.iter().map(|part| part.min).min().unwrap_or(0);
        let max = stats.valve.iter().map(|part| part.max).min().unwrap_or(0);
        let bounds = [("min", min), ("max", max)];
        bounds.map(|(bound, count)| (with(of, "regulator", "bound", bound), count as f64))
    });
    page.gauges(
        "rideau_regulator_limit",
        "Below min it is open, from max on it is closed",
        limits,
    )?;
    let waits = all.iter();
    let waits = waits.map(|(of, stats)| (name(of), &stats.asks.waits));
    page.histograms(
        "rideau_regulator_wait_seconds",
        "How long asks waited that got a lease",
        waits,
    )?;
    let asks = all.iter().flat_map(|(of, stats)| {
        let row = move |outcome: &str, count| (with(of, "regulator", "outcome", outcome), count);
        tally(&stats.asks).map(move |(outcome, count)| row(outcome, count))
    });
    page.counters("rideau_regulator_asks", "What became of asks", asks)
}

/// The numbers of locks by rule: how many keys there are, clients decide.
pub(super) fn locks(
    page: &mut Page<'_, '_>,
    places: &Catalog,
    locks: &Locks<Vec<u8>>,
) -> fmt::Result {
    let by_rule = held_by_rule(places, locks);
    let rule = |place: &Arc<RulePlace>| one("rule", &place.rule.pattern);
    let rows = || places.rules.iter().zip(&by_rule);
    page.gauges(
        "rideau_lock_keys",
        "Keys of which units are held",
        rows().map(|(place, held)| (rule(place), held.keys as f64)),
    )?;
    page.gauges(
        "rideau_lock_held",
        "Units that are held",
        rows().map(|(place, held)| (rule(place), held.units as f64)),
    )?;
    let known = (0..).zip(places.rules.iter());
    page.gauges(
        "rideau_lock_known_keys",
        "Keys that are known, also those that are not held any more",
        known.map(|(at, place)| (rule(place), locks.keys_of(at) as f64)),
    )?;
    let fixed = rows().filter(|(place, _)| place.rule.buckets != Buckets::Client);
    page.gauges(
        "rideau_lock_full_keys",
        "Keys of which no unit is left, where the rule alone says how many there are",
        fixed.map(|(place, held)| (rule(place), held.full as f64)),
    )?;
    let requests = places.rules.iter().flat_map(|place| {
        let counts = [
            ("go", &place.counts.acquired),
            ("full", &place.counts.full),
            ("shed", &place.counts.shed),
            ("timeout", &place.counts.timeout),
            ("keys", &place.counts.keys_refused),
        ];
        counts.map(|(outcome, count)| {
            let labels = with(&place.rule.pattern, "rule", "outcome", outcome);
            (labels, count.load(Ordering::Relaxed))
        })
    });
    page.counters(
        "rideau_lock_requests",
        "What became of asks for units",
        requests,
    )
}

#[derive(Clone, Copy, Default)]
struct HeldKeys {
    keys: u64,
    units: u64,
    full: u64,
}

fn held_by_rule(places: &Catalog, locks: &Locks<Vec<u8>>) -> Vec<HeldKeys> {
    let mut all = vec![HeldKeys::default(); places.rules.len()];
    for (key, units) in locks.all_held() {
        let Some(at) = places.rules.iter().position(|place| place.rule.fits(&key)) else {
            continue;
        };
        let rule = &places.rules[at].rule;
        all[at].keys += 1;
        all[at].units += units;
        if let Buckets::Fixed(buckets) = rule.buckets {
            let is_full = units >= rule.per.saturating_mul(buckets);
            all[at].full += u64::from(is_full);
        }
    }
    all
}

/// What became of the asks that came, by the word they were answered with.
pub(super) fn tally(tally: &Tally) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let mut noes = NOES.map(|word| (word, 0));
    for reason in Reason::ALL {
        let word = answer::word(reason);
        if let Some((_, count)) = noes.iter_mut().find(|(known, _)| *known == word) {
            *count += tally.shed[reason.index()];
        }
    }
    for (word, count) in &mut noes {
        if *word == "cancelled" {
            *count += tally.cancelled;
        }
    }
    [("go", tally.served)].into_iter().chain(noes)
}

fn sides<'a>(asks: &'a Tally, offers: &'a Tally) -> [(&'static str, &'a Tally); 2] {
    [("ask", asks), ("offer", offers)]
}

/// The others are for pools, regulators and locks.
const fn can_shed(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::Suspended | Reason::Starting | Reason::Nowhere | Reason::Excess | Reason::Keys
    )
}

fn one(label: &'static str, name: &str) -> Labels {
    vec![(label, name.to_owned())]
}

fn with(name: &str, label: &'static str, other: &'static str, value: &str) -> Labels {
    vec![(label, name.to_owned()), (other, value.to_owned())]
}
