//! Clients that speak the Redis protocol: connections, logins, commands.

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod commit_wait;
pub(crate) mod connection;
pub(crate) mod input;
pub(crate) mod login;
pub(crate) mod peer;
pub(crate) mod remote;
pub(crate) mod subscriptions;
pub(crate) mod transaction;
