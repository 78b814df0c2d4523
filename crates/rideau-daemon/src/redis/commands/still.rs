//! Rights that are looked up again: of commands that wait, and of streams.

use super::needs::needs;
use super::{may_use, ranges};
use crate::redis::client::{Awaits, Client, CommandError};

/// Whether the client may still have what its last command waits for. Its rights are
/// those of now.
pub(crate) fn may_still(client: &Client, awaits: &Awaits, name: &str) -> Result<(), CommandError> {
    let config = client.daemon.config.load();
    let may = client
        .daemon
        .allows(client.user.as_deref(), &config, needs(client));
    may.map_err(CommandError).and_then(|()| match awaits {
        Awaits::Anything => Ok(()),
        Awaits::Thing(kind) => may_use(client, kind, name),
        Awaits::Values(prefer) => ranges::may_use_places(client, prefer),
    })
}

/// Write down that a user may not have any more what the last command of a client waits
/// for.
pub(crate) fn deny(client: &Client, user: &str, CommandError(text): &CommandError) {
    client.daemon.deny(needs(client), user, text);
}
