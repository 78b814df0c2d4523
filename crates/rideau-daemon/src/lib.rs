//! The server of the `rideau` program.
//!
//! Modules use only those below them: `serve`, `admin`, `redis`, `view`, `net`, `state`.

mod admin;
mod net;
mod redis;
mod serve;
mod state;
mod view;

pub use net::{control, tls};
pub use redis::commands::NAMES as COMMAND_NAMES;
pub use serve::{Ready, accept_restored, move_to_etcd, run, run_daemon, run_from, run_upgradable};
pub use state::daemon::Daemon;
pub use state::upgrades::{StartedAs, UPGRADE_VARIABLE, Upgradable};
pub use state::versions::Source;
pub use state::{files, log};
pub use view::tables::TableKind;

#[cfg(test)]
mod tests;
