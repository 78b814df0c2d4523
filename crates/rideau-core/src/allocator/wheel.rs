//! Names slots when they come due, however many and however far away.
//!
//! A wheel of five levels of 256 buckets: the further away, the wider the bucket.
//! Time moves in ticks of 17 ms, and a slot is named within a tick after it came
//! due, never before. A step moves a bounded number of entries, so that a bucket
//! full of millions stalls no caller.

use super::slot::Slot;
use crate::time::Instant;

/// A tick is this power of two, in nanoseconds.
const TICK_BITS: u32 = 24;
/// With this many levels every instant there is has its bucket.
const LEVELS: usize = 5;
const BUCKETS: usize = 256;
const BUCKET_BITS: u32 = BUCKETS.ilog2();
/// How many entries one step moves from a wide bucket to narrower ones.
const MOVES_MAX: usize = 64;
/// How far away [`Wheel::cover`] puts entries at most, so that the lower
/// half of a tick's bits is enough to tell which of two comes first.
const COVER_MAX: u64 = (1 << 31) - 1;

/// Entries in a chunk, which is half a KiB with all.
const CHUNK: usize = 63;
/// This many unused chunks are kept for the next need.
const SPARE_MAX: usize = 64;
const NONE: u32 = u32::MAX;

/// Names an entry of a slot: the lower bits of its tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark(pub(super) u32);

impl Mark {
    pub(super) const NONE: Self = Self(0);
}

#[derive(Debug)]
pub(super) struct Wheel {
    /// Entries up to here are ready, those after it in their buckets.
    at: u64,
    /// The tick that the first bucket with entries begins with.
    next: u64,
    levels: [Level; LEVELS],
    /// The slots that are due.
    ready: List,
    /// Slots to move to narrower buckets, or that are due.
    moving: List,
    chunks: Chunks,
    len: usize,
}

#[derive(Debug)]
struct Level {
    lists: [List; BUCKETS],
    occupied: [u64; BUCKETS / 64],
}

/// Some chunks, of which only the first is not full.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: Slot,
    /// The lower bits; a wide bucket's place in the wheel tells the others.
    tick: u32,
}

impl Wheel {
    pub(super) fn new() -> Self {
        let level = || Level {
            lists: [List { first: NONE }; BUCKETS],
            occupied: [0; BUCKETS / 64],
        };
        Self {
            at: 0,
            next: u64::MAX,
            levels: std::array::from_fn(|_| level()),
            ready: List { first: NONE },
            moving: List { first: NONE },
            chunks: Chunks::default(),
            len: 0,
        }
    }

    /// Name `slot` at `due`; never, if that is [`Instant::NEVER`].
    #[cfg(test)]
    pub(super) fn push(&mut self, due: Instant, slot: Slot) -> Mark {
        if due == Instant::NEVER {
            return Mark::NONE;
        }
        self.push_tick(tick_at_or_after(due), slot)
    }

    /// Name `slot` at `due` or somewhat earlier, if the entry named by `mark`
    /// will not. Says which entry will.
    ///
    /// What is over a year away is named after a year, to be covered again.
    pub(super) fn cover(&mut self, mark: Mark, due: Instant, slot: Slot) -> Mark {
        let tick = tick_at_or_after(due);
        let ahead = i64::from(mark.0.wrapping_sub(self.at as u32).cast_signed());
        let is_covered = mark != Mark::NONE && self.at.saturating_add_signed(ahead) <= tick;
        if is_covered || due == Instant::NEVER {
            return mark;
        }
        self.push_tick(tick.min(self.at + COVER_MAX), slot)
    }

    /// Some slot that is due by `now`, and which of its entries said so.
    ///
    /// None also if a step's work is done and there is more to do: then
    /// [`first`](Self::first) is not after `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Slot, Mark)> {
        let now = now.as_nanos() >> TICK_BITS;
        let mut moves = 0;
        loop {
            if let Some(entry) = self.chunks.pop(&mut self.ready) {
                return Some(self.named(entry));
            }
            while let Some(entry) = self.chunks.pop(&mut self.moving) {
                let tick = self.at >> 32 << 32 | u64::from(entry.tick);
                if tick <= now {
                    return Some(self.named(entry));
                }
                self.place(tick, entry);
                moves += 1;
                if moves == MOVES_MAX {
                    return None;
                }
            }
            if !self.turn(now) {
                return None;
            }
        }
    }

    /// When to call [`pop_due`](Self::pop_due) next: never late, perhaps
    /// early where the next entry is far away, and then nearer each time.
    pub(super) fn first(&self) -> Instant {
        if self.ready.first != NONE || self.moving.first != NONE {
            return Instant::from_nanos(self.at << TICK_BITS);
        }
        match self.next {
            u64::MAX => Instant::NEVER,
            next => Instant::from_nanos(next << TICK_BITS),
        }
    }

    /// How many entries there are, stale ones included.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Everything the wheel has from the system, and itself.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.chunks.bytes()
    }

    fn push_tick(&mut self, tick: u64, slot: Slot) -> Mark {
        // No mark is zero: what is due with the first of 2^32 ticks waits for
        // the next.
        let tick = tick + u64::from(tick as u32 == 0);
        if tick >> (LEVELS as u32 * BUCKET_BITS) != 0 {
            // The clock ends before.
            return Mark::NONE;
        }
        let entry = Entry {
            slot,
            tick: tick as u32,
        };
        self.len += 1;
        self.place(tick, entry);
        Mark(entry.tick)
    }

    /// Put an entry into the bucket where it belongs at this time.
    fn place(&mut self, tick: u64, entry: Entry) {
        if tick <= self.at {
            self.chunks.push(&mut self.ready, entry);
            return;
        }
        let level = ((tick ^ self.at).ilog2() / BUCKET_BITS) as usize;
        let shift = level as u32 * BUCKET_BITS;
        let bucket = (tick >> shift) as usize % BUCKETS;
        self.next = self.next.min(tick >> shift << shift);
        let level = &mut self.levels[level];
        self.chunks.push(&mut level.lists[bucket], entry);
        level.occupied[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Go on to the next bucket that begins by `now`; false if none does.
    fn turn(&mut self, now: u64) -> bool {
        // Every entry stays in the bucket where it would be put now.
        if self.next > now {
            self.at = self.at.max(now);
            return false;
        }
        let next = self.next_bucket();
        let (level, bucket, start) = next.expect("one of the buckets begins by now");
        self.at = start;
        let width = 1_u64 << (level as u32 * BUCKET_BITS);
        let level = &mut self.levels[level];
        let list = std::mem::replace(&mut level.lists[bucket], List { first: NONE });
        level.occupied[bucket / 64] &= !(1 << (bucket % 64));
        self.next = self.next_bucket().map_or(u64::MAX, |(_, _, start)| start);
        if start + (width - 1) <= now {
            self.ready = list;
        } else {
            self.moving = list;
        }
        true
    }

    /// The earliest bucket with entries, and the tick it begins with.
    fn next_bucket(&self) -> Option<(usize, usize, u64)> {
        // What differs from now in lower bits only comes before all others.
        self.levels.iter().enumerate().find_map(|(level, buckets)| {
            let bucket = buckets.first()?;
            let shift = level as u32 * BUCKET_BITS;
            let above = self.at >> (shift + BUCKET_BITS) << BUCKET_BITS;
            Some((level, bucket, (above | bucket as u64) << shift))
        })
    }

    const fn named(&mut self, entry: Entry) -> (Slot, Mark) {
        self.len -= 1;
        (entry.slot, Mark(entry.tick))
    }
}

impl Level {
    /// The first bucket with entries: there are none before now.
    fn first(&self) -> Option<usize> {
        let word = self.occupied.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

#[derive(Debug)]
struct Chunk {
    entries: [Entry; CHUNK],
    len: u32,
    next: u32,
}

/// The chunks of all lists, so that lists can be handed on whole.
#[derive(Debug, Default)]
struct Chunks {
    all: Vec<Option<Box<Chunk>>>,
    /// Numbers without a chunk.
    vacant: Vec<u32>,
    /// Numbers with a chunk that no list has.
    spare: Vec<u32>,
}

impl Chunks {
    fn push(&mut self, list: &mut List, entry: Entry) {
        if list.first == NONE || self.chunk(list.first).len as usize == CHUNK {
            list.first = self.add(list.first);
        }
        let chunk = self.chunk(list.first);
        chunk.entries[chunk.len as usize] = entry;
        chunk.len += 1;
    }

    fn pop(&mut self, list: &mut List) -> Option<Entry> {
        if list.first == NONE {
            return None;
        }
        let chunk = self.chunk(list.first);
        chunk.len -= 1;
        let entry = chunk.entries[chunk.len as usize];
        if chunk.len == 0 {
            let next = chunk.next;
            self.give_back(list.first);
            list.first = next;
        }
        Some(entry)
    }

    fn chunk(&mut self, number: u32) -> &mut Chunk {
        self.all[number as usize]
            .as_mut()
            .expect("lists have only numbers with a chunk")
    }

    /// An empty chunk, with others behind it.
    fn add(&mut self, next: u32) -> u32 {
        if let Some(number) = self.spare.pop() {
            self.chunk(number).next = next;
            return number;
        }
        let entry = Entry {
            slot: Slot(0),
            tick: 0,
        };
        let chunk = Some(Box::new(Chunk {
            entries: [entry; CHUNK],
            len: 0,
            next,
        }));
        if let Some(number) = self.vacant.pop() {
            self.all[number as usize] = chunk;
            return number;
        }
        self.all.push(chunk);
        self.all.len() as u32 - 1
    }

    /// An empty chunk is needed no longer.
    fn give_back(&mut self, number: u32) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(number);
        } else {
            self.all[number as usize] = None;
            self.vacant.push(number);
        }
    }

    fn bytes(&self) -> usize {
        (self.all.len() - self.vacant.len()) * size_of::<Chunk>()
            + self.all.capacity() * size_of::<Option<Box<Chunk>>>()
            + (self.vacant.capacity() + self.spare.capacity()) * size_of::<u32>()
    }
}

/// The first tick that is not before `due`.
const fn tick_at_or_after(due: Instant) -> u64 {
    due.as_nanos().div_ceil(1 << TICK_BITS)
}

#[cfg(test)]
mod tests;
