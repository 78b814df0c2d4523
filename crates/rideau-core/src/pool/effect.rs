//! Effects of a pool, and answers of takes.

use std::fmt;
use std::time::Duration;

use crate::ids::Ticket;
use crate::refusal::Refusal;
use crate::time::{Instant, Lead};

/// A member from its start to its end; never given twice by one pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A taker gets a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Where the member is.
    pub slot: u32,
    /// How much earlier the taker came than the member.
    pub lead: Lead,
    /// How long the taker waited in all.
    pub waited: Duration,
}

/// The answer to a taker that came just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// Here is a member.
    Granted(Grant),
    /// It has to wait; the answer will be an effect.
    Waits(Ticket),
    /// It gets none.
    Refused(Refusal),
}

/// What a pool wants done. What is done for a slot ends with an input that
/// names the same slot and member.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<R> {
    /// Say yes to a take that waits.
    Grant {
        /// How to answer.
        reply: R,
        /// The member.
        grant: Grant,
    },
    /// Say no to a take that waits.
    Shed {
        /// How to answer.
        reply: R,
        /// The refusal.
        refusal: Refusal,
    },
    /// There is no taker to answer any more.
    Forget(R),
    /// Start a member.
    Start {
        /// Where it will be.
        slot: u32,
        /// Which it will be.
        id: MemberId,
    },
    /// Find out whether an idle member is still good.
    Check {
        /// Where it is.
        slot: u32,
        /// Which it is.
        id: MemberId,
    },
    /// Stop a member.
    Stop {
        /// Where it is.
        slot: u32,
        /// Which it is.
        id: MemberId,
        /// Why.
        why: Retired,
    },
    /// A start, a check or a stop took too long or is not wanted any more: end
    /// it, and whatever it made with it.
    Abandon {
        /// Where it is.
        slot: u32,
        /// Which it is.
        id: MemberId,
    },
    /// A member that is out may not be taken again from this instant on.
    Mark {
        /// Where it is.
        slot: u32,
        /// When its life is over.
        until: Instant,
    },
    /// Tell the holder of a member that it is taken away.
    Revoke {
        /// Where it is.
        slot: u32,
        /// Which it is.
        id: MemberId,
    },
    /// The budget that shares room out among pools should look at this one
    /// again.
    Look,
    /// The pool was closed and the last member is gone.
    Closed,
}

/// How a holder ends its use of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The member can be used again.
    Fine,
    /// It has to be checked before it is used again.
    Doubtful,
    /// It goes.
    Over(Retired),
}

/// Why a member is stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Retired {
    /// It was idle for long, and there are enough without it.
    Idle,
    /// Its life is over.
    Aged,
    /// It was taken as often as it may be.
    Used,
    /// Its holder said that it failed, or panicked.
    Failed,
    /// It was found broken.
    Broken,
    /// It ended by itself.
    Lost,
    /// All members are being replaced.
    Replaced,
    /// There are more than may be.
    Surplus,
    /// The pool is closing.
    Closed,
}

impl Retired {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Aged,
        Self::Used,
        Self::Failed,
        Self::Broken,
        Self::Lost,
        Self::Replaced,
        Self::Surplus,
        Self::Closed,
    ];

    /// The reason's place in [`ALL`](Self::ALL), to count by.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One lower-case word, for labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Aged => "aged",
            Self::Used => "used",
            Self::Failed => "failed",
            Self::Broken => "broken",
            Self::Lost => "lost",
            Self::Replaced => "replaced",
            Self::Surplus => "surplus",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "it was idle for long, and there are enough without it",
            Self::Aged => "its life is over",
            Self::Used => "it was taken as often as it may be",
            Self::Failed => "its holder said that it failed",
            Self::Broken => "it was found broken",
            Self::Lost => "it ended by itself",
            Self::Replaced => "all members are being replaced",
            Self::Surplus => "there are more than may be",
            Self::Closed => "the pool is closing",
        })
    }
}
