//! What values of ranges with 64 partitions outlive.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rideau::cluster::Partitions;

#[path = "ranges/alike.rs"]
mod alike;
#[path = "ranges/close.rs"]
mod close;
#[path = "ranges/events.rs"]
mod events;
#[path = "ranges/fail.rs"]
mod fail;
#[path = "ranges/rig.rs"]
mod rig;
#[path = "ranges/snapshot.rs"]
mod snapshot;
#[path = "ranges/start.rs"]
mod start;
#[path = "ranges/time.rs"]
mod time;
#[path = "ranges/told.rs"]
mod told;
#[path = "ranges/wait.rs"]
mod wait;

// What says that a thread has ended runs in a process of its own.
#[cfg(feature = "store")]
#[allow(dead_code, reason = "the tests that need a disk use the rest")]
#[path = "ranges/child.rs"]
mod child;
#[cfg(feature = "store")]
#[path = "store/process.rs"]
mod process;
#[cfg(feature = "store")]
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "store/stage.rs"]
mod stage;

/// All tests of this file are about ranges with this many partitions.
fn partitions() -> Partitions {
    Partitions::new(64, 0).unwrap()
}
