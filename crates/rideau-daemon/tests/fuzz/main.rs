//! Sessions, requests and configs by chance: nothing panics, hangs or stays held.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod admin;
mod commands;
mod config;
mod server;
