//! Nodes of a cluster in a simulated world: the machine that ships, a model of etcd, and
//! everything that can go wrong between them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod alone;
mod bugs;
mod clients;
mod configs;
mod entry;
mod faults;
mod figures;
mod hello;
mod holders;
mod host;
mod laws;
mod leases;
mod loading;
mod locks;
mod members;
mod network;
mod oracle;
mod process;
mod register;
mod rows;
mod serving;
mod unique;
mod world;
