//! How long those waited that were served.

use std::time::Duration;

/// Spans by length. Up to four million are known exactly; of more, each is known to a
/// thousandth of itself, so that memory has a bound.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    exact: Vec<u64>,
    /// Empty while all are known exactly.
    buckets: Vec<u64>,
    len: u64,
    sum: u128,
    longest: u64,
}

const EXACT_MAX: usize = 1 << 22;
/// Buckets of every doubling.
const STEPS: u64 = 1 << 10;
/// The exponent of [`STEPS`].
const STEP_BITS: u32 = STEPS.ilog2();
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

impl Waits {
    /// Count a span of nanoseconds.
    pub(crate) fn record(&mut self, nanos: u64) {
        self.len += 1;
        self.sum += u128::from(nanos);
        self.longest = self.longest.max(nanos);
        if !self.buckets.is_empty() {
            self.buckets[bucket(nanos)] += 1;
        } else if self.exact.len() < EXACT_MAX {
            self.exact.push(nanos);
        } else {
            self.buckets = vec![0; BUCKETS];
            let known = std::mem::take(&mut self.exact);
            known
                .into_iter()
                .for_each(|nanos| self.buckets[bucket(nanos)] += 1);
            self.buckets[bucket(nanos)] += 1;
        }
    }

    /// How many were counted.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// None was counted.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The longest; zero if there is none.
    pub const fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// The mean; zero if there is none.
    pub fn mean(&self) -> Duration {
        let mean = self.sum / u128::from(self.len.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The span that `part` of all (0.99, say) did not exceed; zero if there is none.
    pub fn quantile(&mut self, part: f64) -> Duration {
        if self.len == 0 {
            return Duration::ZERO;
        }
        let rank = ((part.clamp(0.0, 1.0) * self.len as f64) as u64).min(self.len - 1);
        if self.buckets.is_empty() {
            let (_, nanos, _) = self.exact.select_nth_unstable(rank as usize);
            return Duration::from_nanos(*nanos);
        }
        let mut below = 0;
        let found = self.buckets.iter().position(|count| {
            below += count;
            below > rank
        });
        let nanos = found.map_or(self.longest, upper);
        Duration::from_nanos(nanos.min(self.longest))
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEP_BITS;
    let step = (nanos >> shift) & (STEPS - 1);
    (u64::from(shift + 1) * STEPS + step) as usize
}

/// The longest span of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (shift, step) = (bucket / STEPS - 1, bucket % STEPS);
    let above = u128::from(STEPS + step + 1) << shift;
    u64::try_from(above - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_lies_in_its_bucket() {
        for span in [0, 1, 1023, 1024, 1025, 1 << 20, (1 << 40) + 77, u64::MAX] {
            let at = bucket(span);
            assert!(at < BUCKETS && span <= upper(at), "{span}");
            assert!(at == 0 || span > upper(at - 1), "{span}");
        }
    }

    #[test]
    fn quantiles_are_exact_while_there_are_few() {
        let mut waits = Waits::default();
        (0..1000).rev().for_each(|n| waits.record(n * 1_000_000));
        assert_eq!(waits.quantile(0.5), Duration::from_millis(500));
        assert_eq!(waits.quantile(0.99), Duration::from_millis(990));
        assert_eq!(waits.quantile(1.0), waits.longest());
        assert_eq!(waits.mean(), Duration::from_micros(499_500));
        assert_eq!(Waits::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn quantiles_of_many_are_known_to_a_thousandth() {
        let mut waits = Waits::default();
        let count = EXACT_MAX as u64 + 10;
        (0..count).for_each(|n| waits.record(n * 1_000));
        assert_eq!(waits.len(), count);
        let p99 = waits.quantile(0.99).as_nanos() as f64;
        assert!(
            (p99 / (0.99 * count as f64 * 1e3) - 1.0).abs() < 0.001,
            "{p99}"
        );
        assert!(waits.exact.is_empty());
    }
}
