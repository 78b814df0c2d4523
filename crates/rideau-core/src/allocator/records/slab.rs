//! Slots of fixed size that never move, in blocks that are never copied.

use super::arena::Place;
use crate::allocator::slot::Slot;
use crate::time::Instant;

/// Slots in a block: small enough that adding one is quick.
const BLOCK: usize = 4096;
const BLOCK_BITS: u32 = BLOCK.ilog2();
/// The end of the list of vacant slots.
const NONE: u32 = u32::MAX;

/// Instants are kept in whole milliseconds.
const MILLI: u64 = 1_000_000;
/// Enough for every millisecond a clock can show.
const UNTIL_BITS: u32 = 45;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
const STATE_BITS: u32 = 3;

/// In which way a value is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::allocator) enum State {
    /// It has a holder.
    Reserved,
    /// Its holder is gone, and no other may have it yet.
    Detached,
    /// It was released, and no holder may have it yet.
    Cooling,
}

/// The part of a record that changes in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Until when in milliseconds, the state, and the range; in halves, or
    /// the cell would be longer.
    packed: [u32; 2],
    /// How far the value is from the origin of its range, if that is near.
    near: u32,
    /// Where the rest lies; in vacant slots, the next vacant one.
    place: u32,
    /// Which entry of the wheel will name this slot, zero if none will. It
    /// outlives the record.
    pub(super) mark: u32,
}

impl Cell {
    const VACANT: Self = Self {
        packed: [0; 2],
        near: 0,
        place: NONE,
        mark: 0,
    };

    /// Stands for a distance that is written down in the arena.
    const FAR: u32 = u32::MAX;

    const fn packed(self) -> u64 {
        (self.packed[1] as u64) << 32 | self.packed[0] as u64
    }

    const fn pack(&mut self, packed: u64) {
        self.packed = [packed as u32, (packed >> 32) as u32];
    }

    /// The distance of the value, if it is near.
    pub(super) const fn near(self) -> Option<u32> {
        if self.near == Self::FAR {
            None
        } else {
            Some(self.near)
        }
    }

    /// Keep the distance if it is near; else it must be written down.
    pub(super) fn set_near(&mut self, near: Option<u32>) {
        self.near = near.unwrap_or(Self::FAR);
    }

    pub(super) const fn is_vacant(self) -> bool {
        (self.packed() >> UNTIL_BITS) & ((1 << STATE_BITS) - 1) == 0
    }

    pub(super) const fn until(self) -> Instant {
        from_millis(self.packed() & UNTIL_MASK)
    }

    pub(super) const fn state(self) -> State {
        match (self.packed() >> UNTIL_BITS) & ((1 << STATE_BITS) - 1) {
            1 => State::Reserved,
            2 => State::Detached,
            _ => State::Cooling,
        }
    }

    pub(super) const fn range(self) -> u16 {
        (self.packed() >> (UNTIL_BITS + STATE_BITS)) as u16
    }

    pub(super) const fn place(self) -> Place {
        Place(self.place)
    }

    pub(super) const fn set_place(&mut self, place: Place) {
        self.place = place.0;
    }

    pub(super) fn set(&mut self, until: Instant, state: State, range: u16) {
        let state: u64 = match state {
            State::Reserved => 1,
            State::Detached => 2,
            State::Cooling => 3,
        };
        let range = u64::from(range) << (UNTIL_BITS + STATE_BITS);
        self.pack(to_millis(until) | state << UNTIL_BITS | range);
    }

    pub(super) fn set_until(&mut self, until: Instant) {
        self.pack(self.packed() & !UNTIL_MASK | to_millis(until));
    }
}

/// An instant in milliseconds, rounded up so that nothing ends early.
pub(super) const fn to_millis(instant: Instant) -> u64 {
    instant.as_nanos().div_ceil(MILLI)
}

pub(super) const fn from_millis(millis: u64) -> Instant {
    Instant::from_nanos(millis.saturating_mul(MILLI))
}

#[derive(Debug)]
pub(super) struct Slab {
    blocks: Vec<Box<[Cell]>>,
    /// Slots from here on were never used.
    fresh: u32,
    /// The vacant slot to be used next.
    vacant: u32,
    len: usize,
}

impl Slab {
    pub(super) const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            fresh: 0,
            vacant: NONE,
            len: 0,
        }
    }

    /// A slot for a new record; its mark is that of its last use.
    pub(super) fn take(&mut self) -> Slot {
        self.len += 1;
        if self.vacant != NONE {
            let slot = Slot(self.vacant);
            self.vacant = self.cell(slot).place;
            return slot;
        }
        let slot = Slot(self.fresh);
        assert!(slot.0 < Slot::MAX, "two billion records are enough");
        if self.fresh as usize == self.blocks.len() * BLOCK {
            self.blocks
                .push(vec![Cell::VACANT; BLOCK].into_boxed_slice());
        }
        self.fresh += 1;
        slot
    }

    pub(super) fn give_back(&mut self, slot: Slot) {
        let next = std::mem::replace(&mut self.vacant, slot.0);
        let cell = self.cell_mut(slot);
        debug_assert!(!cell.is_vacant(), "a slot is given back once");
        (cell.packed, cell.place) = ([0; 2], next);
        self.len -= 1;
    }

    pub(super) fn cell(&self, slot: Slot) -> Cell {
        self.blocks[(slot.0 >> BLOCK_BITS) as usize][slot.0 as usize % BLOCK]
    }

    pub(super) fn cell_mut(&mut self, slot: Slot) -> &mut Cell {
        &mut self.blocks[(slot.0 >> BLOCK_BITS) as usize][slot.0 as usize % BLOCK]
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The slots in use from number `from` on, in order.
    pub(super) fn iter_from(&self, from: u32) -> impl Iterator<Item = Slot> {
        (from..self.fresh)
            .map(Slot)
            .filter(|slot| !self.cell(*slot).is_vacant())
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Cell>()
            + self.blocks.capacity() * size_of::<Box<[Cell]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_small_and_keeps_what_it_is_told() {
        assert_eq!(size_of::<Cell>(), 20);
        let mut cell = Cell::VACANT;
        assert!(cell.is_vacant());
        for state in [State::Reserved, State::Detached, State::Cooling] {
            for (until, kept) in [
                (Instant::START, Instant::START),
                (Instant::from_nanos(1), Instant::from_nanos(MILLI)),
                (
                    Instant::from_nanos(5 * MILLI),
                    Instant::from_nanos(5 * MILLI),
                ),
                (Instant::NEVER, Instant::NEVER),
            ] {
                cell.set(Instant::NEVER, state, 65_535);
                cell.set_until(until);
                cell.set_near(Some(7));
                assert_eq!(cell.near(), Some(7));
                cell.set_near(None);
                assert_eq!(cell.near(), None);
                assert!(!cell.is_vacant());
                assert_eq!((cell.until(), cell.state()), (kept, state));
                assert_eq!(cell.range(), 65_535);
            }
        }
    }

    #[test]
    fn a_slot_keeps_its_mark_when_it_is_used_again() {
        let mut slab = Slab::new();
        let slots: Vec<Slot> = (0..BLOCK as u32 + 2)
            .map(|mark| {
                let slot = slab.take();
                let cell = slab.cell_mut(slot);
                cell.set(Instant::START, State::Reserved, 0);
                cell.mark = mark + 1;
                slot
            })
            .collect();
        slab.give_back(slots[7]);
        assert_eq!(slab.len(), BLOCK + 1);
        assert_eq!(slab.iter_from(6).next(), Some(Slot(6)));
        assert_eq!(slab.iter_from(7).next(), Some(Slot(8)));
        assert_eq!(slab.take(), slots[7]);
        assert_eq!(slab.cell(slots[7]).mark, 8);
    }
}
