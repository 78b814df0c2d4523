//! The server in this process: what operators, users and clients meet, with what lies behind it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod admin;
mod commands;
mod fuzz;
mod members;
mod moment;
mod panics;
mod tls;
