//! Counting locks by key: what is granted, to which caller, and that it comes
//! back.
//!
//! T, K and L number the scenarios, the invariants and the faults of others
//! that these tests are about.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "locks/all.rs"]
mod all;
#[path = "locks/cancel.rs"]
mod cancel;
#[path = "locks/checker.rs"]
mod checker;
#[path = "locks/faults.rs"]
mod faults;
#[path = "locks/forget.rs"]
mod forget;
#[path = "locks/history.rs"]
mod history;
#[path = "locks/keys.rs"]
mod keys;
#[path = "locks/laws.rs"]
mod laws;
#[path = "locks/owner.rs"]
mod owner;
#[path = "locks/rules.rs"]
mod rules;
#[path = "locks/session.rs"]
mod session;
#[path = "locks/stage.rs"]
mod stage;
#[path = "locks/stress.rs"]
mod stress;
#[path = "locks/wait.rs"]
mod wait;
