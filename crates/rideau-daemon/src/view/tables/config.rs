//! The table of the config.

use rideau_config::{Change, change_of};

use super::{Cell, Table};
use crate::state::daemon::Daemon;

pub(super) fn table(daemon: &Daemon) -> Table {
    let mut table = Table::new(&["name", "value", "change"]);
    for (path, value) in daemon.config.load().rows() {
        let change = match change_of(&path) {
            Change::Live => "live",
            Change::Restart => "restart",
        };
        let row: Vec<Cell> = vec![path.into(), value.into(), change.into()];
        table.rows.push(row);
    }
    table
}
