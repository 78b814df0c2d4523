//! Servers: processes that others start. None is started or stopped here. One that fails
//! gets no more sessions until it answers again.

use std::time::Duration;

use crate::ledger::Reply;
use crate::time::Instant;

use super::effect::{AppId, Effect, Ended, Leaving, Note, ProcessId};
use super::learner::Learner;
use super::process::{Doing, Process};
use super::serve::Chosen;
use super::server::ServerRecord;
use super::timers::Timer;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    /// There is one more server of an app, and it is taken to be up. None if the app is not
    /// there, or has processes of its own.
    pub fn add_server(
        &mut self,
        app: AppId,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<ProcessId> {
        let at = app.0;
        if self.mode != Mode::Running || !self.is_open(at) {
            return None;
        }
        let app = self.app(at);
        app.options.servers?;
        // Those of one app are mostly alike.
        let mut others = app.slots.iter();
        let alike = others.find_map(|slot| self.processes.at(*slot).server.as_ref());
        let learner = alike.map_or_else(|| Learner::new(now), |other| other.learner.heir(now));
        let generation = app.generation;
        let id = self.processes.next_id();
        let mut process = Process::new(id, at, generation, 0, now);
        process.server = Some(Box::new(ServerRecord::new(learner, now)));
        process.doing = Doing::Ready;
        let slot = self.processes.insert(process);
        self.servers += 1;
        let app = self.app_mut(at);
        app.slots.push(slot);
        app.counts.add(Doing::Ready);
        app.pace.moved = now;
        self.relist(slot);
        self.finish(at, now, effects);
        Some(id)
    }

    /// Servers of an app are being looked for, or are all known. Asks wait as long as they
    /// are looked for, even if there is none.
    pub fn await_servers(
        &mut self,
        app: AppId,
        are_awaited: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let at = app.0;
        if self.is_open(at) && self.app(at).options.servers.is_some() {
            self.app_mut(at).awaits_servers = are_awaited;
            self.finish(at, now, effects);
        }
    }

    /// The caller has looked at a server, as [`Effect::Look`] wanted: it answers, or not.
    pub fn looked(
        &mut self,
        server: ProcessId,
        answers: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some((slot, at)) = self.find(server) else {
            return;
        };
        let is_ending = self.is_ending(at);
        let process = self.processes.at_mut(slot);
        let Some(server) = &mut process.server else {
            return;
        };
        server.is_looked_at = false;
        match (process.doing, answers) {
            (Doing::Down { .. }, true) if !is_ending => self.rise(slot, now, effects),
            (Doing::Down { .. }, false) => {
                server.looks = server.looks.saturating_add(1);
                self.arm_look(slot, now);
            }
            (Doing::Ready, true) => {
                server.heard = now;
                self.arm_quiet(slot);
            }
            (Doing::Ready, false) => self.put_down(slot, Leaving::Hung, now, effects),
            _ => (),
        }
        self.finish(at, now, effects);
    }

    /// A session got a place in a server.
    pub(super) fn busy_server(&mut self, slot: u32, now: Instant) {
        let process = self.processes.at_mut(slot);
        let is_first = process.inside == 1;
        if let Some(server) = &mut process.server {
            if is_first {
                server.heard = now;
            }
            if server.look_due == Instant::NEVER {
                self.arm_quiet(slot);
            }
        }
    }

    /// A session of a server is over.
    pub(super) fn judge_server(
        &mut self,
        slot: u32,
        ended: Ended,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let process = self.processes.at_mut(slot);
        let fault = match ended {
            Ended::Answered => {
                process.has_answered = true;
                if let Some(server) = &mut process.server {
                    server.heard = now;
                    server.failures.answers += 1;
                }
                None
            }
            Ended::TimedOut => Some(Leaving::Hung),
            Ended::Broken => Some(Leaving::Unreachable),
            Ended::Left | Ended::Unused => None,
        };
        match process.doing {
            Doing::Draining { .. } if process.is_unused() => self.stop_draining(slot, effects),
            Doing::Ready => {
                self.relist(slot);
                if let Some(why) = fault {
                    self.server_failed(slot, why, now, effects);
                }
            }
            _ => (),
        }
    }

    /// A server has failed a request, or took no connection.
    pub(super) fn server_failed(
        &mut self,
        slot: u32,
        why: Leaving,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let process = self.processes.at_mut(slot);
        let app = self.apps[process.app as usize].as_ref();
        let rules = app.and_then(|app| app.options.servers);
        let (Some(server), Some(rules)) = (&mut process.server, rules) else {
            return;
        };
        if server.failures.add(&rules, now) && process.is_ready() {
            self.put_down(slot, why, now, effects);
        }
    }

    /// A server gets no more sessions until it answers.
    pub(super) fn put_down(
        &mut self,
        slot: u32,
        why: Leaving,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let process = self.processes.at_mut(slot);
        let (id, at) = (process.id, process.app);
        process.since = now;
        let window = self.app(at).options.servers.map(|it| it.failures_window);
        if let Some(server) = &mut self.processes.at_mut(slot).server {
            server.failures.forget();
            // One that came back for a moment only is looked at ever more seldom.
            server.looks = match (server.rose, window) {
                (Some(rose), Some(window)) if now < rose + window => server.looks.saturating_add(1),
                _ => 0,
            };
        }
        self.turn(slot, Doing::Down { why });
        self.relist(slot);
        self.app_mut(at).call_back_all(slot, now);
        self.arm_look(slot, now);
        effects.push(Effect::Note(Note::ServerDown {
            app: AppId(at),
            server: id,
            why,
        }));
        self.touched.push(at);
    }

    /// A server that was down answers.
    fn rise(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at_mut(slot);
        let (id, at) = (process.id, process.app);
        let down_for = now.since(process.since);
        process.since = now;
        if let Some(server) = &mut process.server {
            server.heard = now;
            server.rose = Some(now);
            server.look_due = Instant::NEVER;
        }
        self.turn(slot, Doing::Ready);
        self.relist(slot);
        self.app_mut(at).pace.moved = now;
        effects.push(Effect::Note(Note::ServerUp {
            app: AppId(at),
            server: id,
            down_for,
        }));
        self.arm_quiet(slot);
    }

    /// Perhaps a server has to be looked at.
    pub(super) fn ring_look(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at_mut(slot);
        let (id, at, inside) = (process.id, process.app, process.inside);
        let Some(rules) = self.app(at).options.servers else {
            return;
        };
        let process = self.processes.at_mut(slot);
        let Some(server) = &mut process.server else {
            return;
        };
        server.look_due = Instant::NEVER;
        match process.doing {
            Doing::Down { .. } => (),
            Doing::Ready if inside == 0 => return,
            Doing::Ready if server.heard + rules.quiet_max > now => return self.arm_quiet(slot),
            Doing::Ready => (),
            _ => return,
        }
        if !server.is_looked_at {
            server.is_looked_at = true;
            let app = AppId(at);
            effects.push(Effect::Look { app, server: id });
        }
    }

    /// Have a server that is down looked at.
    fn arm_look(&mut self, slot: u32, now: Instant) {
        let Some(rules) = self.app(self.processes.at(slot).app).options.servers else {
            return;
        };
        let process = self.processes.at_mut(slot);
        let id = process.id;
        if let Some(server) = &mut process.server {
            server.look_due = now.after(rules.wait(server.looks));
            let due = server.look_due;
            self.timers.push(due, Timer::Look(slot, id));
        }
    }

    /// Have a busy server looked at when it will have answered nothing for too long.
    fn arm_quiet(&mut self, slot: u32) {
        let process = self.processes.at(slot);
        let (id, is_busy) = (process.id, process.is_ready() && process.inside > 0);
        let rules = self.app(process.app).options.servers;
        let server = &mut self.processes.at_mut(slot).server;
        if let (Some(server), Some(rules)) = (server, rules)
            && is_busy
            && !server.is_looked_at
        {
            server.look_due = server.heard + rules.quiet_max;
            let due = server.look_due;
            self.timers.push(due, Timer::Look(slot, id));
        }
    }

    /// The less busy of two servers with a free place, each as likely as the others.
    pub(super) fn choose_server(&mut self, at: u32, avoid: Option<ProcessId>) -> Option<Chosen> {
        let places = &self.app(at).places;
        let is_avoided = |slot: u32| Some(self.processes.at(slot).id) == avoid;
        let skipped = places.iter().position(|place| is_avoided(place.slot));
        let skipped = skipped.filter(|_| places.len() > 1);
        let count = places.len() - usize::from(skipped.is_some());
        if count == 0 {
            return None;
        }
        let mut draw = |below: usize| {
            let drawn = self.rng.below(below as u64);
            usize::try_from(drawn).expect("it is below a count of places")
        };
        let one = draw(count);
        let other = match count {
            1 => one,
            count => (one + 1 + draw(count - 1)) % count,
        };
        let app = self.app(at);
        let slot = |index: usize| {
            let is_behind = skipped.is_some_and(|skipped| index >= skipped);
            app.places.at(index + usize::from(is_behind)).slot
        };
        let (one, other) = (slot(one), slot(other));
        let [first, second] = [one, other].map(|slot| self.processes.at(slot));
        let load = |of: &Process, beside: &Process| {
            let sessions = of.sessions as u64 * app.limit_in(beside) as u64;
            (sessions, of.streams)
        };
        let slot = match load(second, first) < load(first, second) {
            true => other,
            false => one,
        };
        Some(Chosen { slot, drawn: None })
    }

    /// Perhaps another number of sessions at a time is better for a server.
    pub(super) fn decide_server(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at_mut(slot);
        let (id, at) = (process.id, process.app);
        let app = self.apps[at as usize].as_mut();
        let app = app.expect("an app is there while it has processes");
        let Some(server) = &mut process.server else {
            return;
        };
        let waits = app.waiting.len() > 0;
        let before = server.learner.limit();
        let is_fixed = app.options.places().is_some();
        if is_fixed || !server.learner.decide(waits, Learner::MOST, now) {
            app.rises_until = app.rises_until.max(server.learner.rises_until());
            return;
        }
        app.rises_until = app.rises_until.max(server.learner.rises_until());
        app.server_moves += 1;
        let concurrency = (before, server.learner.limit());
        self.relist(slot);
        effects.push(Effect::Note(Note::ServerLearnt {
            app: AppId(at),
            server: id,
            concurrency,
        }));
    }

    /// In how long an ask may find a process that could be served by none now.
    pub(super) fn comes_back_in(&self, at: u32, now: Instant) -> Duration {
        let app = self.app(at);
        if app.options.servers.is_none() {
            return app.failures.wait(now);
        }
        let servers = app.slots.iter().map(|slot| self.processes.at(*slot));
        let down = servers.filter(|it| matches!(it.doing, Doing::Down { .. }));
        let due = down.filter_map(|it| Some(it.server.as_ref()?.look_due));
        let due = due.filter(|due| *due != Instant::NEVER).min();
        due.map_or(Duration::ZERO, |due| due.max(now).since(now))
    }
}
