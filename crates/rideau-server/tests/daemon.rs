//! The daemon as its clients meet it: the real program on a port of its own,
//! and clients that come, go and die.
//!
//! Every test starts a server of its own, and at its end the server has neither
//! panicked nor stopped by itself.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "daemon/bad.rs"]
mod bad;
#[path = "daemon/before_login.rs"]
mod before_login;
#[path = "daemon/blocking.rs"]
mod blocking;
#[path = "daemon/clients.rs"]
mod clients;
#[path = "daemon/cluster.rs"]
mod cluster;
#[path = "daemon/cluster_alarms.rs"]
mod cluster_alarms;
#[path = "daemon/cluster_clients.rs"]
mod cluster_clients;
#[path = "daemon/cluster_config.rs"]
mod cluster_config;
#[path = "daemon/cluster_cuts.rs"]
mod cluster_cuts;
#[path = "daemon/cluster_etcd.rs"]
mod cluster_etcd;
#[path = "daemon/cluster_faults.rs"]
mod cluster_faults;
#[path = "daemon/cluster_history.rs"]
mod cluster_history;
#[path = "daemon/cluster_keys.rs"]
mod cluster_keys;
#[path = "daemon/cluster_locks.rs"]
mod cluster_locks;
#[path = "daemon/cluster_pipelines.rs"]
mod cluster_pipelines;
#[path = "daemon/cluster_places.rs"]
mod cluster_places;
#[path = "daemon/cluster_seed.rs"]
mod cluster_seed;
#[path = "daemon/cluster_straight.rs"]
mod cluster_straight;
#[path = "daemon/cluster_upgrade.rs"]
mod cluster_upgrade;
#[path = "daemon/cluster_values.rs"]
mod cluster_values;
#[path = "daemon/control.rs"]
mod control;
#[path = "daemon/crowd.rs"]
mod crowd;
#[path = "daemon/curl.rs"]
mod curl;
#[path = "daemon/dashboard.rs"]
mod dashboard;
#[path = "daemon/drain.rs"]
mod drain;
#[path = "daemon/files.rs"]
mod files;
#[path = "daemon/holders.rs"]
mod holders;
#[path = "daemon/input.rs"]
mod input;
#[path = "daemon/kills.rs"]
mod kills;
#[path = "daemon/later.rs"]
mod later;
#[path = "daemon/matches.rs"]
mod matches;
#[path = "daemon/members.rs"]
mod members;
#[path = "daemon/memory.rs"]
mod memory;
#[path = "daemon/networks.rs"]
mod networks;
#[path = "daemon/offered.rs"]
mod offered;
#[path = "daemon/ranges.rs"]
mod ranges;
#[path = "daemon/referee.rs"]
mod referee;
#[path = "daemon/seeds.rs"]
mod seeds;
#[path = "daemon/server.rs"]
mod server;
#[path = "daemon/sessions.rs"]
mod sessions;
#[path = "daemon/store.rs"]
mod store;
#[path = "daemon/tls.rs"]
mod tls;
#[path = "daemon/transcript.rs"]
mod transcript;
#[path = "daemon/wire.rs"]
mod wire;
