//! What is simulated: a place that serves, and the requests that come to it.

use std::time::Duration;

use rideau_core::{queue, valve};

use crate::arrivals::Arrivals;
use crate::clients::{Patience, Retries};
use crate::service::Service;

/// A place that serves, and the requests that come to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Which machine decides.
    pub place: Place,
    /// How many are served at a time.
    pub servers: u32,
    /// How requests wait.
    pub queue: queue::Options,
    /// When they come.
    pub arrivals: Arrivals,
    /// How many times as many come as the arrivals say.
    pub load: f64,
    /// How long each is served.
    pub service: Service,
    /// All servers stand still now and then.
    pub stalls: Option<Stalls>,
    /// How long a client waits.
    pub patience: Patience,
    /// What a client does that was refused.
    pub retries: Retries,
    /// A serve is of use within this time after the first ask; none if it always is.
    pub useful: Option<Duration>,
    /// The requests belong to this many flows in turn, for a fair queue.
    pub flows: u32,
    /// All servers serve already when the run begins.
    pub is_busy: bool,
    /// When the run ends.
    pub end: RunEnd,
    /// Waits of requests that are served before this do not count.
    pub from: Duration,
    /// Remember when each was served, and after what wait.
    pub keeps_serves: bool,
    /// Where chance comes from. With the same seed, the same requests come and are served for
    /// the same times, whatever the place.
    pub seed: u64,
}

/// Which machine decides.
#[derive(Clone, PartialEq, Debug)]
pub enum Place {
    /// A queue alone. It knows how many are served at a time and for how long, unless it is
    /// blind.
    Queue {
        /// It knows neither.
        is_blind: bool,
    },
    /// A pool, whose members are the servers.
    Pool {
        /// How long a member takes to start. If that is no time, all are there from the
        /// beginning; otherwise they start when requests come.
        start: Duration,
    },
    /// A broker, to which the servers offer themselves. It knows neither how many there are nor
    /// how long they serve.
    Broker,
    /// A regulator, whose valve says how many are served at a time. What is more than the
    /// servers slows all down.
    Regulator {
        /// That valve.
        valve: valve::Options,
    },
}

/// All servers stand still now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// From the beginning of one to that of the next.
    pub every: Duration,
    /// How long one takes.
    pub span: Duration,
}

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// When this many requests have come and each has its answer.
    Requests(u64),
    /// With the first event at this instant, or before the first one later than that.
    At(Duration),
}

impl Stalls {
    /// When something ends that begins now and needs this long.
    pub(crate) fn end_of(&self, now: u64, span: u64) -> u64 {
        let every = u64::try_from(self.every.as_nanos())
            .unwrap_or(u64::MAX)
            .max(1);
        let stall = u64::try_from(self.span.as_nanos())
            .unwrap_or(u64::MAX)
            .min(every / 2);
        let mut end = now + span;
        let mut at = now / every * every;
        while at < end {
            // What falls into a stall is not worked on.
            if at > 0 && at + stall > now {
                end += at + stall - now.max(at);
            }
            at += every;
        }
        end
    }
}
