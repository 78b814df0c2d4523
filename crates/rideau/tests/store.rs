//! What a store in a folder survives, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "store/calls.rs"]
mod calls;
#[path = "store/child.rs"]
mod child;
#[path = "store/damage.rs"]
mod damage;
#[path = "store/kill.rs"]
mod kill;
#[path = "store/laws.rs"]
mod laws;
#[path = "store/process.rs"]
mod process;
#[path = "store/room.rs"]
mod room;
#[path = "store/shim.rs"]
mod shim;
#[path = "store/stage.rs"]
mod stage;
