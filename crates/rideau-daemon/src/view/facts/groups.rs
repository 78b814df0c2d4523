//! Facts of a group of pools or brokers.

use rideau::{GroupMethod, PoolStats};

use super::facts;
use crate::state::catalog::{Catalog, NamedGroup};
use crate::state::viewer::Viewer;

/// A group at one moment, as a user sees it.
pub(crate) struct GroupNow {
    name: String,
    pick: GroupMethod,
    pools: Vec<String>,
    brokers: Vec<String>,
    stats: Vec<PoolStats>,
}

impl GroupNow {
    fn of(group: &NamedGroup, catalog: &Catalog, viewer: Viewer<'_>) -> Self {
        let seen = |kind: &str, names: &[String]| {
            let names = names.iter().filter(|name| viewer.sees(kind, name));
            names.cloned().collect()
        };
        let pools = group.group.pools();
        let stats = pools.iter().map(|(name, pool)| {
            let place = catalog.pools.get(&**name);
            place.map_or_else(|| pool.stats(), |place| place.stats())
        });
        Self {
            name: format!("@{}", group.name),
            pick: group.config.pick,
            pools: seen("pool", &group.config.pools),
            brokers: seen("broker", &group.config.brokers),
            stats: stats.collect(),
        }
    }

    /// The groups that one may see, by name.
    pub(crate) fn all(catalog: &Catalog, viewer: Viewer<'_>) -> Vec<Self> {
        let groups = catalog.groups.values();
        let mut all: Vec<_> = groups
            .map(|group| Self::of(group, catalog, viewer))
            .filter(|group| viewer.sees("pool", &group.name))
            .collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn sum(&self, count: fn(&PoolStats) -> usize) -> usize {
        self.stats.iter().map(count).sum()
    }
}

facts! { GroupNow: "group" by "group", joined {};
    name: Text, [PAGE, JSON], |it| &*it.name, "Its name, with an at sign.";
    pick: Text, [PAGE], |it| match it.pick {
        GroupMethod::Random => "random",
        GroupMethod::BestOfTwo => "best-of-two",
    }, "How it chooses one of its pools or brokers.";
    pools: Names, [PAGE, JSON], |it| it.pools.clone(), "Its pools.";
    idle: Count, [PAGE], |it| it.sum(|pool| pool.members.idle), "Members that can be taken.";
    held: Count, [PAGE], |it| it.sum(|pool| pool.members.held), "Members that are lent.";
    max: Count, [PAGE], |it| it.sum(|pool| pool.max), "The most members its pools may have.";
    waiting: Count, [PAGE], |it| it.sum(PoolStats::len), "Takes that wait.";
    free: Count, [ALARM], |it| it.sum(|pool| pool.max.saturating_sub(pool.members.held)),
        "Members of its pools that could still be taken.";
    brokers: Names, [SHOW, JSON], |it| it.brokers.clone(), "Its brokers.";
}
