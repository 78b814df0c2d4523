//! Why an ask got nothing, in words and numbers.

use std::fmt;
use std::time::Duration;

use crate::time::Brief;

/// Why an ask was refused at once or shed after a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The queue is full.
    Full,
    /// It waited as long as any ask may.
    Timeout,
    /// CoDel thins out a queue that has been slow for an interval.
    CoDel,
    /// It waited over the bound while the queue was overloaded.
    Bound,
    /// No ask was served quickly for an interval, and it waited too long.
    MinDelay,
    /// The queue has not been empty for an interval, so no ask may wait long.
    Standing,
    /// A law that the user of the library brought has shed it.
    Custom,
    /// The asker's own deadline came.
    Deadline,
    /// It came when it would have had to wait for much longer than its own limit.
    Hopeless,
    /// Nothing was there, and the asker did not want to wait.
    Busy,
    /// The protector turned it away before it could wait.
    Protected,
    /// It was cancelled.
    Cancelled,
    /// The place is closing.
    Closed,
    /// Nothing is handed out for a while, and the asker did not want to wait.
    Suspended,
    /// No member is there, and none can be started.
    Starting,
    /// There is no pool to take it from.
    Nowhere,
    /// It asked for no units, or for more than there may ever be.
    Excess,
    /// The limit of keys is reached.
    Keys,
    /// No server answers.
    Down,
}

impl Reason {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 19] = [
        Self::Full,
        Self::Timeout,
        Self::CoDel,
        Self::Bound,
        Self::MinDelay,
        Self::Standing,
        Self::Custom,
        Self::Deadline,
        Self::Hopeless,
        Self::Busy,
        Self::Protected,
        Self::Cancelled,
        Self::Closed,
        Self::Suspended,
        Self::Starting,
        Self::Nowhere,
        Self::Excess,
        Self::Keys,
        Self::Down,
    ];

    /// The reason's place in [`ALL`](Self::ALL), to count by.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One lower-case word, for protocols and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Timeout => "timeout",
            Self::CoDel => "codel",
            Self::Bound => "bound",
            Self::MinDelay => "min-delay",
            Self::Standing => "standing",
            Self::Custom => "custom",
            Self::Deadline => "deadline",
            Self::Hopeless => "hopeless",
            Self::Busy => "busy",
            Self::Protected => "protected",
            Self::Cancelled => "cancelled",
            Self::Closed => "closed",
            Self::Suspended => "suspended",
            Self::Starting => "starting",
            Self::Nowhere => "nowhere",
            Self::Excess => "excess",
            Self::Keys => "keys",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many asks are waiting",
            Self::Timeout => "it reached the timeout of the queue",
            Self::CoDel => "refused by CoDel: waits were over its target for a whole interval",
            Self::Bound => "it waited over the bound while the queue was overloaded",
            Self::MinDelay => "no ask was served quickly, and it waited too long",
            Self::Standing => {
                "the queue has not been empty for a long time, and it waited too \
                long"
            }
            Self::Custom => "the custom shedding policy of this queue shed it",
            Self::Deadline => "its own deadline came",
            Self::Hopeless => "it would have had to wait for much longer than its own limit",
            Self::Busy => "nothing was free at once",
            Self::Protected => "the protector refused it",
            Self::Cancelled => "it was cancelled",
            Self::Closed => "the place is closing",
            Self::Suspended => "nothing is lent until it is resumed",
            Self::Starting => "there is no member, and none can be started",
            Self::Nowhere => "the group has no pool",
            Self::Excess => "it asked for no units, or for more than the capacity",
            Self::Keys => "the limit of keys is reached",
            Self::Down => "no server answers",
        })
    }
}

/// A refusal, with its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// How long the asker had waited, from its own stamp.
    pub waited: Duration,
    /// How many still wait.
    pub len: usize,
    /// When asking again has a chance: about the time that the waiting asks
    /// will take.
    pub retry_after: Duration,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, word) = (self.reason, self.reason.word());
        write!(
            f,
            "{reason} ({word} after {}, {} waiting",
            Brief(self.waited),
            self.len
        )?;
        match reason {
            // There is no better time, or none is known.
            Reason::Closed => f.write_str(")"),
            _ if self.retry_after.is_zero() => f.write_str(")"),
            _ => write!(f, "; ask again in {})", Brief(self.retry_after)),
        }
    }
}

impl std::error::Error for Refusal {}
