//! The work after every input.

use crate::ledger::Reply;
use crate::time::Instant;
use crate::waiting::End;

use super::effect::{Effect, Leaving, Note};
use super::stats::Deploy;
use super::timers::Timer;
use super::{Apps, Mode, come_back};

impl<R: Reply> Apps<R> {
    /// See to an app that something happened to, and to all that follows.
    #[inline]
    pub(super) fn finish(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.touched.push(at);
        self.finish_all(now, effects);
    }

    pub(super) fn finish_all(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        loop {
            while let Some(at) = self.touched.pop() {
                self.settle(at, now, effects);
            }
            if self.room.is_empty() || !std::mem::take(&mut self.is_roomier) {
                break;
            }
            self.fill(now, effects);
        }
        if self.mode == Mode::Closing && self.counts.live() + self.servers == 0 {
            self.mode = Mode::Closed;
            effects.push(Effect::Closed);
        }
        self.sweep();
        self.check(now);
    }

    #[inline]
    fn settle(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let Some(Some(app)) = self.apps.get(at as usize) else {
            return;
        };
        if self.mode == Mode::Running && app.is_calm() {
            return;
        }
        self.app_mut(at).tell_load(now);
        self.serve(at, now, effects);
        if self.is_ending(at) {
            self.end_app(at, now, effects);
        } else {
            self.judge_trial(at, now, effects);
            self.retire_outgoing(at, now, effects);
            self.end_deploy(at, effects);
            self.refuse_hopeless(at, now);
            self.consider(at, now);
        }
        self.app_mut(at).tell_load(now);
        self.tell_ended(at, now, effects);
        self.arm_app(at, now);
        let app = self.app(at);
        if app.is_removed && app.slots.is_empty() {
            let app = super::AppId(at);
            self.apps[at as usize] = None;
            effects.push(Effect::Note(Note::Removed { app }));
        }
    }

    /// Processes that have to go, and need no other in their stead, go.
    fn retire_outgoing(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.app(at).keeps_all() {
            return;
        }
        let next = |apps: &Self| match apps.app(at).options.alone {
            true => apps.next_outgoing(at),
            false => apps.marked(at),
        };
        while let Some((slot, why)) = next(self)
            && !self.is_needed(at)
        {
            self.leave(slot, why, now, effects);
        }
    }

    /// The process that was told to go first when it can.
    fn marked(&self, at: u32) -> Option<(u32, Leaving)> {
        let app = self.app(at);
        if app.outgoing == 0 {
            return None;
        }
        let mut slots = app.slots.iter();
        slots.find_map(|slot| Some((*slot, self.processes.at(*slot).outgoing?)))
    }

    /// One process less would be too few.
    fn is_needed(&self, at: u32) -> bool {
        let app = self.app(at);
        // No other process can come before it is gone.
        !app.options.alone && (app.waiting.len() > 0 || app.counts.ready <= app.options.min)
    }

    /// New code runs everywhere, perhaps.
    fn end_deploy(&mut self, at: u32, effects: &mut Vec<Effect<R>>) {
        let app = self.app(at);
        if app.told == app.generation || app.deploy == Deploy::Failed {
            return;
        }
        let generation = app.generation;
        let mut ready = app.slots.iter().map(|slot| self.processes.at(*slot));
        if ready.any(|process| process.is_ready() && process.generation < generation) {
            return;
        }
        let mut ready = app.slots.iter().map(|slot| self.processes.at(*slot));
        let runs = ready.any(|process| process.is_ready());
        let app = self.app_mut(at);
        app.deploy = Deploy::Settled;
        if runs {
            app.told = generation;
            app.good = generation;
            let app = super::AppId(at);
            effects.push(Effect::Note(Note::Deployed { app, generation }));
        }
    }

    /// Refuse the asks that no process that is there can serve, while no other
    /// can be started.
    fn refuse_hopeless(&mut self, at: u32, now: Instant) {
        let app = self.app_mut(at);
        if let Some(reason) = app.hopeless(now) {
            app.waiting.refuse_all(reason, now);
        }
    }

    /// Serve the asks that still can be served, and end.
    fn end_app(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.app_mut(at);
        if app.is_removed || app.counts.ready == 0 {
            app.waiting.close(now);
        }
        if app.waiting.len() == 0 && app.aside.is_empty() {
            let slots = app.slots.clone();
            for slot in slots {
                if self.processes.at(slot).is_there() {
                    self.leave(slot, Leaving::Closed, now, effects);
                }
            }
        }
        self.leave_room(at);
    }

    fn tell_ended(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        if !self.app(at).waiting.has_ended() {
            return;
        }
        let retry_after = self.comes_back_in(at, now);
        let app = self.app_mut(at);
        let told = app.waiting.ended().map(|end| match end {
            End::Shed { reply, refusal, .. } => {
                let refusal = come_back(refusal, retry_after);
                Effect::Shed { reply, refusal }
            }
            End::Gone(reply) => Effect::Forget(reply),
        });
        effects.extend(told);
    }

    /// Set the clocks of an app.
    fn arm_app(&mut self, at: u32, now: Instant) {
        let is_running = !self.is_ending(at);
        let plan = self.plan_due(at, now);
        let Some(Some(app)) = self.apps.get_mut(at as usize) else {
            return;
        };
        let queue = app.waiting.deadline().unwrap_or(Instant::NEVER);
        let sticky = app.sticky_due();
        let retry = match app.failures.may_start(now) || !is_running {
            true => Instant::NEVER,
            false => app.failures.retry_at(),
        };
        let trial = app.trial.as_ref().filter(|_| is_running);
        let trial = trial.map_or(Instant::NEVER, |trial| trial.due(now));
        let clocks = [
            (&mut app.due.trial, trial, Timer::Trial(at)),
            (&mut app.due.queue, queue, Timer::Queue(at)),
            (&mut app.due.sticky, sticky, Timer::Sticky(at)),
            (&mut app.due.plan, plan, Timer::Plan(at)),
            (&mut app.due.retry, retry, Timer::Retry(at)),
        ];
        for (set, due, timer) in clocks {
            // One that rings too early is set again then: they change often.
            if due < *set {
                self.timers.push(due, timer);
                *set = due;
            } else if due == Instant::NEVER {
                *set = due;
            }
        }
    }
}
