//! Idle members that are taken and put back without the pool's lock.
//!
//! What lies here is the idle cache's alone until it is taken; which takes wait is
//! known to the pool. While a take waits, or the pool wants the idle members to
//! itself, the idle cache is closed and every take and put goes to the pool.
//!
//! # Why no take is overtaken and no wake-up is lost
//!
//! Each shard has a latch, and all that is done to it is in one order. Before
//! a take waits, the pool closes the idle cache under its lock. A put is either
//! before the close of its shard in that order, and what it put is drained; or
//! after it, and then it cannot succeed: it finds the shard closed, goes to the
//! pool's lock and finds the take that waits. A take cannot overtake a waiting
//! take either: in a closed shard there is nothing to take.
//!
//! The latch also orders what is not under it: a take of a member sees all that
//! was written of it before it was put, and a put of one sees all that the last
//! to open had written. That may have been too late for it to be drained, and
//! came too late to be known before the put.
//!
//! # Why no thread waits for a latch for long
//!
//! A latch is held for a few moves of memory. Should its thread lose its core
//! just then, a thread that wants it looks for a moment, goes on to the other
//! shards, and to the pool's lock in the end. Only the thread that has that
//! lock waits until a latch is free.

mod place;
mod slots;

use std::fmt;
use std::ptr;

use crossbeam_utils::CachePadded;

pub(crate) use place::Place;
pub(crate) use slots::{LEN_MAX, Slots};

use crate::sync::{AtomicBool, Latch, LatchGuard, Ordering, latch, latch_soon, try_latch};

/// Piles of members, one for every few threads.
///
/// A closed shard is empty, and changes only under the pool's lock.
pub(crate) struct IdleCache<T> {
    /// Their number is a power of two.
    shards: Box<[CachePadded<Shard<T>>]>,
}

struct Shard<T> {
    /// Changes only under both the latch and the pool's lock.
    closed: AtomicBool,
    stack: Latch<Stack<T>>,
}

struct Stack<T> {
    lying: Vec<T>,
    /// How often something was taken, other than by a close.
    takes: u64,
}

/// Where a thread puts what it gives back.
pub(crate) struct Home<'a, T> {
    cache: &'a IdleCache<T>,
    shard: &'a Shard<T>,
}

/// The result of a take from a shard.
enum Top<T> {
    Taken(T, u64),
    /// Or another thread is there and does not leave.
    Empty,
    Closed,
}

impl<T> IdleCache<T> {
    /// A closed idle cache with this many shards, or more to make it a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let shards = shards.max(1).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Shard::new().into()).collect(),
        }
    }

    /// Take what was put last on the own shard, or else what lies on another.
    /// Also says how often something was taken from there.
    ///
    /// None if nothing was found or the idle cache is closed: go to the pool's lock,
    /// and [`close`](Self::close) before a take waits.
    #[inline]
    pub(crate) fn take(&self) -> Option<(T, u64)> {
        self.take_near(self.own())
    }

    /// Let no thread take or put any more, and take all that lies here: of each
    /// shard the one put first comes first. Only under the pool's lock.
    pub(crate) fn close(&self, mut drain: impl FnMut(T)) {
        if self.is_closed() {
            return;
        }
        for shard in &self.shards {
            let mut stack = latch(&shard.stack);
            shard.closed.store(true, Ordering::Relaxed);
            stack.lying.drain(..).for_each(&mut drain);
        }
    }

    /// Lay `len` members on the shards in turn, those to be taken first last,
    /// and let every thread take and put. Only under the pool's lock, and if
    /// closed.
    pub(crate) fn open(&self, len: usize, member: impl Fn(usize) -> T) {
        debug_assert!(self.is_closed(), "an open cache is not opened");
        for (turn, shard) in self.shards.iter().enumerate() {
            let mut stack = latch(&shard.stack);
            let members = (turn..len).step_by(self.shards.len()).map(&member);
            stack.lying.extend(members);
            shard.closed.store(false, Ordering::Relaxed);
        }
    }

    /// Exact under the pool's lock, and a guess for every other thread.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.shards[0].is_closed()
    }

    /// The own shard.
    #[inline]
    pub(crate) fn home(&self) -> Home<'_, T> {
        self.near(self.own())
    }

    #[inline]
    fn near(&self, own: usize) -> Home<'_, T> {
        let shard = &self.shards[own];
        Home { cache: self, shard }
    }

    /// Nothing lies here: a guess, which may be over when it is told.
    pub(crate) fn is_bare(&self) -> bool {
        let is_bare = |shard: &Shard<T>| {
            shard.is_closed() || try_latch(&shard.stack).is_some_and(|stack| stack.lying.is_empty())
        };
        self.shards.iter().all(|shard| is_bare(shard))
    }

    /// How often something was taken, other than by a close. Only under the
    /// pool's lock.
    pub(crate) fn takes(&self) -> u64 {
        let takes = self.shards.iter().map(|shard| latch(&shard.stack).takes);
        takes.sum()
    }

    #[inline]
    fn own(&self) -> usize {
        thread_number() & (self.shards.len() - 1)
    }

    #[inline]
    fn take_near(&self, own: usize) -> Option<(T, u64)> {
        match self.shards[own].take() {
            Top::Taken(member, takes) => Some((member, takes)),
            Top::Empty => self.take_elsewhere(own),
            Top::Closed => None,
        }
    }

    #[inline(never)]
    fn take_elsewhere(&self, own: usize) -> Option<(T, u64)> {
        for further in 1..self.shards.len() {
            match self.shards[(own + further) & (self.shards.len() - 1)].take() {
                Top::Taken(member, takes) => return Some((member, takes)),
                Top::Empty => (),
                // All are, or are about to be.
                Top::Closed => return None,
            }
        }
        None
    }

    #[cold]
    fn put_elsewhere(&self, own: &Shard<T>, member: T) -> Result<(), T> {
        let others = self.shards.iter().filter(|shard| !ptr::eq(&***shard, own));
        let mut free = others.filter_map(|shard| Some((shard, shard.pile()?)));
        match free.next() {
            Some((shard, mut stack)) => shard.put(&mut stack, member),
            None => Err(member),
        }
    }
}

impl<T> Home<'_, T> {
    /// As far as can be seen: a put is not worth trying.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.shard.is_closed()
    }

    /// Put a member here.
    ///
    /// It comes back if that cannot be: go to the pool's lock. Until you have it
    /// the idle cache may have been opened.
    #[inline]
    #[must_use = "what was not put must go to the pool"]
    pub(crate) fn put(&self, member: T) -> Result<(), T> {
        match self.shard.pile() {
            Some(mut stack) => self.shard.put(&mut stack, member),
            None => self.cache.put_elsewhere(self.shard, member),
        }
    }
}

impl<T> fmt::Debug for IdleCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleCache")
            .field("shards", &self.shards.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<T> Shard<T> {
    fn new() -> Self {
        let lying = Vec::new();
        Self {
            closed: AtomicBool::new(true),
            stack: Latch::new(Stack { lying, takes: 0 }),
        }
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn take(&self) -> Top<T> {
        // While others wait, no take need touch the latch to learn that.
        if self.is_closed() {
            return Top::Closed;
        }
        let Some(mut stack) = self.pile() else {
            return Top::Empty;
        };
        match stack.lying.pop() {
            Some(member) => {
                stack.takes += 1;
                Top::Taken(member, stack.takes)
            }
            None if self.is_closed() => Top::Closed,
            None => Top::Empty,
        }
    }

    #[inline(always)]
    fn put(&self, stack: &mut Stack<T>, member: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(member);
        }
        stack.lying.push(member);
        Ok(())
    }

    /// Alone with the stack, unless another thread is and does not leave.
    #[inline(always)]
    fn pile(&self) -> Option<LatchGuard<'_, Stack<T>>> {
        latch_soon(&self.stack)
    }
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
