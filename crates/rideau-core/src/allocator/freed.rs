//! Values that became free while asks wait.

use std::collections::VecDeque;

use super::interval::Interval;

/// Values to be offered to the asks that wait, in the order in which they became
/// free. Some may have found a holder since.
#[derive(Debug, Default)]
pub(super) struct Freed {
    is_wanted: bool,
    offers: VecDeque<Interval>,
}

impl Freed {
    /// An ask waits, or none does any longer.
    pub(super) fn watch(&mut self, is_wanted: bool) {
        match is_wanted {
            true => self.is_wanted = true,
            false => *self = Self::default(),
        }
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// These are free now.
    pub(super) fn note(&mut self, values: Interval) {
        if self.is_wanted {
            self.offers.push_back(values);
        }
    }

    /// Take all of them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Interval> + use<> {
        std::mem::take(&mut self.offers).into_iter()
    }

    /// The first that is still to be offered.
    pub(super) fn first(&self) -> Option<Interval> {
        self.offers.front().copied()
    }

    /// Of the first only these are left to be offered.
    pub(super) fn keep(&mut self, rest: Option<Interval>) {
        match (rest, self.offers.front_mut()) {
            (Some(rest), Some(first)) => *first = rest,
            _ => drop(self.offers.pop_front()),
        }
    }

    /// All of them, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Interval> + '_ {
        self.offers.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }
}
