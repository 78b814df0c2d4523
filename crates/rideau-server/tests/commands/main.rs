//! The commands of operators, as a Redis client sends them to a real server on
//! a free port.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod look;
mod peer;
mod pools;
mod ranges;
mod ranges_kept;
mod server;
mod settings;
mod users;
mod watch;
