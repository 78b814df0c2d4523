//! Replaces a server by a newer one beside it, so that no client is refused meanwhile.
//!
//! The older server starts the newer one and passes on its listeners. Both are machines here,
//! and hear of each other only what their drivers tell them. Whatever fails, one of them
//! serves.

mod new_side;
mod old_side;
mod shares;

use std::fmt;

pub use self::new_side::{NewSide, NewSideEffect, NewSideLimits, Warmth};
pub use self::old_side::{OldSide, OldSideEffect, OldSideLimits, UpgradeRunning, UpgradeStep};
pub use self::shares::{AppLoad, ProcessShare, process_room, process_shares};

/// The protocol that both have to speak.
pub const UPGRADE_PROTOCOL: u32 = 1;

/// Why the newer server does not serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeFault {
    /// It finds faults in the config, or cannot look at it.
    CheckFailed,
    /// It did not look at the config in time.
    CheckLate,
    /// It cannot be started.
    NotStarted,
    /// It speaks another protocol.
    OtherProtocol,
    /// It ended before it served.
    Ended,
    /// It did not say in time that it is there.
    Silent,
    /// Its applications were not ready in time.
    NotReady,
    /// An application does not start there, and does here.
    AppFails,
    /// It took over, and did not serve in time.
    NotServing,
    /// What only one of them can have open could not be closed in time.
    NotClosed,
    /// It cannot open what the older one has closed.
    NotOpened,
    /// The older one was told to stop.
    Stopped,
}

impl UpgradeFault {
    /// One lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CheckFailed => "check_failed",
            Self::CheckLate => "check_late",
            Self::NotStarted => "not_started",
            Self::OtherProtocol => "other_protocol",
            Self::Ended => "ended",
            Self::Silent => "silent",
            Self::NotReady => "not_ready",
            Self::AppFails => "app_fails",
            Self::NotServing => "not_serving",
            Self::NotClosed => "not_closed",
            Self::NotOpened => "not_opened",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for UpgradeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CheckFailed => "the check by the newer program failed",
            Self::CheckLate => "the newer program did not check the config in time",
            Self::NotStarted => "the newer program cannot be started",
            Self::OtherProtocol => "the newer program cannot take over from this one",
            Self::Ended => "the newer server ended before it served",
            Self::Silent => "the newer server did not say in time that it is there",
            Self::NotReady => "the newer server's applications were not ready in time",
            Self::AppFails => "an application that runs here does not start at the newer server",
            Self::NotServing => "the newer server took over, and did not serve in time",
            Self::NotClosed => "the store could not be closed in time",
            Self::NotOpened => "the newer server could not open what this one had closed",
            Self::Stopped => "the server was told to stop",
        })
    }
}
