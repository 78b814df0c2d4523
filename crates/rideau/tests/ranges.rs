//! What values of ranges outlive, and when one hears of them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rideau::cluster::Partitions;

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

// What needs a disk. The stage is that of the store's own tests.
#[cfg(feature = "store")]
#[path = "ranges/child.rs"]
mod child;
#[cfg(feature = "store")]
#[path = "ranges/disk.rs"]
mod disk;
#[cfg(feature = "store")]
#[path = "ranges/kill.rs"]
mod kill;
#[cfg(feature = "store")]
#[path = "store/process.rs"]
mod process;
#[cfg(feature = "store")]
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "store/shim.rs"]
mod shim;
#[cfg(feature = "store")]
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "store/stage.rs"]
mod stage;

/// All tests of this file are about ranges with this many partitions.
fn partitions() -> Partitions {
    Partitions::ONE
}
