//! How many values there are, up to all of them.
//!
//! All values together are one more than the greatest `u128`, and a range may
//! have them all, so a plain number would be one short.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A number of values: 0 to 2^128, both included.
///
/// Invariant: if `all` is set, `rest` is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Size {
    all: bool,
    rest: u128,
}

impl Size {
    /// No value.
    pub const ZERO: Self = Self::new(0);
    /// One value.
    pub const ONE: Self = Self::new(1);
    /// Every value there is: 2^128.
    pub const ALL: Self = Self { all: true, rest: 0 };

    /// This many values.
    pub const fn new(values: u128) -> Self {
        Self {
            all: false,
            rest: values,
        }
    }

    /// There is none.
    pub const fn is_zero(self) -> bool {
        !self.all && self.rest == 0
    }

    /// The number, unless it is 2^128.
    pub const fn to_u128(self) -> Option<u128> {
        if self.all { None } else { Some(self.rest) }
    }

    /// The number, or the greatest `u64` if it is greater.
    pub fn to_u64_saturating(self) -> u64 {
        let small = self.to_u128().and_then(|size| u64::try_from(size).ok());
        small.unwrap_or(u64::MAX)
    }

    /// The number as nearly as a float can say it.
    pub fn to_f64(self) -> f64 {
        match self.to_u128() {
            Some(size) => size as f64,
            None => 2_f64.powi(128),
        }
    }

    /// The sum, unless it is over 2^128.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        let (rest, carried) = self.rest.overflowing_add(other.rest);
        match (self.all as u8) + (other.all as u8) + (carried as u8) {
            0 => Some(Self::new(rest)),
            1 if rest == 0 => Some(Self::ALL),
            _ => None,
        }
    }

    /// The sum, or 2^128 if it is over that.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        self.checked_add(other).unwrap_or(Self::ALL)
    }

    /// The difference, unless `other` is more.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match (self.all, other.all) {
            (false, true) => None,
            (true, true) => Some(Self::ZERO),
            (true, false) if other.rest == 0 => Some(self),
            (true, false) => Some(Self::new(0_u128.wrapping_sub(other.rest))),
            (false, false) => match self.rest.checked_sub(other.rest) {
                Some(rest) => Some(Self::new(rest)),
                None => None,
            },
        }
    }
}

impl From<u128> for Size {
    fn from(values: u128) -> Self {
        Self::new(values)
    }
}

impl Add for Size {
    type Output = Self;

    /// # Panics
    ///
    /// If the sum is over 2^128: there are no more values.
    fn add(self, other: Self) -> Self {
        self.checked_add(other)
            .expect("there are 2^128 values and no more")
    }
}

impl Sub for Size {
    type Output = Self;

    /// # Panics
    ///
    /// If `other` is more: a part is never more than the whole.
    fn sub(self, other: Self) -> Self {
        self.checked_sub(other)
            .expect("a part is never more than the whole")
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_u128() {
            Some(size) => size.fmt(f),
            None => f.pad_integral(true, "", "340282366920938463463374607431768211456"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Size = Size::new(u128::MAX);

    #[test]
    fn sizes_reach_two_to_the_128_and_no_further() {
        assert_eq!(MOST + Size::ONE, Size::ALL);
        assert_eq!(Size::new(1 << 127) + Size::new(1 << 127), Size::ALL);
        assert_eq!(Size::ALL.checked_add(Size::ONE), None);
        assert_eq!(Size::ALL.checked_add(Size::ALL), None);
        assert_eq!(MOST.checked_add(Size::new(2)), None);
        assert_eq!(Size::ALL + Size::ZERO, Size::ALL);
    }

    #[test]
    fn what_was_added_can_be_taken_away_again() {
        let sizes = [Size::ZERO, Size::ONE, Size::new(1 << 90), MOST, Size::ALL];
        for whole in sizes {
            for part in sizes {
                match whole.checked_sub(part) {
                    Some(rest) => assert_eq!(rest + part, whole),
                    None => assert!(part > whole),
                }
            }
        }
        assert_eq!(Size::ALL - MOST, Size::ONE);
    }

    #[test]
    fn all_values_are_more_than_any_other_number_of_them() {
        assert!(Size::ALL > MOST && MOST > Size::ONE && Size::ONE > Size::ZERO);
        assert!(Size::ZERO.is_zero() && !Size::ALL.is_zero());
    }

    #[test]
    fn sizes_are_shown_in_decimals() {
        assert_eq!(Size::new(16_777_216).to_string(), "16777216");
        assert_eq!(MOST.to_string(), "340282366920938463463374607431768211455");
        assert_eq!(
            Size::ALL.to_string(),
            "340282366920938463463374607431768211456"
        );
        assert_eq!(format!("{:>4}", Size::ONE), "   1");
        assert_eq!(format!("{:>41}", Size::ALL).len(), 41);
    }

    #[test]
    fn sizes_too_great_for_a_plain_number_stop_at_its_end() {
        assert_eq!(Size::new(7).to_u64_saturating(), 7);
        assert_eq!(Size::new(1 << 64).to_u64_saturating(), u64::MAX);
        assert_eq!(Size::ALL.to_u64_saturating(), u64::MAX);
        assert_eq!(Size::ALL.to_f64(), MOST.to_f64());
        assert_eq!(Size::new(1 << 125).to_f64(), 2_f64.powi(125));
    }
}
