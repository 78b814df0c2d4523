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
pub use serve::{Ready, run, run_daemon, run_from};
pub use state::daemon::Daemon;
pub use state::versions::Source;
pub use state::{files, log};
pub use view::tables::TableKind;

/// What tests put a server together from.
#[doc(hidden)]
pub mod testing {
    pub use crate::admin::AdminListener;
    pub use crate::redis::commands;
    pub use crate::serve::{Listener, drain, keep_sessions, leak_check};
    pub use crate::state::holder::Holder;
    pub use crate::state::viewer::Viewer;
    pub use crate::view::explain::explain;
    pub use crate::view::tables;
}
