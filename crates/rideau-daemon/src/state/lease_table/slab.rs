//! Things by number, kept in blocks.
//!
//! A thing stays where it is for as long as it is used, and its number is found
//! without a search. A block of which nothing is used is given back, so that a
//! crowd that is gone costs nothing.

use std::array;
use std::mem;
use std::ops::{Index, IndexMut};

/// The end of every list.
pub(super) const NONE: u32 = u32::MAX;

/// Blocks are small: the allocator keeps a whole page of memory for the last of a crowd
/// that lies in it, and its pages are larger for larger blocks.
const BLOCK_BITS: u32 = 4;
/// A block has a place for each bit of `free`.
const BLOCK: usize = 1 << BLOCK_BITS;
const ALL_FREE: u16 = u16::MAX;
/// This many blocks that were given back are a crowd.
const CROWD: usize = 64;

/// Things by number. One that is not used is as `T::default()`, or as it was
/// when it was freed.
pub(super) struct Slab<T> {
    blocks: Vec<Block<T>>,
    /// The first block that has a free place.
    open: u32,
    /// Numbers of blocks that were given back.
    vacant: Vec<u32>,
    /// A block of which nothing is used, kept for the next thing.
    spare: u32,
}

struct Block<T> {
    /// None while it is given back.
    things: Option<Box<[T; BLOCK]>>,
    /// A bit for each free place.
    free: u16,
    /// Neighbours among the blocks that have a free place.
    prev: u32,
    next: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            open: NONE,
            vacant: Vec::new(),
            spare: NONE,
        }
    }
}

impl<T: Default> Slab<T> {
    /// A free place, used from now on.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        if self.open == NONE {
            self.add_block();
        }
        let at = self.open;
        let block = &mut self.blocks[at as usize];
        let place = block.free.trailing_zeros();
        block.free &= block.free - 1;
        if block.free == 0 {
            self.unlink(at);
        }
        if self.spare == at {
            self.spare = NONE;
        }
        at << BLOCK_BITS | place
    }

    /// A place is not used any more.
    #[inline]
    pub(super) fn free(&mut self, number: u32) {
        let (at, place) = split(number);
        let block = &mut self.blocks[at];
        let before = block.free;
        debug_assert!(before & 1 << place == 0, "it is freed once");
        block.free |= 1 << place;
        let is_empty = block.free == ALL_FREE;
        if before == 0 {
            self.link(at as u32);
        }
        if is_empty {
            self.give_back(at as u32);
        }
    }

    #[cold]
    fn add_block(&mut self) {
        let things = Some(Box::new(array::from_fn(|_| T::default())));
        let at = match self.vacant.pop() {
            Some(at) => {
                self.blocks[at as usize].things = things;
                at
            }
            None => {
                self.blocks.push(Block {
                    things,
                    free: ALL_FREE,
                    prev: NONE,
                    next: NONE,
                });
                (self.blocks.len() - 1) as u32
            }
        };
        self.link(at);
    }

    /// Nothing of a block is used. One such is kept, so that a thing that comes and
    /// goes needs no new block each time.
    #[cold]
    fn give_back(&mut self, at: u32) {
        if self.spare == NONE {
            self.spare = at;
            return;
        }
        self.unlink(at);
        self.blocks[at as usize].things = None;
        self.vacant.push(at);
        // The spare one alone is left, and a crowd was here: begin anew.
        if self.vacant.len() + 1 == self.blocks.len() && self.vacant.len() >= CROWD {
            *self = Self::default();
        }
    }
}

impl<T> Slab<T> {
    /// The thing with this number, used or free.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&T> {
        let (at, place) = split(number);
        let things = self.blocks.get(at)?.things.as_ref()?;
        Some(&things[place])
    }

    #[inline]
    pub(super) fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        let (at, place) = split(number);
        let things = self.blocks.get_mut(at)?.things.as_mut()?;
        Some(&mut things[place])
    }

    /// All numbers are below it.
    pub(super) fn end(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// How many places there are, used and free.
    pub(super) fn places(&self) -> usize {
        (self.blocks.len() - self.vacant.len()) * BLOCK
    }

    /// All things with their numbers, used and free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(|(at, block)| {
            let things = block.things.iter().flat_map(|things| things.iter());
            let first = (at as u32) << BLOCK_BITS;
            (first..).zip(things)
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let blocks = self.blocks.iter_mut();
        blocks.flat_map(|block| block.things.iter_mut().flat_map(|things| things.iter_mut()))
    }

    /// A block has a free place now.
    fn link(&mut self, at: u32) {
        let next = mem::replace(&mut self.open, at);
        let block = &mut self.blocks[at as usize];
        (block.prev, block.next) = (NONE, next);
        if next != NONE {
            self.blocks[next as usize].prev = at;
        }
    }

    /// A block has no free place any more, or is given back.
    fn unlink(&mut self, at: u32) {
        let Block { prev, next, .. } = self.blocks[at as usize];
        match prev {
            NONE => self.open = next,
            prev => self.blocks[prev as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        self.find(number).expect("a used place is in a block")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.find_mut(number).expect("a used place is in a block")
    }
}

#[inline]
fn split(number: u32) -> (usize, usize) {
    let number = number as usize;
    (number >> BLOCK_BITS, number & (BLOCK - 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rideau_core::Rng;

    use super::*;

    #[test]
    fn a_crowd_that_is_gone_leaves_one_block() {
        let mut slab: Slab<u64> = Slab::default();
        let mut crowd: Vec<u32> = (0..100_000).map(|_| slab.take()).collect();
        assert!(slab.places() >= 100_000);
        let last = crowd.pop().unwrap();
        slab[last] = 7;
        crowd.into_iter().for_each(|number| slab.free(number));
        assert!(slab.places() <= 2 * BLOCK, "{}", slab.places());
        assert_eq!(slab[last], 7, "it stays where it is");
        slab.free(last);
        assert!(slab.places() <= BLOCK);
        assert!(slab.blocks.capacity() <= CROWD && slab.vacant.capacity() <= CROWD);
    }

    #[test]
    fn a_thing_that_comes_and_goes_needs_no_new_block() {
        let mut slab: Slab<u64> = Slab::default();
        let first = slab.take();
        slab.free(first);
        let block: *const u64 = &raw const slab[first];
        for _ in 0..1_000 {
            let number = slab.take();
            assert_eq!(number, first);
            assert_eq!(&raw const slab[number], block);
            slab.free(number);
        }
    }

    #[test]
    fn things_stay_what_they_are_while_others_come_and_go() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut slab: Slab<u64> = Slab::default();
            let mut model = BTreeMap::new();
            for step in 1..5_000 {
                // More come than go, then more go than come.
                let comes = rng.below(10) < if step % 2_000 < 1_000 { 7 } else { 3 };
                if comes || model.is_empty() {
                    let number = slab.take();
                    slab[number] = step;
                    assert_eq!(model.insert(number, step), None, "seed {seed}");
                } else {
                    let place = rng.below(model.len() as u64) as usize;
                    let number = *model.keys().nth(place).unwrap();
                    assert_eq!(model.remove(&number), Some(slab[number]), "seed {seed}");
                    slab[number] = 0;
                    slab.free(number);
                }
                let used = slab.iter().filter(|(_, thing)| **thing != 0);
                let used = used.map(|(number, thing)| (number, *thing));
                if step % 97 == 0 {
                    assert!(used.eq(model.clone()), "seed {seed}");
                    assert!(slab.end() >= slab.places());
                }
            }
        }
    }
}
