//! Chance that follows from a seed.

/// A generator whose whole stream follows from its seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that draws the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number, each as likely as every other.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, each as likely as every other.
    ///
    /// # Panics
    ///
    /// If `bound` is zero: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        // Lemire's method: the high half of the product is uniform once the
        // few low halves that would favour small results are drawn again.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.draw()) * u128::from(bound);
            if (product as u64) >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
pub(crate) const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_follows_from_the_seed() {
        let draws = |seed| {
            let mut rng = Rng::new(seed);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        // Reference output of SplitMix64 for seed 0.
        assert_eq!(draws(0)[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn draws_below_a_bound_are_even() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 3];
        for _ in 0..30_000 {
            counts[usize::try_from(rng.below(3)).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|n| (9_700..10_300).contains(n)),
            "{counts:?}"
        );
    }
}
