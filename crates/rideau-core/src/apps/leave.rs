//! How processes go: marked, drained, stopped, gone.

use crate::ledger::Reply;
use crate::time::Instant;

use super::Apps;
use super::effect::{Effect, Ended, Leaving};
use super::process::{Doing, Strikes};
use super::timers::Timer;

impl<R: Reply> Apps<R> {
    /// A session of a process is over: what that means for the process.
    pub(super) fn judge(
        &mut self,
        slot: u32,
        ended: Ended,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        if self.processes.at(slot).server.is_some() {
            return self.judge_server(slot, ended, now, effects);
        }
        let process = self.processes.at_mut(slot);
        let app = self.apps[process.app as usize].as_ref();
        let options = &app.expect("an app is there while it has processes").options;
        let fault = match ended {
            Ended::Answered => {
                process.has_answered = true;
                process.broken = Strikes::default();
                None
            }
            Ended::TimedOut => {
                let is_often = process.timeouts.add(options, now);
                (is_often || options.places() == Some(1)).then_some(Leaving::Hung)
            }
            Ended::Broken => {
                let is_often = process.broken.add(options, now);
                is_often.then_some(Leaving::Unreachable)
            }
            Ended::Left | Ended::Unused => None,
        };
        let is_used_up = (options.requests_max)
            .is_some_and(|most| process.finished >= process.own_limit(most).max(1));
        let is_unused = process.is_unused();
        match process.doing {
            Doing::Draining { .. } if is_unused => return self.stop_draining(slot, effects),
            Doing::Ready => (),
            Doing::Disabled
            | Doing::Down { .. }
            | Doing::Starting { .. }
            | Doing::Draining { .. }
            | Doing::Stopping { .. } => return,
        }
        match fault {
            Some(why) => self.leave(slot, why, now, effects),
            None if self.is_spent(slot) => self.leave(slot, Leaving::Used, now, effects),
            None => {
                if is_used_up {
                    self.recycle(slot, Leaving::Used);
                }
                self.relist(slot);
                self.arm_idle(slot);
                self.is_roomier |= is_unused;
            }
        }
    }

    /// A process has served the one request that it was for, and gets no other.
    pub(super) fn is_spent(&self, slot: u32) -> bool {
        let process = self.processes.at(slot);
        process.is_ready() && process.finished > 0 && self.app(process.app).options.one_each
    }

    /// A process is to go when that disturbs no request: the next look at its app
    /// lets it go, or has another started first.
    pub(super) fn recycle(&mut self, slot: u32, why: Leaving) {
        let process = self.processes.at(slot);
        let at = process.app;
        if !process.is_ready() || process.outgoing.is_some() || self.app(at).keeps_all() {
            return;
        }
        self.processes.at_mut(slot).outgoing = Some(why);
        self.app_mut(at).outgoing += 1;
        self.relist(slot);
        self.touched.push(at);
    }

    /// A process gets no more sessions, and is stopped when it has none.
    pub(super) fn leave(
        &mut self,
        slot: u32,
        why: Leaving,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let process = self.processes.at(slot);
        let (id, at) = (process.id, process.app);
        if process.is_unused() {
            return self.stop(slot, why, false, now, effects);
        }
        let until = now + self.app(at).options.drain_timeout;
        self.retreat(slot, why, Doing::Draining { why, until }, now);
        self.timers.push(until, Timer::Drain(slot, id));
        let process = id;
        effects.push(Effect::Drain { process, why });
    }

    /// A process is stopped, sessions or not.
    pub(super) fn stop(
        &mut self,
        slot: u32,
        why: Leaving,
        at_once: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let process = self.processes.at(slot).id;
        self.retreat(slot, why, Doing::Stopping { why }, now);
        effects.push(Effect::Stop {
            process,
            why,
            at_once,
        });
    }

    /// A process that was to finish its sessions did, or took too long.
    pub(super) fn stop_draining(&mut self, slot: u32, effects: &mut Vec<Effect<R>>) {
        let process = self.processes.at(slot);
        let id = process.id;
        if let Doing::Draining { why, .. } = process.doing {
            self.turn(slot, Doing::Stopping { why });
            effects.push(Effect::Stop {
                process: id,
                why,
                at_once: false,
            });
        }
    }

    /// The one way out of what is used: the process takes room no more, no ask
    /// comes to it any more, and why is counted once.
    pub(super) fn retreat(&mut self, slot: u32, why: Leaving, doing: Doing, now: Instant) {
        let process = self.processes.at_mut(slot);
        let was_used = !matches!(
            process.doing,
            Doing::Draining { .. } | Doing::Stopping { .. }
        );
        let at = process.app;
        let was_marked = process.outgoing.take().is_some();
        self.turn(slot, doing);
        self.relist(slot);
        let app = self.app_mut(at);
        app.outgoing -= usize::from(was_marked);
        if was_used {
            app.tallies.left[why.index()] += 1;
            app.call_back_all(slot, now);
        }
        self.settle_replacing(at);
        self.is_roomier = true;
        self.touched.push(at);
    }

    /// A start in the stead of one that is gone already takes that one's room.
    fn settle_replacing(&mut self, at: u32) {
        if self.app(at).counts.replacing == 0 || self.next_outgoing(at).is_some() {
            return;
        }
        let replacing = Doing::Starting { replaces: true };
        let slots = &self.app(at).slots;
        let found = slots
            .iter()
            .copied()
            .find(|slot| self.processes.at(*slot).doing == replacing);
        if let Some(slot) = found {
            self.turn(slot, Doing::Starting { replaces: false });
        }
    }

    /// Nothing of a process is left.
    pub(super) fn forget(&mut self, slot: u32) {
        let process = self.processes.remove(slot);
        let at = process.app;
        match process.server {
            Some(_) => self.servers -= 1,
            None => self.counts.remove(process.doing),
        }
        let app = self.app_mut(at);
        app.counts.remove(process.doing);
        app.slots.retain(|other| *other != slot);
        let app = self.apps[at as usize].as_mut();
        let app = app.expect("it was just seen");
        let slots = &app.slots;
        let processes = &self.processes;
        (app.learnt).keep(|generation| {
            let mut processes = slots.iter().map(|slot| processes.at(*slot));
            processes.any(|process| process.generation == generation)
        });
        self.is_roomier = true;
        self.touched.push(at);
    }
}
