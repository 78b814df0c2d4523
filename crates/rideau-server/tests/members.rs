//! Members of every kind, lent by a real server to real connections.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "members/harness.rs"]
mod harness;
#[path = "members/peer.rs"]
mod peer;

#[path = "members/changes.rs"]
mod changes;
#[path = "members/ends.rs"]
mod ends;
#[path = "members/failures.rs"]
mod failures;
#[path = "members/lists.rs"]
mod lists;
#[path = "members/offers.rs"]
mod offers;
#[path = "members/processes.rs"]
mod processes;
