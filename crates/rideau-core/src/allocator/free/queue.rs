//! The values freed last, in the order they were freed.
//!
//! It is bounded: when it is full, the one freed first leaves it, and counts
//! from then on as freed long ago.

use std::collections::{BTreeMap, VecDeque};

use super::super::interval::Interval;

/// At most this many values are kept in order. It bounds the memory to about 5 MiB.
pub(super) const QUEUED_MAX: usize = 65_536;
/// How many values are looked at to find the oldest of an interval, and how
/// many dead entries are cleared away at once.
const LOOKS_MAX: usize = 256;

/// The memory of an entry of the map: a key, a stamp, and its part of the nodes.
const ENTRY_BYTES: usize = 40;

/// Freed values, the oldest in front.
///
/// Invariants: the entry at index `i` was freed with stamp `head + i`. A value in
/// `stamps` has its entry there; an entry without its stamp is dead.
#[derive(Debug, Default)]
pub(super) struct Queue {
    stamps: BTreeMap<u128, u64>,
    entries: VecDeque<u128>,
    head: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.stamps.len()
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.stamps.len() * ENTRY_BYTES + self.entries.capacity() * size_of::<u128>()
    }

    pub(super) fn contains(&self, value: u128) -> bool {
        self.stamps.contains_key(&value)
    }

    pub(super) fn count_in(&self, within: Interval) -> usize {
        let ends = [self.stamps.first_key_value(), self.stamps.last_key_value()];
        if ends
            .iter()
            .flatten()
            .all(|(value, _)| within.contains(**value))
        {
            return self.len();
        }
        self.stamps.range(within.first()..=within.last()).count()
    }

    /// The lowest value of `within`.
    pub(super) fn lowest(&self, within: Interval) -> Option<u128> {
        let mut values = self.stamps.range(within.first()..=within.last());
        values.next().map(|(value, _)| *value)
    }

    /// All values from the lowest to the highest.
    pub(super) fn values(&self) -> impl Iterator<Item = u128> {
        self.stamps.keys().copied()
    }

    /// The value of `within` that was freed first.
    ///
    /// If `within` is but a part of many values, only some of them are looked
    /// at, and it is the oldest of these.
    pub(super) fn oldest(&self, within: Interval) -> Option<u128> {
        let lowest = self.lowest(within)?;
        let front = self.entries.iter().take(LOOKS_MAX).enumerate();
        let mut ours = front.filter(|(_, value)| within.contains(**value));
        if let Some((_, value)) = ours.find(|(index, value)| self.is_live(*index, **value)) {
            return Some(*value);
        }
        let values = self.stamps.range(lowest..=within.last()).take(LOOKS_MAX);
        values
            .min_by_key(|(_, stamp)| **stamp)
            .map(|(value, _)| *value)
    }

    /// A value was freed that is not in it. Gives back the value that had to leave.
    pub(super) fn push(&mut self, value: u128) -> Option<u128> {
        let left = if self.entries.len() == QUEUED_MAX {
            self.pop_entry()
        } else {
            None
        };
        let stamp = self.head + self.entries.len() as u64;
        self.stamps.insert(value, stamp);
        self.entries.push_back(value);
        left
    }

    /// Take a value out. False if it was not in.
    pub(super) fn remove(&mut self, value: u128) -> bool {
        let removed = self.stamps.remove(&value).is_some();
        if self.stamps.is_empty() {
            self.head += self.entries.len() as u64;
            self.entries.clear();
        }
        // Not all at once: there may be many. Each is looked at only once.
        for _ in 0..LOOKS_MAX {
            match self.entries.front() {
                Some(front) if !self.is_live(0, *front) => self.pop_entry(),
                _ => break,
            };
        }
        removed
    }

    /// Take all values of `within` out. Says how many were in.
    pub(super) fn remove_all(&mut self, within: Interval) -> usize {
        let before = self.len();
        while let Some(value) = self.lowest(within) {
            self.remove(value);
        }
        before - self.len()
    }

    /// Take the front entry out, and give back its value if it was live.
    fn pop_entry(&mut self) -> Option<u128> {
        let front = *self.entries.front()?;
        let live = self.is_live(0, front);
        if live {
            self.stamps.remove(&front);
        }
        self.entries.pop_front();
        self.head += 1;
        live.then_some(front)
    }

    /// The entry at this index still stands for its value.
    fn is_live(&self, index: usize, value: u128) -> bool {
        self.stamps.get(&value) == Some(&(self.head + index as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(first: u128, last: u128) -> Interval {
        Interval::new(first, last).unwrap()
    }

    fn take(queue: &mut Queue, within: Interval) -> Option<u128> {
        let value = queue.oldest(within)?;
        assert!(queue.remove(value));
        Some(value)
    }

    #[test]
    fn the_value_freed_first_is_taken_first() {
        let mut queue = Queue::default();
        for value in [5, 9, 1, 7] {
            assert_eq!(queue.push(value), None);
        }
        assert_eq!(queue.lowest(interval(2, 8)), Some(5));
        assert_eq!(take(&mut queue, interval(0, 4)), Some(1));
        assert_eq!(take(&mut queue, Interval::ALL), Some(5));
        assert_eq!(queue.count_in(Interval::ALL), 2);
        assert_eq!(queue.values().collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn a_value_freed_again_goes_to_the_end() {
        let mut queue = Queue::default();
        queue.push(1);
        queue.push(2);
        assert!(queue.remove(1));
        assert!(!queue.remove(1));
        queue.push(1);
        assert_eq!(take(&mut queue, Interval::ALL), Some(2));
        assert_eq!(take(&mut queue, Interval::ALL), Some(1));
        assert_eq!(take(&mut queue, Interval::ALL), None);
    }

    #[test]
    fn a_full_queue_lets_the_oldest_go() {
        let mut queue = Queue::default();
        let full = QUEUED_MAX as u128;
        for value in 0..full {
            assert_eq!(queue.push(value), None);
        }
        assert_eq!(queue.push(full), Some(0));
        assert!(queue.remove(full - 1));
        assert_eq!(queue.push(full + 1), Some(1), "a dead entry has its place");
        assert!(queue.remove(2));
        assert_eq!(queue.push(full + 2), None, "at the front it has none");
        assert!(queue.entries.len() <= QUEUED_MAX);
        assert!(queue.bytes() < 5 << 20);
    }

    #[test]
    fn dead_entries_do_not_stay_for_ever() {
        let mut queue = Queue::default();
        for value in 0..1_000 {
            queue.push(value);
        }
        for value in (1..1_000).rev() {
            queue.remove(value);
        }
        assert_eq!(queue.entries.len(), 1_000, "the oldest keeps them all");
        queue.remove(0);
        assert_eq!(queue.entries.len(), 0);
    }

    #[test]
    fn few_values_behind_many_others_are_taken_in_order() {
        let mut queue = Queue::default();
        for value in 1_000..3_000 {
            queue.push(value);
        }
        for value in [8, 3, 5] {
            queue.push(value);
        }
        let part = interval(0, 9);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut queue, part)).collect();
        assert_eq!(taken, [8, 3, 5]);
        assert_eq!(queue.remove_all(interval(1_500, 4_000)), 1_500);
        assert_eq!(queue.len(), 500);
    }
}
