//! Nodes on a real etcd: what was acknowledged is there, whatever ends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "node/alone.rs"]
mod alone;
#[path = "node/child.rs"]
mod child;
#[path = "node/host.rs"]
mod host;
#[path = "node/links.rs"]
mod links;
#[path = "node/made.rs"]
mod made;
#[path = "node/rig.rs"]
mod rig;
#[path = "node/room.rs"]
mod room;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../rideau/tests/server/etcd.rs"]
mod server;
#[path = "node/several.rs"]
mod several;
#[path = "node/values.rs"]
mod values;
