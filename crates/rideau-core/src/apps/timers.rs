//! When something is due by itself.

use crate::expiry::Expiry;
use crate::ledger::Reply;
use crate::time::{Instant, nanos};

use super::app::App;
use super::effect::{Effect, Leaving, ProcessId};
use super::process::{Doing, Processes};
use super::{Apps, Mode};

/// A timer of an app or a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// An ask in an app's queue waited long enough.
    Queue(u32),
    /// An ask waited for long enough for one certain process.
    Sticky(u32),
    /// Whether an app needs one more process.
    Plan(u32),
    /// A start may be tried again.
    Retry(u32),
    /// An app has waited too long for room.
    Starve(u32),
    /// New code on trial has to be looked at.
    Trial(u32),
    /// A process was idle for too long, perhaps.
    Idle(u32, ProcessId),
    /// The life of a process is over.
    Life(u32, ProcessId),
    /// A process had enough time to finish its sessions.
    Drain(u32, ProcessId),
    /// A start went well: the process is still there.
    Proven(u32, ProcessId),
    /// A server has to be looked at, perhaps.
    Look(u32, ProcessId),
}

/// All that is due, the earliest first.
#[derive(Debug)]
pub(super) struct Timers(Expiry<Timer>);

impl Timers {
    pub(super) const fn new() -> Self {
        Self(Expiry::new())
    }

    pub(super) fn push(&mut self, due: Instant, timer: Timer) {
        self.0.push(due, timer);
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        self.0.pop_due(now)
    }

    pub(super) fn first(&self) -> Instant {
        self.0.first()
    }
}

impl<R: Reply> Apps<R> {
    pub(super) fn is_alive(&self, due: Instant, timer: Timer) -> bool {
        is_alive(due, timer, &self.apps, &self.processes)
    }

    /// Something is due.
    pub(super) fn ring(&mut self, timer: Timer, now: Instant, effects: &mut Vec<Effect<R>>) {
        match timer {
            Timer::Queue(at) => {
                let app = self.app_mut(at);
                app.due.queue = Instant::NEVER;
                app.waiting.advance(now);
                self.touched.push(at);
            }
            Timer::Sticky(at) => {
                let app = self.app_mut(at);
                app.due.sticky = Instant::NEVER;
                app.call_back_due(now);
                self.touched.push(at);
            }
            Timer::Plan(at) => {
                self.app_mut(at).due.plan = Instant::NEVER;
                self.touched.push(at);
            }
            Timer::Retry(at) => {
                self.app_mut(at).due.retry = Instant::NEVER;
                self.is_roomier = true;
                self.touched.push(at);
            }
            Timer::Starve(at) => self.starve(at, now, effects),
            Timer::Trial(at) => {
                self.app_mut(at).due.trial = Instant::NEVER;
                self.touched.push(at);
            }
            Timer::Idle(slot, _) => self.ring_idle(slot, now, effects),
            Timer::Life(slot, _) => {
                self.processes.at_mut(slot).life_due = Instant::NEVER;
                self.recycle(slot, Leaving::Aged);
            }
            Timer::Drain(slot, _) => self.stop_draining(slot, effects),
            Timer::Look(slot, _) => self.ring_look(slot, now, effects),
            Timer::Proven(slot, _) => {
                let process = self.processes.at_mut(slot);
                process.proven_due = Instant::NEVER;
                let at = process.app;
                self.app_mut(at).failures.end();
                self.touched.push(at);
            }
        }
    }

    /// Look at a process that may have been idle for too long.
    fn ring_idle(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at_mut(slot);
        process.idle_due = Instant::NEVER;
        let app = self.app(self.processes.at(slot).app);
        let Some(idle_after) = app.options.idle_after else {
            return;
        };
        let process = self.processes.at(slot);
        let is_over = process.used + idle_after <= now;
        if !process.is_idle() || !is_over {
            self.arm_idle(slot);
        } else if app.keeps_all() {
            // There is nothing as good to take its place.
        } else if app.counts.ready > app.options.min {
            self.leave(slot, Leaving::Idle, now, effects);
        }
    }

    /// Have the machine look when a process will have been idle for too long.
    #[inline]
    pub(super) fn arm_idle(&mut self, slot: u32) {
        let process = self.processes.at_mut(slot);
        if process.idle_due != Instant::NEVER || !process.is_idle() || process.server.is_some() {
            return;
        }
        let app = self.apps[process.app as usize].as_ref();
        let idle_after = app.and_then(|app| app.options.idle_after);
        if let Some(idle_after) = idle_after {
            process.idle_due = process.used + idle_after;
            let timer = Timer::Idle(slot, process.id);
            self.timers.push(process.idle_due, timer);
        }
    }

    /// The same for all of an app that are idle.
    pub(super) fn arm_idle_all(&mut self, at: u32) {
        for index in 0..self.app(at).slots.len() {
            self.arm_idle(self.app(at).slots[index]);
        }
    }

    /// Have a process end when its life is over.
    pub(super) fn arm_life(&mut self, slot: u32) {
        let process = self.processes.at(slot);
        if process.server.is_some() {
            return;
        }
        let life = self.app(process.app).options.life_max;
        let life = life.map_or(u64::MAX, |life| process.own_limit(nanos(life)));
        let process = self.processes.at_mut(slot);
        process.life_due = process.since.after(life);
        let timer = Timer::Life(slot, process.id);
        self.timers.push(process.life_due, timer);
    }

    /// Forget what is not due any more.
    #[inline]
    pub(super) fn sweep(&mut self) {
        let Self {
            timers,
            apps,
            processes,
            ..
        } = self;
        let alive = 4 * (processes.len() + apps.len());
        timers
            .0
            .sweep(alive, |due, timer| is_alive(due, timer, apps, processes));
        debug_assert!(self.mode != Mode::Closed || self.timers.0.is_empty());
    }
}

/// Whether a timer that is due is still needed.
fn is_alive<R: Reply>(
    due: Instant,
    timer: Timer,
    apps: &[Option<Box<App<R>>>],
    processes: &Processes,
) -> bool {
    let app = |at: u32| apps[at as usize].as_ref();
    match timer {
        Timer::Queue(at) => app(at).is_some_and(|app| app.due.queue == due),
        Timer::Plan(at) => app(at).is_some_and(|app| app.due.plan == due),
        Timer::Retry(at) => app(at).is_some_and(|app| app.due.retry == due),
        Timer::Starve(at) => app(at).is_some_and(|app| app.due.starve == due),
        Timer::Sticky(at) => app(at).is_some_and(|app| app.due.sticky == due),
        Timer::Trial(at) => app(at).is_some_and(|app| app.due.trial == due),
        Timer::Idle(slot, id) => processes
            .still(slot, id)
            .is_some_and(|process| process.is_ready() && process.idle_due == due),
        Timer::Life(slot, id) => processes.still(slot, id).is_some_and(|process| {
            process.is_ready() && process.life_due == due && process.outgoing.is_none()
        }),
        Timer::Drain(slot, id) => processes.still(slot, id).is_some_and(
            |process| matches!(process.doing, Doing::Draining { until, .. } if until == due),
        ),
        Timer::Look(slot, id) => processes
            .still(slot, id)
            .and_then(|process| process.server.as_ref())
            .is_some_and(|server| server.look_due == due),
        Timer::Proven(slot, id) => processes
            .still(slot, id)
            .is_some_and(|process| process.is_there() && process.proven_due == due),
    }
}
