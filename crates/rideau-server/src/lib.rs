//! The parts of the `rideau` program, for its binary and its tests.

pub mod client;
pub mod clients;
pub mod command;
pub mod config;
pub mod connection;
pub mod daemon;
pub mod drops;
pub mod events;
pub mod grant;
pub mod holdings;
pub mod later;
mod login;
pub mod meeting;
pub mod member;
pub mod outbox;
pub mod outcome;
pub mod places;
pub mod process;
pub mod resp;
pub mod serve;
pub mod sessions;
pub mod supervisor;
pub mod ticket;
pub mod tls;
