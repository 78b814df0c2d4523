//! Places by hash, each thing at its own or as close behind it as others let it.
//!
//! A place also says a little of the hash of what is there, in the bits of the
//! address that its alignment leaves free. A look for another does not go
//! there: what is there may be in use on another core just then.

use std::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// Changed under a lock, and read by any thread.
pub(super) struct Table<T> {
    cells: Box<[AtomicPtr<T>]>,
}

impl<T> Table<T> {
    const HINT: usize = align_of::<T>() - 1;

    /// No thing, and this many places: a power of two.
    pub(super) fn new(cells: usize) -> Self {
        debug_assert!(cells.is_power_of_two(), "places are masked");
        let cells = (0..cells).map(|_| AtomicPtr::new(ptr::null_mut()));
        Self {
            cells: cells.collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// What is at a place, with its hint, or null.
    #[inline]
    pub(super) fn cell(&self, at: usize) -> &AtomicPtr<T> {
        &self.cells[at & (self.cells.len() - 1)]
    }

    /// What is at a place, or null. Under the lock.
    pub(super) fn at(&self, at: usize) -> *mut T {
        Self::bare(self.cell(at).load(Ordering::Relaxed))
    }

    /// What a cell has may be what has this hash.
    #[inline]
    pub(super) fn hints_at(found: *mut T, hash: u64) -> bool {
        found.addr() & Self::HINT == Self::hint(hash)
    }

    /// What a cell has, without the hint.
    #[inline]
    pub(super) fn bare(found: *mut T) -> *mut T {
        found.map_addr(|address| address & !Self::HINT)
    }

    /// By the upper bits: the lower ones say where it is.
    #[inline]
    fn hint(hash: u64) -> usize {
        (hash >> 48) as usize & Self::HINT
    }

    #[inline]
    pub(super) fn home(&self, hash: u64) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    #[inline]
    pub(super) fn next(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    /// How far `to` is behind `from`.
    pub(super) fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.cells.len() - 1)
    }

    /// Put a thing at the first free place; there must be one. Under the lock.
    pub(super) fn put(&self, hash: u64, thing: *mut T) {
        let mut at = self.home(hash);
        while !self.at(at).is_null() {
            at = self.next(at);
        }
        let hinted = thing.map_addr(|address| address | Self::hint(hash));
        self.cells[at].store(hinted, Ordering::Release);
    }

    /// Empty a place. Those behind it that would be missed then move up; the
    /// caller knows what their hashes are. Under the lock.
    pub(super) fn clear(&self, mut hole: usize, hash_of: impl Fn(*mut T) -> u64) {
        let mut at = self.next(hole);
        loop {
            let hinted = self.cells[at].load(Ordering::Relaxed);
            if hinted.is_null() {
                break;
            }
            let home = self.home(hash_of(Self::bare(hinted)));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.cells[hole].store(hinted, Ordering::SeqCst);
                hole = at;
            }
            at = self.next(at);
        }
        self.cells[hole].store(ptr::null_mut(), Ordering::SeqCst);
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    /// As aligned as a node.
    #[repr(align(16))]
    struct Thing {
        hash: u64,
    }

    fn find(table: &Table<Thing>, things: &[Thing], hash: u64) -> Option<u64> {
        let mut at = table.home(hash);
        loop {
            let found = table.cell(at).load(Ordering::Relaxed);
            if found.is_null() {
                return None;
            }
            let bare = Table::bare(found);
            let thing = things.iter().find(|thing| ptr::eq(*thing, bare))?;
            if Table::hints_at(found, hash) && thing.hash == hash {
                return Some(hash);
            }
            at = table.next(at);
        }
    }

    #[test]
    fn what_is_put_is_found_until_its_place_is_cleared() {
        // Most want the last places, and so go round to the first.
        let hashes = [6, 7, 14, 15, 1 << 48 | 7, 5 << 48 | 6];
        let mut things = hashes.map(|hash| Thing { hash });
        let table = Table::new(8);
        for thing in &mut things {
            table.put(thing.hash, thing);
        }
        for gone in 0..hashes.len() {
            for (at, hash) in hashes.into_iter().enumerate() {
                let wanted = (at >= gone).then_some(hash);
                assert_eq!(find(&table, &things, hash), wanted, "{gone} are gone");
            }
            let is_next = |at: &usize| ptr::eq(table.at(*at), &things[gone]);
            let place = (0..table.len()).find(is_next).expect("it is there");
            let hash_of = |thing: *mut Thing| {
                let thing = things.iter().find(|known| ptr::eq(*known, thing));
                thing.expect("it was put").hash
            };
            table.clear(place, hash_of);
        }
        assert!((0..table.len()).all(|at| table.at(at).is_null()));
    }
}
