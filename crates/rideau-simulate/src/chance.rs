//! Numbers by chance: even, exponential and normal.

use rideau_core::Rng;

/// Draws real numbers. The whole stream follows from the seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Rng);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// At least zero and below one.
    pub(crate) const fn unit(&mut self) -> f64 {
        (self.0.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// With a mean of one.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Around zero, with a deviation of one.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A whole number below this one, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_right() {
        const DRAWS: usize = 200_000;
        let mut chance = Chance::new(1);
        let mean =
            |draw: &mut dyn FnMut() -> f64| (0..DRAWS).map(|_| draw()).sum::<f64>() / DRAWS as f64;
        assert!((mean(&mut || chance.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || chance.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || chance.normal()).abs() < 0.02);
        assert!((mean(&mut || chance.normal().powi(2)) - 1.0).abs() < 0.02);
    }
}
