//! Rights that are looked up again: of commands that wait, and of streams.

use super::{ALL, allows, find, may_use, no_use, ranges};
use crate::client::{Awaits, Client, Wrong};
use crate::config::{Config, User};
use crate::daemon::Daemon;

/// Whether the client has the right that a command needs.
pub(super) fn may_run(client: &Client, name: &str) -> Result<(), Wrong> {
    let daemon = &client.daemon;
    let config = daemon.config.load();
    match find(name.as_bytes()) {
        Some(about) => allows(daemon, client.user.as_deref(), &config, about),
        None => Ok(()),
    }
}

/// Whether the client may still have what its last command waits for. Its rights are
/// those of now.
pub(crate) fn may_still(client: &Client, awaits: &Awaits, name: &str) -> Result<(), Wrong> {
    let Some(about) = ALL.get(last(client)) else {
        return Ok(());
    };
    let daemon = &client.daemon;
    let config = daemon.config.load();
    let may = allows(daemon, client.user.as_deref(), &config, about);
    may.and_then(|()| match awaits {
        Awaits::Anything => Ok(()),
        Awaits::Thing(kind) => may_use(client, kind, name),
        Awaits::Values(prefer) => ranges::may_use_places(client, prefer),
    })
}

/// Write down that a user may not have any more what a command of it waits for, by the
/// place of the command.
pub(crate) fn deny(daemon: &Daemon, command: usize, user: &str, Wrong(text): &Wrong) {
    if let Some(about) = ALL.get(command) {
        about.deny(daemon, user, text);
    }
}

/// Whether a user may still have what an ask of it waits for, by the place of its
/// command.
pub(crate) fn may_still_have(
    daemon: &Daemon,
    user: Option<&User>,
    config: &Config,
    command: usize,
    kind: &str,
    name: &str,
) -> Result<(), Wrong> {
    let Some(about) = ALL.get(command) else {
        return Ok(());
    };
    let may = allows(daemon, user, config, about);
    may.and_then(|()| match user {
        Some(user) if !user.may_use(kind, name) => Err(no_use(user, kind, name)),
        _ => Ok(()),
    })
}

/// Where the last command of a client is among all.
pub(crate) fn last(client: &Client) -> usize {
    client.card.last.load(std::sync::atomic::Ordering::Relaxed)
}
