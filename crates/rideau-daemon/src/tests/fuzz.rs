//! Sessions, requests and configs by chance: nothing panics, hangs or stays held.

mod admin;
mod commands;
mod config;
mod server;
