//! The arithmetic of counted units: how many there may be, and which claim may
//! have more.
//!
//! One number and one comparison. The capacity belongs to the ask and not to
//! the key, so that two callers that see different ones can ask side by side.

use std::error::Error;
use std::fmt;

/// How many units of a key may be held, as one asker sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Capacity(u64);

/// What a caller asks for: a number of units of a key, and how many the key may
/// have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    /// How many units are wanted, all or none.
    pub units: u32,
    /// How many of the key may be held, these included.
    pub capacity: Capacity,
}

/// The numbers of a yes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// How many units were granted.
    pub units: u32,
    /// How many units of the key were held right afterwards.
    pub ordinal: u64,
    /// Grows with every grant of the key, so that the guard of what the units
    /// stand for can tell a late holder from the present one.
    pub fence: u64,
}

/// The numbers of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// How many units of the key were held.
    pub held: u64,
    /// How many more were asked for.
    pub units: u32,
    /// How many might have been held.
    pub capacity: u64,
}

impl Capacity {
    /// This many `per` bucket, in this many `buckets`; the largest number that
    /// can be counted if that is more. With none of either nothing is ever
    /// granted.
    pub const fn new(per: u64, buckets: u64) -> Self {
        Self(per.saturating_mul(buckets))
    }

    /// How many units that is.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl From<u64> for Capacity {
    fn from(units: u64) -> Self {
        Self(units)
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Claim {
    /// One unit of a key that may have this many.
    pub fn one(capacity: impl Into<Capacity>) -> Self {
        Self {
            units: 1,
            capacity: capacity.into(),
        }
    }

    /// How many units are held once this is granted on top of `held`.
    ///
    /// # Errors
    ///
    /// If it must not be granted.
    pub fn ordinal(self, held: u64) -> Result<u64, Full> {
        let after = held.checked_add(self.units.into());
        after
            .filter(|after| self.units > 0 && *after <= self.capacity.0)
            .ok_or(self.full(held))
    }

    /// It may be granted on top of `held`.
    pub fn fits(self, held: u64) -> bool {
        self.ordinal(held).is_ok()
    }

    /// It may be granted if nothing is held: else it is no use to wait.
    pub fn is_possible(self) -> bool {
        self.fits(0)
    }

    /// The refusal of this claim while this many are held.
    pub const fn full(self, held: u64) -> Full {
        Full {
            held,
            units: self.units,
            capacity: self.capacity.0,
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            held,
            units,
            capacity,
        } = *self;
        let were = if units == 1 { "was" } else { "were" };
        let room = capacity.checked_sub(held);
        match (room, u64::from(units)) {
            (_, 0) => f.write_str("no units were asked for"),
            (_, _) if capacity == 0 => {
                write!(f, "{units} {were} asked for, and the capacity is 0")
            }
            (_, wanted) if wanted > capacity => {
                write!(
                    f,
                    "{units} {were} asked for, and the capacity is {capacity}"
                )
            }
            (None, _) => write!(
                f,
                "{held} are held, over the capacity of {capacity}, and {units} more {were} asked \
                 for"
            ),
            (Some(_), _) => write!(
                f,
                "{held} of {capacity} are held, and {units} more {were} asked for"
            ),
        }
    }
}

impl Error for Full {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_product_that_stops_at_the_largest_number() {
        assert_eq!(Capacity::new(3, 2).units(), 6);
        assert_eq!(Capacity::new(u64::MAX, 2).units(), u64::MAX);
        assert_eq!(Capacity::new(1 << 40, 1 << 40), Capacity::from(u64::MAX));
        assert_eq!(Capacity::new(3, 0), Capacity::new(0, 3));
        assert_eq!(Capacity::new(7, 6).to_string(), "42");
    }

    #[test]
    fn a_claim_fits_exactly_up_to_its_capacity() {
        let claim = |units, capacity: u64| Claim {
            units,
            capacity: capacity.into(),
        };
        assert_eq!(claim(1, 3).ordinal(2), Ok(3));
        assert!(!claim(1, 3).fits(3));
        assert!(claim(2, 3).fits(1) && !claim(2, 3).fits(2));
        assert!(!claim(0, 3).fits(0) && !claim(0, 3).is_possible());
        assert!(!claim(1, 0).is_possible() && !claim(4, 3).is_possible());
        assert!(claim(3, 3).is_possible());
    }

    #[test]
    fn nothing_overflows_at_the_largest_numbers() {
        let claim = Claim {
            units: u32::MAX,
            capacity: u64::MAX.into(),
        };
        let most = u64::MAX - u64::from(u32::MAX);
        assert_eq!(claim.ordinal(most), Ok(u64::MAX));
        assert!(!claim.fits(most + 1) && !claim.fits(u64::MAX));
    }

    #[test]
    fn a_no_says_its_numbers_in_words() {
        let said = |held, units, capacity| {
            Full {
                held,
                units,
                capacity,
            }
            .to_string()
        };
        assert_eq!(said(3, 1, 3), "3 of 3 are held, and 1 more was asked for");
        assert_eq!(said(2, 2, 3), "2 of 3 are held, and 2 more were asked for");
        assert_eq!(said(0, 0, 3), "no units were asked for");
        assert_eq!(said(0, 4, 3), "4 were asked for, and the capacity is 3");
        assert_eq!(said(5, 1, 0), "1 was asked for, and the capacity is 0");
        assert_eq!(
            said(5, 1, 3),
            "5 are held, over the capacity of 3, and 1 more was asked for"
        );
    }
}
