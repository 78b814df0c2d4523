//! How a value parts from its holder: given back, run out, forgotten.

use std::time::Duration;

use super::effects::{Effects, What};
use super::entry::Entry;
use super::interval::Interval;
use super::range::{OnExpire, RangeId};
use super::records::{Body, Head, State};
use super::size::Size;
use super::slot::Slot;
use super::{Allocator, STRAY, end};
use crate::time::Instant;

impl Allocator {
    /// Free a record's value, after a rest if its range wants one.
    pub(super) fn let_go(&mut self, slot: Slot, head: Head, now: Instant, effects: &mut Effects) {
        self.tell(What::Released, slot, now, effects);
        let cool = match head.range {
            STRAY => Duration::ZERO,
            range => self.at(RangeId(range)).options.cool,
        };
        if cool.is_zero() {
            self.set_free(slot, head, true, effects);
            return;
        }
        let until = end(now, cool);
        let (value, fence) = (self.records.value(slot), head.fence);
        self.move_to(slot, State::Cooling, until);
        let entry = Entry::Cooling {
            value,
            fence,
            until,
        };
        self.log(head, &entry, effects);
    }

    /// A value's time ran out. It follows from what is written down, so nothing
    /// is written.
    pub(super) fn expire(&mut self, slot: Slot, now: Instant, effects: &mut Effects) {
        let head = self.records.head(slot);
        if head.state != State::Reserved || head.range == STRAY {
            if head.state == State::Reserved {
                self.tell(What::Expired, slot, now, effects);
            }
            self.set_free(slot, head, false, effects);
            return;
        }
        self.tell(What::Expired, slot, now, effects);
        let options = &self.at(RangeId(head.range)).options;
        let (state, rest) = match options.on_expire {
            OnExpire::Notify => (State::Detached, options.detach),
            OnExpire::Release => (State::Cooling, options.cool),
        };
        // Counted from its end and not from when we noticed, so that the same
        // follows if it is read again.
        let until = end(head.until, rest);
        if until <= now {
            self.set_free(slot, head, false, effects);
        } else if state == State::Detached {
            // The client that has to decide may look at what stood there.
            self.records.set_state(slot, state, until);
            self.recount(head.range, head.state, state);
            self.records.watch(slot, &mut self.wheel);
        } else {
            self.move_to(slot, state, until);
        }
    }

    /// Another state until another end, without what stood there.
    pub(super) fn move_to(&mut self, slot: Slot, state: State, until: Instant) {
        let head = self.records.head(slot);
        self.recount(head.range, head.state, state);
        let body = self.records.body(slot);
        let body = Body {
            created: body.created,
            updated: body.updated,
            updates: body.updates,
            data: &[],
            owner: None,
            keys: &[],
        };
        let head = Head {
            state,
            until,
            ..head
        };
        self.records.replace(slot, head, body);
        self.records.watch(slot, &mut self.wheel);
    }

    /// The record with this head goes, and its value is free.
    pub(super) fn set_free(
        &mut self,
        slot: Slot,
        head: Head,
        is_logged: bool,
        effects: &mut Effects,
    ) {
        let value = self.records.remove(slot);
        if is_logged {
            let fence = head.fence;
            self.log(head, &Entry::Freed { value, fence }, effects);
        }
        if head.range == STRAY {
            self.apart -= 1;
            return;
        }
        *self.counter(head.range, head.state) -= 1;
        let id = RangeId(head.range);
        let is_apart = self.apart > 0 && self.range_of(value) != Some(id);
        self.apart -= usize::from(is_apart);
        if is_apart || self.at(id).is_draining {
            self.at_mut(id).size -= Size::ONE;
            self.end_draining(id);
        } else {
            self.at_mut(id).free.insert(value);
            self.freed.note(Interval::of(value));
        }
    }

    pub(super) fn recount(&mut self, range: u16, from: State, to: State) {
        if range != STRAY {
            *self.counter(range, from) -= 1;
            *self.counter(range, to) += 1;
        }
    }

    pub(super) fn counter(&mut self, range: u16, state: State) -> &mut u64 {
        let range = self.at_mut(RangeId(range));
        match state {
            State::Reserved => &mut range.reserved,
            State::Detached => &mut range.detached,
            State::Cooling => &mut range.cooling,
        }
    }
}
