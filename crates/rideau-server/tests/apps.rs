//! Applications as their users and operators meet them: the real program, real
//! processes, and whatever they do wrong.
//!
//! Every test ends with nothing left: no process of ours, no socket, no place
//! taken.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "apps/access.rs"]
mod access;
#[path = "apps/access_log.rs"]
mod access_log;
#[path = "apps/acme.rs"]
mod acme;
#[path = "apps/authority.rs"]
mod authority;
#[path = "apps/bodies.rs"]
mod bodies;
#[path = "apps/cgroups.rs"]
mod cgroups;
#[path = "apps/compression.rs"]
mod compression;
#[path = "apps/crowd.rs"]
mod crowd;
#[path = "apps/error_pages.rs"]
mod error_pages;
#[path = "apps/faults.rs"]
mod faults;
#[path = "process/given.rs"]
mod given;
#[path = "apps/harness.rs"]
mod harness;
#[path = "apps/http2_floods.rs"]
mod http2_floods;
#[path = "apps/hung_upgrades.rs"]
mod hung_upgrades;
#[path = "apps/limits.rs"]
mod limits;
#[path = "apps/listeners.rs"]
mod listeners;
#[path = "apps/matrix.rs"]
mod matrix;
#[path = "apps/moving.rs"]
mod moving;
#[path = "apps/nginx.rs"]
mod nginx;
#[path = "apps/numbers.rs"]
mod numbers;
#[path = "apps/operators.rs"]
mod operators;
#[path = "../../rideau-daemon/src/tests/commands/peer.rs"]
#[allow(dead_code, reason = "it has more than is needed here")]
mod peer;
#[path = "apps/places.rs"]
mod places;
#[path = "apps/raw_requests.rs"]
mod raw_requests;
#[path = "apps/replay.rs"]
mod replay;
#[path = "apps/restarts.rs"]
mod restarts;
#[path = "apps/rights.rs"]
mod rights;
#[path = "apps/routes.rs"]
mod routes;
#[path = "apps/secrets.rs"]
mod secrets;
#[path = "apps/serving.rs"]
mod serving;
#[path = "apps/shortage.rs"]
mod shortage;
#[path = "apps/static_files.rs"]
mod static_files;
#[path = "apps/tiny.rs"]
mod tiny;
#[path = "apps/tls.rs"]
mod tls;
#[path = "apps/trial.rs"]
mod trial;
#[path = "apps/upgrades.rs"]
mod upgrades;
#[path = "apps/upstreams.rs"]
mod upstreams;
#[path = "apps/waiting_rooms.rs"]
mod waiting_rooms;
#[path = "apps/web_sockets.rs"]
mod web_sockets;
