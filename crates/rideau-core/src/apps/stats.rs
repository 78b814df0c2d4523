//! Numbers of all apps, of one, and of each process.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::waiting::Tally;

use super::effect::{AppId, Leaving, ProcessId};
use super::trial::{EndedTrial, TrialStats};

/// Numbers over all apps.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Processes that start, serve or are disabled.
    pub used: usize,
    /// All processes, also those that are on their way out.
    pub live: usize,
    /// Processes that start.
    pub starting: usize,
    /// Processes that serve a client.
    pub active: usize,
    /// Apps that wait for room.
    pub starved: usize,
    /// What each way to choose which process to evict would have cost an ask on
    /// average, lately, with its name; the chosen one first.
    pub losses: Vec<(&'static str, f64)>,
    /// What this many processes would have cost for each recent ask, in rising
    /// order; `max` is one of them.
    pub what_if: Vec<(usize, f64)>,
}

/// Numbers of one app.
#[derive(Clone, Debug)]
pub struct AppStats {
    /// Which.
    pub app: AppId,
    /// The code it is to run.
    pub generation: u64,
    /// How the last change of code went.
    pub deploy: Deploy,
    /// The numbers of new code on trial.
    pub trial: Option<TrialStats>,
    /// The last trial that ended, of whichever code.
    pub last_trial: Option<EndedTrial>,
    /// Its processes, oldest first.
    pub processes: Vec<ProcessStats>,
    /// How many wait.
    pub waiting: usize,
    /// For how long the first of them has.
    pub oldest: Duration,
    /// It waits for room since then.
    pub wants_room: Option<Duration>,
    /// Sessions that are open.
    pub sessions: usize,
    /// Outcomes of asks.
    pub tally: Tally,
    /// Requests that were finished.
    pub finished: u64,
    /// Asks that waited for a start.
    pub cold: u64,
    /// Starts that went well.
    pub starts: u64,
    /// Starts that did not.
    pub start_failures: u64,
    /// How long starts took that went well.
    pub start_times: Histogram,
    /// How often processes went, by [`Leaving::index`].
    pub left: [u64; Leaving::ALL.len()],
    /// Starts that failed in a row, and in how long the next is tried.
    pub failing: Option<(u32, Duration)>,
    /// How long a start is expected to take.
    pub start_time: Duration,
    /// How long a request is expected to take.
    pub service_time: Duration,
    /// Sessions that one process gets at a time, as the options say or as was learnt.
    pub concurrency: usize,
    /// How often what was learnt of that changed.
    pub concurrency_moves: u64,
    /// Streams that take no place.
    pub streams: usize,
}

/// How busy an app is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppLoad {
    /// How many asks wait.
    pub waiting: usize,
    /// Places that are free,
    pub free: usize,
    /// and all of them; or those of one process, if none is ready.
    pub places: usize,
    /// None is ready, and how long a start is expected to take.
    pub start: Option<Duration>,
    /// Requests that were finished.
    pub finished: u64,
    /// How long a request is expected to take.
    pub service_time: Duration,
}

/// How the last change of code went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Deploy {
    /// All processes run the code they should.
    #[default]
    Settled,
    /// New code serves a part of the requests beside the old.
    Trial,
    /// Old ones are being replaced.
    Rolling,
    /// The new code does not start, or failed its trial; the old is kept.
    Failed,
}

/// Numbers of one process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStats {
    /// Which.
    pub process: ProcessId,
    /// The code it runs.
    pub generation: u64,
    /// Its state.
    pub state: State,
    /// Its open sessions.
    pub sessions: usize,
    /// Its streams that take no place.
    pub streams: usize,
    /// How many sessions it gets at a time.
    pub concurrency: usize,
    /// The requests it finished.
    pub finished: u64,
    /// How long ago it was ready; for how long it has been starting, or down.
    pub age: Duration,
    /// How long ago it was used.
    pub unused: Duration,
    /// Its memory when it was last measured.
    pub memory: u64,
}

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It starts.
    Starting,
    /// It serves.
    Ready,
    /// It serves those it has and gets no others, until a caller enables it.
    Disabled,
    /// It is a server that does not answer: it gets no others until it does.
    Down(Leaving),
    /// It serves those it has, and goes.
    Draining(Leaving),
    /// It was told to stop.
    Stopping(Leaving),
}

impl State {
    /// One lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Disabled => "disabled",
            Self::Down(_) => "down",
            Self::Draining(_) => "draining",
            Self::Stopping(_) => "stopping",
        }
    }
}
