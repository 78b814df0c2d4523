//! Snapshots of what there is, as JSON.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{Answer, HttpError, away, ok};
use super::apps;
use super::fact_json::{micros, object, objects};
use super::request::AdminRequest;
use crate::state::catalog::NamedPool;
use crate::state::clients::ClientCard;
use crate::state::lease_table::LeaseRow;
use crate::state::refusal_log::Dropped;
use crate::state::sessions::SessionRow;
use crate::view::explain;
use crate::view::facts::{
    BrokerNow, ClientNow, GroupNow, HolderNow, Limit, PoolNow, RegulatorNow, RuleNow, SessionNow,
};
use crate::view::tables::Page;

/// Rows of a page, unless one asks for fewer or more.
const ROWS: usize = 1_000;
const ROWS_MAX: usize = 10_000;

/// The whole server in a few numbers.
pub(super) async fn state(request: AdminRequest) -> Answer {
    let daemon = request.daemon();
    let config = daemon.config.load();
    let catalog = request.catalog();
    let counts = &daemon.counts;
    ok(&json!({
        "name": config.server.name,
        "version": env!("CARGO_PKG_VERSION"),
        "up_ms": millis(daemon.started.elapsed()),
        "is_draining": daemon.is_draining(),
        "clients": daemon.clients.len(),
        "sessions": daemon.sessions.len(),
        "waiting": counts.waiting.load(Ordering::Relaxed),
        "keys": daemon.lock_keys(),
        "commands": counts.commands.load(Ordering::Relaxed),
        "refusals": daemon.refusals.total(),
        "config_changes": counts.changes.load(Ordering::Relaxed),
        "pools": objects(&PoolNow::all(&catalog)),
        "brokers": objects(&BrokerNow::all(&catalog)),
        "regulators": objects(&RegulatorNow::all(&catalog)),
        "lock_rules": objects(&RuleNow::all(&catalog)),
        "apps": apps::all(&request),
    }))
}

pub(super) async fn pools(request: AdminRequest) -> Answer {
    let catalog = request.catalog();
    let pools = objects(&PoolNow::all(&catalog));
    let groups = GroupNow::all(&catalog, request.viewer());
    ok(&json!({ "pools": pools, "groups": objects(&groups) }))
}

pub(super) async fn one_pool(request: AdminRequest) -> Answer {
    let place = find_pool(&request)?;
    let mut shown = object(&PoolNow::of(&place));
    let holders = place.pool.holders().into_iter().take(ROWS).map(|holder| {
        json!({
            "held_us": micros(holder.held),
            "uses": holder.uses,
            "note": holder.note,
        })
    });
    shown["holders"] = holders.collect();
    shown["explain"] = explain::pool_text(&place, request.viewer()).into();
    ok(&shown)
}

/// The pool that the address names.
pub(super) fn find_pool(request: &AdminRequest) -> Result<Arc<NamedPool>, HttpError> {
    let name = request.name("name");
    let catalog = request.catalog();
    let found = catalog.pools.get(name).cloned();
    found.ok_or_else(|| HttpError::no_such("pool", name, "GET /api/v1/pools lists them."))
}

pub(super) async fn brokers(request: AdminRequest) -> Answer {
    let catalog = request.catalog();
    let brokers = objects(&BrokerNow::all(&catalog));
    ok(&json!({ "brokers": brokers }))
}

pub(super) async fn one_broker(request: AdminRequest) -> Answer {
    let name = request.name("name");
    let catalog = request.catalog();
    let Some(place) = catalog.brokers.get(name) else {
        let hint = "GET /api/v1/brokers lists them.";
        return Err(HttpError::no_such("broker", name, hint));
    };
    let mut shown = object(&BrokerNow::of(place));
    shown["explain"] = place.broker.explain().into();
    ok(&shown)
}

pub(super) async fn regulators(request: AdminRequest) -> Answer {
    let catalog = request.catalog();
    let all = RegulatorNow::all(&catalog);
    let all = all.iter().map(|regulator| {
        let mut shown = object(regulator);
        shown["explain"] = regulator.explain().into();
        shown
    });
    ok(&json!({ "regulators": all.collect::<Vec<_>>() }))
}

/// One page of the keys of which units are held.
pub(super) async fn locks(request: AdminRequest) -> Answer {
    let count = request.number("count", 100, ROWS_MAX)?;
    let prefix = request.query.find("prefix").unwrap_or_default().to_owned();
    let cursor = request.query.find("cursor").unwrap_or_default().to_owned();
    let shown = away(move || keys(&request, prefix.as_bytes(), cursor.as_bytes(), count)).await?;
    ok(&shown)
}

fn keys(request: &AdminRequest, prefix: &[u8], cursor: &[u8], count: usize) -> Value {
    let (daemon, viewer) = (request.daemon(), request.viewer());
    let catalog = daemon.catalog.load();
    let mut all = daemon.all_locks_held();
    all.retain(|(key, _)| key.starts_with(prefix) && key.as_slice() > cursor);
    all.retain(|(key, _)| viewer.sees("lock", &String::from_utf8_lossy(key)));
    all.sort_unstable();
    let numbered: Vec<_> = (1..).zip(all).collect();
    let page = Page {
        count,
        bytes_max: daemon.config.load().limits.output_max as usize,
        ..Page::default()
    };
    let bytes = |(_, (key, _)): &(u128, (Vec<u8>, u64))| 2 * key.len() + 256;
    let (all, more) = page.cut(numbered, |(at, _)| *at, bytes);
    let all: Vec<_> = all.into_iter().map(|(_, row)| row).collect();
    let is_more = more.is_some();
    let last = all.last().filter(|_| is_more);
    let last = last.map(|(key, _)| String::from_utf8_lossy(key).into_owned());
    let rows = all.iter().map(|(key, held)| {
        let name = String::from_utf8_lossy(key);
        let rule = catalog.rule(&name).map(|place| place.rule.pattern.clone());
        let waiting = daemon.lock_count(key).1;
        json!({ "key": name, "held": held, "waiting": waiting, "rule": rule })
    });
    let rows: Vec<_> = rows.collect();
    json!({ "keys": rows, "cursor": last, "rules": objects(&RuleNow::all(&request.catalog())) })
}

pub(super) async fn clients(request: AdminRequest) -> Answer {
    away(move || see_clients(&request)).await?
}

fn see_clients(request: &AdminRequest) -> Answer {
    let daemon = request.daemon();
    let mut all = daemon.clients.all();
    all.retain(|card| request.viewer().sees_holder(&card.card.lock()));
    let total = all.len();
    let key = |card: &Arc<ClientCard>| card.id.into();
    let show = |card: &Arc<ClientCard>| object(&ClientNow::of(daemon, card));
    let (shown, cursor) = page(request, ROWS, all, key, show)?;
    ok(&json!({ "clients": shown, "total": total, "cursor": cursor }))
}

pub(super) async fn sessions(request: AdminRequest) -> Answer {
    away(move || see_sessions(&request)).await?
}

fn see_sessions(request: &AdminRequest) -> Answer {
    let mut all = request.daemon().sessions.all();
    all.retain(|row| request.viewer().sees_holder(&row.card));
    let total = all.len();
    all.sort_unstable_by_key(SessionRow::key);
    let show = |row: &SessionRow| object(&SessionNow::of(request.daemon(), row, request.viewer()));
    let (shown, cursor) = page(request, ROWS, all, SessionRow::key, show)?;
    ok(&json!({ "sessions": shown, "total": total, "cursor": cursor }))
}

/// All that is held or waited for under a ticket, the longest first.
pub(super) async fn holders(request: AdminRequest) -> Answer {
    away(move || see_holders(&request)).await?
}

fn see_holders(request: &AdminRequest) -> Answer {
    let of = request.query.find("of").unwrap_or_default();
    let mut rows = request.daemon().lease_table.all();
    let viewer = request.viewer();
    rows.retain(|row| is_of(row, of) && viewer.sees(row.ticket.kind.word(), &row.name));
    rows.sort_unstable_by_key(LeaseRow::key);
    let total = rows.len();
    let show = |row: &LeaseRow| object(&HolderNow::of(request.daemon(), row, viewer));
    let (shown, cursor) = page(request, ROWS, rows, LeaseRow::key, show)?;
    ok(&json!({ "holders": shown, "total": total, "cursor": cursor }))
}

/// One page of rows that come by their keys, with room in one answer, and where the
/// next one begins.
fn page<T>(
    request: &AdminRequest,
    count: usize,
    rows: Vec<T>,
    key: impl Fn(&T) -> u128,
    show: impl Fn(&T) -> Value,
) -> Result<(Vec<Value>, Option<String>), HttpError> {
    let cursor = request.query.find("cursor");
    let from = cursor.map_or(Ok(0), str::parse);
    let from = from.map_err(|_| HttpError::wrong("cursor takes the cursor of the page before."))?;
    let page = Page {
        from,
        count: request.number("count", count, ROWS_MAX)?,
        bytes_max: request.daemon().config.load().limits.output_max as usize,
        ..Page::default()
    };
    let (rows, more) = page.cut(rows, key, |row| show(row).to_string().len() + 1);
    let cursor = more.map(|more| more.from.to_string());
    Ok((rows.iter().map(show).collect(), cursor))
}

/// `pool:pg-1`, `lock:tenant/42`, `conn:12`, `user:anna`, or just a name.
fn is_of(row: &LeaseRow, of: &str) -> bool {
    match of.split_once(':') {
        _ if of.is_empty() => true,
        Some(("conn", id)) => row.card.connection.is_some_and(|at| at.to_string() == id),
        Some(("user", user)) => *row.card.user == *user,
        Some((kind, name)) if row.ticket.kind.word() == kind => row.name == name,
        _ => row.name == of,
    }
}

pub(super) async fn drops(request: AdminRequest) -> Answer {
    let drops = &request.daemon().refusals;
    let viewer = request.viewer();
    let mut newest = drops.newest(usize::MAX);
    newest.retain(|dropped| viewer.sees(dropped.kind, &dropped.name));
    let key = |dropped: &Dropped| u128::from(u64::MAX - dropped.serial);
    let (shown, cursor) = page(&request, 100, newest, key, object)?;
    ok(&json!({ "drops": shown, "total": drops.total(), "cursor": cursor }))
}

/// Every limit, how much of it is used, and how often a client met it.
pub(super) async fn limits(request: AdminRequest) -> Answer {
    let mut all = Limit::all(request.daemon());
    all.extend(request.admin.limits());
    ok(&json!({ "limits": objects(&all) }))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
