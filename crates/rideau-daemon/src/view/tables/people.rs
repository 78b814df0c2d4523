//! Which clients are there and which holder holds what.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Cell, Table, TableQuery};
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::lease_table::LeaseRow;
use crate::state::sessions::SessionRow;
use crate::state::viewer::Viewer;

pub(super) fn clients(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut table = Table::new(&[
        "id",
        "name",
        "user",
        "address",
        "age_s",
        "idle_s",
        "resp",
        "library",
        "last",
        "commands",
        "held",
        "is_waiting",
        "session",
        "advice",
    ]);
    let mut all = daemon.clients.all();
    all.retain(|card| {
        u128::from(card.id) > wanted.page.from && wanted.sight.sees_holder(&card.card.lock())
    });
    table.keys = all.iter().map(|card| card.id.into()).collect();
    table.rows = all.iter().map(|card| client(daemon, card)).collect();
    table
}

fn client(daemon: &Daemon, card: &ClientCard) -> Vec<Cell> {
    let holder = *card.holder.lock();
    let who = Arc::clone(&card.card.lock());
    let (library, version) = card.library.lock().clone();
    let is_pooled = card.foreign_releases.load(Ordering::Relaxed) > 0;
    let advice = "uses a pooled client: open a SESSION or a dedicated connection";
    let session = card.session.lock().clone();
    let resp: usize = if card.outbox.is_resp3() { 3 } else { 2 };
    vec![
        card.id.into(),
        who.name.lock().clone().into(),
        (&*who.user).into(),
        card.address.as_str().into(),
        card.since.elapsed().as_secs().into(),
        card.silent().as_secs().into(),
        resp.into(),
        format!("{library} {version}").trim().into(),
        daemon.last_command(card).to_lowercase().into(),
        card.commands.load(Ordering::Relaxed).into(),
        daemon.lease_table.count(holder).into(),
        usize::from(card.is_waiting.load(Ordering::Relaxed)).into(),
        session.map(|id| short(&id)).into(),
        is_pooled.then_some(advice).into(),
    ]
}

/// Enough of a session's name to tell it from others, and not to enter it: its
/// letter and its number.
fn short(id: &str) -> String {
    id.chars().take(10).chain(['…']).collect()
}

pub(super) fn sessions(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut table = Table::new(&["id", "name", "user", "connections", "held", "left_us"]);
    let mut all = daemon.sessions.all();
    all.retain(|row| row.key() > wanted.page.from && wanted.sight.sees_holder(&row.card));
    all.sort_unstable_by_key(SessionRow::key);
    table.keys = all.iter().map(SessionRow::key).collect();
    for row in all {
        table.rows.push(vec![
            wanted.sight.ticket(row.ticket, &row.card).into(),
            row.card.name.lock().clone().into(),
            (&*row.card.user).into(),
            row.attached.into(),
            daemon.lease_table.count(row.holder).into(),
            row.left.into(),
        ]);
    }
    table
}

pub(super) fn holders(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut table = Table::new(&[
        "kind",
        "name",
        "ticket",
        "state",
        "value",
        "held_us",
        "holder",
        "user",
        "connection",
        "session",
        "note",
        "is_leak",
    ]);
    let mut all = daemon.lease_table.all();
    all.retain(|row| row.key() > wanted.page.from);
    all.sort_unstable_by_key(LeaseRow::key);
    table.keys = all.iter().map(LeaseRow::key).collect();
    table.rows = all
        .into_iter()
        .map(|row| holder(daemon, row, wanted.sight))
        .collect();
    table
}

fn holder(daemon: &Daemon, row: LeaseRow, sight: Viewer<'_>) -> Vec<Cell> {
    let is_leak = leak_after(daemon, &row).is_some_and(|after| row.held > after);
    vec![
        row.ticket.kind.word().into(),
        row.name.into(),
        sight.ticket(row.ticket, &row.card).into(),
        if row.is_waiting { "waits" } else { "held" }.into(),
        row.value.into(),
        row.held.into(),
        row.card.name.lock().clone().into(),
        (&*row.card.user).into(),
        row.card.connection.into(),
        row.card.session.as_deref().map(short).into(),
        row.note.into(),
        usize::from(is_leak).into(),
    ]
}

/// A holder that holds this for longer is reported.
fn leak_after(daemon: &Daemon, row: &LeaseRow) -> Option<Duration> {
    if row.is_waiting || row.ticket.kind != crate::state::ticket::TicketKind::Member {
        return None;
    }
    let places = daemon.places.load();
    let place = places.pools.get(&row.name)?;
    place.config.load().leak_after
}
