//! Why something is not held any more.

use std::time::Duration;

/// Why something is not held any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was released.
    Released,
    /// It was released as failed.
    Failed,
    /// Its ask was cancelled.
    Cancelled,
    /// Its holder ended properly.
    Quit,
    /// Its holder vanished.
    Lost,
    /// Its session was not renewed in time.
    Expired,
    /// An operator took it back.
    Revoked,
    /// The other party ended it.
    Over,
    /// Its holder said nothing for too long.
    Silent,
}

/// There is nothing under a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// It was there once.
    Stale {
        /// How long ago it ended.
        ago: Duration,
        /// Why.
        why: Why,
    },
    /// Nobody knows it.
    Unknown,
    /// It belongs to another user.
    Foreign,
}

impl Why {
    /// Somebody wanted it to end, and not its holder only to go.
    pub const fn is_wanted(self) -> bool {
        matches!(
            self,
            Self::Released | Self::Failed | Self::Cancelled | Self::Revoked
        )
    }

    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Released,
        Self::Failed,
        Self::Cancelled,
        Self::Quit,
        Self::Lost,
        Self::Expired,
        Self::Revoked,
        Self::Over,
        Self::Silent,
    ];

    /// In a few words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Failed => "released as failed",
            Self::Cancelled => "cancelled",
            Self::Quit => "given back when its holder quit",
            Self::Lost => "taken back when its holder's connection was lost",
            Self::Expired => "taken back when its session expired",
            Self::Revoked => "revoked by an operator",
            Self::Over => "ended by the other party",
            Self::Silent => "taken back when its holder had been silent for too long",
        }
    }

    /// One word, for labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Released => "release",
            Self::Failed => "fail",
            Self::Cancelled => "cancel",
            Self::Quit => "quit",
            Self::Lost => "disconnect",
            Self::Expired => "ttl",
            Self::Revoked => "revoke",
            Self::Over => "over",
            Self::Silent => "dead_peer",
        }
    }
}
