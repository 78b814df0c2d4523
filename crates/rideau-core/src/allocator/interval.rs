//! Values from one to another, both included.
//!
//! The end is included because the end of everything, 2^128, is no value.

use std::fmt;

use super::size::Size;

/// The values from the first to the last; there is at least one.
///
/// Invariant: the first is not after the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    first: u128,
    last: u128,
}

impl Interval {
    /// Every value there is.
    pub const ALL: Self = Self {
        first: 0,
        last: u128::MAX,
    };

    /// From `first` to `last`, unless they stand in the wrong order.
    pub const fn new(first: u128, last: u128) -> Option<Self> {
        if first <= last {
            Some(Self { first, last })
        } else {
            None
        }
    }

    /// One value.
    pub const fn of(value: u128) -> Self {
        Self {
            first: value,
            last: value,
        }
    }

    /// The lowest value in it.
    pub const fn first(self) -> u128 {
        self.first
    }

    /// The highest value in it.
    pub const fn last(self) -> u128 {
        self.last
    }

    /// One past the last, as half-open intervals have it.
    pub fn end(self) -> Size {
        Size::new(self.last) + Size::ONE
    }

    /// How many values are in it.
    pub fn size(self) -> Size {
        Size::new(self.last - self.first) + Size::ONE
    }

    /// The value is in it.
    pub const fn contains(self, value: u128) -> bool {
        self.first <= value && value <= self.last
    }

    /// All of the other is in it.
    pub const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The intersection.
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// Nothing is in both.
    pub const fn is_disjoint(self, other: Self) -> bool {
        self.last < other.first || other.last < self.first
    }

    /// The part before the other begins.
    pub fn before(self, other: Self) -> Option<Self> {
        let last = other.first.checked_sub(1)?;
        Self::new(self.first, self.last.min(last))
    }

    /// The part after the other has ended.
    pub fn after(self, other: Self) -> Option<Self> {
        let first = other.last.checked_add(1)?;
        Self::new(self.first.max(first), self.last)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// What is in these and not in those.
pub(super) fn minus(these: &[Interval], those: &[Interval]) -> Vec<Interval> {
    let mut left = these.to_vec();
    for gone in those {
        left = left
            .into_iter()
            .flat_map(|interval| match interval.is_disjoint(*gone) {
                true => [Some(interval), None],
                false => [interval.before(*gone), interval.after(*gone)],
            })
            .flatten()
            .collect();
    }
    left
}

/// What is in two lists of intervals.
pub(super) fn both(mut these: Vec<Interval>, mut those: Vec<Interval>) -> Vec<Interval> {
    these.sort_by_key(|interval| interval.first());
    those.sort_by_key(|interval| interval.first());
    let mut both = Vec::new();
    let (mut this, mut that) = (0, 0);
    while let (Some(one), Some(other)) = (these.get(this), those.get(that)) {
        both.extend(one.intersect(*other));
        if one.last() < other.last() {
            this += 1;
        } else {
            that += 1;
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(first: u128, last: u128) -> Interval {
        Interval::new(first, last).unwrap()
    }

    #[test]
    fn a_reversed_interval_is_none() {
        assert_eq!(Interval::new(5, 4), None);
        assert_eq!(Interval::new(5, 5), Some(Interval::of(5)));
    }

    #[test]
    fn the_ends_of_the_numbers_are_like_any_others() {
        assert_eq!(Interval::ALL.size(), Size::ALL);
        assert_eq!(Interval::ALL.end(), Size::ALL);
        assert_eq!(Interval::of(u128::MAX).size(), Size::ONE);
        assert_eq!(interval(0, u128::MAX - 1).size(), Size::new(u128::MAX));
        assert_eq!(Interval::ALL.before(Interval::of(0)), None);
        assert_eq!(Interval::ALL.after(Interval::of(u128::MAX)), None);
    }

    #[test]
    fn what_is_shared_and_what_is_not_make_up_the_whole() {
        for first in 0..8 {
            for last in first..8 {
                let (whole, other) = (interval(2, 5), interval(first, last));
                let parts = [
                    whole.before(other),
                    whole.intersect(other),
                    whole.after(other),
                ];
                let size: Size = parts.iter().flatten().map(|part| part.size()).sum();
                assert_eq!(size, whole.size(), "{other:?}");
                assert_eq!(whole.is_disjoint(other), parts[1].is_none());
                assert_eq!(whole.covers(other), parts[1] == Some(other));
            }
        }
    }
}
