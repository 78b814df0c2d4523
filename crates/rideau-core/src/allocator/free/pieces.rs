//! A set of values that costs by its pieces, never by its size.
//!
//! Values next to each other are one run, however many they are. Where a
//! block of 4,096 values has too many runs, a bitmap is smaller and takes
//! their place. So a fresh range is one entry, a sparse one has an entry for
//! each hole, and a crowded one an eighth of a byte for each value.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::super::interval::Interval;
use super::super::size::Size;
use super::chunk::{Chunk, PLACES};

/// The set, in pieces that do not overlap.
///
/// Invariants: a piece stands under its last value, so that the first piece
/// from a value on is the one that has it or the next one. A chunk has its
/// block for itself and more than [`RUNS_MIN`] runs. No two runs touch, and no
/// block has parts of more than [`RUNS_MAX`] of them.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    by_last: BTreeMap<u128, Piece>,
    chunks: usize,
    count: Size,
}

#[derive(Debug)]
enum Piece {
    /// All from here to the key.
    Run(First),
    /// Some of the block that ends at the key.
    Chunk(Box<Chunk>),
}

/// A value in halves, so that a piece need not be aligned to 16 bytes: that
/// would cost 8 more for each.
#[derive(Clone, Copy, Debug)]
struct First([u64; 2]);

/// More runs than this in one block cost more than a chunk.
const RUNS_MAX: usize = 8;
/// A chunk with no more runs than this becomes runs again. It is less than
/// [`RUNS_MAX`], so that a block on the border does not turn to and fro.
const RUNS_MIN: u16 = 2;

/// What an entry of the map costs: a key, a piece, and its part of the nodes,
/// which are between a half and all full.
const ENTRY_BYTES: usize = 64;
/// The memory of a chunk, with the overhead of the allocator.
const CHUNK_BYTES: usize = size_of::<Chunk>() + 16;

impl Pieces {
    pub(super) const fn new() -> Self {
        Self {
            by_last: BTreeMap::new(),
            chunks: 0,
            count: Size::ZERO,
        }
    }

    /// How many values are in it.
    pub(super) const fn count(&self) -> Size {
        self.count
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.by_last.len() * ENTRY_BYTES + self.chunks * CHUNK_BYTES
    }

    pub(super) fn contains(&self, value: u128) -> bool {
        self.by_last
            .range(value..)
            .next()
            .is_some_and(|(&last, piece)| match piece {
                Piece::Run(first) => first.value() <= value,
                Piece::Chunk(chunk) => block_of(last).contains(value) && chunk.contains(at(value)),
            })
    }

    /// How many values of `within` are in it.
    pub(super) fn count_in(&self, within: Interval) -> Size {
        let pieces = self.by_last.range(within.first()..);
        let parts = pieces.map_while(|(&last, piece)| {
            let part = piece.span(last).intersect(within)?;
            Some(match piece {
                Piece::Run(_) => part.size(),
                Piece::Chunk(chunk) if part == block_of(last) => Size::new(chunk.len().into()),
                Piece::Chunk(chunk) => {
                    let count = chunk.count_in(at(part.first()), at(part.last()));
                    Size::new(count.into())
                }
            })
        });
        parts.sum()
    }

    /// The lowest value of `within` that is in it.
    pub(super) fn lowest(&self, within: Interval) -> Option<u128> {
        // Only the first piece can have nothing from there on.
        for (&last, piece) in self.by_last.range(within.first()..).take(2) {
            let from = piece.span(last).first().max(within.first());
            let value = match piece {
                Piece::Run(_) => Some(from),
                Piece::Chunk(chunk) => chunk.next(at(from)).map(|place| value_at(last, place)),
            };
            if value.is_some() {
                return value.filter(|value| *value <= within.last());
            }
        }
        None
    }

    /// The lowest of all.
    pub(super) fn first(&self) -> Option<u128> {
        let (&last, piece) = self.by_last.first_key_value()?;
        match piece {
            Piece::Chunk(chunk) => chunk.next(0).map(|place| value_at(last, place)),
            Piece::Run(first) => Some(first.value()),
        }
    }

    /// Take the lowest of all, which is what is mostly taken: it is found
    /// without comparing anything.
    pub(super) fn pop_lowest(&mut self) -> Option<u128> {
        let mut entry = self.by_last.first_entry()?;
        let last = *entry.key();
        let value = match entry.get_mut() {
            Piece::Chunk(chunk) => {
                let place = chunk.next(0).expect("a chunk has free places");
                chunk.remove(place);
                let runs = chunk.runs();
                self.dissolve_below_min(last, runs);
                value_at(last, place)
            }
            Piece::Run(first) => {
                let value = first.value();
                if value < last {
                    *first = First::new(value + 1);
                } else {
                    entry.remove();
                }
                value
            }
        };
        self.count -= Size::ONE;
        Some(value)
    }

    /// Values next to each other, in order. A run that ends where a chunk
    /// begins is not joined with it.
    pub(super) fn runs(&self) -> impl Iterator<Item = Interval> {
        self.by_last.iter().flat_map(|(&last, piece)| {
            let (run, chunk) = match piece {
                Piece::Run(_) => (Some(piece.span(last)), None),
                Piece::Chunk(chunk) => (None, Some(chunk)),
            };
            let places = chunk.into_iter().flat_map(|chunk| chunk.all_runs());
            run.into_iter()
                .chain(places.map(move |run| interval_at(last, run)))
        })
    }

    /// Put a value in. False if it was in already.
    pub(super) fn insert(&mut self, value: u128) -> bool {
        match self.by_last.range_mut(value..).next() {
            Some((&last, Piece::Chunk(chunk))) if block_of(last).contains(value) => {
                if !chunk.insert(at(value)) {
                    return false;
                }
                let runs = chunk.runs();
                self.dissolve_below_min(last, runs);
            }
            Some((_, Piece::Run(first))) if first.value() <= value => return false,
            _ => {
                self.join(Interval::of(value));
                self.condense(value);
            }
        }
        self.count += Size::ONE;
        true
    }

    /// Take a value out. False if it was not in.
    pub(super) fn remove(&mut self, value: u128) -> bool {
        let Some((&last, piece)) = self.by_last.range_mut(value..).next() else {
            return false;
        };
        match piece {
            Piece::Chunk(chunk) => {
                if !block_of(last).contains(value) || !chunk.remove(at(value)) {
                    return false;
                }
                let runs = chunk.runs();
                self.dissolve_below_min(last, runs);
            }
            // The lowest is the one that is mostly taken, and nothing moves.
            Piece::Run(first) if first.value() == value && value < last => {
                *first = First::new(value + 1);
            }
            Piece::Run(first) => {
                let Some(run) = Interval::new(first.value(), last).filter(|r| r.contains(value))
                else {
                    return false;
                };
                self.cut(run, Interval::of(value));
            }
        }
        self.count -= Size::ONE;
        true
    }

    /// Put all of them in. Says how many were not in before.
    pub(super) fn insert_all(&mut self, values: Interval) -> Size {
        let before = self.remove_all(values);
        // What chunks are left there have values outside too.
        let rest = self.fill(values, block_of(values.first()));
        let rest = rest.and_then(|rest| self.fill(rest, block_of(rest.last())));
        if let Some(run) = rest {
            self.join(run);
            self.condense(run.first());
            self.condense(run.last());
        }
        self.count += values.size();
        values.size() - before
    }

    /// Take all of them out. Says how many were in.
    pub(super) fn remove_all(&mut self, values: Interval) -> Size {
        let mut removed = Size::ZERO;
        let mut rest = Some(values);
        while let Some(values) = rest {
            let next = self.by_last.range_mut(values.first()..).next();
            let Some((&last, piece)) = next else { break };
            let span = piece.span(last);
            let Some(part) = span.intersect(values) else {
                break;
            };
            if let Piece::Chunk(chunk) = piece {
                let count = chunk.remove_all(at(part.first()), at(part.last()));
                let runs = chunk.runs();
                removed += Size::new(count.into());
                self.dissolve_below_min(last, runs);
            } else {
                removed += part.size();
                self.cut(span, part);
            }
            rest = values.after(part);
        }
        self.count -= removed;
        removed
    }

    /// Take out the lowest values that are next to each other.
    pub(super) fn pop_run(&mut self) -> Option<Interval> {
        let run = self.runs().next()?;
        self.remove_all(run);
        Some(run)
    }

    /// Make a run of values that are in no piece and in no chunk's block.
    fn join(&mut self, values: Interval) {
        let mut first = First::new(values.first());
        if let Some(before) = values.first().checked_sub(1)
            && let Some(Piece::Run(lower)) = self.by_last.get(&before)
        {
            first = *lower;
            self.by_last.remove(&before);
        }
        if let Some(after) = values.last().checked_add(1)
            && let Some((_, Piece::Run(higher))) = self.by_last.range_mut(after..).next()
            && higher.value() == after
        {
            *higher = first;
        } else {
            self.by_last.insert(values.last(), Piece::Run(first));
        }
    }

    /// Take `part` out of a run.
    fn cut(&mut self, run: Interval, part: Interval) {
        let (lower, higher) = (run.before(part), run.after(part));
        match higher {
            Some(higher) => {
                let piece = Piece::Run(First::new(higher.first()));
                self.by_last.insert(run.last(), piece);
            }
            None => {
                self.by_last.remove(&run.last());
            }
        }
        if let Some(lower) = lower {
            let piece = Piece::Run(First::new(lower.first()));
            self.by_last.insert(lower.last(), piece);
        }
        if lower.is_some() && higher.is_some() {
            self.condense(part.first());
        }
    }

    /// Put in what of `values` lies in the block, if that is a chunk. Gives
    /// back what is still to be put in.
    fn fill(&mut self, values: Interval, block: Interval) -> Option<Interval> {
        let Some(Piece::Chunk(chunk)) = self.by_last.get_mut(&block.last()) else {
            return Some(values);
        };
        let part = values.intersect(block)?;
        chunk.insert_all(at(part.first()), at(part.last()));
        let runs = chunk.runs();
        self.dissolve_below_min(block.last(), runs);
        values.before(part).or_else(|| values.after(part))
    }

    /// Make the block of this value a chunk if it has too many runs.
    fn condense(&mut self, value: u128) {
        let block = block_of(value);
        let pieces = self.by_last.range(block.first()..);
        let parts = pieces.map_while(|(&last, piece)| match piece {
            Piece::Run(_) => piece.span(last).intersect(block),
            Piece::Chunk(_) => None,
        });
        if parts.clone().take(RUNS_MAX + 1).count() <= RUNS_MAX {
            return;
        }
        let mut chunk = Box::new(Chunk::new());
        for part in parts {
            chunk.insert_all(at(part.first()), at(part.last()));
        }
        self.clear(block);
        self.by_last.insert(block.last(), Piece::Chunk(chunk));
        self.chunks += 1;
    }

    /// Take all runs out of a block, for they are in a chunk now.
    fn clear(&mut self, block: Interval) {
        let lasts = (
            Bound::Included(block.first()),
            Bound::Included(block.last()),
        );
        while let Some((&last, piece)) = self.by_last.range(lasts).next() {
            let lower = piece.span(last).before(block);
            self.by_last.remove(&last);
            self.keep(lower);
        }
        let next = self.by_last.range(block.last()..).next();
        let Some((&last, piece)) = next else { return };
        let span = piece.span(last);
        if span.intersect(block).is_some() {
            self.keep(span.before(block));
            self.keep(span.after(block));
        }
    }

    /// Have this as a run, in place of the one with the same end.
    fn keep(&mut self, run: Option<Interval>) {
        if let Some(run) = run {
            let piece = Piece::Run(First::new(run.first()));
            self.by_last.insert(run.last(), piece);
        }
    }

    /// Make a chunk runs again if these are few.
    fn dissolve_below_min(&mut self, last: u128, runs: u16) {
        if runs > RUNS_MIN {
            return;
        }
        let piece = self.by_last.remove(&last);
        let Some(Piece::Chunk(chunk)) = piece else {
            unreachable!("only chunks dissolve")
        };
        self.chunks -= 1;
        for run in chunk.all_runs() {
            self.join(interval_at(last, run));
        }
    }
}

impl Piece {
    /// From where to where it may have values, if it stands under `last`.
    fn span(&self, last: u128) -> Interval {
        match self {
            Self::Run(first) => {
                Interval::new(first.value(), last).expect("a run begins no later than it ends")
            }
            Self::Chunk(_) => block_of(last),
        }
    }
}

impl First {
    const fn new(value: u128) -> Self {
        Self([(value >> 64) as u64, value as u64])
    }

    const fn value(self) -> u128 {
        (self.0[0] as u128) << 64 | self.0[1] as u128
    }
}

/// The block that a value lies in.
fn block_of(value: u128) -> Interval {
    let places = u128::from(PLACES - 1);
    Interval::new(value & !places, value | places).expect("a block has values")
}

/// The place of a value in its block.
const fn at(value: u128) -> u16 {
    value as u16 % PLACES
}

/// The value of a place in the block that ends at `last`.
fn value_at(last: u128, place: u16) -> u128 {
    block_of(last).first() | u128::from(place)
}

fn interval_at(last: u128, (first, end): (u16, u16)) -> Interval {
    Interval::new(value_at(last, first), value_at(last, end)).expect("runs go upwards")
}

#[cfg(test)]
impl Pieces {
    /// How many entries the map has, and how many of them are chunks.
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.by_last.len(), self.chunks)
    }

    /// Assert what the type promises of itself.
    pub(super) fn check(&self) {
        let mut before: Option<(Interval, bool)> = None;
        let mut runs_of = BTreeMap::<u128, usize>::new();
        let (mut chunks, mut count) = (0, Size::ZERO);
        for (&last, piece) in &self.by_last {
            let span = piece.span(last);
            let is_run = match piece {
                Piece::Run(_) => {
                    count += span.size();
                    let ends = [block_of(span.first()), block_of(last)];
                    *runs_of.entry(ends[0].last()).or_default() += 1;
                    *runs_of.entry(ends[1].last()).or_default() += usize::from(ends[0] != ends[1]);
                    true
                }
                Piece::Chunk(chunk) => {
                    assert_eq!(
                        last,
                        span.last(),
                        "a chunk stands under the end of its block"
                    );
                    assert!(chunk.runs() > RUNS_MIN);
                    count += Size::new(chunk.len().into());
                    chunks += 1;
                    false
                }
            };
            if let Some((before, was_run)) = before {
                let gap = span.first().checked_sub(before.last());
                let gap_min = if was_run && is_run { 2 } else { 1 };
                assert!(gap >= Some(gap_min), "{before:?} and {span:?}");
            }
            before = Some((span, is_run));
        }
        assert!(runs_of.values().all(|runs| *runs <= RUNS_MAX));
        assert_eq!((chunks, count), (self.chunks, self.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_no_larger_than_it_has_to_be() {
        assert_eq!(size_of::<Piece>(), 24);
    }

    #[test]
    fn a_crowded_block_becomes_a_chunk_and_runs_again() {
        let mut pieces = Pieces::new();
        for hole in 0..=RUNS_MAX as u128 {
            assert_eq!(pieces.entries(), (hole as usize, 0));
            pieces.insert(hole * 2);
            pieces.check();
        }
        assert_eq!(pieces.entries(), (1, 1));
        for hole in (0..=RUNS_MAX as u128).rev() {
            assert_eq!(
                pieces.entries().1,
                usize::from(hole >= u128::from(RUNS_MIN))
            );
            pieces.remove(hole * 2);
            pieces.check();
        }
        assert_eq!(pieces.entries(), (0, 0));
    }

    #[test]
    fn a_run_that_reaches_into_a_crowded_block_makes_it_a_chunk() {
        let block = block_of(5 * 4096);
        for (first, last) in [(100, block.first() + 8), (block.last() - 8, 99_000)] {
            let mut pieces = Pieces::new();
            for run in 0..RUNS_MAX as u128 {
                pieces.insert(block.first() + 100 + run * 2);
            }
            assert_eq!(pieces.entries(), (RUNS_MAX, 0));
            pieces.insert_all(Interval::new(first, last).unwrap());
            pieces.check();
            assert_eq!(
                pieces.entries(),
                (2, 1),
                "the chunk, and the rest of the run"
            );
        }
    }

    #[test]
    fn a_chunk_that_is_filled_joins_what_is_beside_it() {
        let mut pieces = Pieces::new();
        pieces.insert_all(Interval::ALL);
        let holes = (0..100).map(|hole| (1 << 100) + hole * 2);
        for hole in holes.clone() {
            pieces.remove(hole);
        }
        pieces.check();
        assert_eq!(pieces.entries(), (3, 1), "what is before, in and after it");
        for hole in holes {
            pieces.insert(hole);
        }
        pieces.check();
        assert_eq!(pieces.entries(), (1, 0));
        assert_eq!(pieces.count(), Size::ALL);
    }
}
