//! Everything that has a name, a row for each.

use std::sync::atomic::{AtomicU64, Ordering};

use rideau::PoolStats;
use rideau_config::Buckets;

use super::{Cell, Table};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

pub(super) fn groups(daemon: &Daemon, sight: Viewer<'_>) -> Table {
    let mut table = Table::new(&[
        "name", "pick", "pools", "idle", "held", "max", "waiting", "brokers",
    ]);
    let places = daemon.places.load();
    let mut groups: Vec<_> = places.groups.values().collect();
    groups.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for group in groups {
        let pools = group.group.pools();
        let seen = group.config.pools.iter().map(String::as_str);
        let seen: Vec<_> = seen.filter(|name| sight.sees("pool", name)).collect();
        let stats: Vec<_> = (pools.iter())
            .map(|(name, pool)| match places.pools.get(&**name) {
                Some(place) => place.stats(),
                None => pool.stats(),
            })
            .collect();
        let sum = |count: fn(&PoolStats) -> usize| stats.iter().map(count).sum::<usize>();
        table.rows.push(vec![
            format!("@{}", group.name).into(),
            match group.config.pick {
                rideau::GroupMethod::Random => "random",
                rideau::GroupMethod::BestOfTwo => "best-of-two",
            }
            .into(),
            seen.join(",").into(),
            sum(|stats| stats.members.idle).into(),
            sum(|stats| stats.members.held).into(),
            sum(|stats| stats.max).into(),
            sum(PoolStats::len).into(),
            {
                let brokers = group.config.brokers.iter().map(String::as_str);
                let seen: Vec<_> = brokers.filter(|name| sight.sees("broker", name)).collect();
                seen.join(",").into()
            },
        ]);
    }
    table
}

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
