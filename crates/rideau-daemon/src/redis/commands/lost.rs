//! A holder that has lost something is told at its next command about asks or leases.

use super::About;
use crate::redis::client::{Client, CommandError};

/// Commands that a holder sends as one: it may believe that it still has what it had.
const TOLD: &[&str] = &[
    "LOCK",
    "TAKE",
    "ASK",
    "OFFER",
    "REG.ASK",
    "REG.CONTINUE",
    "RESERVE",
    "CLAIM",
    "UPDATE",
    "WRITE",
    "REFRESH",
    "APP.GET",
    "POOL.OFFER",
];

/// Reports the leases that the client's holder has lost since it was last told.
#[cold]
pub(super) fn tell(client: &Client, about: &About) -> Result<(), CommandError> {
    if !TOLD.contains(&about.name) {
        return Ok(());
    }
    let lease_table = &client.daemon.lease_table;
    let lost = lease_table.untold_of(client.owner());
    let Some(first) = lost.first() else {
        return Ok(());
    };
    let fields: Vec<_> = lost
        .iter()
        .map(|lost| format!("{}={}", lost.ticket, lost.why.word()))
        .collect();
    let ago = first.ago(lease_table.now());
    Err(CommandError(format!(
        "LOST {}: the first was {} {ago:.1?} ago. Nothing is held under these tickets any more, \
         and this command was not executed: send it again.",
        fields.join(" "),
        first.why.words(),
    )))
}
