//! What there is to know of a rule for locks. How many keys there are, clients decide: so there
//! is nothing of a single key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rideau_config::Buckets;

use super::{Value, facts};
use crate::state::catalog::{Catalog, RulePlace};
use crate::state::daemon::{Daemon, LockCount};

/// A rule at one moment.
pub(crate) struct RuleNow {
    place: Arc<RulePlace>,
    counted: Option<Counted>,
}

/// Counts of a rule, which need a look at the keys.
struct Counted {
    held: LockCount,
    known: usize,
}

impl RuleNow {
    /// Every rule, with what is counted anyway.
    pub(crate) fn all(catalog: &Catalog) -> Vec<Self> {
        let rules = catalog.rules.iter().map(|place| Self {
            place: Arc::clone(place),
            counted: None,
        });
        rules.collect()
    }

    /// Every rule, with what takes a look at each key that is held, and perhaps at its queue.
    pub(crate) fn counted(daemon: &Daemon, looks_at_queues: bool) -> Vec<Self> {
        let catalog = daemon.catalog.load();
        let counts = daemon.lock_counts(&catalog.rules, looks_at_queues);
        let mut all = Self::all(&catalog);
        for (at, (rule, held)) in all.iter_mut().zip(counts).enumerate() {
            let known = daemon.lock_keys_of(at);
            rule.counted = Some(Counted { held, known });
        }
        all
    }

    fn held(&self) -> Option<&LockCount> {
        self.counted.as_ref().map(|counted| &counted.held)
    }

    /// Only where the rule alone says how many units there are.
    fn full_keys(&self) -> Option<usize> {
        let is_fixed = self.place.rule.buckets != Buckets::Client;
        self.held().filter(|_| is_fixed).map(|count| count.full)
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

facts! { RuleNow: "lock" by "rule", joined { "requests": "Asks for units by outcome." };
    name: Text, [NARROW, JSON.named("pattern")],
        |it| &*it.place.rule.pattern, "The pattern of its keys.";
    per: Count, [NARROW, JSON], |it| it.place.rule.per, "Units of each bucket.";
    buckets: Shape("any"), [BRIEF], |it| match it.place.rule.buckets {
        Buckets::Client => Value::from("client"),
        Buckets::Fixed(buckets) => Value::from(buckets),
    }, "Buckets of each key, or `client` if each ask says how many.";
    keys: Count|null, [BRIEF, GAUGE],
        |it| it.held().map(|count| count.keys), "Keys with units that are held.";
    held: Count|null, [BRIEF, GAUGE],
        |it| it.held().map(|count| count.held), "Units that are held.";
    waiting: Count|null, [BRIEF], |it| it.held().map(|count| count.waiting), "Asks that wait.";
    full_keys: Count|null, [GAUGE], |it| it.full_keys(),
        "Keys with no unit left, if the rule alone says how many there are.";
    acquired: Count, [PAGE, JSON.named("go"), RATE.named("grants"),
            COUNTER.named("requests").with(&[("outcome", "go")])],
        |it| load(&it.place.counts.acquired), "Asks that got their units.";
    full: Count, [NARROW, JSON, COUNTER.named("requests").with(&[("outcome", "full")])],
        |it| load(&it.place.counts.full), "Asks that were refused at once.";
    keys_max: Count, [SHOW], |it| it.place.rule.keys_max, "The most keys that may be known.";
    known: Count|null, [SHOW, GAUGE.named("known_keys")],
        |it| it.counted.as_ref().map(|counted| counted.known),
        "Keys that are known, with those that are no longer held.";
    shed: Count, [SHOW, JSON, COUNTER.named("requests").with(&[("outcome", "shed")])],
        |it| load(&it.place.counts.shed), "Asks that were shed.";
    timeout: Count, [SHOW, JSON, COUNTER.named("requests").with(&[("outcome", "timeout")])],
        |it| load(&it.place.counts.timeout), "Asks that waited for all of their time.";
    keys_refused: Count, [SHOW, JSON, COUNTER.named("requests").with(&[("outcome", "keys")])],
        |it| load(&it.place.counts.keys_refused),
        "Asks that were refused because there were too many keys.";
    refused: Count, [RATE.named("refusals")],
        |it| it.place.counts.refused(), "Asks that got no units.";
}
