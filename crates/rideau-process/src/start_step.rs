//! The steps of a start, by which a failed one is told.

use serde::{Deserialize, Serialize};

/// A part of a start, in the order in which they come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartStep {
    /// Making room: a folder, a port, a socket.
    Prepare,
    /// Having the system make a process.
    Spawn,
    /// Hearing from us what to do.
    ExecRequest,
    /// Leading a session of its own.
    Setsid,
    /// Entering its cgroup.
    Cgroup,
    /// Limiting what it may use.
    Limit,
    /// Becoming its group.
    Group,
    /// Becoming its user.
    User,
    /// Giving up the chance of more rights.
    Privileges,
    /// Dying with us.
    Parent,
    /// Going to its directory.
    Chdir,
    /// Having its listener as file 3.
    Listener,
    /// Becoming the program.
    Exec,
    /// Becoming ready.
    Ready,
}

impl StartStep {
    /// The word it is written with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Spawn => "spawn",
            Self::ExecRequest => "order",
            Self::Setsid => "setsid",
            Self::Cgroup => "cgroup",
            Self::Limit => "limit",
            Self::Group => "group",
            Self::User => "user",
            Self::Privileges => "privileges",
            Self::Parent => "parent",
            Self::Chdir => "chdir",
            Self::Listener => "listener",
            Self::Exec => "exec",
            Self::Ready => "ready",
        }
    }
}
