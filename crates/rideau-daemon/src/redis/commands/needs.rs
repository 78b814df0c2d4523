//! The rights that a command needs.

use std::sync::atomic::Ordering;

use super::{ALL, About, find};
use crate::redis::client::{Client, CommandError};
use crate::state::pending::Needs;

/// Whether the client has the right that a command needs.
pub(super) fn may_run(client: &Client, name: &str) -> Result<(), CommandError> {
    let config = client.daemon.config.load();
    let needs = find(name.as_bytes()).map_or_else(Needs::default, About::needs);
    let may = client.daemon.allows(client.user.as_deref(), &config, needs);
    may.map_err(CommandError)
}

/// The rights that the last command of a client needs.
pub(super) fn needs(client: &Client) -> Needs {
    let last = client.card.last.load(Ordering::Relaxed);
    ALL.get(last).map_or_else(Needs::default, About::needs)
}
