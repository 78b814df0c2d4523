//! Effects of time on values: holds, cooling and quarantines end.
//!
//! All of it is done in small steps, so that a million that end at once hold no caller up.

use super::Allocator;
use super::ask::Which;
use super::effects::Effects;
use super::records::State;
use super::slot::Slot;
use crate::time::Instant;

/// As much is done in one step.
const STEP: usize = 1_024;

impl Allocator {
    /// When the machine has to be advanced next; perhaps somewhat early.
    pub fn deadline(&self) -> Option<Instant> {
        let due = self.wheel.first().min(self.quarantine_next);
        (due != Instant::NEVER).then_some(due)
    }

    /// Do a part of what is due by `now`; as long as more is, the deadline is
    /// not later.
    pub fn advance(&mut self, now: Instant, effects: &mut Effects) {
        self.lapse(now, STEP, effects);
    }

    /// Do at most `most` things that are due.
    pub(super) fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects) {
        let mut done = 0;
        while done < most
            && let Some((slot, mark)) = self.wheel.pop_due(now)
        {
            done += 1;
            if self.records.is_over(slot, mark, now, &mut self.wheel) {
                self.expire(slot, now, effects);
            }
        }
        if self.quarantine_next <= now {
            self.end_quarantines(now, most - done);
        }
    }

    fn end_quarantines(&mut self, now: Instant, most: usize) {
        let mut done = 0;
        self.quarantine_next = Instant::NEVER;
        for range in self.ranges.iter_mut().flatten() {
            while done < most
                && let Some(quarantine) = &mut range.quarantine
                && quarantine.until <= now
            {
                done += 1;
                match quarantine.values.pop_interval() {
                    Some(interval) => {
                        range.free.insert_all(interval);
                        self.freed.note(interval);
                    }
                    None => range.quarantine = None,
                }
            }
            if let Some(quarantine) = &range.quarantine {
                self.quarantine_next = self.quarantine_next.min(quarantine.until);
            }
        }
    }

    /// The record of a value, if its time has not run out.
    pub(super) fn slot(
        &mut self,
        value: u128,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Slot> {
        let slot = self.records.find(value)?;
        if self.records.until(slot) > now {
            return Some(slot);
        }
        self.expire(slot, now, effects);
        // It may rest now.
        self.records.find(value)
    }

    /// All records with a key whose time has not run out.
    pub(super) fn with_key(
        &mut self,
        key: &[u8],
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.records.by_key(key).collect();
        slots.retain(|slot| {
            let value = self.records.value(*slot);
            let found = self.slot(value, now, effects);
            found == Some(*slot) && self.records.head(*slot).state != State::Cooling
        });
        slots
    }

    /// All records that are meant.
    pub(super) fn slots(
        &mut self,
        which: Which<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Slot> {
        match which {
            Which::Value(value) => self.slot(value, now, effects).into_iter().collect(),
            Which::Key(key) => self.with_key(key, now, effects),
        }
    }
}
