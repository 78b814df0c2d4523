//! Partitions: equal shares of all names and of all values.
//!
//! A name belongs to the partition of its slot. Values are not placed by slot: a range is
//! spread evenly, one value or one stripe of values to each partition in turn. Within its
//! partition a value has a local index. Local indexes are dense and in the order of the
//! values, so an interval of values is an interval of indexes in each partition.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use super::slots::{SLOTS, slot_of};

/// How many partitions there are, and how values are dealt out to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partitions {
    /// The logarithm of how many there are.
    bits: u32,
    /// The logarithm of how many values in a row belong together.
    stripe: u32,
}

/// This number of partitions or stripes is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPartitions {
    /// The number is no power of two, or over the most there can be.
    Count(u32),
    /// So wide a stripe leaves no bits for partitions.
    Stripe(u32),
}

impl Partitions {
    /// The most partitions there can be.
    pub const MAX: u32 = 1_024;
    /// The widest stripe: 2^64 values.
    pub const STRIPE_MAX: u32 = 64;
    /// All in one, as on a node that is alone.
    pub const ONE: Self = Self { bits: 0, stripe: 0 };

    /// This many partitions, each with 2^`stripe` values in a row.
    ///
    /// # Errors
    ///
    /// If the count is no power of two up to [`MAX`](Self::MAX), or the stripe is over
    /// [`STRIPE_MAX`](Self::STRIPE_MAX).
    pub const fn new(count: u32, stripe: u32) -> Result<Self, BadPartitions> {
        if !count.is_power_of_two() || count > Self::MAX {
            return Err(BadPartitions::Count(count));
        }
        if stripe > Self::STRIPE_MAX {
            return Err(BadPartitions::Stripe(stripe));
        }
        let bits = count.trailing_zeros();
        Ok(Self { bits, stripe })
    }

    /// How many there are.
    pub const fn count(self) -> u32 {
        1 << self.bits
    }

    /// The logarithm of how many values in a row belong to one of them.
    pub const fn stripe(self) -> u32 {
        self.stripe
    }

    /// The partition of a name.
    pub const fn of_name(self, name: &[u8]) -> u32 {
        self.of_slot(slot_of(name))
    }

    /// The partition of a slot.
    pub const fn of_slot(self, slot: u16) -> u32 {
        slot as u32 * self.count() / SLOTS as u32
    }

    /// The slots of a partition.
    pub const fn slots(self, partition: u32) -> Range<u32> {
        let width = SLOTS as u32 / self.count();
        partition * width..(partition + 1) * width
    }

    /// The partition of a value.
    pub const fn of_value(self, value: u128) -> u32 {
        (value >> self.stripe) as u32 & (self.count() - 1)
    }

    /// Where a value is in its partition.
    pub const fn index(self, value: u128) -> u128 {
        let row = value >> (self.stripe + self.bits);
        (row << self.stripe) | (value & self.within())
    }

    /// The value at this place in a partition.
    pub const fn value(self, partition: u32, index: u128) -> u128 {
        let row = index >> self.stripe;
        let dealt = (row << self.bits) | partition as u128;
        (dealt << self.stripe) | (index & self.within())
    }

    /// The places that the values from one to another have in a partition, if any of them
    /// belong to it.
    pub fn indexes(
        self,
        partition: u32,
        values: RangeInclusive<u128>,
    ) -> Option<RangeInclusive<u128>> {
        let first = self.at_or_after(partition, *values.start())?;
        let last = self.at_or_before(partition, *values.end())?;
        (first <= last).then(|| self.index(first)..=self.index(last))
    }

    /// The bits of a value that tell it from others of its stripe.
    const fn within(self) -> u128 {
        (1 << self.stripe) - 1
    }

    /// The lowest value of a partition from this one on.
    fn at_or_after(self, partition: u32, value: u128) -> Option<u128> {
        if self.of_value(value) == partition {
            return Some(value);
        }
        let index = self.index(value) & !self.within();
        let in_row = self.value(partition, index);
        if in_row >= value {
            return Some(in_row);
        }
        // The next row, unless this is the last.
        let next = index.checked_add(1 << self.stripe)?;
        let rows = 128 - self.bits;
        (rows == 128 || next >> rows == 0).then(|| self.value(partition, next))
    }

    /// The highest value of a partition up to this one.
    fn at_or_before(self, partition: u32, value: u128) -> Option<u128> {
        if self.of_value(value) == partition {
            return Some(value);
        }
        let index = self.index(value) | self.within();
        let in_row = self.value(partition, index);
        if in_row <= value {
            return Some(in_row);
        }
        let before = index.checked_sub(1 << self.stripe)?;
        Some(self.value(partition, before))
    }
}

impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count(), self.stripe) {
            (1, _) => f.write_str("1 partition"),
            (count, 0) => write!(f, "{count} partitions"),
            (count, stripe) => write!(f, "{count} partitions of 2^{stripe} values in a row"),
        }
    }
}

impl fmt::Display for BadPartitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(
                f,
                "{count} partitions: the number has to be a power of two up to {}",
                Partitions::MAX
            ),
            Self::Stripe(stripe) => write!(
                f,
                "stripes of 2^{stripe} values: the most is 2^{}",
                Partitions::STRIPE_MAX
            ),
        }
    }
}

impl std::error::Error for BadPartitions {}
