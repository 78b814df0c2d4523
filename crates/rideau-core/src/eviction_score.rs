//! The value of an app's only process for the asks to come.
//!
//! The worth is what a start costs times the chance that one is needed soon.
//! Several estimates of that chance run beside each other, each with a shadow
//! pool of names on the live stream of asks, and the one whose shadow has lost
//! least recently is used. Which app has a process, and which gives one up, is
//! not decided here.

mod estimate;
mod gaps;
mod history;
mod rates;
mod shadow;

use std::array;
use std::collections::HashMap;
use std::time::Duration;

use self::estimate::Estimate;
use self::history::{History, Moment};
use self::rates::Decay;
use self::shadow::Shadow;
use crate::time::Instant;

/// What the only process of each app is worth, and what pools of other sizes
/// would have cost.
///
/// Apps are remembered while they have no process, for that is when their
/// history counts; an app that was not asked for in a day is forgotten.
///
/// Invariants: a shadow has no more names than its size, all different, and a
/// history knows exactly the shadows that have its name.
#[derive(Debug)]
pub struct EvictionScore {
    max: usize,
    counts_only: bool,
    slots: HashMap<u32, usize>,
    histories: Vec<History>,
    /// One for each estimate, of the size of the real pool, then one for each
    /// of [`SIZES`], all of which follow the chosen estimate.
    shadows: [Shadow; SHADOWS],
    chosen: Estimate,
    /// What losses at this ask count for: instead of all older ones fading,
    /// each counts a little more.
    stake: f64,
    /// The stakes of all asks, and of those since the sizes last changed.
    staked: f64,
    staked_resized: f64,
    /// The instant that rates are relative to.
    landmark: Instant,
    /// When an app was last asked for.
    latest: Instant,
}

/// Sizes that are tried beside the real one, in halves of it.
const SIZES: [usize; 4] = [1, 2, 3, 4];
const SHADOWS: usize = Estimate::ALL.len() + SIZES.len();

/// The weight of a loss one ask later.
const FADE: f64 = 0.9998;
/// Stakes are brought down before they reach the end of what a float can hold.
const STAKE_MAX: f64 = 1e100;
/// So long after a landmark rates are still far from the end of what a float
/// can hold; then there is a new one.
const LANDMARK_AGE_MAX: Duration = Duration::from_secs(1000);
/// An app that was not asked for in so long is forgotten.
const HISTORY_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl EvictionScore {
    /// For a pool of `max` processes. With `counts_only` every start costs
    /// the same, however long it takes.
    pub fn new(max: usize, counts_only: bool) -> Self {
        let mut worth = Self {
            max,
            counts_only,
            slots: HashMap::new(),
            histories: Vec::new(),
            shadows: array::from_fn(Shadow::new),
            chosen: Estimate::ALL[0],
            stake: 1.0,
            staked: 0.0,
            staked_resized: 0.0,
            landmark: Instant::START,
            latest: Instant::START,
        };
        worth.set_max(max);
        worth
    }

    /// An ask comes for an app whose start is expected to take `start_time`.
    ///
    /// # Panics
    ///
    /// If `now` is before that of an earlier ask.
    pub fn asked(&mut self, app: u32, start_time: Duration, now: Instant) {
        if now.since(self.landmark) > LANDMARK_AGE_MAX {
            self.set_landmark(now);
        }
        self.latest = now;
        let moment = self.moment(now);
        let start_time = start_time.as_secs_f64();
        let slot = self.remember(app, start_time, &moment);

        let (own, sized) = self.shadows.split_at_mut(Estimate::ALL.len());
        let loss = moment.cost(start_time) * self.stake;
        for (shadow, estimate) in own.iter_mut().zip(Estimate::ALL) {
            shadow.ask(slot, loss, estimate, &mut self.histories, &moment);
        }
        // As the real pool will, the others go by what was learnt of this ask.
        self.chosen = least_lost(own);
        for shadow in sized {
            shadow.ask(slot, loss, self.chosen, &mut self.histories, &moment);
        }
        self.raise_stake();
        self.check();
    }

    /// What it is worth to keep the only process of an app whose start is
    /// expected to take `start_time`: seconds of starts, or starts, that it
    /// saves in the next second. Nothing for an app that was never asked for.
    ///
    /// # Panics
    ///
    /// If `now` is before the last ask.
    pub fn value(&self, app: u32, start_time: Duration, now: Instant) -> f64 {
        self.slots.get(&app).map_or(0.0, |slot| {
            let moment = self.moment(now);
            let hazard = self.chosen.hazard(&self.histories[*slot], &moment);
            moment.cost(start_time.as_secs_f64()) * hazard
        })
    }

    /// The pool may have `max` processes from here on. What was learnt of the
    /// estimates is kept, what was learnt of sizes is not.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
        let moment = self.moment(self.latest);
        let sizes = [2; Estimate::ALL.len()].into_iter().chain(SIZES);
        for (at, (shadow, halves)) in self.shadows.iter_mut().zip(sizes).enumerate() {
            let estimate = Estimate::ALL.get(at).copied().unwrap_or(self.chosen);
            let max = (max.saturating_mul(halves) / 2).max(1);
            shadow.resize(max, estimate, &mut self.histories, &moment);
        }
        for shadow in &mut self.shadows[Estimate::ALL.len()..] {
            shadow.loss = 0.0;
        }
        self.staked_resized = 0.0;
        self.check();
    }

    /// Whether every start costs the same. What was lost so far is forgotten
    /// if that changes, for it was counted in something else.
    pub fn set_counts_only(&mut self, counts_only: bool) {
        if counts_only != self.counts_only {
            self.counts_only = counts_only;
            self.shadows.iter_mut().for_each(|shadow| shadow.loss = 0.0);
            (self.staked, self.staked_resized) = (0.0, 0.0);
        }
    }

    /// An app is gone for good.
    pub fn forget(&mut self, app: u32) {
        if let Some(slot) = self.slots.get(&app) {
            self.remove(*slot);
            self.check();
        }
    }

    /// What each estimate would have lost by itself, the one in use first:
    /// seconds of starts, or starts, for each recent ask.
    pub fn losses(&self) -> Vec<(&'static str, f64)> {
        let mut losses: Vec<_> = Estimate::ALL
            .iter()
            .zip(&self.shadows)
            .map(|(estimate, shadow)| (estimate.name(), share(shadow.loss, self.staked)))
            .collect();
        let chosen = Estimate::ALL.iter().position(|known| *known == self.chosen);
        losses[..=chosen.expect("all are listed")].rotate_right(1);
        losses
    }

    /// What pools of other sizes would have lost, and one of this size: sizes
    /// in rising order, each with seconds of starts, or starts, for each recent ask.
    pub fn what_if(&self) -> Vec<(usize, f64)> {
        let sized = &self.shadows[Estimate::ALL.len()..];
        let mut sizes: Vec<_> = sized
            .iter()
            .map(|shadow| (shadow.max(), share(shadow.loss, self.staked_resized)))
            .collect();
        sizes.dedup_by_key(|(size, _)| *size);
        sizes
    }

    /// How many apps are remembered.
    pub fn len(&self) -> usize {
        self.histories.len()
    }

    /// Whether no app is remembered.
    pub fn is_empty(&self) -> bool {
        self.histories.is_empty()
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment {
            now,
            decay: Decay::over(now.since(self.landmark)),
            counts_only: self.counts_only,
        }
    }

    /// Write an ask down; returns the slot of the app's history.
    fn remember(&mut self, app: u32, start_time: f64, moment: &Moment) -> usize {
        if let Some(slot) = self.slots.get(&app) {
            self.histories[*slot].asked(start_time, moment);
            return *slot;
        }
        let slot = self.histories.len();
        self.slots.insert(app, slot);
        self.histories.push(History::first(app, start_time, moment));
        slot
    }

    fn raise_stake(&mut self) {
        self.staked += self.stake;
        self.staked_resized += self.stake;
        self.stake /= FADE;
        if self.stake > STAKE_MAX {
            for shadow in &mut self.shadows {
                shadow.loss /= self.stake;
            }
            self.staked /= self.stake;
            self.staked_resized /= self.stake;
            self.stake = 1.0;
        }
    }

    /// Make rates relative to now, and forget the apps that are not asked for
    /// any more.
    fn set_landmark(&mut self, now: Instant) {
        // Backwards, so that what moves to a free slot has been looked at.
        for slot in (0..self.histories.len()).rev() {
            if now.since(self.histories[slot].last) > HISTORY_AGE_MAX {
                self.remove(slot);
            }
        }
        let decay = Decay::over(now.since(self.landmark));
        for history in &mut self.histories {
            history.rates.rebase(&decay);
        }
        self.landmark = now;
        self.histories.shrink_to(2 * self.histories.len());
        self.slots.shrink_to(2 * self.histories.len());
    }

    /// Forget the history in a slot; the last one moves there.
    fn remove(&mut self, slot: usize) {
        let last = self.histories.len() - 1;
        for shadow in &mut self.shadows {
            shadow.remove(slot);
            shadow.rename(last, slot);
        }
        let history = self.histories.swap_remove(slot);
        self.slots.remove(&history.app);
        if let Some(moved) = self.histories.get(slot) {
            self.slots.insert(moved.app, slot);
        }
    }

    fn check(&self) {
        debug_assert_eq!(self.slots.len(), self.histories.len());
        if cfg!(debug_assertions) {
            for shadow in &self.shadows {
                shadow.check(&self.histories);
            }
        }
    }
}

/// The estimate whose shadow has lost least; the first of equals.
fn least_lost(shadows: &[Shadow]) -> Estimate {
    let losses = Estimate::ALL.into_iter().zip(shadows);
    let least = losses.min_by(|(_, one), (_, other)| one.loss.total_cmp(&other.loss));
    least.expect("there are estimates").0
}

/// The part of what was staked that was lost.
fn share(loss: f64, staked: f64) -> f64 {
    if staked > 0.0 { loss / staked } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_app_that_was_not_asked_for_is_worth_nothing() {
        let worth = EvictionScore::new(2, false);
        assert_eq!(worth.value(7, SECOND, at(5)), 0.0);
        assert_eq!(worth.what_if(), [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)]);
    }

    #[test]
    fn a_dear_start_is_worth_more_unless_only_starts_count() {
        for (counts_only, times) in [(false, 8.0), (true, 1.0)] {
            let mut worth = EvictionScore::new(2, counts_only);
            worth.asked(1, SECOND, at(0));
            worth.asked(2, 8 * SECOND, at(0));
            let cheap = worth.value(1, SECOND, at(9));
            assert_eq!(worth.value(2, 8 * SECOND, at(9)), times * cheap);
        }
    }

    #[test]
    fn asks_of_one_page_are_worth_little_more_than_one() {
        let mut worth = EvictionScore::new(2, true);
        for (app, millis) in [(1, 0), (1, 10), (1, 20), (1, 30), (2, 30)] {
            worth.asked(app, SECOND, Instant::from_nanos(millis * 1_000_000));
        }
        let [page, single] = [1, 2].map(|app| worth.value(app, SECOND, at(60)));
        assert!(page / single < 1.02, "{page} {single}");
    }

    #[test]
    fn the_estimate_that_lost_least_is_in_use() {
        // Two that are always asked for, among many that come once in turn: an
        // estimate that goes by the last use alone gives one of the two up
        // again and again.
        let mut worth = EvictionScore::new(3, true);
        for turn in 0..4000 {
            let app = if turn % 4 == 0 { turn % 2000 } else { 3000 };
            let app = if turn % 8 == 1 { 3001 } else { app };
            worth.asked(app, SECOND, at(u64::from(turn)));
        }
        let losses = worth.losses();
        let least = losses.iter().map(|(_, loss)| *loss).fold(1.0, f64::min);
        assert_eq!(losses[0].1, least, "{losses:?}");
        assert!(losses.iter().all(|(_, loss)| (0.2..0.5).contains(loss)));
        let recency = losses.iter().find(|(name, _)| *name == "recency");
        assert!(recency.unwrap().1 > least, "{losses:?}");
    }

    #[test]
    fn more_room_loses_less() {
        let mut worth = EvictionScore::new(4, true);
        let mut rng = Rng::new(1);
        for turn in 0..1000 {
            worth.asked(rng.below(20) as u32, SECOND, at(turn));
        }
        let (sizes, losses): (Vec<_>, Vec<_>) = worth.what_if().into_iter().unzip();
        assert_eq!(sizes, [2, 4, 6, 8]);
        assert!(losses.is_sorted_by(|one, next| one > next), "{losses:?}");
        worth.set_max(1);
        assert_eq!(worth.what_if(), [(1, 0.0), (2, 0.0)]);
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }
}
