//! From the log back to what is true.

use std::collections::BTreeMap;

use super::bytes::Reader;
use super::effects::Effects;
use super::entry::{BadEntry, Clock, Entry, Reserved, entries};
use super::fields::Fields;
use super::free::Free;
use super::interval::Interval;
use super::range::{Class, Quarantine, RangeError, RangeId, RangeOptions, Start};
use super::records::{Body, Head, KeyRef, State};
use super::{Allocator, KEYS_MAX, Options, STRAY, change, end};
use crate::time::Instant;

/// An allocator that is being read back.
///
/// First all pieces of a snapshot, then all batches since it began, then
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct Restore {
    machine: Allocator,
    starts: Vec<(RangeId, Start)>,
    claimed: Free,
    quarantined: BTreeMap<Instant, Free>,
    clock: Option<Clock>,
    was_stopped: bool,
    entries: u64,
}

impl Restore {
    /// Nothing is known, and these are the ranges. Values that are in none of
    /// them keep their holders until their time runs out.
    ///
    /// # Errors
    ///
    /// If a range cannot be like that; which, and why.
    pub fn new(
        options: &Options,
        ranges: Vec<(String, RangeOptions)>,
    ) -> Result<Self, (String, RangeError)> {
        let mut machine = Allocator::new(options);
        let mut starts = Vec::new();
        for (name, mut options) in ranges {
            let start = std::mem::replace(&mut options.start, Start::Free);
            let mut effects = Effects::new();
            let id = machine.set_range(&name, options, Instant::START, &mut effects);
            starts.push((id.map_err(|error| (name, error))?, start));
        }
        Ok(Self {
            machine,
            starts,
            claimed: Free::new(),
            quarantined: BTreeMap::new(),
            clock: None,
            was_stopped: false,
            entries: 0,
        })
    }

    /// Read a piece of a snapshot or a batch.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), BadEntry> {
        for entry in entries(bytes) {
            self.entries += 1;
            self.apply(&entry?)?;
        }
        Ok(())
    }

    /// How the clocks stood when the last batch was written.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// How many entries were read.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// All is read. What is known is exact, and ranges of which nothing is
    /// known are as their options say that they start.
    pub fn finish(mut self, now: Instant, effects: &mut Effects) -> Allocator {
        self.machine.fence_logged = 0;
        self.place_records();
        for (id, start) in std::mem::take(&mut self.starts) {
            let range = self.machine.at_mut(id);
            range.options.start = start;
            let is_known = self.entries > 0 && range.options.class != Class::Memory;
            if start == Start::Quarantine && !is_known {
                self.machine.quarantine(id, now, effects);
            } else if range.options.class != Class::Memory {
                self.settle(id, now, effects);
            }
        }
        self.machine
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Result<(), BadEntry> {
        self.was_stopped = matches!(entry, Entry::Stopped);
        match *entry {
            Entry::Reserved(ref reserved) => self.reserved(reserved)?,
            Entry::Prolonged {
                value,
                fence,
                until,
            } => {
                if let Some(slot) = self.machine.records.find(value)
                    && self.machine.records.head(slot).fence == fence
                {
                    self.machine.records.set_until(slot, until);
                }
            }
            Entry::Freed { value, .. } => {
                self.forget(value);
                self.unquarantine(value);
            }
            Entry::Detached {
                value,
                fence,
                until,
            } => self.resting(value, fence, until, State::Detached),
            Entry::Cooling {
                value,
                fence,
                until,
            } => self.resting(value, fence, until, State::Cooling),
            Entry::Quarantined { interval, until } => {
                self.quarantined
                    .entry(until)
                    .or_insert_with(Free::new)
                    .insert_all(interval);
            }
            Entry::Claimed { interval } => {
                self.claimed.insert_all(interval);
            }
            Entry::Fence { last } => self.saw(last),
            Entry::Clock(clock) => self.clock = Some(clock),
            // Who stops in order has written everything down.
            Entry::Stopped => self.claimed = Free::new(),
        }
        Ok(())
    }

    fn reserved(&mut self, reserved: &Reserved<'_>) -> Result<(), BadEntry> {
        let value = reserved.value;
        let mut keys = Vec::with_capacity(KEYS_MAX + 1);
        let mut reader = Reader(reserved.keys);
        let bad = |_| BadEntry { at: 0 };
        while !reader.is_empty() {
            let unique = reader.byte().map_err(bad)? != 0;
            let bytes = reader.text().map_err(bad)?;
            keys.push(KeyRef { unique, bytes });
        }
        Fields::from_bytes(reserved.data).map_err(bad)?;
        let body = Body {
            created: reserved.created,
            updated: reserved.updated,
            updates: reserved.updates,
            data: reserved.data,
            keys: &keys,
        };
        self.record(value, reserved.fence, reserved.until, State::Reserved, body);
        Ok(())
    }

    fn resting(&mut self, value: u128, fence: u64, until: Instant, state: State) {
        let body = Body {
            created: until,
            updated: until,
            updates: 0,
            data: &[],
            keys: &[],
        };
        self.record(value, fence, until, state, body);
    }

    fn record(&mut self, value: u128, fence: u64, until: Instant, state: State, body: Body<'_>) {
        self.saw(fence);
        self.claimed.remove(value);
        self.unquarantine(value);
        let head = Head {
            fence,
            until,
            range: self.machine.range_of(value).map_or(STRAY, |id| id.0),
            state,
        };
        match self.machine.records.find(value) {
            Some(slot) => self.machine.records.replace(slot, head, body),
            None => {
                self.machine.records.insert(value, head, body);
            }
        }
    }

    fn forget(&mut self, value: u128) {
        if let Some(slot) = self.machine.records.find(value) {
            self.machine.records.remove(slot);
        }
    }

    fn unquarantine(&mut self, value: u128) {
        for held in self.quarantined.values_mut() {
            held.remove(value);
        }
    }

    fn saw(&mut self, fence: u64) {
        self.machine.fence = self.machine.fence.max(fence);
    }

    /// Values with a record are not free.
    fn place_records(&mut self) {
        let machine = &mut self.machine;
        let mut cursor = 0;
        while let Some(slot) = machine.records.next_from(&mut cursor) {
            machine.records.watch(slot, &mut machine.wheel);
            let head = machine.records.head(slot);
            if head.range == STRAY {
                machine.strays += 1;
                continue;
            }
            let value = machine.records.value(slot);
            machine.at_mut(RangeId(head.range)).free.remove(value);
            *machine.counter(head.range, head.state) += 1;
        }
    }

    /// Put the values of a range aside of which nobody knows enough.
    fn settle(&mut self, id: RangeId, now: Instant, effects: &mut Effects) {
        let range = self.machine.at_mut(id);
        let is_claimed = range.options.class == Class::Claimed;
        let mut aside: Vec<(Instant, Interval)> = Vec::new();
        for (until, held) in self.quarantined.iter().filter(|(until, _)| **until > now) {
            aside.extend(held.intervals().map(|interval| (*until, interval)));
        }
        if is_claimed {
            let until = end(now, range.options.ttl_max);
            aside.extend(self.claimed.intervals().map(|interval| (until, interval)));
        }
        let pieces = change::intervals(&range.options);
        let mut values = change::empty(&range.options);
        let mut until = Instant::START;
        let mut parts = Vec::new();
        for (end, interval) in aside {
            for part in pieces.iter().filter_map(|piece| piece.intersect(interval)) {
                until = until.max(end);
                parts.push(part);
            }
        }
        for run in both(parts, range.free.intervals().collect()) {
            range.free.remove_all(run);
            values.insert_all(run);
        }
        if !values.count().is_zero() {
            for interval in values.intervals() {
                effects.log(&Entry::Quarantined { interval, until });
            }
            range.quarantine = Some(Quarantine { values, until });
            self.machine.quarantine_next = self.machine.quarantine_next.min(until);
        }
        if is_claimed && !self.was_stopped {
            self.machine.extend_all(id);
        }
    }
}

/// What is in two lists of intervals.
fn both(mut these: Vec<Interval>, mut those: Vec<Interval>) -> Vec<Interval> {
    these.sort_by_key(|interval| interval.first());
    those.sort_by_key(|interval| interval.first());
    let mut both = Vec::new();
    let (mut this, mut that) = (0, 0);
    while let (Some(one), Some(other)) = (these.get(this), those.get(that)) {
        both.extend(one.intersect(*other));
        if one.last() < other.last() {
            this += 1;
        } else {
            that += 1;
        }
    }
    both
}

impl Allocator {
    /// The last sign of life of each holder may be lost: as if it had come.
    fn extend_all(&mut self, id: RangeId) {
        let ttl_max = self.at(id).options.ttl_max;
        let mut cursor = 0;
        while let Some(slot) = self.records.next_from(&mut cursor) {
            let head = self.records.head(slot);
            if head.range != id.0 || head.state != State::Reserved {
                continue;
            }
            let updated = self.records.body(slot).updated.min(head.until);
            let ttl = head.until.since(updated).min(ttl_max);
            self.records.set_until(slot, end(head.until, ttl));
            self.records.watch(slot, &mut self.wheel);
        }
    }
}
