//! A pool of names: what a way to evict would cost, without any process.

use super::estimate::Estimate;
use super::history::{History, Moment};

/// The apps that would have a process, and what was lost by starts.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Which bit of a history says that its app is here.
    bit: u8,
    max: usize,
    /// Of the histories of the apps that are here.
    slots: Vec<usize>,
    pub(super) loss: f64,
}

impl Shadow {
    /// The shadow of this number, without apps yet.
    pub(super) const fn new(number: usize) -> Self {
        Self {
            bit: 1 << number,
            max: 0,
            slots: Vec::new(),
            loss: 0.0,
        }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// An ask comes for an app: if it is not here, that is a loss, and the one
    /// of least worth makes room.
    pub(super) fn ask(
        &mut self,
        slot: usize,
        loss: f64,
        estimate: Estimate,
        histories: &mut [History],
        moment: &Moment,
    ) {
        if histories[slot].shadows & self.bit == 0 {
            self.loss += loss;
            if self.slots.len() >= self.max {
                self.evict(estimate, histories, moment);
            }
            self.slots.push(slot);
            histories[slot].shadows |= self.bit;
        }
    }

    /// Have room for `max`.
    pub(super) fn resize(
        &mut self,
        max: usize,
        estimate: Estimate,
        histories: &mut [History],
        moment: &Moment,
    ) {
        self.max = max;
        while self.slots.len() > max {
            self.evict(estimate, histories, moment);
        }
    }

    /// Forget the app that has a slot.
    pub(super) fn remove(&mut self, slot: usize) {
        if let Some(at) = self.slots.iter().position(|known| *known == slot) {
            self.slots.swap_remove(at);
        }
    }

    /// The app that had the slot `before` has another one.
    pub(super) fn rename(&mut self, before: usize, slot: usize) {
        if let Some(known) = self.slots.iter_mut().find(|known| **known == before) {
            *known = slot;
        }
    }

    pub(super) fn check(&self, histories: &[History]) {
        assert!(self.slots.len() <= self.max);
        let here = |history: &&History| history.shadows & self.bit != 0;
        assert_eq!(histories.iter().filter(here).count(), self.slots.len());
        assert!(self.slots.iter().all(|slot| here(&&histories[*slot])));
    }

    fn evict(&mut self, estimate: Estimate, histories: &mut [History], moment: &Moment) {
        let mut least = (f64::INFINITY, 0);
        for (at, slot) in self.slots.iter().enumerate() {
            let value = estimate.value(&histories[*slot], moment);
            if value < least.0 {
                least = (value, at);
            }
        }
        let slot = self.slots.swap_remove(least.1);
        histories[slot].shadows &= !self.bit;
    }
}
