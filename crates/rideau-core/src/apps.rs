//! Gives places in the processes of apps to those who ask, and starts, drains
//! and stops processes as needed.
//!
//! The machine knows processes by their ids; what a process is, and how it is
//! started or stopped, is up to whoever carries the effects out.

mod effect;
mod options;
mod stats;

pub use self::effect::{
    AppId, Ask, Came, Effect, Ended, Leaving, Note, ProcessId, Restart, Session, SessionId,
};
pub use self::options::{EvictFor, Limits, Options};
pub use self::stats::{AppStats, Deploy, ProcessStats, State, Stats};
