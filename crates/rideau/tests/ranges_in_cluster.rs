//! What values of ranges outlive whose partitions move between nodes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "cluster_ranges/clocks.rs"]
mod clocks;
#[path = "cluster_ranges/kept_logs.rs"]
mod kept_logs;
#[path = "cluster_ranges/keys.rs"]
mod keys;
#[path = "cluster_ranges/laws.rs"]
mod laws;
#[path = "cluster_ranges/lost.rs"]
mod lost;
#[path = "cluster_ranges/moves.rs"]
mod moves;
#[path = "cluster_ranges/oracle.rs"]
mod oracle;
#[path = "cluster_ranges/serving.rs"]
mod serving;
#[path = "cluster_ranges/snapshots.rs"]
mod snapshots;
