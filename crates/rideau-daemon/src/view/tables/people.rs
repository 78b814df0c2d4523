//! Which clients are there and which holder holds what.

use super::{Table, TableQuery};
use crate::state::daemon::Daemon;
use crate::state::lease_table::LeaseRow;
use crate::state::sessions::SessionRow;
use crate::view::facts::{ClientNow, HolderNow, SessionNow};

pub(super) fn clients(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut all = daemon.clients.all();
    all.retain(|card| {
        u128::from(card.id) > wanted.page.from && wanted.viewer.sees_holder(&card.card.lock())
    });
    let rows = all.iter().map(|card| ClientNow::of(daemon, card));
    let mut table = Table::of(&rows.collect::<Vec<_>>());
    table.keys = all.iter().map(|card| card.id.into()).collect();
    table
}

pub(super) fn sessions(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut all = daemon.sessions.all();
    all.retain(|row| row.key() > wanted.page.from && wanted.viewer.sees_holder(&row.card));
    all.sort_unstable_by_key(SessionRow::key);
    let rows = all.iter();
    let rows = rows.map(|row| SessionNow::of(daemon, row, wanted.viewer));
    let mut table = Table::of(&rows.collect::<Vec<_>>());
    table.keys = all.iter().map(SessionRow::key).collect();
    table
}

pub(super) fn holders(daemon: &Daemon, wanted: &TableQuery<'_>) -> Table {
    let mut all = daemon.lease_table.all();
    all.retain(|row| row.key() > wanted.page.from);
    all.sort_unstable_by_key(LeaseRow::key);
    let rows = all.iter();
    let rows = rows.map(|row| HolderNow::of(daemon, row, wanted.viewer));
    let mut table = Table::of(&rows.collect::<Vec<_>>());
    table.keys = all.iter().map(LeaseRow::key).collect();
    table
}
