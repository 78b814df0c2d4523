//! Records of held values, found by value and by key.
//!
//! Records know nothing of which values are free or whose turn it is. They
//! are kept small: what changes often in a slab, the rest written down in
//! an arena, and found through indexes of slot numbers.

mod arena;
mod index;
mod layout;
mod slab;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};

use super::ask::Key;
use super::slot::Slot;
use super::wheel::{Mark, Wheel};
use crate::time::Instant;
use arena::Arena;
use index::Index;
use layout::Layout;
pub(super) use layout::View;
use slab::Slab;
pub(super) use slab::State;

/// Set in a number of the key index that stands for a crowd, not for a slot.
const CROWD: u32 = 1 << 31;
/// A node of the trees that crowds are, and how many slots it has at least.
const NODE_BYTES: usize = 64;
const NODE_SLOTS: usize = 6;

/// The part of a record that every operation looks at. Instants are kept in
/// whole milliseconds, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) fence: u64,
    pub(super) until: Instant,
    pub(super) range: u16,
    pub(super) state: State,
}

/// The rest of a record, as it is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a> {
    pub(super) created: Instant,
    pub(super) updated: Instant,
    pub(super) updates: u32,
    pub(super) data: &'a [u8],
    /// The owner, if known.
    pub(super) owner: Option<&'a [u8]>,
    /// That a unique one belongs to one record only is for the caller to see
    /// to: here both kinds are found alike.
    pub(super) keys: &'a [Key<'a>],
}

#[derive(Debug)]
pub(super) struct Records {
    slab: Slab,
    arena: Arena,
    by_value: Index,
    by_key: Index,
    /// The slots of each key that several records have.
    crowds: Vec<Crowd>,
    vacant_crowds: Vec<u32>,
    crowded: usize,
    /// The first value seen of each range, from which the others are counted.
    origins: Vec<Option<u128>>,
    /// A hasher that has swallowed the seed, so that no client can make up keys
    /// that meet.
    hasher: DefaultHasher,
    /// The salt of the hash, from the same seed.
    salt: [u64; 2],
    scratch: Vec<u8>,
    /// The hashes of the keys that are being looked at.
    hashes: Hashes,
}

/// The slots of records that share a key.
#[derive(Debug)]
struct Crowd {
    /// The hash of the key, which tells it from all others.
    hash: u64,
    slots: BTreeSet<u32>,
}

impl Records {
    pub(super) fn new(seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        let salt = [1, 2].map(|which| {
            let mut hasher = hasher.clone();
            hasher.write_u8(which);
            hasher.finish()
        });
        Self {
            slab: Slab::new(),
            arena: Arena::new(),
            by_value: Index::new(),
            by_key: Index::new(),
            crowds: Vec::new(),
            vacant_crowds: Vec::new(),
            crowded: 0,
            origins: Vec::new(),
            hasher,
            salt,
            scratch: Vec::new(),
            hashes: Hashes::default(),
        }
    }

    /// Keep a record of `value`, which has none yet.
    pub(super) fn insert(&mut self, value: u128, head: Head, body: Body<'_>) -> Slot {
        let hash = self.hash_of_value(value);
        debug_assert!(self.find(value).is_none(), "a value is held once");
        let mut keys = std::mem::take(&mut self.hashes);
        self.hash_keys(body.keys.iter().copied(), &mut keys);
        self.touch(hash, &keys);
        let near = self.write(value, &head, &body);
        let place = self.arena.insert(&self.scratch);
        let slot = self.slab.take();
        let cell = self.slab.cell_mut(slot);
        cell.set(head.until, head.state, head.range);
        cell.set_near(near);
        cell.set_place(place);
        self.by_value.insert(hash, slot.0);
        for hash in &keys.0 {
            self.index_key(slot, hash.hash, body.keys[hash.of].bytes);
        }
        self.hashes = keys;
        slot
    }

    /// The record of `value`.
    pub(super) fn find(&self, value: u128) -> Option<Slot> {
        let hash = self.hash_of_value(value);
        let is_right = |number| self.value(Slot(number)) == value;
        self.by_value.find(hash, is_right).map(Slot)
    }

    /// The records with this key, in the order of their slots.
    pub(super) fn by_key(&self, key: &[u8]) -> impl Iterator<Item = Slot> {
        let hash = self.hash_of_key(key);
        let has_key = move |slot: &u32| self.layout(Slot(*slot)).has_key(key);
        let crowd = self.crowd_of(hash);
        let alone = match crowd {
            Some(_) => None,
            None => self
                .by_key
                .find(hash, |number| number & CROWD == 0 && has_key(&number)),
        };
        let crowd = crowd.map(|number| &self.crowds[(number & !CROWD) as usize].slots);
        let crowd = crowd.into_iter().flatten().copied().filter(has_key);
        alone.into_iter().chain(crowd).map(Slot)
    }

    /// Some record with this key: for unique ones, the record.
    #[cfg(test)]
    pub(super) fn find_by_key(&self, key: &[u8]) -> Option<Slot> {
        self.by_key(key).next()
    }

    pub(super) fn head(&self, slot: Slot) -> Head {
        let cell = self.slab.cell(slot);
        Head {
            fence: self.layout(slot).fence(),
            until: cell.until(),
            range: cell.range(),
            state: cell.state(),
        }
    }

    /// The `until` of its head, at less cost.
    pub(super) fn until(&self, slot: Slot) -> Instant {
        self.slab.cell(slot).until()
    }

    pub(super) fn value(&self, slot: Slot) -> u128 {
        let cell = self.slab.cell(slot);
        let origin = self.origins[cell.range() as usize].unwrap_or(0);
        let distance = match cell.near() {
            Some(near) => u128::from(near),
            None => self.layout(slot).distance(),
        };
        origin.wrapping_add_signed(unzigzag(distance))
    }

    pub(super) fn body(&self, slot: Slot) -> View<'_> {
        self.layout(slot).view()
    }

    /// Change nothing but until when. The wheel must be told, see
    /// [`watch`](Self::watch).
    pub(super) fn set_until(&mut self, slot: Slot, until: Instant) {
        self.slab.cell_mut(slot).set_until(until);
    }

    /// Change nothing but the state and until when. The wheel must be told.
    pub(super) fn set_state(&mut self, slot: Slot, state: State, until: Instant) {
        let cell = self.slab.cell_mut(slot);
        let range = cell.range();
        cell.set(until, state, range);
    }

    /// The next record from where the cursor is.
    pub(super) fn next_from(&self, cursor: &mut u32) -> Option<Slot> {
        let slot = self.iter_from(*cursor).next()?;
        *cursor = slot.0 + 1;
        Some(slot)
    }

    /// Write a record anew, keys and all. If `until` changed, the wheel must
    /// be told.
    pub(super) fn replace(&mut self, slot: Slot, head: Head, body: Body<'_>) {
        let value = self.value(slot);
        let (mut had, mut has) = (Hashes::default(), Hashes::default());
        self.hash_keys(self.layout(slot).keys(), &mut had);
        self.hash_keys(body.keys.iter().copied(), &mut has);
        for gone in had.0.iter().filter(|had| !has.contains(had.hash)) {
            self.unindex_key(slot, gone.hash);
        }
        let near = self.write(value, &head, &body);
        let place = self.slab.cell(slot).place();
        let place = self.arena.replace(place, &self.scratch);
        let cell = self.slab.cell_mut(slot);
        cell.set(head.until, head.state, head.range);
        cell.set_near(near);
        cell.set_place(place);
        for new in has.0.iter().filter(|has| !had.contains(has.hash)) {
            self.index_key(slot, new.hash, body.keys[new.of].bytes);
        }
    }

    /// Forget a record, and say of which value. All else must be read before.
    pub(super) fn remove(&mut self, slot: Slot) -> u128 {
        let value = self.value(slot);
        let hash = self.hash_of_value(value);
        let mut keys = std::mem::take(&mut self.hashes);
        self.hash_keys(self.layout(slot).keys(), &mut keys);
        self.touch(hash, &keys);
        let found = self.by_value.remove(hash, slot.0);
        debug_assert!(found, "every record is in the index");
        for hash in &keys.0 {
            self.unindex_key(slot, hash.hash);
        }
        self.hashes = keys;
        self.arena.remove(self.slab.cell(slot).place());
        self.slab.give_back(slot);
        value
    }

    pub(super) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// The records from slot number `from` on. Records that come and go meanwhile
    /// do not disturb the others: a caller that wants all in pieces goes on from
    /// one more than the last slot seen.
    pub(super) fn iter_from(&self, from: u32) -> impl Iterator<Item = Slot> {
        self.slab.iter_from(from)
    }

    /// Make sure that the wheel names `slot` in time, after its record was
    /// inserted or its `until` changed.
    ///
    /// A slot has one entry in the wheel. It does not move when a record is
    /// prolonged, and passes to the slot's next record when one is removed:
    /// neither renewals nor short lives fill the wheel.
    pub(super) fn watch(&mut self, slot: Slot, wheel: &mut Wheel) {
        let cell = self.slab.cell_mut(slot);
        cell.mark = wheel.cover(Mark(cell.mark), cell.until(), slot).0;
    }

    /// The wheel has named `slot`: is there a record in it whose time is up?
    /// If its time is not up yet, the wheel will name it again.
    pub(super) fn is_over(
        &mut self,
        slot: Slot,
        mark: Mark,
        now: Instant,
        wheel: &mut Wheel,
    ) -> bool {
        let cell = self.slab.cell_mut(slot);
        if cell.mark != mark.0 {
            return false;
        }
        cell.mark = Mark::NONE.0;
        if cell.is_vacant() {
            return false;
        }
        let over = cell.until() <= now;
        if !over {
            self.watch(slot, wheel);
        }
        over
    }

    /// Everything the records have from the system. Only the nodes of crowds
    /// are estimated, on the high side.
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes()
            + self.arena.bytes()
            + self.by_value.bytes()
            + self.by_key.bytes()
            + self.crowds.capacity() * size_of::<Crowd>()
            + self.vacant_crowds.capacity() * size_of::<u32>()
            + self.crowded.div_ceil(NODE_SLOTS) * NODE_BYTES
            + self.origins.capacity() * size_of::<Option<u128>>()
            + self.scratch.capacity()
            + self.hashes.0.capacity() * size_of::<KeyHash>()
    }

    fn layout(&self, slot: Slot) -> Layout<'_> {
        Layout(self.arena.cell(self.slab.cell(slot).place()))
    }

    /// Write a record into the scratch, and its value unless it is near the
    /// origin of its range. Then say how far it is.
    fn write(&mut self, value: u128, head: &Head, body: &Body<'_>) -> Option<u32> {
        let range = head.range as usize;
        if self.origins.len() <= range {
            self.origins.resize(range + 1, None);
        }
        let origin = *self.origins[range].get_or_insert(value);
        let distance = zigzag(value.wrapping_sub(origin).cast_signed());
        let near = u32::try_from(distance)
            .ok()
            .filter(|near| *near != u32::MAX);
        let far = if near.is_some() { 0 } else { distance };
        layout::write(&mut self.scratch, far, head.fence, body);
        near
    }

    /// Have memory bring what an insert of `value` will need.
    pub(super) fn expect(&self, value: u128) {
        std::hint::black_box(self.by_value.touch(self.hash_of_value(value)));
    }

    /// Look at all the places of the indexes that will be needed, so that
    /// memory brings them at the same time and not one after the other.
    fn touch(&self, value: u64, keys: &Hashes) {
        let mut seen = self.by_value.touch(value);
        for key in &keys.0 {
            seen ^= self.by_key.touch(key.hash);
        }
        std::hint::black_box(seen);
    }

    /// Find `slot` by this key, by which it was not found before.
    fn index_key(&mut self, slot: Slot, hash: u64, key: &[u8]) {
        if let Some(number) = self.crowd_of(hash) {
            let crowd = &mut self.crowds[(number & !CROWD) as usize];
            self.crowded += usize::from(crowd.slots.insert(slot.0));
            return;
        }
        // An entry of this very slot is there for another of its keys.
        let is_other = |number: u32| {
            number & CROWD == 0 && number != slot.0 && self.layout(Slot(number)).has_key(key)
        };
        match self.by_key.find(hash, is_other) {
            None => self.by_key.insert(hash, slot.0),
            Some(number) => {
                let slots = [number, slot.0].into();
                let crowd = self.add_crowd(Crowd { hash, slots });
                self.by_key.replace(hash, number, crowd);
            }
        }
    }

    /// Find `slot` by this key no longer.
    fn unindex_key(&mut self, slot: Slot, hash: u64) {
        let Some(number) = self.crowd_of(hash) else {
            let found = self.by_key.remove(hash, slot.0);
            debug_assert!(found, "every key is in the index");
            return;
        };
        let crowd = &mut self.crowds[(number & !CROWD) as usize];
        self.crowded -= usize::from(crowd.slots.remove(&slot.0));
        if crowd.slots.len() == 1 {
            let last = crowd.slots.pop_first().expect("one is left");
            self.crowded -= 1;
            self.vacant_crowds.push(number & !CROWD);
            self.by_key.replace(hash, number, last);
        }
    }

    /// The entry of the key index for a key that many records have, if it is one.
    fn crowd_of(&self, hash: u64) -> Option<u32> {
        if self.crowded == 0 {
            return None;
        }
        self.by_key.find(hash, |number| {
            number & CROWD != 0 && self.crowds[(number & !CROWD) as usize].hash == hash
        })
    }

    fn add_crowd(&mut self, crowd: Crowd) -> u32 {
        self.crowded += crowd.slots.len();
        let number = if let Some(number) = self.vacant_crowds.pop() {
            self.crowds[number as usize] = crowd;
            number
        } else {
            self.crowds.push(crowd);
            self.crowds.len() as u32 - 1
        };
        number | CROWD
    }

    /// The hashes of all keys, in place of what `hashes` held.
    fn hash_keys<'a>(&self, keys: impl Iterator<Item = Key<'a>>, hashes: &mut Hashes) {
        hashes.0.clear();
        for (of, key) in keys.enumerate() {
            let hash = self.hash_of_key(key.bytes);
            if !hashes.contains(hash) {
                hashes.0.push(KeyHash { hash, of });
            }
        }
    }

    /// Values are hashed more often than anything else, and are of one length:
    /// two products with what no client knows tell them apart well enough.
    const fn hash_of_value(&self, value: u128) -> u64 {
        let [one, two] = self.salt;
        let mixed = product((value >> 64) as u64 ^ one, value as u64 ^ two);
        product(mixed ^ one, two | 1)
    }

    fn hash_of_key(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(key);
        hasher.finish()
    }
}

/// The hashes of a record's keys, each once.
#[derive(Default, Debug)]
struct Hashes(Vec<KeyHash>);

#[derive(Clone, Copy, Debug)]
struct KeyHash {
    hash: u64,
    /// Which of the keys has it.
    of: usize,
}

impl Hashes {
    fn contains(&self, hash: u64) -> bool {
        self.0.iter().any(|own| own.hash == hash)
    }
}

/// Both halves of a product laid over each other.
const fn product(one: u64, two: u64) -> u64 {
    let product = one as u128 * two as u128;
    (product >> 64) as u64 ^ product as u64
}

/// Small distances in either direction as small numbers.
const fn zigzag(distance: i128) -> u128 {
    (distance << 1 ^ distance >> 127).cast_unsigned()
}

const fn unzigzag(number: u128) -> i128 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
