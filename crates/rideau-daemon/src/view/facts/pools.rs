//! Facts of a pool.

use std::cell::OnceCell;
use std::sync::Arc;

use rideau::{Circuit, Holder, PoolStats, Retired};
use rideau_config::{Member, PoolConfig};

use super::{facts, refused};
use crate::state::catalog::{Catalog, NamedPool};

/// A pool at one moment.
pub(crate) struct PoolNow {
    place: Arc<NamedPool>,
    stats: PoolStats,
    config: Arc<PoolConfig>,
    /// Looked for only if it is asked for: holders may be many.
    oldest: OnceCell<Option<Holder>>,
}

impl PoolNow {
    pub(crate) fn of(place: &Arc<NamedPool>) -> Self {
        Self {
            stats: place.stats(),
            config: place.config.load_full(),
            place: Arc::clone(place),
            oldest: OnceCell::new(),
        }
    }

    /// Every pool, by name.
    pub(crate) fn all(catalog: &Catalog) -> Vec<Self> {
        let here = catalog.pools.values().filter(|place| place.is_here());
        let mut all: Vec<_> = here.collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all.into_iter().map(Self::of).collect()
    }

    /// The holder that has held its member for longest.
    fn oldest(&self) -> Option<&Holder> {
        let first = || self.place.pool.holders().into_iter().next();
        self.oldest.get_or_init(first).as_ref()
    }

    fn member(&self) -> &'static str {
        match self.config.member {
            Member::List(_) => "list",
            Member::Exec(_) => "exec",
            Member::Offered => "offered",
        }
    }

    const fn circuit(&self) -> &'static str {
        match self.stats.circuit {
            Circuit::Closed => "closed",
            Circuit::Failing { .. } => "failing",
            Circuit::Open { .. } => "open",
        }
    }

    fn retired(&self) -> Vec<(&'static str, u64)> {
        let all = Retired::ALL.into_iter();
        all.map(|why| (why.word(), self.stats.retired_for(why)))
            .collect()
    }
}

/// One word for how a pool is.
pub(crate) const fn state(stats: &PoolStats) -> &'static str {
    match stats.circuit {
        _ if stats.is_closing => "closing",
        _ if stats.is_suspended => "paused",
        Circuit::Closed => "running",
        Circuit::Failing { .. } | Circuit::Open { .. } => "failing",
    }
}

facts! { PoolNow: "pool" by "pool", joined {
        "members": "Members of the pool.",
        "members_limit": "The most members the pool may have, and how many it begins with."
    };
    name: Text, [NARROW, JSON], |it| &*it.place.name, "Its name.";
    group: Text|null, [SHOW, JSON], |it| it.config.group.as_deref(), "The group it belongs to.";
    state: Text, [PAGE], |it| state(&it.stats), "Running, paused, failing or closing.";
    idle: Count, [NARROW, JSON, HISTORY, GAUGE.named("members").with(&[("state", "idle")])],
        |it| it.stats.members.idle, "Members that can be taken.";
    held: Count, [NARROW, JSON, HISTORY, GAUGE.named("members").with(&[("state", "held")])],
        |it| it.stats.members.held, "Members that are lent.";
    starting: Count, [SHOW], |it| it.stats.members.starting + it.stats.members.checking,
        "Members that are starting or being checked.";
    starting: Count, [JSON, GAUGE.named("members").with(&[("state", "starting")])],
        |it| it.stats.members.starting, "Members that are starting.";
    checking: Count, [JSON, GAUGE.named("members").with(&[("state", "checking")])],
        |it| it.stats.members.checking, "Members that are being checked before they are lent \
            again.";
    stopping: Count, [SHOW, JSON, GAUGE.named("members").with(&[("state", "stopping")])],
        |it| it.stats.members.stopping, "Members that are stopping.";
    size: Count, [JSON, HISTORY], |it| it.stats.members.size(), "All members.";
    init: Count, [JSON, GAUGE.named("members_limit").with(&[("bound", "init")])],
        |it| it.config.options.init, "How many members it begins with.";
    max: Count, [NARROW, JSON, HISTORY, GAUGE.named("members_limit").with(&[("bound", "max")])],
        |it| it.stats.max, "The most members it may have.";
    waiting: Count, [NARROW, JSON, HISTORY, GAUGE], |it| it.stats.len(), "Takes that wait.";
    oldest_wait_us: Span, [SHOW, JSON, HISTORY, GAUGE],
        |it| it.stats.oldest_waited, "How long the oldest waiting ask has waited.";
    wait_p50_us: Span, [BRIEF],
        |it| it.stats.takes.waits.quantile(0.5), "Half of the takes waited no longer.";
    wait_p99_us: Span, [NARROW],
        |it| it.stats.takes.waits.quantile(0.99), "99 of 100 takes waited no longer.";
    wait: Spans, [HISTORY, HISTOGRAM],
        |it| &it.stats.takes.waits, "How long the takes waited that got a member.";
    hold_p50_us: Span, [BRIEF],
        |it| it.stats.holds.quantile(0.5), "Half of the members were held no longer.";
    hold: Spans, [JSON, HISTOGRAM], |it| &it.stats.holds,
        "How long members were held; one in sixteen of those taken at once is measured.";
    oldest_hold_us: Span|null, [NARROW], |it| it.oldest().map(|holder| holder.held),
        "How long the longest holder has held its member, if one is held.";
    oldest_hold_us: Span, [GAUGE],
        |it| it.oldest().map(|holder| holder.held).unwrap_or_default(),
        "How long the longest holder has held its member.";
    oldest_holder: Text|null, [BRIEF],
        |it| it.oldest().and_then(|holder| holder.note.as_deref()),
        "The note of that holder.";
    takes: Tally, [JSON, COUNTER.with(&[("outcome", "*")])],
        |it| &it.stats.takes, "Takes by outcome.";
    came: Count, [SHOW], |it| it.stats.takes.came, "Takes in all.";
    served: Count, [SHOW, RATE.named("grants")],
        |it| it.stats.takes.served, "Takes that got a member.";
    refused: Count, [BRIEF],
        |it| refused(&it.stats.takes), "Takes that got none, without those that were cancelled.";
    shed: Count, [RATE.named("refusals")], |it| it.stats.takes.shed_total(), "Takes that got none.";
    start: Spans, [JSON, HISTOGRAM],
        |it| &it.stats.starts, "How long successful starts took.";
    starts_failed: Count, [SHOW, JSON, COUNTER],
        |it| it.stats.starts_failed, "Starts of members that failed or took too long.";
    starting_goes: Text, [JSON],
        |it| it.circuit(), "State of the circuit breaker: `closed` if starts succeed, `failing` if \
            the last ones failed, or `open`.";
    retired: Counts, [JSON, COUNTER.named("members_ended").with(&[("cause", "*")])],
        |it| it.retired(), "Members that ended.";
    generation: Count, [JSON], |it| it.stats.generation, "How often all members were replaced.";
    is_paused: Flag, [JSON, GAUGE.named("paused")],
        |it| it.stats.is_suspended, "Whether the pool is paused: it lends nothing until it is \
            resumed.";
    is_closing: Flag, [JSON], |it| it.stats.is_closing, "Whether the pool is being removed.";
    free: Count, [ALARM], |it| it.stats.max.saturating_sub(it.stats.members.held),
        "Members that could still be taken: as many as there may be, less those that are lent.";
    members: Text, [SHOW, JSON.named("member")],
        |it| it.member(), "Where members come from: a list, programs, or clients.";
}
