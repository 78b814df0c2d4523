//! Gives places in the processes of apps to asks, and starts, drains and stops
//! processes as needed.
//!
//! The machine knows processes by their ids; what a process is, and how it is
//! started or stopped, is up to the caller that carries the effects out.

mod app;
mod change;
mod close;
mod effect;
mod evict;
mod failures;
mod free_slots;
mod invariants;
mod learner;
mod learnt;
mod leave;
mod look;
mod on_trial;
mod options;
mod past;
mod plan;
mod process;
mod restart;
mod serve;
mod server;
mod servers;
mod sessions;
mod settle;
mod start;
mod stats;
mod streams;
mod timers;
mod trial;

use std::collections::VecDeque;
use std::time::Duration;

use crate::eviction_score::EvictionScore;
use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::machine::Machine;
use crate::queue::{ENDS_MAX, Shedding};
use crate::refusal::{Reason, Refusal};
use crate::rng::Rng;
use crate::settings::OptionError;
use crate::time::Instant;
use crate::waiting::End;

use self::app::App;
use self::process::{Counts, Doing, Processes};
use self::sessions::{Sessions, Streamed};
use self::timers::Timers;

pub use self::effect::{
    AnswerHead, AppId, Ask, Came, Effect, Ended, Leaving, Note, ProcessId, Restart, Session,
    SessionId,
};
pub use self::options::{EvictFor, Limits, Options, ServerRules};
pub use self::stats::{AppLoad, AppStats, Deploy, ProcessStats, State, Stats};
pub use self::streams::{StreamWatch, is_stream_type};
pub use self::trial::{EndedTrial, SideStats, TrialRules, TrialStats, TrialVerdict};

/// Asks for an app that are so close to each other are one, as far as its worth
/// goes.
const MOMENT: Duration = Duration::from_millis(1);

/// A request that names no wait waits for a place no longer than this, where
/// the law of the queue does not say when it has to go.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Which asks wait for which app, and what the processes of all are doing.
///
/// Invariants: processes that start, serve or are disabled take no more room than
/// `max`, where a start in the stead of another takes none; with those on their
/// way out they are no more than `max` and `headroom`; only a process that is
/// ready gets sessions, and never more than it has places; while an ask waits in
/// an app's queue, none of its processes has a free place. If a limit was
/// lowered, what is over it never grows.
#[derive(Debug)]
pub struct Apps<R> {
    apps: Vec<Option<Box<App<R>>>>,
    processes: Processes,
    sessions: Sessions,
    /// Counts of the processes of all apps, by what they do; servers are not in them.
    counts: Counts,
    /// Servers of all apps.
    servers: usize,
    timers: Timers,
    /// Apps that want a process started, in the order in which they came.
    room: VecDeque<u32>,
    /// Something happened that may make room.
    is_roomier: bool,
    /// Apps that have to be seen to before the input is over.
    touched: Vec<u32>,
    mode: Mode,
    worth: EvictionScore,
    limits: Limits,
    rng: Rng,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Running,
    /// An ask that has a process in reach is still served.
    Closing,
    /// The last process is gone.
    Closed,
}

impl<R: Reply> Apps<R> {
    /// No apps yet. Chance follows from the seed.
    ///
    /// # Errors
    ///
    /// If a limit breaks a rule.
    pub fn new(limits: Limits, seed: u64, _now: Instant) -> Result<Self, OptionError> {
        limits.validate()?;
        Ok(Self {
            apps: Vec::new(),
            processes: Processes::default(),
            sessions: Sessions::default(),
            counts: Counts::default(),
            servers: 0,
            timers: Timers::new(),
            room: VecDeque::new(),
            is_roomier: false,
            touched: Vec::new(),
            mode: Mode::Running,
            worth: EvictionScore::new(limits.max, limits.evict_for == EvictFor::Count),
            limits,
            rng: Rng::new(seed),
        })
    }

    /// A request wants a place in a process of an app. `reply` is asked for only
    /// if it has to wait.
    pub fn ask(
        &mut self,
        app: AppId,
        ask: &Ask,
        reply: impl FnOnce() -> R,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Came {
        let at = app.0;
        if self.mode != Mode::Running || !self.is_open(at) {
            return Came::Refused(self.turn_away(at, ask, Reason::Closed, now));
        }
        self.note_ask(at, now);
        let came = match self.place_for(at, ask, now) {
            Some(place) => Came::Granted(self.grant_at_once(at, place, ask, now)),
            None => self.let_wait(at, ask, reply, now),
        };
        self.finish(at, now, effects);
        came
    }

    /// What is asked for again at once is worth no more by that: an ask counts by
    /// the time since the one before, and theirs comes to the next.
    fn note_ask(&mut self, at: u32, now: Instant) {
        let app = self.app_mut(at);
        if app.asked.is_some_and(|asked| now.since(asked) < MOMENT) {
            return;
        }
        app.asked = Some(now);
        if app.options.servers.is_some() {
            return;
        }
        let start = app.pace.start();
        self.worth.asked(at, start, now);
    }

    /// An ask that waits for an app leaves. The refusal is for one that did not
    /// ask for this itself. None if it does not wait any more.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        app: AppId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<(R, Refusal)> {
        let at = app.0;
        self.apps.get(at as usize)?.as_ref()?;
        let app = self.app_mut(at);
        let gone = match app.waiting.cancel(ticket, now) {
            Some(gone) => Some(gone),
            None => app.cancel_aside(ticket, now),
        };
        app.waiting.advance(now);
        self.finish(at, now, effects);
        gone
    }

    /// A session is over. One that is not open is left alone.
    pub fn release(
        &mut self,
        session: SessionId,
        ended: Ended,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        self.release_answered(session, ended, None, now, effects);
    }

    /// The same for one whose answer had a head, perhaps.
    pub fn release_answered(
        &mut self,
        session: SessionId,
        ended: Ended,
        head: Option<AnswerHead>,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(open) = self.sessions.close(session) else {
            return;
        };
        self.count_answer(&open, ended, head, now);
        let counts = ended != Ended::Unused;
        if let Some(Some(app)) = self.apps.get_mut(open.app as usize) {
            app.sessions -= 1;
            app.finished += u64::from(counts);
            app.pace.moved = now;
            if open.streamed == Streamed::No {
                let took = now.nanos_since(open.since);
                app.pace.learn(ended, took);
                if matches!(ended, Ended::Answered | Ended::TimedOut) {
                    app.waiting.ended_hold(Duration::from_nanos(took));
                }
            }
        }
        if self.processes.still(open.slot, open.process).is_some() {
            let process = self.processes.at_mut(open.slot);
            match open.streamed {
                Streamed::Aside => process.streams -= 1,
                Streamed::No | Streamed::Counted => process.sessions -= 1,
            }
            process.finished += u64::from(counts);
            if counts {
                process.used = now;
            }
            if open.streamed == Streamed::No {
                self.learn(&open, ended, now, effects);
            }
            self.judge(open.slot, ended, now, effects);
        }
        self.finish(open.app, now, effects);
    }

    fn is_open(&self, at: u32) -> bool {
        let app = self.apps.get(at as usize);
        matches!(app, Some(Some(app)) if !app.is_removed)
    }

    /// Refuse an ask without letting it wait.
    fn turn_away(&mut self, at: u32, ask: &Ask, reason: Reason, now: Instant) -> Refusal {
        if let Some(Some(app)) = self.apps.get_mut(at as usize) {
            return app.waiting.refuse(&ask.terms, reason, now).1;
        }
        Refusal {
            reason,
            waited: now.since(ask.terms.sent),
            len: 0,
            retry_after: Duration::ZERO,
        }
    }

    fn let_wait(&mut self, at: u32, ask: &Ask, reply: impl FnOnce() -> R, now: Instant) -> Came {
        if !ask.terms.wait {
            return Came::Refused(self.turn_away(at, ask, Reason::Busy, now));
        }
        let mut ask = *ask;
        if let Shedding::Paced { .. } = self.app(at).options.queue.shedding {
            let limit = ask.terms.deadline.unwrap_or(ask.terms.sent + WAIT_MAX);
            ask.terms.deadline = Some(limit);
        }
        let ask = &ask;
        let app = self.app(at);
        if let Some(reason) = app.hopeless(now) {
            let retry_after = self.comes_back_in(at, now);
            let refusal = self.turn_away(at, ask, reason, now);
            return Came::Refused(come_back(refusal, retry_after));
        }
        if let Some(slot) = self.sticks_to(at, ask) {
            return self.set_aside(at, slot, ask, reply(), now);
        }
        let app = self.app_mut(at);
        if app.waiting.len() == 0 {
            app.pace.moved = now;
        }
        app.tell_load(now);
        let ticket = app.waiting.join(&ask.terms, reply(), now);
        match app.waiting.take_ended(ticket) {
            Some(End::Shed { refusal, .. }) => Came::Refused(refusal),
            Some(End::Gone(_)) | None => Came::Waits(ticket),
        }
    }

    fn app(&self, at: u32) -> &App<R> {
        let app = self.apps[at as usize].as_ref();
        app.expect("an app is there while it has processes or askers")
    }

    fn app_mut(&mut self, at: u32) -> &mut App<R> {
        let app = self.apps[at as usize].as_mut();
        app.expect("an app is there while it has processes or askers")
    }

    /// All apps, by number.
    fn all(&self) -> impl Iterator<Item = (u32, &App<R>)> {
        let apps = self.apps.iter().zip(0..);
        apps.filter_map(|(app, at)| Some((at, &**app.as_ref()?)))
    }

    /// A process does something else from here on: the one place where what is
    /// counted of them changes.
    fn turn(&mut self, slot: u32, doing: Doing) {
        let process = self.processes.at_mut(slot);
        let was = std::mem::replace(&mut process.doing, doing);
        let app = self.apps[process.app as usize].as_mut();
        let app = app.expect("an app is there while it has processes");
        app.counts.remove(was);
        app.counts.add(doing);
        if process.server.is_none() {
            self.counts.remove(was);
            self.counts.add(doing);
        }
    }
}

impl<R: Reply> Machine for Apps<R> {
    type Effect = Effect<R>;

    fn deadline(&self) -> Option<Instant> {
        self.timers.first().finite()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        loop {
            while let Some((due, timer)) = self.timers.pop_due(now) {
                if self.is_alive(due, timer) {
                    self.ring(timer, now, effects);
                }
            }
            self.finish_all(now, effects);
            // What has no time at all is due with what brought it about. After
            // many ends, the asks that wait for them are told first.
            if self.timers.first() > now || effects.len() >= ENDS_MAX as usize {
                return;
            }
        }
    }
}

/// The same refusal, but not to come back sooner than that.
fn come_back(mut refusal: Refusal, retry_after: Duration) -> Refusal {
    if matches!(refusal.reason, Reason::Starting | Reason::Down) {
        refusal.retry_after = retry_after;
    }
    refusal
}
