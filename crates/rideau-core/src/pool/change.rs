//! How a pool is changed while it works: options, pauses, replacement, the end.

use std::time::Duration;

use crate::ledger::Reply;
use crate::settings::OptionError;
use crate::time::{Instant, nanos};
use crate::valve::Valve;

use super::effect::{Effect, Retired};
use super::members::Doing;
use super::{Birth, Mode, Options, Pool};

impl<R: Reply> Pool<R> {
    /// Change everything at once. No take that waits loses its place, unless
    /// there is no room for it any more, and no holder loses its member: a
    /// surplus goes as it comes back.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<(), OptionError> {
        options.validate()?;
        let live = self.members.counts().live();
        match (&mut self.valve, &options.valve) {
            (Some(valve), Some(new)) => valve.reconfigure(new, now)?,
            (_, None) => self.valve = None,
            (None, Some(new)) => self.valve = Some(Valve::new(new, live, now)?),
        }
        let old = std::mem::replace(&mut *self.options, options);
        if old.queue != self.options.queue {
            let queue = self.options.queue.clone();
            self.lines.reconfigure(&queue, now);
        }
        let (life, was) = (self.options.life_max, old.life_max);
        if (life, self.options.life_jitter) != (was, old.life_jitter) {
            self.change_lives(now, effects);
        }
        self.shrink(now, effects);
        self.end_idle(now, effects);
        self.sweep();
        self.finish(now, effects);
        Ok(())
    }

    /// Hand nothing out until [`resume`](Self::resume); takers wait.
    pub fn suspend(&mut self) {
        if self.mode == Mode::Running {
            self.mode = Mode::Suspended;
        }
    }

    /// Hand members out again.
    pub fn resume(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.mode == Mode::Suspended {
            self.mode = Mode::Running;
            self.finish(now, effects);
        }
    }

    /// Replace every member that there is, one after the other, over a time.
    pub fn replace(&mut self, over: Duration, now: Instant, effects: &mut Vec<Effect<R>>) {
        if matches!(self.mode, Mode::Closing { .. } | Mode::Closed) {
            return;
        }
        self.generation += 1;
        let slots: Vec<u32> = self.members.slots().collect();
        let step = nanos(over) / (slots.len().max(1) as u64);
        let mut until = now;
        for slot in slots {
            match self.members.at(slot).doing {
                Doing::Idle { .. } | Doing::Out | Doing::Checking { .. } => {
                    let before = self.members.at(slot).until;
                    self.live_until(slot, until.min(before), effects);
                    until = until.after(step);
                }
                // What it will be is not known yet; it is of the old ways.
                Doing::Starting { .. } => self.abandon(slot, now, effects),
                Doing::Nothing | Doing::Stopping { .. } => (),
            }
        }
        self.end_lives(now, effects);
        self.sweep();
        self.finish(now, effects);
    }

    /// Refuse all takes that wait and that come, stop what is idle, and the
    /// rest as it comes back; from the deadline on it is called back.
    pub fn close(&mut self, deadline: Instant, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.mode == Mode::Closed {
            return;
        }
        let deadline = match self.mode {
            Mode::Closing { deadline: before } => before.min(deadline),
            _ => deadline,
        };
        self.mode = Mode::Closing { deadline };
        self.look = None;
        self.lines.close(now);
        for slot in self.members.slots() {
            match self.members.at(slot).doing {
                Doing::Idle { .. } => self.retire(slot, Retired::Closed, now, effects),
                Doing::Starting { .. } => self.abandon(slot, now, effects),
                Doing::Out | Doing::Checking { .. } => self.leave(slot, Retired::Closed, effects),
                Doing::Nothing | Doing::Stopping { .. } => (),
            }
        }
        if deadline <= now {
            self.revoke_all(now, effects);
        }
        self.sweep();
        self.finish(now, effects);
    }

    /// Members are handed out.
    pub fn is_running(&self) -> bool {
        self.mode == Mode::Running
    }

    /// No member is handed out any more.
    pub fn is_closing(&self) -> bool {
        matches!(self.mode, Mode::Closing { .. } | Mode::Closed)
    }

    /// The pool was closed and the last member is gone.
    pub fn is_closed(&self) -> bool {
        self.mode == Mode::Closed
    }

    /// Facts about the member in a slot.
    pub fn birth(&self, slot: u32) -> Birth {
        let member = self.members.at(slot);
        Birth {
            id: member.id,
            born: member.born,
            until: member.until,
            generation: member.generation,
        }
    }

    /// How the pool is set up.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Tell all holders that their member is taken away.
    pub(super) fn revoke_all(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        let deadline = Instant::NEVER;
        self.mode = Mode::Closing { deadline };
        for slot in self.members.slots() {
            let member = self.members.at(slot);
            let id = member.id;
            match member.doing {
                Doing::Out => effects.push(Effect::Revoke { slot, id }),
                Doing::Checking { .. } => self.cut_short(slot, Retired::Closed, now, effects),
                _ => (),
            }
        }
    }

    /// Say so when the last member is gone.
    pub(super) fn end_closing(&mut self, effects: &mut Vec<Effect<R>>) {
        if self.members.counts().size() == 0 {
            self.mode = Mode::Closed;
            effects.push(Effect::Closed);
        }
    }

    /// Let go of what is too much and not held.
    fn shrink(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while self.is_too_large() {
            // They are looked for only if there are any: a large pool may shrink by much.
            let counts = self.members.counts();
            let find = |count: usize, is: fn(Doing) -> bool| {
                let mut slots = (count > 0).then(|| self.members.slots())?;
                slots.find(|slot| is(self.members.at(*slot).doing))
            };
            let is_starting = |doing| matches!(doing, Doing::Starting { .. });
            let is_checking = |doing| matches!(doing, Doing::Checking { .. });
            if let Some(slot) = find(counts.starting, is_starting) {
                self.abandon(slot, now, effects);
            } else if let Some(slot) = self.members.oldest() {
                self.retire(slot, Retired::Surplus, now, effects);
            } else if let Some(slot) = find(counts.checking, is_checking) {
                self.cut_short(slot, Retired::Surplus, now, effects);
            } else {
                return;
            }
        }
    }

    fn is_too_large(&self) -> bool {
        self.members.counts().live() > self.options.max
            || self.valve.as_ref().is_some_and(Valve::is_over)
    }

    /// Other lives for all, from when they were born. Those that would be over
    /// end spread over the jitter, not all at once.
    fn change_lives(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        for slot in self.members.slots() {
            let member = self.members.at(slot);
            let is_there = !matches!(
                member.doing,
                Doing::Starting { .. } | Doing::Stopping { .. }
            );
            if !is_there || member.leaves.is_some() || member.generation < self.generation {
                continue;
            }
            let until = self.life_from(self.members.at(slot).born);
            let spread = nanos(self.options.life_jitter).saturating_add(1);
            let soonest = now.after(self.rng.below(spread));
            self.live_until(slot, until.max(soonest), effects);
        }
        self.end_lives(now, effects);
    }

    fn live_until(&mut self, slot: u32, until: Instant, effects: &mut Vec<Effect<R>>) {
        let member = self.members.at_mut(slot);
        member.until = until;
        self.lives.push(until, (slot, member.id));
        effects.push(Effect::Mark { slot, until });
    }
}
