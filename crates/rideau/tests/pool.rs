//! The pool's handle: takes, releases, starts and ends, on a paused clock.
//!
//! S, P and F number the scenarios, the invariants and the faults of others
//! that these tests are about. Every test counts the members that are alive.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "pool/idle_cache.rs"]
mod cache;
#[path = "pool/change.rs"]
mod change;
#[path = "pool/close.rs"]
mod close;
#[path = "pool/end.rs"]
mod end;
#[path = "pool/line.rs"]
mod line;
#[path = "pool/order.rs"]
mod order;
#[path = "pool/probes.rs"]
mod probes;
#[path = "pool/rig.rs"]
mod rig;
#[path = "pool/start.rs"]
mod start;
#[path = "pool/stress.rs"]
mod stress;
#[path = "pool/take.rs"]
mod take;
#[path = "pool/with.rs"]
mod with;
