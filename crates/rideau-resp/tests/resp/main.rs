//! The Redis protocol: what is read is what was sent, in whatever pieces it
//! comes, and nothing that can be sent does harm.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad;
mod chance;
mod fuzz;
mod peer;
mod pieces;
mod replies;
mod requests;

/// This many cases, and eight times as many in a soak.
fn cases(cases: u64) -> u64 {
    let soak = std::env::var_os("RIDEAU_SOAK").map_or(1, |_| 8);
    cases * soak
}
