//! Idle members that are taken and put back without the pool's lock.
//!
//! The shelf knows their indexes alone: what lies there is in the slots, and
//! who waits is known to the pool. While somebody waits, or the pool wants the
//! idle members to itself, the shelf is closed and everybody goes to the pool.
//!
//! # Why nobody is overtaken and no wake-up is lost
//!
//! Each shard is one word, and all changes of a word are in one order. Before
//! anybody waits, the pool closes the shelf under its lock. A put is either
//! before the close of its shard in that order, and what it put is drained; or
//! after it, and then it cannot succeed: it sees the closed bit, goes to the
//! pool's lock and finds who waits. A take cannot overtake who waits either:
//! in a closed word there is nothing to take.
//!
//! # Why each memory order suffices
//!
//! * A put releases with the change that makes its slot the first: the link,
//!   the member and all else that was written to the slot come before it. It
//!   cannot be misled by an old word: the change fails. That change acquires,
//!   so that who put sees what the last to open had written to the slot: that
//!   may have been too late for it to be drained, and came too late to be
//!   known before the put.
//! * A take acquires when it reads the word, before it reads the link. What it
//!   reads was left by the put of this slot or, with nothing but exchanges in
//!   between, by later puts and takes: these hand the release on. What it
//!   leaves behind it did not write, so it need not release.
//! * The link may be read while another, who took that slot first, puts it
//!   back with a new one. The word has been popped by then and its count has
//!   gone up, so that the change fails: a value of the word never comes back.
//! * A close acquires as a take does, for all that it takes. An open is a
//!   plain store, since nobody but who has the lock changes a closed word, and
//!   releases as a put does. All others who read a closed word go to the lock,
//!   which orders them.

mod place;
mod slots;

use std::fmt;

use crossbeam_utils::CachePadded;

pub(crate) use place::Place;
pub(crate) use slots::{LEN_MAX, Linked, Slots};

use crate::sync::{AtomicU64, Ordering};

/// A word is `[pops: 44][closed: 1][index + 1: 19]`.
const FIRST: u64 = (1 << 19) - 1;
const CLOSED: u64 = 1 << 19;
const POP: u64 = 1 << 20;
const POPS_MAX: u64 = u64::MAX / POP;

/// Stacks of indexes, one for every few threads.
///
/// A closed shard is empty, and changes only under the pool's lock.
pub(crate) struct Shelf {
    /// As many as some power of two.
    shards: Box<[CachePadded<Shard>]>,
    /// Takes until the last close.
    takes: AtomicU64,
}

struct Shard {
    word: AtomicU64,
    /// The count of pops when this shard was closed last. Only under the lock.
    pops: AtomicU64,
}

/// Where a thread puts what it gives back.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a>(&'a Shard);

/// What a shard says to one who wants to take.
enum Top {
    Taken { index: u32, pops: u64 },
    Empty,
    Closed,
}

impl Shelf {
    /// A closed shelf with so many shards, or more to make it a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let shards = shards.max(1).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Shard::new().into()).collect(),
            takes: AtomicU64::new(0),
        }
    }

    /// Take what was put last on the own shard, or else what lies on another.
    /// Also says how often the shard has been popped, which wraps at 44 bits.
    ///
    /// None if nothing was found or the shelf is closed: go to the pool's lock,
    /// and [`close`](Self::close) before anybody waits.
    #[inline]
    pub(crate) fn take<T: Linked>(&self, slots: &Slots<T>) -> Option<(u32, u64)> {
        self.take_near(self.own(), slots)
    }

    /// Let nobody take or put any more, and take all that lies here: of each
    /// shard the one put first comes first. Only under the pool's lock.
    pub(crate) fn close<T: Linked>(&self, slots: &Slots<T>, drained: &mut Vec<u32>) {
        if self.is_closed() {
            return;
        }
        let mut takes = self.takes.load(Ordering::Relaxed);
        for shard in &self.shards {
            takes += shard.close(slots, drained);
        }
        self.takes.store(takes, Ordering::Relaxed);
    }

    /// Lay these on the shards in turn, those to be taken first last, and let
    /// everybody take and put. Only under the pool's lock, and if closed.
    pub(crate) fn open<T: Linked>(&self, slots: &Slots<T>, indexes: &[u32]) {
        for (turn, shard) in self.shards.iter().enumerate() {
            let indexes = indexes.iter().skip(turn).step_by(self.shards.len());
            shard.open(slots, indexes.copied());
        }
    }

    /// Exact under the pool's lock, and a guess for everybody else.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.shards[0].word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// The own shard.
    #[inline]
    pub(crate) fn home(&self) -> Home<'_> {
        Home(&self.shards[self.own()])
    }

    /// Nothing lies here: a guess, which may be over when it is told.
    pub(crate) fn is_bare(&self) -> bool {
        let is_bare = |shard: &Shard| first(shard.word.load(Ordering::Relaxed)).is_none();
        self.shards.iter().all(|shard| is_bare(shard))
    }

    /// How often something was taken, other than by a close. Only under the
    /// pool's lock.
    pub(crate) fn takes(&self) -> u64 {
        let since = self.shards.iter().map(|shard| shard.takes());
        self.takes.load(Ordering::Relaxed) + since.sum::<u64>()
    }

    #[inline]
    fn own(&self) -> usize {
        match self.shards.len() {
            1 => 0,
            shards => thread_number() & (shards - 1),
        }
    }

    #[inline]
    fn take_near<T: Linked>(&self, own: usize, slots: &Slots<T>) -> Option<(u32, u64)> {
        match self.shards[own].take(slots) {
            Top::Taken { index, pops } => Some((index, pops)),
            Top::Empty => self.take_elsewhere(own, slots),
            Top::Closed => None,
        }
    }

    #[cfg(test)]
    fn put_near<T: Linked>(&self, own: usize, slots: &Slots<T>, index: u32) -> bool {
        self.shards[own].put(slots, index)
    }

    #[inline(never)]
    fn take_elsewhere<T: Linked>(&self, own: usize, slots: &Slots<T>) -> Option<(u32, u64)> {
        for further in 1..self.shards.len() {
            match self.shards[(own + further) & (self.shards.len() - 1)].take(slots) {
                Top::Taken { index, pops } => return Some((index, pops)),
                Top::Empty => (),
                // All are, or are about to be.
                Top::Closed => return None,
            }
        }
        None
    }
}

impl Home<'_> {
    /// As far as can be seen: a put is not worth trying.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Put a slot here.
    ///
    /// False if it is closed, and then nothing was done: go to the pool's lock.
    /// The shelf may have been opened until you have it.
    #[inline]
    #[must_use = "what was not put must go to the pool"]
    pub(crate) fn put<T: Linked>(self, slots: &Slots<T>, index: u32) -> bool {
        self.0.put(slots, index)
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("shards", &self.shards.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(CLOSED),
            pops: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn take<T: Linked>(&self, slots: &Slots<T>) -> Top {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let Some(index) = first(word) else {
                return if word & CLOSED == 0 {
                    Top::Empty
                } else {
                    Top::Closed
                };
            };
            let next = slots.get(index).next().load(Ordering::Relaxed);
            let popped = (word & !FIRST | u64::from(next)).wrapping_add(POP);
            match self.exchange(word, popped, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let pops = popped / POP;
                    return Top::Taken { index, pops };
                }
                Err(other) => word = other,
            }
        }
    }

    #[inline]
    fn put<T: Linked>(&self, slots: &Slots<T>, index: u32) -> bool {
        let next = slots.get(index).next();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return false;
            }
            next.store(link(word), Ordering::Relaxed);
            let pushed = word & !FIRST | u64::from(index + 1);
            match self.exchange(word, pushed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    /// Says how often something was taken since the close before.
    fn close<T: Linked>(&self, slots: &Slots<T>, drained: &mut Vec<u32>) -> u64 {
        let mut word = self.word.load(Ordering::Relaxed);
        // Counts as a pop, or else a take that read a link before the close
        // could follow it after the next open, when it leads elsewhere.
        let closed = |word: u64| (word & !FIRST | CLOSED).wrapping_add(POP);
        while let Err(other) =
            self.exchange(word, closed(word), Ordering::Acquire, Ordering::Relaxed)
        {
            word = other;
        }
        let takes = self.takes_until(word);
        self.pops.store(closed(word) / POP, Ordering::Relaxed);
        let already = drained.len();
        while let Some(index) = first(word) {
            drained.push(index);
            word = slots.get(index).next().load(Ordering::Relaxed).into();
        }
        drained[already..].reverse();
        takes
    }

    fn open<T: Linked>(&self, slots: &Slots<T>, indexes: impl Iterator<Item = u32>) {
        let mut word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & CLOSED != 0, "an open shelf is not opened");
        word &= !CLOSED;
        for index in indexes {
            let next = slots.get(index).next();
            next.store(link(word), Ordering::Relaxed);
            word = word & !FIRST | u64::from(index + 1);
        }
        self.word.store(word, Ordering::Release);
    }

    fn takes(&self) -> u64 {
        self.takes_until(self.word.load(Ordering::Relaxed))
    }

    fn takes_until(&self, word: u64) -> u64 {
        let closed_at = self.pops.load(Ordering::Relaxed);
        (word / POP).wrapping_sub(closed_at) & POPS_MAX
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64, then: Ordering, or: Ordering) -> Result<u64, u64> {
        self.word.compare_exchange_weak(old, new, then, or)
    }
}

/// The index that a word, or a link, leads to.
#[inline]
fn first(word: u64) -> Option<u32> {
    link(word).checked_sub(1)
}

/// The same as it is written down: one more than the index, or 0 for none.
#[inline]
fn link(word: u64) -> u32 {
    const { assert!(LEN_MAX as u64 <= FIRST) }
    (word & FIRST) as u32
}

/// A number for each thread, in the order in which they first ask.
#[cfg(not(rideau_loom))]
#[inline]
fn thread_number() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let number = NUMBER.get();
    if number != usize::MAX {
        return number;
    }
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// Loom's threads are one to the system. Its models name their shard.
#[cfg(rideau_loom)]
fn thread_number() -> usize {
    0
}

#[cfg(all(test, rideau_loom))]
mod models;
#[cfg(all(test, not(rideau_loom)))]
mod tests;
