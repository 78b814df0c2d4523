//! What is learnt of how many sessions at a time processes serve best, for each code that
//! runs.

use crate::ledger::Reply;
use crate::time::Instant;

use super::Apps;
use super::effect::{AppId, Effect, Ended, Note};
use super::learner::Learner;
use super::sessions::Open;

/// A learner for each code, the newest last.
///
/// Invariant: there is one for every code that a process runs, and for the newest.
#[derive(Debug)]
pub(super) struct Learnt {
    learners: Vec<(u64, Learner)>,
    /// How often limits changed by what was learnt of code that is gone.
    moves_before: u64,
}

impl Learnt {
    pub(super) fn new(generation: u64, now: Instant) -> Self {
        Self {
            learners: vec![(generation, Learner::new(now))],
            moves_before: 0,
        }
    }

    /// There is newer code. It has the limit of the good one as yet.
    pub(super) fn begin(&mut self, generation: u64, good: u64, now: Instant) {
        let heir = self.of(good).heir(now);
        self.learners.push((generation, heir));
    }

    /// What is known of a code.
    #[inline]
    pub(super) fn of(&self, generation: u64) -> &Learner {
        &self.learners[self.index(generation)].1
    }

    #[inline]
    fn of_mut(&mut self, generation: u64) -> &mut Learner {
        let index = self.index(generation);
        &mut self.learners[index].1
    }

    /// Most processes run the newest code, and that is mostly the only one.
    #[inline]
    fn index(&self, generation: u64) -> usize {
        let found = self.learners.iter().rposition(|(of, _)| *of == generation);
        found.unwrap_or(self.learners.len() - 1)
    }

    /// Have newer code get no more at a time than the good one. Beside code that gets less
    /// it would seem slow.
    fn level(&mut self, good: u64) {
        let most = self.of(good).limit();
        let newer = self.learners.iter_mut().filter(|(code, _)| *code > good);
        newer.for_each(|(_, learner)| learner.stay_within(most));
    }

    /// Forget all but the newest code and those that run.
    pub(super) fn keep(&mut self, runs: impl Fn(u64) -> bool) {
        let newest = self.learners.last().map(|(generation, _)| *generation);
        let moves_before = &mut self.moves_before;
        self.learners.retain(|(generation, learner)| {
            let stays = Some(*generation) == newest || runs(*generation);
            *moves_before += if stays { 0 } else { learner.moves() };
            stays
        });
    }

    /// How often limits changed by what was learnt.
    pub(super) fn moves(&self) -> u64 {
        let learners = self.learners.iter();
        let moves: u64 = learners.map(|(_, learner)| learner.moves()).sum();
        self.moves_before + moves
    }
}

impl<R: Reply> Apps<R> {
    /// Another server has learnt that this many sessions at a time are best: it is where what
    /// is learnt here begins.
    pub fn inherit_concurrency(&mut self, app: AppId, limit: usize, now: Instant) {
        let Some(Some(app)) = self.apps.get_mut(app.0 as usize) else {
            return;
        };
        *app.learnt.of_mut(app.generation) = Learner::found(limit, now);
        for slot in app.slots.clone() {
            self.relist(slot);
        }
    }

    /// One more session is inside a process, or one less. Says how many were.
    #[inline]
    pub(super) fn change_inside(&mut self, slot: u32, by: isize, now: Instant) -> usize {
        let process = self.processes.at_mut(slot);
        let inside = process.inside;
        let spent = now.nanos_since(process.inside_since);
        process.inside = inside.saturating_add_signed(by);
        process.inside_since = now;
        let app = self.apps[process.app as usize].as_mut();
        let app = app.expect("an app is there while it has processes");
        let learner = match &mut process.server {
            Some(server) => &mut server.learner,
            None => app.learnt.of_mut(process.generation),
        };
        learner.spent(inside, spent);
        inside
    }

    /// A session is over that was inside a process to its end: perhaps another number at a
    /// time is better.
    #[inline]
    pub(super) fn learn(
        &mut self,
        open: &Open,
        ended: Ended,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let inside = self.change_inside(open.slot, -1, now);
        let stayed = now.nanos_since(open.since);
        if let Some(server) = &mut self.processes.at_mut(open.slot).server {
            if ended == Ended::Answered {
                server.learner.answered(inside, stayed);
            }
            if server.learner.is_due(now) {
                self.decide_server(open.slot, now, effects);
            }
            return;
        }
        let app = self.app_mut(open.app);
        let learner = app.learnt.of_mut(open.generation);
        if ended == Ended::Answered {
            learner.answered(inside, stayed);
        }
        if learner.is_due(now) {
            self.decide(open.app, open.generation, now, effects);
        }
    }

    fn decide(&mut self, at: u32, generation: u64, now: Instant, effects: &mut Vec<Effect<R>>) {
        let app = self.app_mut(at);
        let waits = app.waiting.len() > 0;
        let good = app.good;
        let most = match generation > good {
            true => app.learnt.of(good).limit(),
            false => Learner::MOST,
        };
        let learner = app.learnt.of_mut(generation);
        let before = learner.limit();
        // Where the number is fixed, it may not be for ever.
        if app.options.places().is_some() || !learner.decide(waits, most, now) {
            return;
        }
        let concurrency = (before, learner.limit());
        app.learnt.level(good);
        for slot in app.slots.clone() {
            self.relist(slot);
        }
        let app = AppId(at);
        effects.push(Effect::Note(Note::Learnt {
            app,
            generation,
            concurrency,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_code_gets_no_more_at_a_time_than_the_good_one() {
        let start = Instant::START;
        let mut learnt = Learnt::new(1, start);
        learnt.begin(2, 1, start);
        let old = learnt.of_mut(1);
        for inside in [1, 2] {
            old.spent(inside, 2_000_000_000);
            (0..400).for_each(|_| old.answered(inside, 5_000_000 * inside as u64));
        }
        assert!(old.decide(true, Learner::MOST, start));
        assert_eq!((learnt.of(1).limit(), learnt.of(2).limit()), (2, 16));
        learnt.level(1);
        assert_eq!(learnt.of(2).limit(), 2);
        let new = learnt.of_mut(2);
        new.spent(2, 2_000_000_000);
        (0..400).for_each(|_| new.answered(2, 10_000_000));
        assert!(!new.decide(true, 2, start), "it would try four");
        assert!(new.decide(true, Learner::MOST, start));
    }
}
