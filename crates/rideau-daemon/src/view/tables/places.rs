//! Everything that has a name, a row for each.

use std::sync::atomic::{AtomicU64, Ordering};

use rideau_config::Buckets;

use super::{Cell, Table};
use crate::state::daemon::Daemon;

pub(super) fn locks(daemon: &Daemon) -> Table {
    let mut table = Table::new(&[
        "name",
        "per",
        "buckets",
        "keys",
        "held",
        "waiting",
        "acquired",
        "full",
        "keys_max",
        "known",
        "shed",
        "timeout",
        "keys_refused",
    ]);
    let places = daemon.places.load();
    let counts = daemon.lock_counts(&places.rules);
    for ((at, place), count) in places.rules.iter().enumerate().zip(counts) {
        let load = |count: &AtomicU64| Cell::from(count.load(Ordering::Relaxed));
        let buckets: Cell = match place.rule.buckets {
            Buckets::Client => "client".into(),
            Buckets::Fixed(buckets) => buckets.into(),
        };
        table.rows.push(vec![
            place.rule.pattern.as_str().into(),
            place.rule.per.into(),
            buckets,
            count.keys.into(),
            count.held.into(),
            count.waiting.into(),
            place.counts.acquired.load(Ordering::Relaxed).into(),
            place.counts.full.load(Ordering::Relaxed).into(),
            place.rule.keys_max.into(),
            daemon.locks.keys_of(at).into(),
            load(&place.counts.shed),
            load(&place.counts.timeout),
            load(&place.counts.keys_refused),
        ]);
    }
    table
}
