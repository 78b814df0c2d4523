//! How one partition sees values: each at its place among those of the partition.
//!
//! The machine of a partition knows only such places, and so do its log and its
//! snapshots. What goes to it and what comes from it is translated here.

use std::borrow::Cow;

use super::Reservation;
use super::ask::{Ask, Place, Prefer, Which};
use super::hold::Held;
use super::interval::Interval;
use super::look::Seen;
use super::range::RangeOptions;
use super::reserve::Share;
use super::span::Span;
use crate::cluster::Partitions;
use crate::time::Instant;

/// One of the partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partition {
    partitions: Partitions,
    number: u32,
    /// By how many nanoseconds its clock is ahead of that of the process.
    ahead: i64,
}

impl Partition {
    /// All partitions, in order.
    pub(super) fn all(partitions: Partitions) -> impl Iterator<Item = Self> {
        (0..partitions.count()).map(move |number| Self::new(partitions, number))
    }

    /// This partition, with the clock of the process.
    pub(super) const fn new(partitions: Partitions, number: u32) -> Self {
        Self {
            partitions,
            number,
            ahead: 0,
        }
    }

    /// The same with a clock of its own, which shows `inside` while that of the process
    /// shows `outside`.
    pub(super) const fn with_clock(self, inside: Instant, outside: Instant) -> Self {
        let ahead = inside
            .as_nanos()
            .cast_signed()
            .saturating_sub(outside.as_nanos().cast_signed());
        Self { ahead, ..self }
    }

    /// Converts an instant of the process's clock to the partition's clock.
    pub(super) const fn inside(self, outside: Instant) -> Instant {
        Instant::from_nanos(outside.as_nanos().saturating_add_signed(self.ahead))
    }

    /// Converts an instant of the partition's clock to the process's clock.
    pub(super) const fn outside(self, inside: Instant) -> Instant {
        let behind = self.ahead.saturating_neg();
        Instant::from_nanos(inside.as_nanos().saturating_add_signed(behind))
    }

    pub(super) const fn number(self) -> u32 {
        self.number
    }

    /// The value at a place.
    pub(super) const fn value(self, index: u128) -> u128 {
        self.partitions.value(self.number, index)
    }

    /// The place of a value of this partition.
    pub(super) const fn index(self, value: u128) -> u128 {
        self.partitions.index(value)
    }

    /// The places of those of these values that are in this partition.
    pub(super) fn indexes(self, values: Interval) -> Option<Interval> {
        let values = values.first()..=values.last();
        let indexes = self.partitions.indexes(self.number, values)?;
        Interval::new(*indexes.start(), *indexes.end())
    }

    /// From the first to the last of the values at these places, with those of other
    /// partitions between them.
    pub(super) fn hull(self, indexes: Interval) -> Interval {
        let (first, last) = (self.value(indexes.first()), self.value(indexes.last()));
        Interval::new(first, last).expect("places are in the order of values")
    }

    /// The part of a range in this partition. It may be empty.
    pub(super) fn options(self, options: &RangeOptions) -> RangeOptions {
        RangeOptions {
            spans: self.spans(&options.spans),
            skip: self.spans(&options.skip),
            ..options.clone()
        }
    }

    fn spans(self, spans: &[Span]) -> Vec<Span> {
        let here = |span: &Span| {
            let interval = self.indexes(span.interval)?;
            let kind = span.kind;
            Some(Span { kind, interval })
        };
        spans.iter().filter_map(here).collect()
    }

    /// Where an ask looks in this partition.
    pub(super) fn prefer(self, prefer: &Prefer) -> Option<Prefer> {
        let tier = prefer.tier;
        let place = match prefer.place {
            Place::Range(id) => Place::Range(id),
            Place::Within(within) => Place::Within(self.indexes(within)?),
        };
        Some(Prefer { tier, place })
    }

    /// All places where an ask looks in this partition.
    pub(super) fn prefers<'a>(self, ask: &Ask<'a>) -> Cow<'a, [Prefer]> {
        let is_range = |prefer: &Prefer| matches!(prefer.place, Place::Range(_));
        if ask.prefer.iter().all(is_range) {
            return Cow::Borrowed(ask.prefer);
        }
        let prefer = ask.prefer.iter();
        Cow::Owned(prefer.filter_map(|one| self.prefer(one)).collect())
    }

    /// The part of a share in this partition, if any.
    pub(super) fn share(self, share: &Share) -> Option<Share> {
        let within = self.indexes(share.within)?;
        let but = share.but.iter();
        let but = but.filter_map(|values| self.indexes(*values)).collect();
        Some(Share { within, but })
    }

    /// Which record is meant.
    pub(super) const fn which(self, which: Which<'_>) -> Which<'_> {
        match which {
            Which::Value(value) => Which::Value(self.index(value)),
            Which::Key(key) => Which::Key(key),
        }
    }

    pub(super) const fn reservation(self, one: Reservation) -> Reservation {
        let value = self.value(one.value);
        let until = self.outside(one.until);
        Reservation {
            value,
            until,
            ..one
        }
    }

    pub(super) fn held(self, held: Held) -> Held {
        let value = self.value(held.value);
        let until = self.outside(held.until);
        Held {
            value,
            until,
            ..held
        }
    }

    pub(super) fn seen(self, seen: Seen) -> Seen {
        Seen {
            value: self.value(seen.value),
            until: self.outside(seen.until),
            created: self.outside(seen.created),
            updated: self.outside(seen.updated),
            ..seen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn interval(first: u128, last: u128) -> Interval {
        Interval::new(first, last).unwrap()
    }

    fn layouts() -> impl Iterator<Item = Partitions> {
        let counts = [1, 2, 4, 64].into_iter();
        counts.flat_map(|count| [0, 3].map(|stripe| Partitions::new(count, stripe).unwrap()))
    }

    #[test]
    fn every_value_has_one_place() {
        let mut rng = Rng::new(1);
        for partitions in layouts() {
            for _ in 0..1_000 {
                let far = u128::from(rng.draw()) << 64 | u128::from(rng.draw());
                let value = far >> (rng.draw() % 128);
                let number = partitions.of_value(value);
                for part in Partition::all(partitions) {
                    let here = part.indexes(Interval::of(value));
                    let is_here = part.number == number;
                    let index = is_here.then(|| Interval::of(part.index(value)));
                    assert_eq!(here, index, "{value}");
                    if let Some(here) = here {
                        assert_eq!(part.value(here.first()), value);
                        assert_eq!(part.hull(here), Interval::of(value));
                    }
                }
            }
        }
    }

    #[test]
    fn the_shares_of_an_interval_make_up_the_whole() {
        for partitions in layouts() {
            for (first, last) in [(0, 0), (5, 77), (60, 1_000), (u128::MAX - 9, u128::MAX)] {
                let mut found: Vec<u128> = Vec::new();
                for part in Partition::all(partitions) {
                    let Some(here) = part.indexes(interval(first, last)) else {
                        continue;
                    };
                    assert!(interval(first, last).covers(part.hull(here)));
                    found.extend((here.first()..=here.last()).map(|index| part.value(index)));
                }
                found.sort_unstable();
                assert!(found.iter().copied().eq(first..=last), "{partitions}");
            }
        }
    }

    #[test]
    fn the_shares_of_a_range_give_out_what_the_range_does() {
        let spans = ["0-99", "200-1234", "5000"].map(|text| Span::parse(text).unwrap());
        let skip = ["50-59", "1000"].map(|text| Span::parse(text).unwrap());
        let options = RangeOptions {
            skip: skip.into(),
            ..RangeOptions::new(spans.into())
        };
        let all = options.intervals();
        for partitions in layouts() {
            let mut found: Vec<u128> = Vec::new();
            for part in Partition::all(partitions) {
                for here in part.options(&options).intervals() {
                    found.extend((here.first()..=here.last()).map(|index| part.value(index)));
                }
            }
            found.sort_unstable();
            let values = all.iter().flat_map(|one| one.first()..=one.last());
            assert!(found.iter().copied().eq(values), "{partitions}");
        }
    }

    #[test]
    fn all_values_can_be_shared() {
        for partitions in layouts() {
            let shares = Partition::all(partitions).map(|part| part.indexes(Interval::ALL));
            let sizes = shares.map(|share| share.unwrap().size());
            let sum = sizes.fold(super::super::Size::ZERO, |sum, size| sum + size);
            assert_eq!(sum, super::super::Size::ALL, "{partitions}");
        }
    }
}
