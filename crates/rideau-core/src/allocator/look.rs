//! Looking: at one value, at all of a range, at what it costs.

use std::collections::HashMap;

use super::ask::Which;
use super::effects::Effects;
use super::fields::{self, Field, Fields};
use super::interval::Interval;
use super::range::{RangeId, RangeStats};
use super::records::State;
use super::size::Size;
use super::slot::Slot;
use super::value::Kind;
use super::{Allocator, ID_MARK, STRAY};
use crate::time::Instant;

/// How a value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// It can be given out.
    Free,
    /// It has a holder.
    Reserved,
    /// It may have a holder.
    Quarantined,
    /// It had a holder, and waits for a client to decide.
    Detached,
    /// It was given back, and rests.
    Cooling,
    /// It belongs to no range.
    Outside,
}

impl Standing {
    pub(super) fn of(state: State) -> Self {
        match state {
            State::Reserved => Self::Reserved,
            State::Detached => Self::Detached,
            State::Cooling => Self::Cooling,
        }
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Reserved => "reserved",
            Self::Quarantined => "quarantined",
            Self::Detached => "detached",
            Self::Cooling => "cooling",
            Self::Outside => "outside",
        }
    }
}

/// A record as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The value.
    pub value: u128,
    /// How it is printed.
    pub kind: Kind,
    /// Its range; none if that was taken away.
    pub range: Option<RangeId>,
    /// Reserved, detached or cooling.
    pub standing: Standing,
    /// Its holder's number.
    pub fence: u64,
    /// When that ends.
    pub until: Instant,
    /// When it was given out.
    pub created: Instant,
    /// When something was written beside it last.
    pub updated: Instant,
    /// How often.
    pub updates: u32,
    /// Its data.
    pub data: Fields,
    /// Its keys, and whether it has each for itself.
    pub keys: Vec<(Vec<u8>, bool)>,
    /// The owner, if known.
    pub owner: Option<Box<[u8]>>,
}

/// Which reservations are meant by many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// Records with a key that begins with this.
    KeyPrefix(Vec<u8>),
    /// Records with this content in this field.
    Field(Vec<u8>, Vec<u8>),
}

/// How many of certain values are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// How many of them belong to ranges.
    pub size: Size,
    /// Can be given out.
    pub free: Size,
    /// May have a holder.
    pub quarantined: Size,
    /// Have a holder, or had one and rest.
    pub held: Size,
}

/// Memory that an allocator uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bytes {
    /// Records of values that are not free, with data and keys.
    pub records: usize,
    /// Their number.
    pub records_len: usize,
    /// Timers.
    pub timers: usize,
    /// Their number.
    pub timers_len: usize,
    /// Free and quarantined values.
    pub free: usize,
}

impl Allocator {
    /// All records that are meant, oldest first; none for what has no holder.
    pub fn lookup(&mut self, which: Which<'_>, now: Instant, effects: &mut Effects) -> Vec<Seen> {
        let slots = self.slots(which, now, effects);
        let must_wait = |slot: &Slot| {
            let head = self.records.head(*slot);
            self.must_wait(head.range, head.fence)
        };
        effects.wait |= slots.iter().any(must_wait);
        let mut seen: Vec<Seen> = slots.into_iter().map(|slot| self.seen(slot)).collect();
        seen.sort_by_key(|seen| seen.fence);
        seen
    }

    /// How a value is.
    pub fn stands(&mut self, value: u128, now: Instant, effects: &mut Effects) -> Standing {
        match (self.slot(value, now, effects), self.range_of(value)) {
            (Some(slot), _) => Standing::of(self.records.head(slot).state),
            (None, Some(range)) if !self.at(range).is_draining => self.standing(value, range, now),
            (None, _) => Standing::Outside,
        }
    }

    /// How a value of this range is that has no record.
    pub(super) fn standing(&self, value: u128, range: RangeId, now: Instant) -> Standing {
        let quarantine = self.at(range).quarantine.as_ref();
        let quarantine = quarantine.filter(|held| held.until > now);
        match quarantine.is_some_and(|held| held.values.contains(value)) {
            true => Standing::Quarantined,
            false => Standing::Free,
        }
    }

    /// A range in numbers.
    pub fn stats(&self, range: RangeId) -> Option<RangeStats> {
        let range = self.ranges.get(range.index())?.as_ref()?;
        Some(range.stats())
    }

    /// How many of these values are in which state, in whatever ranges they are.
    /// It costs as much as there are pieces of free values, and not as there are
    /// values. A value that has run out and was not noticed is held; values of
    /// ranges that are being taken away do not count.
    pub fn count(&self, within: Interval) -> Count {
        let mut count = Count {
            size: Size::ZERO,
            free: Size::ZERO,
            quarantined: Size::ZERO,
            held: Size::ZERO,
        };
        for (id, piece) in self.pieces_in(within) {
            let range = self.at(id);
            if range.is_draining {
                continue;
            }
            let quarantine = range.quarantine.as_ref();
            let quarantined = quarantine.map_or(Size::ZERO, |held| held.values.count_in(piece));
            let free = range.free.count_in(piece) + range.stock.count_in(piece);
            count.size = count.size.saturating_add(piece.size());
            count.free = count.free.saturating_add(free);
            count.quarantined = count.quarantined.saturating_add(quarantined);
            let held = piece.size() - free - quarantined;
            count.held = count.held.saturating_add(held);
        }
        count
    }

    /// All ranges, by name.
    pub fn ranges(&self) -> impl Iterator<Item = (&str, RangeId)> + '_ {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// The memory that it uses.
    pub fn bytes(&self) -> Bytes {
        let ranges = self.ranges.iter().flatten();
        Bytes {
            records: self.records.bytes(),
            records_len: self.records.len(),
            timers: self.wheel.bytes(),
            timers_len: self.wheel.len(),
            free: ranges.map(|range| range.stats().bytes).sum(),
        }
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last fence that was given.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Some of the records, by their place in memory, from where the cursor
    /// is. Others may change between two calls.
    pub fn page(&self, cursor: &mut u32, most: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while seen.len() < most
            && let Some(slot) = self.records.next_from(cursor)
        {
            seen.push(self.seen(slot));
        }
        seen
    }

    /// Count by range which reservations end by `until`, looking at `most`
    /// records from where the cursor is. Says whether there may be more.
    pub fn count_ending(
        &self,
        until: Instant,
        cursor: &mut u32,
        most: usize,
        counts: &mut HashMap<RangeId, u64>,
    ) -> bool {
        for _ in 0..most {
            let Some(slot) = self.records.next_from(cursor) else {
                return false;
            };
            let head = self.records.head(slot);
            let is_held = head.state == State::Reserved && head.range != STRAY;
            if is_held && head.until <= until {
                *counts.entry(RangeId(head.range)).or_default() += 1;
            }
        }
        true
    }

    /// Give many values back, of one range or of all, some at a call: looks at
    /// `most` records from where the cursor is, and says how many of them went.
    /// Gives nothing when there are no more.
    pub fn release_some(
        &mut self,
        filter: &Filter,
        range: Option<RangeId>,
        cursor: &mut u32,
        most: usize,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<usize> {
        let mut released = 0;
        for _ in 0..most {
            let Some(slot) = self.records.next_from(cursor) else {
                return (released > 0).then_some(released);
            };
            let head = self.records.head(slot);
            let is_held = head.state == State::Reserved && head.until > now;
            let is_there = range.is_none_or(|range| range.0 == head.range);
            if is_held && is_there && self.matches(slot, filter) {
                self.let_go(slot, head, now, effects);
                released += 1;
            }
        }
        Some(released)
    }

    fn matches(&self, slot: Slot, filter: &Filter) -> bool {
        let body = self.records.body(slot);
        match filter {
            Filter::KeyPrefix(prefix) => body
                .keys()
                .any(|key| key.bytes.first() != Some(&ID_MARK) && key.bytes.starts_with(prefix)),
            Filter::Field(name, content) => fields::fields(body.data)
                .any(|(other, field)| other == name && is_like(field, content)),
        }
    }

    fn seen(&self, slot: Slot) -> Seen {
        let head = self.records.head(slot);
        let value = self.records.value(slot);
        let body = self.records.body(slot);
        let keys = body
            .keys()
            .filter(|key| key.bytes.first() != Some(&ID_MARK));
        let range = (head.range != STRAY).then_some(RangeId(head.range));
        Seen {
            value,
            kind: range.map_or(Kind::Number, |range| self.kind(value, range)),
            range,
            standing: Standing::of(head.state),
            fence: head.fence,
            until: head.until,
            created: body.created,
            updated: body.updated,
            updates: body.updates,
            data: Fields::kept(body.data),
            keys: keys.map(|key| (key.bytes.to_vec(), key.unique)).collect(),
            owner: body.owner.map(Into::into),
        }
    }
}

fn is_like(field: Field<'_>, content: &[u8]) -> bool {
    match field {
        Field::Bytes(bytes) => bytes == content,
        Field::Number(number) => number.to_string().as_bytes() == content,
        Field::Nothing => false,
    }
}
