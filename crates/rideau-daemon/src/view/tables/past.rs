//! Tables of past events and refusals, the newest first.

use super::Table;
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

pub(super) fn refusals(daemon: &Daemon) -> Table {
    let all = daemon.refusals.newest(usize::MAX);
    let mut table = Table::of(&all);
    let serials = all.iter().map(|dropped| dropped.serial);
    table.keys = serials.map(newest_first).collect();
    table
}

pub(super) fn events(daemon: &Daemon, viewer: Viewer<'_>) -> Table {
    let mut table = Table::new(&["id", "at_ms", "kind", "name", "text", "by"]);
    for event in daemon.events.newest(usize::MAX) {
        table.keys.push(newest_first(event.serial));
        table.rows.push(vec![
            event.serial.into(),
            event.at.into(),
            event.kind.into(),
            event.name.as_str().into(),
            viewer.text_of(&event).into(),
            event.by.as_deref().into(),
        ]);
    }
    table
}

/// A key that grows from the newest to the oldest.
fn newest_first(serial: u64) -> u128 {
    u128::from(u64::MAX - serial)
}
