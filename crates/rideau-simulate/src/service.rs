//! How long a request is served.

use std::sync::Arc;

use crate::chance::Chance;

/// How long a request is served, in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub enum Service {
    /// All take the same time.
    Fixed {
        /// That time.
        mean: u64,
    },
    /// Many are short and few are long, as of a server that forgets.
    Exponential {
        /// The mean.
        mean: u64,
    },
    /// The logarithm is spread evenly around its mean.
    LogNormal {
        /// The mean.
        mean: u64,
        /// How far the logarithm is spread.
        sigma: f64,
    },
    /// A heavy tail: few take so long that they count as much as all others.
    Pareto {
        /// The mean.
        mean: u64,
        /// How thin the tail is; over one, for there is no mean otherwise.
        shape: f64,
    },
    /// A part of them takes this many times as long as the others.
    Mixed {
        /// The mean.
        mean: u64,
        /// Which part of them.
        part: f64,
        /// How many times as long.
        times: f64,
    },
    /// As long as was measured; evenly spread within a bucket.
    Measured(Arc<[ServiceBucket]>),
    /// Each request as long as it is recorded, and then from the first on.
    Recorded(Arc<[u64]>),
}

/// This many took up to a time, and longer than that of the bucket before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceBucket {
    /// The longest of them.
    pub upper: u64,
    /// How many there were.
    pub count: u64,
}

impl Service {
    /// The mean in nanoseconds; none if nothing was measured.
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Fixed { mean }
            | Self::Exponential { mean }
            | Self::LogNormal { mean, .. }
            | Self::Pareto { mean, .. }
            | Self::Mixed { mean, .. } => Some(*mean as f64),
            Self::Measured(buckets) => {
                let (mut lower, mut sum, mut count) = (0, 0.0, 0);
                for bucket in &**buckets {
                    sum += bucket.count as f64 * (lower + bucket.upper) as f64 / 2.0;
                    count += bucket.count;
                    lower = bucket.upper;
                }
                (count > 0).then(|| sum / count as f64)
            }
            Self::Recorded(spans) => {
                let sum: f64 = spans.iter().map(|span| *span as f64).sum();
                (!spans.is_empty()).then(|| sum / spans.len() as f64)
            }
        }
    }
}

/// The times of requests, one after the other.
#[derive(Debug)]
pub(crate) struct ServiceTimes {
    service: Service,
    chance: Chance,
    /// How many were measured up to each bucket.
    below: Vec<u64>,
}

impl ServiceTimes {
    pub(crate) fn new(service: Service, seed: u64) -> Self {
        let mut below = Vec::new();
        if let Service::Measured(buckets) = &service {
            let mut sum = 0;
            below.extend(buckets.iter().map(|bucket| {
                sum += bucket.count;
                sum
            }));
        }
        Self {
            service,
            chance: Chance::new(seed),
            below,
        }
    }

    /// The time of the next that is served, which came as the request of this number. It is
    /// never zero.
    pub(crate) fn next_of(&mut self, request: u64) -> u64 {
        let chance = &mut self.chance;
        let span = match &self.service {
            Service::Fixed { mean } => *mean as f64,
            Service::Exponential { mean } => *mean as f64 * chance.exponential(),
            Service::LogNormal { mean, sigma } => {
                *mean as f64 * (sigma * chance.normal() - sigma * sigma / 2.0).exp()
            }
            Service::Pareto { mean, shape } => {
                let least = *mean as f64 * (shape - 1.0) / shape;
                least * (1.0 - chance.unit()).powf(-1.0 / shape)
            }
            Service::Mixed { mean, part, times } => {
                let short = *mean as f64 / (1.0 - part + part * times);
                match chance.unit() < *part {
                    true => times * short,
                    false => short,
                }
            }
            Service::Measured(buckets) => {
                let Some(all) = self.below.last().copied().filter(|all| *all > 0) else {
                    return 1;
                };
                let rank = chance.below(all);
                let at = self.below.partition_point(|below| *below <= rank);
                let lower = at.checked_sub(1).map_or(0, |before| buckets[before].upper);
                let width = buckets[at].upper.saturating_sub(lower);
                lower as f64 + chance.unit() * width as f64
            }
            Service::Recorded(spans) => {
                let count = spans.len().max(1) as u64;
                spans
                    .get((request % count) as usize)
                    .map_or(1.0, |span| *span as f64)
            }
        };
        (span as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_mean_is_the_one_that_was_named() {
        let buckets = [(MS, 50), (3 * MS, 0), (5 * MS, 50)];
        let buckets = buckets.map(|(upper, count)| ServiceBucket { upper, count });
        for service in [
            Service::Fixed { mean: 7 * MS },
            Service::Exponential { mean: 7 * MS },
            Service::LogNormal {
                mean: 7 * MS,
                sigma: 1.0,
            },
            Service::Pareto {
                mean: 7 * MS,
                shape: 2.5,
            },
            Service::Mixed {
                mean: 7 * MS,
                part: 0.05,
                times: 20.0,
            },
            Service::Measured(Arc::new(buckets)),
            Service::Recorded(Arc::new([MS, 2 * MS, 6 * MS])),
        ] {
            let mut times = ServiceTimes::new(service.clone(), 5);
            let sum: f64 = (0..300_000).map(|n| times.next_of(n) as f64).sum();
            let (found, mean) = (sum / 300_000.0, service.mean().unwrap());
            assert!((found / mean - 1.0).abs() < 0.02, "{service:?} {found}");
        }
    }

    #[test]
    fn what_was_measured_lies_in_its_buckets() {
        let buckets = [(100, 0), (200, 10), (300, 0), (400, 30)];
        let buckets = buckets.map(|(upper, count)| ServiceBucket { upper, count });
        let mut times = ServiceTimes::new(Service::Measured(Arc::new(buckets)), 5);
        let drawn: Vec<_> = (0..4_000).map(|n| times.next_of(n)).collect();
        let short = drawn.iter().filter(|span| (100..=200).contains(*span));
        let (short, long) = (short.count(), drawn.iter().filter(|span| **span >= 300));
        let long = long.count();
        assert_eq!(short + long, 4_000);
        assert!((900..1_100).contains(&short), "{short}");
    }

    #[test]
    fn what_was_not_measured_has_no_mean() {
        assert_eq!(Service::Measured(Arc::new([])).mean(), None);
        let mut times = ServiceTimes::new(Service::Measured(Arc::new([])), 5);
        assert_eq!(times.next_of(0), 1);
        assert_eq!(
            ServiceTimes::new(Service::Fixed { mean: 0 }, 5).next_of(0),
            1
        );
    }
}
