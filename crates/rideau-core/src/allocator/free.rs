//! The free values of a range, and which of them is next.
//!
//! What is free is kept in pieces, so a range costs nothing for its size. Only
//! a range that hands out the longest freed value first pays for knowing when
//! each was freed.

mod chunk;
mod pieces;
mod queue;
#[cfg(test)]
mod tests;

use std::iter;

use super::interval::Interval;
use super::size::Size;
use crate::rng::Rng;
use pieces::Pieces;
use queue::Queue;

/// The free values of a range.
///
/// Invariant: a value is in one of the two parts at most.
#[derive(Debug)]
pub(super) struct Free {
    /// Fresh ones, and those freed so long ago that it is not known when.
    settled: Pieces,
    /// Values that were freed recently, if their order matters.
    queue: Option<Queue>,
}

impl Free {
    /// Nothing is free, and when a value is freed does not matter.
    pub(super) const fn new() -> Self {
        Self {
            settled: Pieces::new(),
            queue: None,
        }
    }

    /// Nothing is free, and [`take_oldest`](Self::take_oldest) is to know the
    /// order in which values are freed.
    pub(super) fn queued() -> Self {
        Self {
            settled: Pieces::new(),
            queue: Some(Queue::default()),
        }
    }

    /// How many are free.
    pub(super) fn count(&self) -> Size {
        let queued = self.queue.as_ref().map_or(0, Queue::len);
        self.settled.count() + Size::new(queued as u128)
    }

    /// How many of `within` are free. It looks at each piece there.
    pub(super) fn count_in(&self, within: Interval) -> Size {
        let queue = self.queue.as_ref();
        let queued = queue.map_or(0, |queue| queue.count_in(within));
        self.settled.count_in(within) + Size::new(queued as u128)
    }

    /// The value is free.
    pub(super) fn contains(&self, value: u128) -> bool {
        let queued = |queue: &Queue| queue.contains(value);
        self.settled.contains(value) || self.queue.as_ref().is_some_and(queued)
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.settled.bytes() + self.queue.as_ref().map_or(0, Queue::bytes)
    }

    /// A value is free again. False if it was free already.
    pub(super) fn insert(&mut self, value: u128) -> bool {
        let Some(queue) = &mut self.queue else {
            return self.settled.insert(value);
        };
        if self.settled.contains(value) || queue.contains(value) {
            return false;
        }
        if let Some(oldest) = queue.push(value) {
            self.settled.insert(oldest);
        }
        true
    }

    /// Values are free that no holder had: they count as freed before all others.
    /// Says how many were not free before.
    pub(super) fn insert_all(&mut self, values: Interval) -> Size {
        let queue = self.queue.as_mut();
        let queued = queue.map_or(0, |queue| queue.remove_all(values));
        self.settled.insert_all(values) - Size::new(queued as u128)
    }

    /// A value is not free any more. False if it was not free.
    pub(super) fn remove(&mut self, value: u128) -> bool {
        let queue = self.queue.as_mut();
        self.settled.remove(value) || queue.is_some_and(|queue| queue.remove(value))
    }

    /// None of these is free any more. Says how many were.
    pub(super) fn remove_all(&mut self, values: Interval) -> Size {
        let queue = self.queue.as_mut();
        let queued = queue.map_or(0, |queue| queue.remove_all(values));
        self.settled.remove_all(values) + Size::new(queued as u128)
    }

    /// The lowest that was not queued.
    pub(super) fn lowest(&self) -> Option<u128> {
        self.settled.first()
    }

    /// Take the lowest of `within`.
    pub(super) fn take_lowest(&mut self, within: Interval) -> Option<u128> {
        if self.queue.is_none() && within == Interval::ALL {
            return self.settled.pop_lowest();
        }
        let settled = self.settled.lowest(within);
        let queue = self.queue.as_ref();
        let queued = queue.and_then(|queue| queue.lowest(within));
        let value = settled.into_iter().chain(queued).min()?;
        self.remove(value);
        Some(value)
    }

    /// Take the first that is free from a random point of `within` on, and
    /// from its beginning if none is.
    pub(super) fn take_random(&mut self, within: Interval, rng: &mut Rng) -> Option<u128> {
        let point = draw(within, rng);
        let upper = Interval::new(point, within.last()).expect("a point of it is not after it");
        let value = self.take_lowest(upper);
        value.or_else(|| self.take_lowest(within.before(upper)?))
    }

    /// Take the one of `within` that was freed longest ago; fresh ones first.
    pub(super) fn take_oldest(&mut self, within: Interval) -> Option<u128> {
        let queue = self.queue.as_ref();
        let settled = self.settled.lowest(within);
        let value = settled.or_else(|| queue?.oldest(within))?;
        self.remove(value);
        Some(value)
    }

    /// All that is free, from the lowest to the highest, as few intervals as
    /// can be.
    pub(super) fn intervals(&self) -> impl Iterator<Item = Interval> {
        let queue = self.queue.iter();
        let mut settled = self.settled.runs().peekable();
        let mut queued = queue.flat_map(Queue::values).map(Interval::of).peekable();
        let parts = iter::from_fn(move || match (settled.peek(), queued.peek()) {
            (Some(run), Some(value)) if run < value => settled.next(),
            (Some(_), None) => settled.next(),
            _ => queued.next(),
        });
        joined(parts)
    }

    /// Take out some that are next to each other, in a bounded time. A caller
    /// that moves all of them asks again until there are none.
    pub(super) fn pop_interval(&mut self) -> Option<Interval> {
        self.settled.pop_run().or_else(|| {
            let queue = self.queue.as_mut()?;
            let value = queue.oldest(Interval::ALL)?;
            queue.remove(value);
            Some(Interval::of(value))
        })
    }
}

/// A value of `within`, each as likely as every other.
fn draw(within: Interval, rng: &mut Rng) -> u128 {
    let distance_max = within.last() - within.first();
    let mask = u128::MAX
        .checked_shr(distance_max.leading_zeros())
        .unwrap_or(0);
    loop {
        let bits = u128::from(rng.draw()) << 64 | u128::from(rng.draw());
        // At least every other draw is near enough.
        if bits & mask <= distance_max {
            return within.first() + (bits & mask);
        }
    }
}

/// The same values with neighbours joined.
fn joined(parts: impl Iterator<Item = Interval>) -> impl Iterator<Item = Interval> {
    let mut parts = parts.peekable();
    iter::from_fn(move || {
        let mut whole = parts.next()?;
        while let Some(next) =
            parts.next_if(|next| whole.last().checked_add(1) == Some(next.first()))
        {
            whole = Interval::new(whole.first(), next.last()).expect("parts go upwards");
        }
        Some(whole)
    })
}
