//! How many processes there may be, and how those of one app come and go.

use std::time::Duration;

use crate::queue;
use crate::settings::{OptionError, Rule};

use super::trial::TrialRules;

/// The limits that all apps share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// At most this many processes start, serve or are disabled.
    pub max: usize,
    /// At most this many more while others end: a replacement starts before what
    /// it replaces is gone.
    pub headroom: usize,
    /// At most this many start at the same time.
    pub starts_max: usize,
    /// What an eviction should keep low.
    pub evict_for: EvictFor,
    /// An app that has waited so long for room gets it from the app that has most
    /// over its share; twice the time a start is expected to take, if that is
    /// more.
    pub starve_min: Duration,
}

/// What an eviction should keep low.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EvictFor {
    /// Time that askers wait for starts: expensive starts are spared.
    #[default]
    Latency,
    /// The number of starts, whatever each takes.
    Count,
}

/// How the processes of one app come, serve and go.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Kept running without any ask; none scales to zero.
    pub min: usize,
    /// At most this many processes; none if only the limit of all apps applies.
    pub max: Option<usize>,
    /// At most this many sessions at a time in one process; none for as many as are learnt to
    /// serve best.
    pub concurrency: Option<usize>,
    /// Where the asks wait that find no place.
    pub queue: queue::Options,
    /// A process that was idle for so long goes; none for never.
    pub idle_after: Option<Duration>,
    /// A process is replaced after this many requests, give or take a tenth.
    pub requests_max: Option<u64>,
    /// A process is replaced after so long, give or take a tenth.
    pub life_max: Option<Duration>,
    /// A process that uses more is replaced when that disturbs no request.
    pub memory_soft: Option<u64>,
    /// A process that uses more is killed.
    pub memory_hard: Option<u64>,
    /// After so long a process that was to finish its sessions is stopped.
    pub drain_timeout: Duration,
    /// One that ends sooner after it was ready, without having answered a
    /// request, has failed to start.
    pub uptime_min: Duration,
    /// Also start one more when waits are expected to be longer than this,
    /// and have been for as long.
    pub target_wait: Option<Duration>,
    /// How long one waits for the very process it was with before.
    pub sticky_wait: Duration,
    /// How often a start of new code is tried before the old code is kept.
    pub deploy_tries: u32,
    /// New code serves a part of the requests beside the old first, and is judged; none has
    /// it serve all of them as soon as it is ready.
    pub trial: Option<TrialRules>,
    /// A process is replaced when this many of its requests ran out of time, each
    /// within `timeouts_window` of the one before, or this many answers in a row
    /// were broken. Where a process has a single place, the first that ran out of
    /// time is enough: it still takes that place.
    pub timeouts_max: u32,
    /// How close together they are to count together.
    pub timeouts_window: Duration,
    /// How long to wait after the first start that failed; doubled by each
    /// that follows.
    pub backoff_first: Duration,
    /// The longest of these waits.
    pub backoff_max: Duration,
    /// Streams take a place of the process's concurrency; they always do where that is one.
    pub streams_count: bool,
    /// At most this many of them in one process, if they take no place.
    pub streams_max: usize,
    /// Each process serves one request, for development.
    pub one_each: bool,
    /// None starts before the one before it is gone, as where all of them listen
    /// at the same address. An ask that comes meanwhile waits.
    pub alone: bool,
    /// Its processes are servers, which others start, and these are the rules for them; none
    /// if they are started here. It stays as it was when the app was added.
    pub servers: Option<ServerRules>,
}

/// When a server is down, and when it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerRules {
    /// A server is down when this many of its requests failed,
    pub failures_max: u32,
    /// all within this time, and it has not answered many more meanwhile.
    pub failures_window: Duration,
    /// One that is down is looked at after this time; doubled by each look that finds it down.
    pub look_first: Duration,
    /// The longest of these times.
    pub look_max: Duration,
    /// One that has requests and has answered none for this long is looked at.
    pub quiet_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max: 6,
            headroom: 1,
            starts_max: 2,
            evict_for: EvictFor::Latency,
            starve_min: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// # Errors
    ///
    /// If a limit breaks a rule.
    pub fn validate(&self) -> Result<(), OptionError> {
        above_zero("max", self.max)?;
        above_zero("starts_max", self.starts_max)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            min: 0,
            max: None,
            concurrency: None,
            queue: queue::Options {
                max_fits: true,
                ..queue::Options::default()
            },
            idle_after: Some(Duration::from_secs(300)),
            requests_max: None,
            life_max: None,
            memory_soft: None,
            memory_hard: None,
            drain_timeout: Duration::from_secs(30),
            uptime_min: Duration::from_secs(5),
            target_wait: None,
            sticky_wait: Duration::from_secs(1),
            deploy_tries: 2,
            trial: None,
            timeouts_max: 3,
            timeouts_window: Duration::from_secs(60),
            backoff_first: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
            streams_count: false,
            streams_max: 1000,
            one_each: false,
            alone: false,
            servers: None,
        }
    }
}

impl Default for ServerRules {
    fn default() -> Self {
        Self {
            failures_max: 3,
            failures_window: Duration::from_secs(10),
            look_first: Duration::from_millis(500),
            look_max: Duration::from_secs(5),
            quiet_max: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Sessions that fit into one process, if that is not learnt.
    pub(super) fn places(&self) -> Option<usize> {
        if self.one_each {
            Some(1)
        } else {
            self.concurrency
        }
    }

    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn validate(&self) -> Result<(), OptionError> {
        above_zero("concurrency", self.concurrency.unwrap_or(1))?;
        above_zero("deploy_tries", self.deploy_tries as usize)?;
        above_zero("timeouts_max", self.timeouts_max as usize)?;
        if let Some(servers) = self.servers {
            above_zero("failures_max", servers.failures_max as usize)?;
        }
        if let Some(max) = self.max {
            above_zero("max", max)?;
            if self.min > max {
                return Err(broken("min", Rule::Over { bound: "max" }));
            }
        }
        if let (Some(soft), Some(hard)) = (self.memory_soft, self.memory_hard)
            && soft > hard
        {
            let bound = "memory_hard";
            return Err(broken("memory_soft", Rule::Over { bound }));
        }
        self.queue.validate()
    }
}

fn above_zero(option: &str, value: usize) -> Result<(), OptionError> {
    match value {
        0 => Err(broken(option, Rule::Zero)),
        _ => Ok(()),
    }
}

fn broken(option: &str, rule: Rule) -> OptionError {
    let option = option.to_owned();
    OptionError { option, rule }
}
