//! The machines' behaviour, as scripts that a reader can check by eye.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod acme;
mod apps;
mod broker;
mod crowd;
mod locks;
mod mailbox;
mod pool;
mod queue;
mod regulator;
mod script;
mod upgrade;
mod waiting_room;
