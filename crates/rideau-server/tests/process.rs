//! Children as the daemon starts and stops them: real ones, from small scripts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "process/harness.rs"]
mod harness;

#[path = "process/apps.rs"]
mod apps;
#[path = "process/failures.rs"]
mod failures;
#[path = "process/given.rs"]
mod given;
#[path = "process/output.rs"]
mod output;
#[path = "process/ready.rs"]
mod ready;
#[path = "process/stage.rs"]
mod stage;
#[path = "process/stop.rs"]
mod stop;
#[path = "process/surroundings.rs"]
mod surroundings;
#[path = "process/traces.rs"]
mod traces;
