//! What a guard remembers beside its node and its fence, in one number, and the
//! home it tells.

use super::board::Spot;
use super::word::{Left, UNITS_MAX};

/// `[spot: 12][ordinal: 26][units: 26]`.
#[derive(Clone, Copy)]
pub(super) struct Stub(u64);

/// What is told that units came back.
pub(super) trait Home {
    /// Units of the key at this address came back. The spot is its own, or was
    /// when they were granted.
    fn hear(self, spot: Spot, address: usize, left: Left);
}

const COUNT_BITS: u32 = UNITS_MAX.count_ones();
const _: () = assert!(Spot::BITS + 2 * COUNT_BITS <= u64::BITS);

impl Stub {
    /// For `units` units, with which `ordinal` were held. A word counts no more
    /// of either than there is room for here.
    #[inline(always)]
    pub(super) fn new(spot: Spot, ordinal: u64, units: u32) -> Self {
        let spot = u64::from(spot.pack()) << (2 * COUNT_BITS);
        let ordinal = (ordinal & UNITS_MAX) << COUNT_BITS;
        Self(spot | ordinal | (u64::from(units) & UNITS_MAX))
    }

    #[inline(always)]
    pub(super) fn units(self) -> u32 {
        (self.0 & UNITS_MAX) as u32
    }

    #[inline(always)]
    pub(super) fn ordinal(self) -> u64 {
        (self.0 >> COUNT_BITS) & UNITS_MAX
    }

    #[inline(always)]
    pub(super) fn spot(self) -> Spot {
        Spot::unpack((self.0 >> (2 * COUNT_BITS)) as u32)
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stub_says_what_it_was_made_of() {
        let most = UNITS_MAX as u32;
        for (shard, rule, ordinal, units) in [(0, 0, 1, 1), (63, 63, UNITS_MAX, most), (5, 1, 9, 2)]
        {
            let spot = Spot::new(shard, rule);
            let stub = Stub::new(spot, ordinal, units);
            assert_eq!(stub.spot().pack(), spot.pack());
            assert_eq!((stub.ordinal(), stub.units()), (ordinal, units));
        }
    }
}
