//! New code on trial: when a trial begins, which requests it gets, and what a verdict does.

use crate::ledger::Reply;
use crate::time::Instant;

use super::Apps;
use super::effect::{AnswerHead, AppId, Effect, Ended, Leaving, Note, ProcessId};
use super::past::Past;
use super::serve::Chosen;
use super::sessions::{Open, Streamed};
use super::stats::Deploy;
use super::trial::{Answered, EndedTrial, Trial, TrialSide, TrialVerdict};

impl<R: Reply> Apps<R> {
    /// The first process with new code is ready: it is on trial if there is a process with
    /// good code beside it. Where there is no room for one more, one of several with good
    /// code goes for it; where there is but one, the new code serves at once.
    pub(super) fn begin_trial(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.app(at);
        let Some(rules) = app.options.trial else {
            return;
        };
        let is_first = app.deploy == Deploy::Rolling && app.good < app.generation;
        let (Some(_), Some(_)) = self.sides(at) else {
            return;
        };
        if !is_first {
            return;
        }
        if self.counts.taken() > self.limits.max {
            let is_good = |slot: &&u32| {
                let process = self.processes.at(**slot);
                process.is_ready() && process.generation == app.good
            };
            if app.slots.iter().filter(is_good).count() < 2 {
                return;
            }
            let Some((slot, why)) = self.next_outgoing(at) else {
                return;
            };
            self.leave(slot, why, now, effects);
            if !matches!(self.sides(at), (Some(_), Some(_))) {
                return;
            }
        }
        let app = self.app_mut(at);
        app.trial = Some(Box::new(Trial::new(rules, &app.past, now)));
        app.deploy = Deploy::Trial;
        let generation = app.generation;
        let app = AppId(at);
        effects.push(Effect::Note(Note::TrialBegan { app, generation }));
    }

    /// A process with good code and one with the newest, as far as they are ready.
    fn sides(&self, at: u32) -> (Option<u32>, Option<u32>) {
        let app = self.app(at);
        let ready = |generation: u64| {
            let mut slots = app.slots.iter().copied();
            slots.find(|slot| {
                let process = self.processes.at(*slot);
                process.is_ready() && process.generation == generation
            })
        };
        (ready(app.good), ready(app.generation))
    }

    /// If a process runs code on trial: one with the old code, and with a free place if
    /// there is such a one.
    pub(super) fn old_code(&self, at: u32, failed: ProcessId) -> Option<u32> {
        let app = self.app(at);
        app.trial.as_ref()?;
        let failed = self.processes.at(self.processes.find(failed)?);
        if failed.app != at || failed.generation != app.generation {
            return None;
        }
        let slots = app.slots.iter().copied();
        let old = slots.filter(|slot| {
            let process = self.processes.at(*slot);
            process.generation == app.good && process.is_ready()
        });
        old.max_by_key(|slot| self.processes.at(*slot).place.is_some())
    }

    /// A free place by chance: with new code, or with the old. None if that side has none.
    pub(super) fn draw(
        &mut self,
        at: u32,
        avoid: Option<ProcessId>,
        now: Instant,
    ) -> Option<Chosen> {
        const ONE: f64 = (1_u64 << 53) as f64;
        let lot = (self.rng.draw() >> 11) as f64 / ONE;
        let app = self.app(at);
        let chance = app.trial.as_ref()?.chance(app.rate.per_second(now));
        let is_new = lot < chance;
        let mut places = app.places.iter();
        let place = places.find(|place| {
            let process = self.processes.at(place.slot);
            (process.generation == app.generation) == is_new && Some(process.id) != avoid
        })?;
        let drawn = Some(chance);
        let slot = place.slot;
        Some(Chosen { slot, drawn })
    }

    /// A session was answered, or was not.
    pub(super) fn count_answer(
        &mut self,
        open: &Open,
        ended: Ended,
        head: Option<AnswerHead>,
        now: Instant,
    ) {
        let Some(Some(app)) = self.apps.get_mut(open.app as usize) else {
            return;
        };
        if open.streamed != Streamed::No {
            return;
        }
        let failed = match (ended, head) {
            (Ended::Unused, _) | (Ended::Left, None) => return,
            (Ended::Broken | Ended::TimedOut, _) => true,
            (Ended::Answered, None) => false,
            (Ended::Answered | Ended::Left, Some(head)) => head.failed,
        };
        let took = head.map_or_else(|| now.since(open.since), |head| head.after);
        let side = match open.generation {
            generation if generation == app.good => TrialSide::Old,
            generation if generation == app.generation => TrialSide::New,
            _ => return,
        };
        match &mut app.trial {
            Some(trial) => trial.answered(Answered {
                side,
                drawn: open.drawn,
                failed,
                took,
            }),
            None if side == TrialSide::Old => app.past.add(failed, took),
            None => (),
        }
    }

    /// Both codes were asked the same, as [`Effect::Probe`] wanted. One that did not answer
    /// has failed.
    pub fn probed(
        &mut self,
        app: AppId,
        old_failed: bool,
        new_failed: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let at = app.0;
        if let Some(Some(app)) = self.apps.get_mut(at as usize)
            && let Some(trial) = &mut app.trial
        {
            trial.probed(old_failed, new_failed);
            self.finish(at, now, effects);
        }
    }

    /// The caller gives the verdict. False if there is no trial.
    pub fn end_trial(
        &mut self,
        app: AppId,
        is_good: bool,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let at = app.0;
        let is_on = matches!(self.apps.get(at as usize), Some(Some(app)) if app.trial.is_some());
        if is_on {
            let verdict = match is_good {
                true => TrialVerdict::Accepted,
                false => TrialVerdict::Rejected,
            };
            self.conclude(at, verdict, now, effects);
            self.finish(at, now, effects);
        }
        is_on
    }

    /// Look whether new code was proven good or bad.
    pub(super) fn judge_trial(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.app(at).trial.is_none() {
            return;
        }
        let (old, new) = match self.sides(at) {
            (Some(old), Some(new)) => (old, new),
            (_, None) => return self.lose_trial(at, effects),
            (None, Some(_)) => return self.conclude(at, TrialVerdict::Alone, now, effects),
        };
        let Some(trial) = &mut self.app_mut(at).trial else {
            return;
        };
        if let Some(verdict) = trial.verdict(now) {
            return self.conclude(at, verdict, now, effects);
        }
        if trial.asks(now) {
            let [old, new] = [old, new].map(|slot| self.processes.at(slot).id);
            let app = AppId(at);
            effects.push(Effect::Probe { app, old, new });
        }
    }

    /// The process on trial is gone: that was one try.
    fn lose_trial(&mut self, at: u32, effects: &mut Vec<Effect<R>>) {
        let app = self.app_mut(at);
        app.trial = None;
        app.deploy = Deploy::Rolling;
        app.tries += 1;
        if app.tries >= app.options.deploy_tries {
            self.give_up_deploy(at, effects);
        }
    }

    fn give_up_deploy(&mut self, at: u32, effects: &mut Vec<Effect<R>>) {
        let app = self.app_mut(at);
        app.deploy = Deploy::Failed;
        let generation = app.generation;
        let app = AppId(at);
        effects.push(Effect::Note(Note::DeployFailed { app, generation }));
    }

    fn conclude(
        &mut self,
        at: u32,
        verdict: TrialVerdict,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let app = self.app_mut(at);
        let Some(trial) = app.trial.take() else {
            return;
        };
        let generation = app.generation;
        let ended = EndedTrial {
            generation,
            verdict,
            seen: trial.stats(now),
        };
        app.last_trial = Some(ended);
        let app_id = AppId(at);
        effects.push(Effect::Note(Note::TrialEnded { app: app_id, ended }));
        if verdict.is_good() {
            app.good = generation;
            app.deploy = Deploy::Rolling;
            *app.past = Past::default();
            // It was there beside all of the old.
            if let Some((slot, why)) = self.next_outgoing(at) {
                self.leave(slot, why, now, effects);
            }
            return;
        }
        self.give_up_deploy(at, effects);
        self.leave_all_of(at, generation, Leaving::Rejected, now, effects);
    }

    /// There is yet newer code: the process on trial goes without a verdict.
    pub(super) fn call_off_trial(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.app_mut(at);
        if app.trial.take().is_some() {
            let generation = app.generation;
            self.leave_all_of(at, generation, Leaving::Restarted, now, effects);
        }
    }

    fn leave_all_of(
        &mut self,
        at: u32,
        generation: u64,
        why: Leaving,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        for slot in self.app(at).slots.clone() {
            let process = self.processes.at(slot);
            if process.is_there() && process.generation == generation {
                self.leave(slot, why, now, effects);
            }
        }
    }
}
