//! The numbers of pools, brokers, regulators and locks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau::{Locks, Reason, Tally};
use rideau_config::Buckets;

use super::page::{Labels, Page};
use crate::state::answer;
use crate::state::catalog::{Catalog, RulePlace};

/// The words a take or an ask can be answered with, apart from `go`.
const NOES: [&str; 5] = ["full", "shed", "timeout", "cancelled", "closed"];

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

fn one(label: &'static str, name: &str) -> Labels {
    vec![(label, name.to_owned())]
}

fn with(name: &str, label: &'static str, other: &'static str, value: &str) -> Labels {
    vec![(label, name.to_owned()), (other, value.to_owned())]
}
