//! Effects of the machine, and answers of asks.

use std::fmt;
use std::time::Duration;

use crate::ids::Ticket;
use crate::queue::AskOptions;
use crate::refusal::Refusal;

use super::trial::EndedTrial;

/// An app; never given twice by one machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AppId(pub u32);

/// A process from before its start to its end; never given twice by one
/// machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One request in one process; never given twice by one machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    /// Where it is served.
    pub process: ProcessId,
    pub(super) serial: u64,
    pub(super) entry: u32,
}

/// An ask for a place in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// On what terms it waits.
    pub terms: AskOptions,
    /// The process it was with before, and would be with again.
    pub sticky: Option<ProcessId>,
    /// The process that just failed it.
    pub avoid: Option<ProcessId>,
}

/// A place in a process, until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Which it is.
    pub id: SessionId,
    /// The code that the process runs.
    pub generation: u64,
    /// How long it waited.
    pub waited: Duration,
    /// It waited for a start.
    pub is_cold: bool,
}

/// The answer to an ask that came just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// Here is a place.
    Granted(Session),
    /// It has to wait; the answer will be an effect.
    Waits(Ticket),
    /// It gets none.
    Refused(Refusal),
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// The app answered, whatever it said.
    Answered,
    /// The asker went away before the answer was over.
    Left,
    /// The process broke the connection, or what it said was no answer.
    Broken,
    /// It took longer than a request may.
    TimedOut,
    /// The request never reached the process and was no request of its: it is
    /// not counted.
    Unused,
}

/// How a session was answered, as far as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHead {
    /// With a status that says that the app failed.
    pub failed: bool,
    /// How long after the grant.
    pub after: Duration,
}

/// How an app gets new code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Restart {
    /// One process after the other; the old serve until the new are ready.
    #[default]
    Rolling,
    /// All finish their sessions at once; an ask that comes waits.
    Blocking,
    /// All are stopped, sessions or not.
    Immediate,
}

/// Why a process goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// It was idle for long.
    Idle,
    /// Another app needs its room more.
    Evicted,
    /// Another app was starving.
    Starved,
    /// It served its limit of requests.
    Used,
    /// Its life is over.
    Aged,
    /// It uses more memory than it should.
    MemorySoft,
    /// It uses more memory than it may.
    MemoryHard,
    /// Its code is old.
    Restarted,
    /// Its code failed its trial.
    Rejected,
    /// Too many of its requests ran out of time.
    Hung,
    /// It cannot be reached, or broke too many answers.
    Unreachable,
    /// Its health checks failed.
    Unwell,
    /// It ended by itself.
    Lost,
    /// A caller took it out.
    Detached,
    /// A caller ended it at once.
    Killed,
    /// There are more than may be.
    Surplus,
    /// It was started for code that is old by now, or for no ask.
    Unwanted,
    /// Its app is no more, or everything is closing.
    Closed,
}

impl Leaving {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 18] = [
        Self::Idle,
        Self::Evicted,
        Self::Starved,
        Self::Used,
        Self::Aged,
        Self::MemorySoft,
        Self::MemoryHard,
        Self::Restarted,
        Self::Rejected,
        Self::Hung,
        Self::Unreachable,
        Self::Unwell,
        Self::Lost,
        Self::Detached,
        Self::Killed,
        Self::Surplus,
        Self::Unwanted,
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
            Self::Evicted => "evicted",
            Self::Starved => "starved",
            Self::Used => "used",
            Self::Aged => "aged",
            Self::MemorySoft => "memory_soft",
            Self::MemoryHard => "memory_hard",
            Self::Restarted => "restarted",
            Self::Rejected => "rejected",
            Self::Hung => "hung",
            Self::Unreachable => "unreachable",
            Self::Unwell => "unwell",
            Self::Lost => "lost",
            Self::Detached => "detached",
            Self::Killed => "killed",
            Self::Surplus => "surplus",
            Self::Unwanted => "unwanted",
            Self::Closed => "closed",
        }
    }
}

/// An effect of the machine.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<R> {
    /// Say yes to an ask that waits.
    Grant {
        /// How to answer.
        reply: R,
        /// Its place.
        session: Session,
    },
    /// Refuse an ask that waits.
    Shed {
        /// How to answer.
        reply: R,
        /// The no.
        refusal: Refusal,
    },
    /// No client is there to answer any more.
    Forget(R),
    /// Start a process; `started` or `start_failed` follows.
    Start {
        /// Of which app.
        app: AppId,
        /// Which it will be.
        process: ProcessId,
        /// The code it is to run.
        generation: u64,
    },
    /// A process gets no more sessions: close the connections to it that are
    /// idle, and ask those that became something else to end. `Stop` follows; one
    /// that serves no client is stopped without this.
    Drain {
        /// Which.
        process: ProcessId,
        /// Why.
        why: Leaving,
    },
    /// Stop a process, also one that still starts; `gone` follows. It comes a
    /// second time, `at_once`, if there is no patience left.
    Stop {
        /// Which.
        process: ProcessId,
        /// Why.
        why: Leaving,
        /// Do not ask it first.
        at_once: bool,
    },
    /// Ask both processes the same and tell how they answered: too few others ask.
    Probe {
        /// Of which app.
        app: AppId,
        /// One with the old code.
        old: ProcessId,
        /// The one on trial.
        new: ProcessId,
    },
    /// Look whether a server answers; `looked` follows.
    Look {
        /// Of which app.
        app: AppId,
        /// Which.
        server: ProcessId,
    },
    /// Something happened that people want to know.
    Note(Note),
    /// All was closed, and the last process is gone.
    Closed,
}

/// Something that people want to know.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// A process is ready.
    Started {
        /// Of which app.
        app: AppId,
        /// Which.
        process: ProcessId,
        /// How long its start took.
        took: Duration,
    },
    /// Starts fail, and none is tried for a while.
    Failing {
        /// Of which app.
        app: AppId,
        /// How often in a row.
        failures: u32,
        /// In how long the next is tried.
        retry_after: Duration,
    },
    /// New code runs everywhere.
    Deployed {
        /// Of which app.
        app: AppId,
        /// Its number.
        generation: u64,
    },
    /// New code does not start, so the old is kept.
    DeployFailed {
        /// Of which app.
        app: AppId,
        /// The number of the new code.
        generation: u64,
    },
    /// New code serves a part of the requests, and is judged.
    TrialBegan {
        /// Of which app.
        app: AppId,
        /// The number of the new code.
        generation: u64,
    },
    /// New code was judged.
    TrialEnded {
        /// Of which app.
        app: AppId,
        /// How.
        ended: EndedTrial,
    },
    /// Another number of sessions at a time in one process was learnt to be better.
    Learnt {
        /// Of which app.
        app: AppId,
        /// The code that it is true of.
        generation: u64,
        /// The number so far, and from now on.
        concurrency: (usize, usize),
    },
    /// A server is down: it gets no more sessions until it answers.
    ServerDown {
        /// Of which app.
        app: AppId,
        /// Which.
        server: ProcessId,
        /// What it did.
        why: Leaving,
    },
    /// A server that was down answers.
    ServerUp {
        /// Of which app.
        app: AppId,
        /// Which.
        server: ProcessId,
        /// For how long it was down.
        down_for: Duration,
    },
    /// Another number of sessions at a time was learnt to be better for a server.
    ServerLearnt {
        /// Of which app.
        app: AppId,
        /// Which.
        server: ProcessId,
        /// The number so far, and from now on.
        concurrency: (usize, usize),
    },
    /// Room was taken from one app for another that starved.
    Starved {
        /// Which app starved.
        app: AppId,
        /// Which process goes.
        from: ProcessId,
    },
    /// The last process of an app that was removed is gone.
    Removed {
        /// Which app.
        app: AppId,
    },
}
