//! One app: the asks that wait for it, its processes, and what is known of its ways.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::ids::Ticket;
use crate::ledger::{Ledger, Reply};
use crate::queue::{AskOptions, Capacity, Queue};
use crate::refusal::Reason;
use crate::settings::OptionError;
use crate::time::{Instant, nanos};
use crate::waiting::Waiting;

use super::effect::{Ended, Leaving};
use super::failures::Failures;
use super::free_slots::FreeSlots;
use super::learner::Learner;
use super::learnt::Learnt;
use super::options::Options;
use super::past::{Past, Rate};
use super::process::{Counts, Process};
use super::stats::Deploy;
use super::trial::{EndedTrial, Trial};

/// An app with the asks that wait for it.
#[derive(Debug)]
pub(super) struct App<R> {
    pub(super) waiting: Waiting<R>,
    /// Free places, the best first.
    pub(super) places: FreeSlots,
    /// When it was asked for, as far as its worth goes.
    pub(super) asked: Option<Instant>,
    pub(super) counts: Counts,
    pub(super) sessions: usize,
    pub(super) finished: u64,
    pub(super) pace: Pace,
    pub(super) room: Room,
    /// Processes that go as soon as there is another in their stead.
    pub(super) outgoing: usize,
    /// The asks that wait for one certain process, by its slot.
    pub(super) aside: BTreeMap<(u32, u64), Aside<R>>,
    /// How many sessions at a time its processes serve best.
    pub(super) learnt: Learnt,
    pub(super) options: Box<Options>,
    /// All that are not gone, oldest first.
    pub(super) slots: Vec<u32>,
    pub(super) generation: u64,
    pub(super) deploy: Deploy,
    /// The newest code that was found good, or had no other beside it.
    pub(super) good: u64,
    pub(super) trial: Option<Box<Trial>>,
    /// The last trial that ended, if there was one.
    pub(super) last_trial: Option<EndedTrial>,
    /// The last answers of the good code.
    pub(super) past: Box<Past>,
    /// How many grants there are.
    pub(super) rate: Rate,
    /// Starts of the newest code that failed while none went well.
    pub(super) tries: u32,
    /// The newest code that was told to run everywhere.
    pub(super) told: u64,
    pub(super) failures: Failures,
    /// It goes with its last process.
    pub(super) is_removed: bool,
    /// Sessions that fit into all servers that are up.
    pub(super) server_places: usize,
    /// Servers of it are being looked for.
    pub(super) awaits_servers: bool,
    /// More sessions at a time are tried in a server until then.
    pub(super) rises_until: Instant,
    /// How often what was learnt of servers changed.
    pub(super) server_moves: u64,
    pub(super) due: Due,
    pub(super) tallies: Tallies,
}

/// An ask that waits for one certain process.
#[derive(Debug)]
pub(super) struct Aside<R> {
    pub(super) ticket: Ticket,
    pub(super) terms: AskOptions,
    pub(super) reply: R,
    pub(super) until: Instant,
}

/// How long starts and requests take.
#[derive(Debug)]
pub(super) struct Pace {
    start: Option<u64>,
    service: u64,
    /// When a session last ended, or the queue was last empty.
    pub(super) moved: Instant,
    /// Since when waits are expected to be over the target.
    pub(super) slow: Option<Instant>,
}

/// Whether an app waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Enough,
    Wanted { want: Want, since: Instant },
}

/// What one more process would be for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// No process is there to serve the asks that wait.
    First,
    /// One that has to go is to be replaced.
    Replacement,
    /// The processes that are there are too slow for the asks that wait.
    More,
    /// There are fewer than there should be.
    Min,
}

/// When the machine has to look at something again.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) queue: Instant,
    pub(super) sticky: Instant,
    pub(super) plan: Instant,
    pub(super) retry: Instant,
    pub(super) starve: Instant,
    pub(super) trial: Instant,
}

/// Counters.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) cold: u64,
    pub(super) starts: u64,
    pub(super) start_failures: u64,
    pub(super) start_times: Histogram,
    pub(super) left: [u64; Leaving::ALL.len()],
}

/// The expected time of a start before there was one.
const START: Duration = Duration::from_secs(1);

impl<R: Reply> App<R> {
    pub(super) fn new(options: Options, now: Instant) -> Result<Self, OptionError> {
        options.validate()?;
        let queue = Queue::new(options.queue.clone(), now)?;
        Ok(Self {
            waiting: Waiting::new(queue, Ledger::default()),
            places: FreeSlots::default(),
            asked: None,
            counts: Counts::default(),
            sessions: 0,
            finished: 0,
            pace: Pace::new(now),
            room: Room::Enough,
            outgoing: 0,
            aside: BTreeMap::new(),
            learnt: Learnt::new(1, now),
            options: Box::new(options),
            slots: Vec::new(),
            generation: 1,
            deploy: Deploy::Settled,
            good: 1,
            trial: None,
            last_trial: None,
            past: Box::default(),
            rate: Rate::default(),
            tries: 0,
            told: 1,
            failures: Failures::NONE,
            is_removed: false,
            server_places: 0,
            awaits_servers: false,
            rises_until: Instant::START,
            server_moves: 0,
            due: Due {
                queue: Instant::NEVER,
                sticky: Instant::NEVER,
                plan: Instant::NEVER,
                retry: Instant::NEVER,
                starve: Instant::NEVER,
                trial: Instant::NEVER,
            },
            tallies: Tallies::default(),
        })
    }

    /// Sessions that fit into one process with the good code, or into one server on average.
    pub(super) fn limit(&self) -> usize {
        let each = self.server_places.checked_div(self.counts.ready);
        match each {
            Some(each) if each > 0 => each,
            _ => self.limit_of(self.good),
        }
    }

    /// Sessions that fit into this process.
    #[inline]
    pub(super) fn limit_in(&self, process: &Process) -> usize {
        match &process.server {
            None => self.limit_of(process.generation),
            Some(server) => {
                let fixed = self.options.places();
                fixed.unwrap_or_else(|| server.learner.limit())
            }
        }
    }

    /// Sessions that fit into one process with this code.
    #[inline]
    pub(super) fn limit_of(&self, generation: u64) -> usize {
        let fixed = self.options.places();
        fixed.unwrap_or_else(|| self.learnt.of(generation).limit())
    }

    /// Sessions that fit into all processes that serve.
    fn places(&self) -> usize {
        match self.options.servers {
            Some(_) => self.server_places,
            None => self.counts.ready.saturating_mul(self.limit()),
        }
    }

    /// More sessions at a time are tried, to see whether more get done.
    fn is_rising(&self, now: Instant) -> bool {
        match self.options.servers {
            Some(_) => now < self.rises_until,
            None => self.learnt.of(self.good).is_rising(now),
        }
    }

    /// Why no ask can be served now or soon, if that is so.
    pub(super) fn hopeless(&self, now: Instant) -> Option<Reason> {
        let counts = self.counts;
        let (is_hopeless, reason) = match self.options.servers {
            None => {
                let may_come = counts.ready + counts.starting > 0;
                (!may_come && !self.failures.may_start(now), Reason::Starting)
            }
            Some(_) => {
                // Those that an operator took out come back when the operator says so.
                let may_come = counts.disabled > 0 && counts.down == 0;
                let is_there = counts.ready > 0 || self.awaits_servers || may_come;
                (!is_there, Reason::Down)
            }
        };
        is_hopeless.then_some(reason)
    }

    /// Let the law of the queue know how many requests fit at once. As long as
    /// the first process starts, or waits for room, there is no overload; nor while more at
    /// a time are tried.
    pub(super) fn tell_load(&mut self, now: Instant) {
        let places = match self.options.places() {
            None if self.is_rising(now) => self.counts.ready.saturating_mul(Learner::MOST),
            _ => self.places(),
        };
        let is_coming =
            self.counts.starting > 0 || self.room != Room::Enough || self.awaits_servers;
        let capacity = if places == 0 && is_coming {
            Capacity::Starting
        } else {
            Capacity::Units(u32::try_from(places).unwrap_or(u32::MAX))
        };
        let mut load = self.waiting.queue().load();
        load.capacity = capacity;
        self.waiting.bear(load);
    }

    /// Nothing is to be done about it but to hand out places.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        self.waiting.len() == 0
            && self.aside.is_empty()
            && !self.waiting.has_ended()
            && self.outgoing == 0
            && !matches!(self.deploy, Deploy::Rolling | Deploy::Trial)
            && self.told == self.generation
            && self.counts.ready + self.counts.starting >= self.options.min
            && self.room == Room::Enough
            && !self.is_removed
    }

    /// A process that would be started now runs code that is not known to be good: none of
    /// those that are there goes for a reason that can wait.
    pub(super) fn keeps_all(&self) -> bool {
        self.deploy == Deploy::Trial
            || self.deploy == Deploy::Failed && self.options.trial.is_some()
    }

    /// The most processes that it may have.
    pub(super) fn max(&self, all: usize) -> usize {
        self.options.max.unwrap_or(all).min(all)
    }

    /// One of its processes has to be gone before another can start.
    pub(super) fn is_occupied(&self) -> bool {
        self.options.alone && self.counts.live() > 0
    }

    /// How long asks that come now will wait, if all goes on as it does.
    pub(super) fn expected_wait(&self, now: Instant) -> u64 {
        let waiting = self.waiting.len() as u128;
        let places = match self.counts.ready {
            0 => self.limit(),
            _ => self.places().max(1),
        };
        let service = match self.counts.ready {
            0 => self.pace.service,
            _ => self.pace.service.max(now.nanos_since(self.pace.moved)),
        };
        let wait = waiting * u128::from(service) / places as u128;
        u64::try_from(wait).unwrap_or(u64::MAX)
    }

    /// When no ask moves until then, the asks that wait will wait for longer than
    /// the limit.
    pub(super) fn stall_due(&self, limit: u64) -> Instant {
        let waiting = self.waiting.len() as u128;
        if waiting == 0 || self.counts.ready == 0 {
            return Instant::NEVER;
        }
        let places = self.places() as u128;
        let stall = (u128::from(limit) + 1) * places / waiting + 1;
        self.pace
            .moved
            .after(u64::try_from(stall).unwrap_or(u64::MAX))
    }
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self {
            start: None,
            service: 0,
            moved: now,
            slow: None,
        }
    }

    pub(super) fn start(&self) -> Duration {
        Duration::from_nanos(self.start_nanos())
    }

    pub(super) fn start_nanos(&self) -> u64 {
        self.start.unwrap_or(nanos(START))
    }

    pub(super) fn service(&self) -> Duration {
        Duration::from_nanos(self.service)
    }

    pub(super) fn learn_start(&mut self, took: u64) {
        let before = self.start.unwrap_or(took);
        self.start = Some(before - before / 4 + took / 4);
    }

    /// A request took so long.
    pub(super) fn learn(&mut self, ended: Ended, took: u64) {
        let tells = match ended {
            Ended::Answered | Ended::TimedOut => true,
            // It would have taken longer.
            Ended::Left => took > self.service,
            Ended::Broken | Ended::Unused => false,
        };
        if tells {
            let before = if self.service == 0 {
                took
            } else {
                self.service
            };
            self.service = before - before / 8 + took / 8;
        }
    }
}
