//! How many spans were how long.

use std::time::Duration;

use crate::time::nanos;

/// Spans counted by length, each known to an eighth of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// Counted apart, for they are many and need no bucket.
    zeros: u64,
    /// The others.
    spans: u64,
    longest: u64,
    /// Of all spans.
    sum: u64,
    counts: Vec<u64>,
}

/// Spans below this many nanoseconds have a bucket each.
const FINE: u64 = 8;
/// Buckets of every doubling after that.
const STEPS: usize = 8;
/// Up to 2^42 ns, over an hour; what is longer counts as that.
const BUCKETS: usize = STEPS * 40;

impl Default for Histogram {
    fn default() -> Self {
        Self {
            zeros: 0,
            spans: 0,
            longest: 0,
            sum: 0,
            counts: vec![0; BUCKETS],
        }
    }
}

impl Histogram {
    /// Count a span.
    pub fn record(&mut self, span: Duration) {
        self.record_nanos(nanos(span));
    }

    /// Count a span of nanoseconds.
    pub(crate) fn record_nanos(&mut self, span: u64) {
        if span == 0 {
            self.zeros += 1;
            return;
        }
        self.counts[bucket(span)] += 1;
        self.spans += 1;
        self.longest = self.longest.max(span);
        self.sum = self.sum.saturating_add(span);
    }

    /// Count this many spans of nothing.
    pub(crate) fn record_zeros(&mut self, zeros: u64) {
        self.zeros += zeros;
    }

    /// Count all that the other counted as well.
    pub fn add(&mut self, other: &Self) {
        self.zeros += other.zeros;
        self.spans += other.spans;
        self.longest = self.longest.max(other.longest);
        self.sum = self.sum.saturating_add(other.sum);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// How many spans were counted.
    pub fn len(&self) -> u64 {
        self.zeros + self.spans
    }

    /// No span was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest span, exactly.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// All spans together, exactly.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// The span that `part` of all (0.99, say) did not exceed, to an eighth.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (part.clamp(0.0, 1.0) * self.len() as f64).ceil().max(1.0) as u64;
        let mut below = self.zeros;
        if below >= rank {
            return Duration::ZERO;
        }
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Duration::from_nanos(upper(bucket).min(self.longest));
            }
        }
        self.longest()
    }

    /// The buckets that hold anything: upper bound (included) and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let zeros = (self.zeros > 0).then_some((Duration::ZERO, self.zeros));
        let held = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let held = held.map(|(bucket, count)| (Duration::from_nanos(upper(bucket)), *count));
        zeros.into_iter().chain(held)
    }
}

fn bucket(span: u64) -> usize {
    if span < FINE {
        return span as usize;
    }
    let octave = span.ilog2() as usize;
    let step = (span >> (octave - 3)) as usize & (STEPS - 1);
    ((octave - 2) * STEPS + step).min(BUCKETS - 1)
}

/// The longest span of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < FINE as usize {
        return bucket as u64;
    }
    let (octave, step) = (bucket / STEPS + 2, (bucket % STEPS) as u64);
    ((FINE + step + 1) << (octave - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_lies_in_its_bucket() {
        for span in (0..4096).chain([1 << 20, (1 << 30) + 12_345, (1 << 40) - 1]) {
            let at = bucket(span);
            assert!(span <= upper(at), "{span}");
            assert!(at == 0 || span > upper(at - 1), "{span}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_known_to_an_eighth() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.record(Duration::from_micros(n)));
        let p99 = histogram.quantile(0.99).as_nanos();
        assert!((990_000..=990_000 * 9 / 8).contains(&p99), "{p99}");
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(1));
        assert_eq!(histogram.len(), 1000);
        assert_eq!(histogram.sum(), Duration::from_micros(500_500));
    }
}
