//! From the log back to what is true.

use super::ask::Key;
use super::bytes::Reader;
use super::effects::Effects;
use super::entry::{BadEntry, Clock, Entry, Reserved, entries};
use super::fields::Fields;
use super::free::Free;
use super::interval::{Interval, both, minus};
use super::limits::KEYS_MAX;
use super::range::{Class, RangeError, RangeId, RangeOptions, Start};
use super::records::{Body, Head, State};
use super::untils::Untils;
use super::{Allocator, Options, STRAY, end};
use crate::time::Instant;

/// An allocator that is being read back.
///
/// First all pieces of a snapshot, then all batches since it began, then
/// [`finish`](Self::finish). Each batch has to begin with how the clocks stood
/// when it was closed, so that it can be told what a crash may have lost.
#[derive(Debug)]
pub struct Restore {
    machine: Allocator,
    starts: Vec<(RangeId, Start)>,
    /// Of these values all that happened is written down.
    known: Free,
    claimed: Free,
    quarantined: Untils,
    /// For how long these may have been told, counted from the start.
    promised: Untils,
    clock: Option<Clock>,
    entries: u64,
    /// The content of a range in memory may be known from its former owner.
    has_memory: bool,
    /// What came before was forgotten: values of which nothing is known may have holders.
    is_forgotten: bool,
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
        let mut restore = Self::without_ranges(options);
        for (name, mut options) in ranges {
            let start = std::mem::replace(&mut options.start, Start::Free);
            let (mut effects, machine) = (Effects::new(), &mut restore.machine);
            let id = machine.set_range(&name, options, Instant::START, &mut effects);
            restore
                .starts
                .push((id.map_err(|error| (name, error))?, start));
        }
        Ok(restore)
    }

    /// The machine of a partition, with its shares of ranges that were checked.
    pub(super) fn of_part<'a>(
        options: &Options,
        shares: impl Iterator<Item = (RangeId, &'a str, RangeOptions)>,
    ) -> Self {
        let mut restore = Self::without_ranges(options);
        for (id, name, mut options) in shares {
            let start = std::mem::replace(&mut options.start, Start::Free);
            let (mut effects, machine) = (Effects::new(), &mut restore.machine);
            let put = machine.put_range(id, name, options, Instant::START, &mut effects);
            put.expect("a range that is new is not draining");
            restore.starts.push((id, start));
        }
        restore
    }

    /// What is not written down while a process runs may have been at its end, for the
    /// next one.
    pub(super) fn with_memory(self) -> Self {
        let has_memory = true;
        Self { has_memory, ..self }
    }

    fn without_ranges(options: &Options) -> Self {
        Self {
            machine: Allocator::new(options),
            starts: Vec::new(),
            known: Free::new(),
            claimed: Free::new(),
            quarantined: Untils::default(),
            promised: Untils::default(),
            clock: None,
            entries: 0,
            has_memory: false,
            is_forgotten: false,
        }
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

    /// All is read. What is known is exact, and values of which nothing is
    /// known are as the options of their range say that they start.
    pub fn finish(mut self, now: Instant, effects: &mut Effects) -> Allocator {
        self.place_records();
        self.machine.fence_safe = self.machine.fence;
        for (id, start) in std::mem::take(&mut self.starts) {
            let range = self.machine.at_mut(id);
            range.options.start = start;
            let start = match self.is_forgotten {
                true => Start::Quarantine,
                false => start,
            };
            let values = range.options.intervals();
            if range.options.class == Class::Memory {
                self.forget_known(id, effects);
                let values = self.unknown_in_memory(id, values, now, effects);
                if start == Start::Quarantine {
                    self.machine.end_in(id, &values, now, effects);
                    let until = end(now, self.machine.at(id).options.quarantine);
                    self.machine.quarantine(id, &values, until, now, effects);
                }
            } else {
                self.settle(id, start, &values, now, effects);
            }
        }
        for interval in self.known.intervals() {
            effects.log(&Entry::Unknown { interval });
        }
        self.machine.end_all(now, effects);
        self.machine.begin_claims(effects);
        self.machine
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Result<(), BadEntry> {
        match *entry {
            Entry::Reserved(ref reserved) => self.reserved(reserved, State::Reserved)?,
            Entry::Lapsed(ref reserved) => self.reserved(reserved, State::Detached)?,
            Entry::Prolonged {
                value,
                fence,
                until,
            } => {
                if let Some(slot) = self.machine.records.find(value)
                    && self.machine.records.head(slot).fence == fence
                {
                    // A snapshot may have seen what became of it later.
                    let records = &mut self.machine.records;
                    records.set_state(slot, State::Reserved, until);
                }
            }
            Entry::Freed { value, fence } => self.freed(value, fence),
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
                self.claimed.remove_all(interval);
                self.quarantined.set(interval, until);
            }
            Entry::Claimed { interval } => {
                self.quarantined.clear(interval);
                self.claimed.insert_all(interval);
            }
            Entry::Known { interval } => {
                self.clear(interval);
                self.known.insert_all(interval);
            }
            Entry::Unknown { interval } => {
                self.clear(interval);
                self.known.remove_all(interval);
            }
            Entry::Promised { interval, span } => {
                self.promised.set(interval, end(Instant::START, span));
            }
            Entry::Fence { last } => self.saw(last),
            Entry::Clock(clock) => self.clock = Some(clock),
            // A process that stops in order has written everything down.
            Entry::Stopped => self.claimed = Free::new(),
            Entry::Forgotten => self.forget(),
        }
        Ok(())
    }

    /// Nothing counts that was read until now, but for fences and clocks.
    fn forget(&mut self) {
        let machine = &mut self.machine;
        let mut cursor = 0;
        while let Some(slot) = machine.records.next_from(&mut cursor) {
            machine.records.remove(slot);
        }
        self.known = Free::new();
        self.claimed = Free::new();
        self.quarantined = Untils::default();
        self.promised = Untils::default();
        self.is_forgotten = true;
    }

    fn reserved(&mut self, reserved: &Reserved<'_>, state: State) -> Result<(), BadEntry> {
        let value = reserved.value;
        let mut keys = Vec::with_capacity(KEYS_MAX + 1);
        let mut reader = Reader(reserved.keys);
        let bad = |_| BadEntry { at: 0 };
        while !reader.is_empty() {
            let unique = reader.byte().map_err(bad)? != 0;
            let bytes = reader.text().map_err(bad)?;
            keys.push(Key { unique, bytes });
        }
        Fields::from_bytes(reserved.data).map_err(bad)?;
        let body = Body {
            created: reserved.created,
            updated: reserved.updated,
            updates: reserved.updates,
            data: reserved.data,
            owner: reserved.owner,
            keys: &keys,
        };
        self.record(value, reserved.fence, reserved.until, state, body);
        Ok(())
    }

    fn resting(&mut self, value: u128, fence: u64, until: Instant, state: State) {
        let body = Body {
            created: until,
            updated: until,
            updates: 0,
            data: &[],
            owner: None,
            keys: &[],
        };
        self.record(value, fence, until, state, body);
    }

    fn record(&mut self, value: u128, fence: u64, until: Instant, state: State, body: Body<'_>) {
        self.saw(fence);
        self.clear(Interval::of(value));
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

    fn freed(&mut self, value: u128, fence: u64) {
        self.saw(fence);
        self.clear(Interval::of(value));
        if let Some(slot) = self.machine.records.find(value) {
            self.machine.records.remove(slot);
        }
    }

    /// These are neither claimed nor in quarantine.
    fn clear(&mut self, values: Interval) {
        self.claimed.remove_all(values);
        self.quarantined.clear(values);
    }

    fn saw(&mut self, fence: u64) {
        self.machine.fence = self.machine.fence.max(fence);
    }

    /// Values with a record are not free. What was claimed or quarantined after
    /// its record was written had lost it by then.
    fn place_records(&mut self) {
        let machine = &mut self.machine;
        let mut cursor = 0;
        while let Some(slot) = machine.records.next_from(&mut cursor) {
            let value = machine.records.value(slot);
            if self.claimed.contains(value) || self.quarantined.of(value).is_some() {
                machine.records.remove(slot);
                continue;
            }
            machine.records.watch(slot, &mut machine.wheel);
            let head = machine.records.head(slot);
            if head.range == STRAY {
                machine.apart += 1;
                continue;
            }
            machine.at_mut(RangeId(head.range)).free.remove(value);
            *machine.counter(head.range, head.state) += 1;
        }
    }

    /// The records of a range that is not written down any more stay, but not
    /// in the log, which would not hear of their end.
    fn forget_known(&mut self, id: RangeId, effects: &mut Effects) {
        let machine = &mut self.machine;
        let mut cursor = 0;
        while machine.at(id).held() > 0
            && let Some(slot) = machine.records.next_from(&mut cursor)
        {
            let Head { range, fence, .. } = machine.records.head(slot);
            if range == id.0 {
                let value = machine.records.value(slot);
                effects.log(&Entry::Freed { value, fence });
            }
        }
    }

    /// The values of a range in memory of which its former owner has told nothing. What it
    /// had in quarantine stays there.
    fn unknown_in_memory(
        &mut self,
        id: RangeId,
        values: Vec<Interval>,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Interval> {
        if !self.has_memory {
            return values;
        }
        for (interval, until) in self.quarantined.iter() {
            let aside = both(vec![interval], values.clone());
            self.machine.quarantine(id, &aside, until, now, effects);
        }
        let known: Vec<Interval> = self.known.intervals().collect();
        minus(&values, &known)
    }

    /// Put the values of a range aside of which too little is known.
    fn settle(
        &mut self,
        id: RangeId,
        start: Start,
        values: &[Interval],
        now: Instant,
        effects: &mut Effects,
    ) {
        let options = &self.machine.at(id).options;
        let (ttl_max, quarantine) = (end(now, options.ttl_max), end(now, options.quarantine));
        let mut aside: Vec<Interval> = Vec::new();
        let mut until = Instant::START;
        let mut put = |some: Vec<Interval>, end: Instant| {
            if end > now && !some.is_empty() {
                until = until.max(end);
                aside.extend(some);
            }
        };
        for (interval, end) in self.quarantined.iter() {
            put(both(vec![interval], values.to_vec()), end);
        }
        let claimed: Vec<Interval> = self.claimed.intervals().collect();
        let mut claimed = both(claimed, values.to_vec());
        for (interval, span) in self.promised.iter() {
            let until = end(now, span.since(Instant::START));
            put(both(vec![interval], claimed.clone()), until);
            claimed = minus(&claimed, &[interval]);
        }
        // Of these nothing is known.
        put(claimed, ttl_max);
        let known: Vec<Interval> = self.known.intervals().collect();
        let new = minus(values, &known);
        for interval in new.iter().copied() {
            effects.log(&Entry::Known { interval });
        }
        if start == Start::Quarantine && !new.is_empty() {
            self.machine.end_in(id, &new, now, effects);
            put(new, quarantine);
        }
        values.iter().for_each(|values| {
            self.known.remove_all(*values);
        });
        self.machine.quarantine(id, &aside, until, now, effects);
    }
}

impl Allocator {
    /// What has run out of these values was held before they were forgotten, and
    /// says nothing about now.
    fn end_in(&mut self, id: RangeId, values: &[Interval], now: Instant, effects: &mut Effects) {
        let mut cursor = 0;
        while let Some(slot) = self.records.next_from(&mut cursor) {
            let value = self.records.value(slot);
            let is_over = self.records.until(slot) <= now;
            let head = self.records.head(slot);
            let is_here = head.range == id.0;
            if is_over && is_here && values.iter().any(|values| values.contains(value)) {
                self.set_free(slot, head, false, effects);
            }
        }
    }

    /// What has run out meanwhile goes before any ask comes: the log may have two
    /// holders of a key of which only one is left.
    fn end_all(&mut self, now: Instant, effects: &mut Effects) {
        let mut cursor = 0;
        while let Some(slot) = self.records.next_from(&mut cursor) {
            if self.records.until(slot) <= now {
                self.expire(slot, now, effects);
            }
        }
    }

    /// A reader of the log must see that it was not the stop before that came
    /// last, so nothing is told at once until something is written.
    fn begin_claims(&mut self, effects: &mut Effects) {
        let ids: Vec<RangeId> = self.names.values().copied().collect();
        for id in ids {
            self.log_promise(id, effects);
        }
    }
}
