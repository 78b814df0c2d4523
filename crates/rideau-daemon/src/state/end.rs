//! Why something is not held any more.

use std::fmt;
use std::time::Duration;

use rideau_core::Brief;

/// Why something is not held any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
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
    /// Its ask was refused.
    Refused,
    /// Its regulator did not let it go on.
    Stopped,
    /// Its time ran out, or it was taken over.
    Lapsed,
    /// Its session was closed as failed.
    Broken,
    /// The member ended by itself.
    Died,
}

/// There is nothing under a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHeld {
    /// It was there once.
    Stale {
        /// How long ago it ended.
        ago: Duration,
        /// Why.
        why: EndReason,
    },
    /// It was there once, and ended longer ago than that. Why is not remembered.
    Forgotten {
        /// All that ended since is.
        ago: Duration,
    },
    /// The server has not given it since its start.
    Unknown,
    /// It belongs to another user.
    Foreign,
}

impl NotHeld {
    /// The code of an error, and what it says of a ticket.
    pub fn told(self, ticket: impl fmt::Display) -> (&'static str, String) {
        let text = match self {
            Self::Stale { ago, why } => {
                let why = why.words();
                let ago = Brief(ago);
                format!("ticket {ticket} was {why} {ago} ago: nothing is held under it.")
            }
            Self::Forgotten { ago } => format!(
                "ticket {ticket} ended more than {} ago, and why is not remembered for longer: \
                 nothing is held under it.",
                Brief(ago)
            ),
            Self::Unknown => format!(
                "ticket {ticket} was not given by this server since its start: tickets of an \
                 earlier start and of other servers stand for nothing here. Ask again."
            ),
            Self::Foreign => {
                return (
                    "NOPERM",
                    format!("ticket {ticket} belongs to another user."),
                );
            }
        };
        ("STALE", text)
    }
}

impl EndReason {
    /// Its end was asked for, and its holder did not only go.
    pub const fn is_wanted(self) -> bool {
        matches!(
            self,
            Self::Released | Self::Failed | Self::Cancelled | Self::Revoked
        )
    }

    /// What it was held for went well, as far as its holder says.
    pub const fn is_work_done(self) -> bool {
        matches!(
            self,
            Self::Released | Self::Quit | Self::Over | Self::Cancelled
        )
    }

    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::Released,
        Self::Failed,
        Self::Cancelled,
        Self::Quit,
        Self::Lost,
        Self::Expired,
        Self::Revoked,
        Self::Over,
        Self::Silent,
        Self::Refused,
        Self::Stopped,
        Self::Lapsed,
        Self::Broken,
        Self::Died,
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
            Self::Refused => "refused",
            Self::Stopped => "stopped by its regulator",
            Self::Lapsed => "lost when its time ran out or another holder took it over",
            Self::Broken => "taken back when its session was closed as failed",
            Self::Died => "lost when the member ended by itself",
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
            Self::Refused => "no",
            Self::Stopped => "stop",
            Self::Lapsed => "lapse",
            Self::Broken => "session_failed",
            Self::Died => "died",
        }
    }
}
