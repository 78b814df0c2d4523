//! An array that grows while it is read, and never moves what is in it.

use std::sync::OnceLock;

/// The largest number of slots.
pub(crate) const LEN_MAX: u32 = (1 << 19) - 1;

/// The first chunk has this many slots, and each further one twice as many.
const FIRST: u32 = 16;
const CHUNKS: usize = (((LEN_MAX - 1 + FIRST).ilog2() - FIRST.ilog2()) + 1) as usize;

/// Slots by index, in chunks that stay where they are.
pub(crate) struct Slots<T> {
    /// The expected number of slots, found faster than those in the chunks.
    first: Box<[T]>,
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
    make: fn() -> T,
}

impl<T> Slots<T> {
    /// This many slots as yet. Each is made by `make`.
    pub(crate) fn new(make: fn() -> T, len: usize) -> Self {
        let first = (0..len).map(|_| make()).collect();
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Self {
            first,
            chunks,
            make,
        }
    }

    /// The slot at an index below what we have grown to.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &T {
        match self.first.get(index as usize) {
            Some(slot) => slot,
            None => self.far(index - self.first.len() as u32),
        }
    }

    #[inline(never)]
    fn far(&self, index: u32) -> &T {
        let (chunk, offset) = locate(index);
        let slots = self.chunks[chunk].get();
        &slots.expect("an index is given out after its slot was made")[offset]
    }

    /// Have `len` slots or more. Only under the pool's lock, for a thread that
    /// makes a chunk twice makes it for nothing.
    pub(crate) fn grow_to(&self, len: u32) {
        assert!(len <= LEN_MAX, "a pool has at most {LEN_MAX} members");
        let far = len.saturating_sub(self.first.len() as u32);
        let Some(last) = far.checked_sub(1) else {
            return;
        };
        for chunk in 0..=locate(last).0 {
            let make = || (0..FIRST << chunk).map(|_| (self.make)()).collect();
            self.chunks[chunk].get_or_init(make);
        }
    }
}

/// The chunk of an index, and the place in it: counted from `FIRST` instead of
/// 0, every chunk begins at a power of two.
#[inline]
const fn locate(index: u32) -> (usize, usize) {
    let from_first = index + FIRST;
    let power = from_first.ilog2();
    let chunk = power - FIRST.ilog2();
    (chunk as usize, (from_first - (1 << power)) as usize)
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_index_has_a_slot_of_its_own() {
        let slots = Slots::new(|| AtomicUsize::new(0), 5);
        slots.grow_to(1000);
        for index in 0..1000 {
            assert_eq!(slots.get(index).fetch_add(1, Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_slot_stays_where_it_is_when_others_are_made() {
        let slots = Slots::new(|| AtomicUsize::new(7), 0);
        slots.grow_to(1);
        let first = slots.get(0);
        first.store(8, Ordering::Relaxed);
        slots.grow_to(5000);
        slots.grow_to(17);
        assert!(std::ptr::eq(first, slots.get(0)));
        assert_eq!(slots.get(0).load(Ordering::Relaxed), 8);
        assert_eq!(slots.get(4999).load(Ordering::Relaxed), 7);
    }

    #[test]
    fn at_most_three_times_as_many_slots_are_made_as_wanted_after_the_first() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let slots = Slots::new(|| MADE.fetch_add(1, Ordering::Relaxed), 0);
        slots.grow_to(0);
        assert_eq!(MADE.load(Ordering::Relaxed), 0);
        for len in [1, 16, 17, 48, 49, 1000] {
            slots.grow_to(len);
            let made = MADE.load(Ordering::Relaxed);
            assert!(made >= len as usize);
            assert!(made <= 16.max(3 * len as usize), "{made} for {len}");
        }
    }

    #[test]
    fn the_last_index_lies_in_the_last_chunk() {
        let chunk = CHUNKS - 1;
        assert_eq!(locate(0), (0, 0));
        assert_eq!(locate(15), (0, 15));
        assert_eq!(locate(16), (1, 0));
        assert_eq!(locate(LEN_MAX - 1).0, chunk);
    }
}
