//! Pools, brokers and regulators: lists of them, and one.

use rideau::{Reason, Tally};

use super::actions;
use super::blocks::{Blocks, Line, Listing};
use super::holders;
use super::lists::{Things, rows_of};
use super::past;
use crate::view::explain;
use crate::view::facts::{BrokerNow, GroupNow, PoolNow, RegulatorNow};

/// Looks at one thing of the catalog that this server decides about.
macro_rules! of_catalog {
    ($look:expr, $places:ident, $now:ident) => {
        &|name: &str| {
            let place = $look.daemon.catalog.load().$places.get(name).cloned()?;
            place.is_here().then(|| $now::of(&place))
        }
    };
}

pub(super) fn pools(blocks: &mut Blocks<'_>) {
    blocks.title("Pools");
    let look = blocks.look;
    let of = of_catalog!(look, pools, PoolNow);
    Things {
        kind: "pool",
        page: "pools",
        title: "Pools",
        of,
    }
    .whole(blocks);
    let groups = GroupNow::all(&look.daemon.catalog.load(), look.viewer);
    if !groups.is_empty() {
        let total = groups.len();
        let few = &groups[..total.min(look.count)];
        let (heads, rows) = rows_of(few, None);
        blocks.table(Listing {
            id: "groups",
            title: "Groups".into(),
            heads,
            rows,
            total,
            ..Listing::default()
        });
    }
}

pub(super) fn brokers(blocks: &mut Blocks<'_>) {
    blocks.title("Brokers");
    let look = blocks.look;
    let of = of_catalog!(look, brokers, BrokerNow);
    Things {
        kind: "broker",
        page: "brokers",
        title: "Brokers",
        of,
    }
    .whole(blocks);
    if !look.daemon.catalog.load().regulators.is_empty() {
        let of = of_catalog!(look, regulators, RegulatorNow);
        Things {
            kind: "regulator",
            page: "regulators",
            title: "Regulators",
            of,
        }
        .whole(blocks);
    }
}

/// The worst of each kind that there is, for the overview.
pub(super) fn few_pools(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let of = of_catalog!(look, pools, PoolNow);
    Things {
        kind: "pool",
        page: "pools",
        title: "Pools",
        of,
    }
    .few(blocks);
}

pub(super) fn few_brokers(blocks: &mut Blocks<'_>) {
    let look = blocks.look;
    let of = of_catalog!(look, brokers, BrokerNow);
    Things {
        kind: "broker",
        page: "brokers",
        title: "Brokers",
        of,
    }
    .few(blocks);
    let of = of_catalog!(look, regulators, RegulatorNow);
    Things {
        kind: "regulator",
        page: "regulators",
        title: "Regulators",
        of,
    }
    .few(blocks);
}

pub(super) fn pool(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look = blocks.look;
    look.viewer.sees("pool", name).then_some(())?;
    let place = look.daemon.catalog.load().pools.get(name).cloned()?;
    blocks.title(format!("Pool {name}"));
    blocks.actions(actions::of_pool(look, name));
    if !place.is_here() {
        return elsewhere(blocks, "pool", name);
    }
    let stats = place.stats();
    blocks.text("Now", &explain::pool_text(&place, look.viewer));
    use_of_it(blocks, "pool", name, &["idle", "held", "max", "waiting"]);
    waits(blocks, "pool", name);
    refusals(blocks, "pool", name, &stats.takes);
    holders::of(blocks, "pool", name);
    blocks.facts("All numbers", &PoolNow::of(&place));
    Some(())
}

pub(super) fn broker(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look = blocks.look;
    look.viewer.sees("broker", name).then_some(())?;
    let place = look.daemon.catalog.load().brokers.get(name).cloned()?;
    blocks.title(format!("Broker {name}"));
    if !place.is_here() {
        return elsewhere(blocks, "broker", name);
    }
    let stats = place.broker.stats();
    blocks.text("Now", &place.broker.explain());
    waits(blocks, "broker", name);
    use_of_it(blocks, "broker", name, &["asks", "offers"]);
    rates(blocks, "broker", name);
    refusals(blocks, "broker", name, &stats.asks);
    fed(blocks, name);
    holders::of(blocks, "match", name);
    blocks.facts("All numbers", &BrokerNow::of(&place));
    Some(())
}

/// The regulators that learn from a broker.
fn fed(blocks: &mut Blocks<'_>, broker: &str) {
    let look = blocks.look;
    let catalog = look.daemon.catalog.load();
    let places = catalog.regulators.values().filter(|place| {
        let config = place.config.load();
        let source = config.feed.as_ref().map(|feed| feed.source.named());
        place.is_here()
            && source == Some(("broker", broker))
            && look.viewer.sees("regulator", &place.name)
    });
    let mut places: Vec<_> = places.cloned().collect();
    places.sort_by(|one, other| one.name.cmp(&other.name));
    let all: Vec<_> = places.iter().map(RegulatorNow::of).collect();
    if all.is_empty() {
        return;
    }
    let (heads, rows) = rows_of(&all, Some("regulators"));
    blocks.table(Listing {
        id: "fed",
        title: "Regulators that learn from it".into(),
        heads,
        total: rows.len(),
        rows,
        ..Listing::default()
    });
    let text: Vec<_> = all.iter().map(RegulatorNow::explain).collect();
    blocks.text("What they say", &text.join("\n"));
}

pub(super) fn regulator(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look = blocks.look;
    look.viewer.sees("regulator", name).then_some(())?;
    let place = look.daemon.catalog.load().regulators.get(name).cloned()?;
    blocks.title(format!("Regulator {name}"));
    if !place.is_here() {
        return elsewhere(blocks, "regulator", name);
    }
    let stats = place.regulator.stats();
    blocks.text("Now", &place.regulator.explain());
    use_of_it(blocks, "regulator", name, &["held", "max", "waiting"]);
    waits(blocks, "regulator", name);
    refusals(blocks, "regulator", name, &stats.asks);
    holders::of(blocks, "lease", name);
    blocks.facts("All numbers", &RegulatorNow::of(&place));
    Some(())
}

/// Another node decides about it, and says which.
fn elsewhere(blocks: &mut Blocks<'_>, kind: &str, name: &str) -> Option<()> {
    let look = blocks.look;
    let word = format!("{kind}:{name}");
    let found = explain::explain(look.daemon, &word, look.viewer)?;
    blocks.text("Now", &found.text);
    Some(())
}

/// How much of it is used, over time.
pub(super) fn use_of_it(
    blocks: &mut Blocks<'_>,
    kind: &'static str,
    name: &str,
    of: &[&'static str],
) {
    let lines: Vec<_> = of.iter().map(|of| Line::of(kind, name, of, of)).collect();
    blocks.chart("use", "How many", "", &lines);
}

/// What it grants and refuses, over time.
pub(super) fn rates(blocks: &mut Blocks<'_>, kind: &'static str, name: &str) {
    let lines = [
        Line::of(kind, name, "grants_per_s", "granted"),
        Line::of(kind, name, "refusals_per_s", "refused"),
    ];
    blocks.chart("rates", "Granted and refused, per second", "/s", &lines);
}

/// How long asks wait, over time.
pub(super) fn waits(blocks: &mut Blocks<'_>, kind: &'static str, name: &str) {
    blocks.heat("How long asks waited that were granted", kind, name);
    let lines = [
        Line::of(kind, name, "wait_p50_us", "half waited up to"),
        Line::of(kind, name, "wait_p99_us", "99 of 100 up to"),
        Line::of(kind, name, "oldest_wait_us", "oldest that waits"),
    ];
    blocks.chart("waits", "Waits", "us", &lines);
}

/// Why asks were refused, and the last of them.
pub(super) fn refusals(blocks: &mut Blocks<'_>, kind: &str, name: &str, tally: &Tally) {
    let all = Reason::ALL.into_iter();
    let all = all.map(|reason| (reason.word(), tally.shed[reason.index()]));
    let all = all.filter(|(_, count)| *count > 0);
    let all: Vec<_> = all
        .map(|(word, count)| (word.to_owned(), count, None))
        .collect();
    if all.is_empty() {
        return;
    }
    blocks.bars("Why asks were refused, since the start", all);
    past::last_refusals(blocks, kind, name);
}
