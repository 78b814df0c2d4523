//! Outcomes of starts, and of health checks.

use crate::ledger::Reply;
use crate::time::Instant;

use super::effect::{AppId, Effect, Leaving, Note, ProcessId};
use super::process::{Doing, Process};
use super::stats::Deploy;
use super::timers::Timer;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    /// A process is ready. False if it is not wanted any more: then it was told
    /// to stop.
    pub fn started(
        &mut self,
        process: ProcessId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let Some((slot, at)) = self.find(process) else {
            return false;
        };
        match self.processes.at(slot).doing {
            Doing::Starting { .. } => (),
            Doing::Ready | Doing::Disabled | Doing::Down { .. } => return true,
            Doing::Draining { .. } | Doing::Stopping { .. } => return false,
        }
        self.begin(slot, at, now, effects);
        self.begin_trial(at, now, effects);
        self.serve(at, now, effects);
        if let Some((slot, why)) = self.next_outgoing(at) {
            self.leave(slot, why, now, effects);
        }
        self.arm_idle_all(at);
        self.is_roomier = true;
        self.finish(at, now, effects);
        true
    }

    /// A process could not be started, and nothing of it is left.
    pub fn start_failed(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        self.end(slot, now, effects);
        self.forget(slot);
        self.finish(at, now, effects);
    }

    /// A process ended by itself; what is left of it is being killed.
    pub fn lost(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        self.end(slot, now, effects);
        self.finish(at, now, effects);
    }

    /// A process was ended by a signal that the caller did not send: by an operator, or by
    /// the system for want of memory. That says nothing of how its start went, if it was
    /// ready.
    pub fn killed(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        match self.processes.at(slot).is_there() {
            true => {
                let why = Leaving::Killed;
                self.retreat(slot, why, Doing::Stopping { why }, now);
            }
            false => self.end(slot, now, effects),
        }
        self.finish(at, now, effects);
    }

    /// Nothing of a process is left.
    pub fn gone(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        self.end(slot, now, effects);
        self.forget(slot);
        self.finish(at, now, effects);
    }

    /// The health checks of a process failed: it is replaced. If it was never
    /// well for long, its start has failed. A server is down.
    pub fn unwell(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        let process = self.processes.at(slot);
        match process.server {
            _ if !process.is_ready() => (),
            Some(_) => self.put_down(slot, Leaving::Unwell, now, effects),
            None => self.give_up(slot, Leaving::Unwell, now, effects),
        }
        self.finish(at, now, effects);
    }

    /// A process cannot be connected to: it is replaced. If it never was for
    /// long, its start has failed. A server has failed once more.
    pub fn unreachable(&mut self, process: ProcessId, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        let process = self.processes.at(slot);
        match process.server {
            Some(_) => self.server_failed(slot, Leaving::Unreachable, now, effects),
            None if process.is_there() => {
                self.give_up(slot, Leaving::Unreachable, now, effects);
            }
            None => (),
        }
        self.finish(at, now, effects);
    }

    /// A process uses so much memory.
    pub fn memory(
        &mut self,
        process: ProcessId,
        bytes: u64,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some((slot, at)) = self.find(process) else {
            return;
        };
        let process = self.processes.at_mut(slot);
        if process.server.is_some() {
            return;
        }
        process.memory = bytes;
        let options = &self.app(at).options;
        let is_over = |limit: Option<u64>| limit.is_some_and(|limit| bytes > limit);
        let (hard, soft) = (is_over(options.memory_hard), is_over(options.memory_soft));
        let process = self.processes.at(slot);
        let (generation, is_young) = (process.generation, self.is_young(slot, now));
        if hard && !matches!(process.doing, Doing::Stopping { .. }) {
            self.stop(slot, Leaving::MemoryHard, true, now, effects);
            if is_young {
                self.fail(at, generation, now, effects);
            }
        } else if soft {
            self.recycle(slot, Leaving::MemorySoft);
        }
        self.finish(at, now, effects);
    }

    /// Have a process started. The room is there.
    pub(super) fn start(
        &mut self,
        at: u32,
        replaces: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        debug_assert!(!self.app(at).is_occupied(), "it would not be alone");
        let id = self.processes.next_id();
        let generation = self.app(at).generation;
        let lot = self.rng.draw() >> 1;
        let mut process = Process::new(id, at, generation, lot, now);
        process.doing = Doing::Starting { replaces };
        self.counts.add(process.doing);
        self.app_mut(at).counts.add(process.doing);
        let slot = self.processes.insert(process);
        self.app_mut(at).slots.push(slot);
        effects.push(Effect::Start {
            app: AppId(at),
            process: id,
            generation,
        });
    }

    /// A start went well: the process is ready.
    fn begin(&mut self, slot: u32, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at_mut(slot);
        let took = now.since(process.since);
        (process.since, process.used) = (now, now);
        let (id, generation) = (process.id, process.generation);
        self.turn(slot, Doing::Ready);
        self.relist(slot);
        self.arm_life(slot);
        let app = self.app_mut(at);
        app.pace.learn_start(crate::time::nanos(took));
        app.pace.moved = now;
        app.tallies.starts += 1;
        app.tallies.start_times.record(took);
        if generation == app.generation && app.deploy == Deploy::Failed {
            app.deploy = Deploy::Rolling;
        }
        let proven = now + app.options.uptime_min;
        if app.failures.is_failing() {
            app.failures.pause(now);
            self.processes.at_mut(slot).proven_due = proven;
            self.timers.push(proven, Timer::Proven(slot, id));
        }
        effects.push(Effect::Note(Note::Started {
            app: AppId(at),
            process: id,
            took,
        }));
    }

    /// A process is no more, whatever it did: a start has failed, or it was
    /// lost, or it is as it should be.
    fn end(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at(slot);
        let (at, generation, why) = (process.app, process.generation, Leaving::Lost);
        let stopping = Doing::Stopping { why };
        match process.doing {
            Doing::Stopping { .. } => (),
            Doing::Draining { why, .. } => self.turn(slot, Doing::Stopping { why }),
            Doing::Starting { .. } | Doing::Ready | Doing::Disabled | Doing::Down { .. } => {
                let is_young = self.is_young(slot, now);
                self.retreat(slot, why, stopping, now);
                if is_young {
                    self.fail(at, generation, now, effects);
                }
            }
        }
    }

    /// A process is of no use: it gets no more sessions. If it has not run for
    /// long, its start has failed.
    fn give_up(&mut self, slot: u32, why: Leaving, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at(slot);
        let (at, generation) = (process.app, process.generation);
        let is_young = self.is_young(slot, now);
        self.leave(slot, why, now, effects);
        if is_young {
            self.fail(at, generation, now, effects);
        }
    }

    /// It has neither answered a request nor run for so long that its start went
    /// well.
    fn is_young(&self, slot: u32, now: Instant) -> bool {
        let process = self.processes.at(slot);
        if let Doing::Starting { .. } = process.doing {
            return true;
        }
        let uptime_min = self.app(process.app).options.uptime_min;
        process.server.is_none()
            && process.is_there()
            && !process.has_answered
            && now < process.since + uptime_min
    }

    /// A start has failed.
    fn fail(&mut self, at: u32, generation: u64, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.apps[at as usize].as_mut();
        let app = app.expect("an app is there while it has processes");
        app.tallies.start_failures += 1;
        if app.is_removed || self.mode != Mode::Running {
            return;
        }
        let wait = app.failures.add(&app.options, &mut self.rng, now);
        if let Some(retry_after) = wait {
            effects.push(Effect::Note(Note::Failing {
                app: AppId(at),
                failures: app.failures.count(),
                retry_after,
            }));
        }
        if app.deploy != Deploy::Rolling || generation != app.generation {
            return;
        }
        let app = self.app(at);
        let mut processes = app.slots.iter().map(|slot| self.processes.at(*slot));
        let is_there = |it: &Process| it.generation == generation && it.is_there();
        if app.counts.starting > 0 || processes.any(is_there) {
            return;
        }
        let app = self.app_mut(at);
        app.tries += 1;
        if app.tries >= app.options.deploy_tries {
            app.deploy = Deploy::Failed;
            let app = AppId(at);
            effects.push(Effect::Note(Note::DeployFailed { app, generation }));
        }
    }
}
