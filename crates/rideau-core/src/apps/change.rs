//! How apps come, change and go, and what people do to their processes.

use crate::ledger::Reply;
use crate::settings::OptionError;
use crate::time::Instant;

use super::app::{App, Want};
use super::effect::{AppId, Effect, Leaving, ProcessId};
use super::options::{EvictFor, Limits, Options};
use super::plan::Tried;
use super::process::Doing;
use super::stats::Deploy;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    /// There is one more app. `min` processes of it are started.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    ///
    /// # Panics
    ///
    /// If there were over four thousand million apps.
    pub fn add(
        &mut self,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<AppId, OptionError> {
        let app = App::new(options, now)?;
        let at = u32::try_from(self.apps.len()).expect("apps are numbered by 32 bits");
        self.apps.push(Some(Box::new(app)));
        self.finish(at, now, effects);
        Ok(AppId(at))
    }

    /// An app has other options and the same code. No ask that waits loses its
    /// position in the queue, unless there is no room for it any more.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        app: AppId,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<(), OptionError> {
        options.validate()?;
        let at = app.0;
        if !self.is_open(at) {
            return Ok(());
        }
        let app = self.app_mut(at);
        debug_assert_eq!(app.options.servers.is_some(), options.servers.is_some());
        let old = std::mem::replace(&mut *app.options, options);
        app.failures.end();
        if old.queue != app.options.queue {
            let queue = app.options.queue.clone();
            app.waiting.reconfigure(queue, now);
        }
        for slot in app.slots.clone() {
            self.relist(slot);
            if self.is_spent(slot) {
                self.leave(slot, Leaving::Used, now, effects);
            } else if self.processes.at(slot).is_ready() {
                self.processes.at_mut(slot).idle_due = Instant::NEVER;
                self.arm_idle(slot);
                self.arm_life(slot);
            }
        }
        self.shrink_app(at, now, effects);
        self.is_roomier = true;
        self.finish(at, now, effects);
        Ok(())
    }

    /// An app is no more: asks that wait for it are refused, its processes finish
    /// what they do, and with the last it is forgotten.
    pub fn remove(&mut self, app: AppId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let at = app.0;
        if !self.is_open(at) {
            return;
        }
        self.app_mut(at).is_removed = true;
        self.worth.forget(at);
        self.end_all(at, now, effects);
        self.finish(at, now, effects);
    }

    /// All apps share other limits. What is over them goes: idle processes at
    /// once, others as their sessions end.
    ///
    /// # Errors
    ///
    /// If a limit breaks a rule; then nothing has changed.
    pub fn set_limits(
        &mut self,
        limits: Limits,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<(), OptionError> {
        limits.validate()?;
        if limits.max != self.limits.max {
            self.worth.set_max(limits.max);
        }
        self.worth
            .set_counts_only(limits.evict_for == EvictFor::Count);
        self.limits = limits;
        self.shrink(now, effects);
        // An app that could not have more before perhaps can.
        for at in 0..u32::try_from(self.apps.len()).expect("apps are numbered by 32 bits") {
            self.touched.push(at);
        }
        self.is_roomier = true;
        self.finish_all(now, effects);
        Ok(())
    }

    /// A process gets no more sessions, and stays. False if it is not ready, and no server
    /// that is down.
    pub fn disable(
        &mut self,
        process: ProcessId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let Some((slot, at)) = self.find(process) else {
            return false;
        };
        let is_up = matches!(
            self.processes.at(slot).doing,
            Doing::Ready | Doing::Down { .. }
        );
        if !is_up || self.is_ending(at) {
            return false;
        }
        let process = self.processes.at_mut(slot);
        process.idle_due = Instant::NEVER;
        process.life_due = Instant::NEVER;
        let was_marked = process.outgoing.take().is_some();
        self.turn(slot, Doing::Disabled);
        self.relist(slot);
        let app = self.app_mut(at);
        app.outgoing -= usize::from(was_marked);
        app.call_back_all(slot, now);
        self.drop_replacement(at, now, effects);
        self.finish(at, now, effects);
        true
    }

    /// A process that was disabled serves again. False if it is not disabled.
    pub fn enable(
        &mut self,
        process: ProcessId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let Some((slot, at)) = self.find(process) else {
            return false;
        };
        if self.processes.at(slot).doing != Doing::Disabled {
            return false;
        }
        self.turn(slot, Doing::Ready);
        self.relist(slot);
        self.arm_life(slot);
        self.arm_idle_all(at);
        if self.is_spent(slot) {
            self.leave(slot, Leaving::Used, now, effects);
            self.finish(at, now, effects);
            return true;
        }
        let process = self.processes.at(slot);
        let app = self.app(at);
        let is_old = process.generation < app.generation;
        if is_old && app.deploy == Deploy::Settled {
            self.recycle(slot, Leaving::Restarted);
        }
        self.is_roomier = true;
        self.finish(at, now, effects);
        true
    }

    /// The caller takes a process out: it finishes its sessions and goes. False
    /// if it goes anyway.
    pub fn detach(
        &mut self,
        process: ProcessId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let Some((slot, at)) = self.find(process) else {
            return false;
        };
        let is_used = match self.processes.at(slot).doing {
            Doing::Starting { .. } | Doing::Ready | Doing::Disabled | Doing::Down { .. } => true,
            Doing::Draining { .. } | Doing::Stopping { .. } => false,
        };
        if is_used {
            self.leave(slot, Leaving::Detached, now, effects);
        }
        self.finish(at, now, effects);
        is_used
    }

    /// The caller ends a process at once, whatever it serves. That says nothing
    /// of how its start went. False if there is no such process.
    pub fn kill(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) -> bool {
        let Some((slot, at)) = self.find(process) else {
            return false;
        };
        match self.processes.at(slot).doing {
            Doing::Stopping { why } => effects.push(Effect::Stop {
                process,
                why,
                at_once: true,
            }),
            _ => self.stop(slot, Leaving::Killed, true, now, effects),
        }
        self.finish(at, now, effects);
        true
    }

    /// The caller wants one more process of an app started, now. False if there
    /// is no room for it, or one starts already.
    pub fn start_one(&mut self, app: AppId, now: Instant, effects: &mut Vec<Effect<R>>) -> bool {
        let at = app.0;
        if self.mode != Mode::Running || !self.is_open(at) {
            return false;
        }
        let app = self.app(at);
        let may_start = app.options.servers.is_none()
            && app.counts.starting == 0
            && !app.is_occupied()
            && app.counts.taken() < app.max(self.limits.max);
        let started = may_start && self.try_start(at, Want::More, now, effects) == Tried::Started;
        self.finish(at, now, effects);
        started
    }

    /// The process that a start was to replace stays: the start takes room that is not there.
    fn drop_replacement(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.app(at);
        if app.counts.replacing == 0 || self.next_outgoing(at).is_some() {
            return;
        }
        let replacing = Doing::Starting { replaces: true };
        let slots = app.slots.iter().copied();
        let mut starts = slots.filter(|slot| self.processes.at(*slot).doing == replacing);
        if let Some(slot) = starts.next() {
            self.stop(slot, Leaving::Unwanted, false, now, effects);
        }
    }
}
