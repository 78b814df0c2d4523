//! Ranges by their names, and by the values they have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau::Histogram;
use rideau::allocator::{Interval, Kind, RangeId};
use rideau_config::{Hold, RangeConfig};

/// Ranges by their names, and by the values they have.
#[derive(Clone, Default)]
pub(crate) struct NamedRanges {
    by_name: HashMap<String, Arc<NamedRange>>,
    /// By their first values.
    spans: Vec<(Interval, Kind, Arc<NamedRange>)>,
}

/// A range with its name.
pub(crate) struct NamedRange {
    /// The name.
    pub name: Arc<str>,
    /// Which of the ranges it is.
    pub id: RangeId,
    /// How it was set up.
    pub config: RangeConfig,
    /// Outcomes of asks.
    pub counts: Arc<RangeCounts>,
}

/// Outcomes of asks for a value of a range.
#[derive(Default)]
pub(crate) struct RangeCounts {
    /// How often no value was free.
    pub exhausted: AtomicU64,
    /// How long it took to give one out, until that was safe.
    pub took: Mutex<Histogram>,
    lately: Mutex<Lately>,
}

/// How many were given out in each of the last seconds.
#[derive(Default)]
struct Lately {
    second: u64,
    /// The newest last: that of `second`, which is not over.
    counts: [u64; Self::SECONDS + 1],
}

impl NamedRanges {
    pub(super) fn new(ranges: Vec<Arc<NamedRange>>) -> Self {
        let mut spans = Vec::new();
        let mut by_name = HashMap::new();
        for place in ranges {
            for span in &place.config.options.spans {
                spans.push((span.interval, span.kind, Arc::clone(&place)));
            }
            by_name.insert(place.config.name.clone(), place);
        }
        spans.sort_by_key(|(interval, ..)| interval.first());
        Self { by_name, spans }
    }

    /// The range of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<NamedRange>> {
        self.by_name.get(name)
    }

    /// The range that has this value, and how the value is written there.
    pub(crate) fn of(&self, value: u128) -> Option<(&Arc<NamedRange>, Kind)> {
        let after = self
            .spans
            .partition_point(|(interval, ..)| interval.first() <= value);
        let (interval, kind, place) = self.spans.get(after.checked_sub(1)?)?;
        interval.contains(value).then_some((place, *kind))
    }

    /// The ranges that have some of these values.
    pub(crate) fn within(&self, within: Interval) -> impl Iterator<Item = &Arc<NamedRange>> {
        let spans = self.spans.iter();
        let spans = spans.filter(move |(interval, ..)| !interval.is_disjoint(within));
        spans.map(|(_, _, place)| place)
    }

    /// The range with this number.
    pub(crate) fn by_id(&self, id: RangeId) -> Option<&Arc<NamedRange>> {
        self.by_name.values().find(|place| place.id == id)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

impl NamedRange {
    /// Its values go with the connection that asked.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.config.hold == Hold::Connection
    }
}

impl Lately {
    const SECONDS: usize = 10;

    /// Time has gone on.
    fn pass(&mut self, second: u64) {
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(usize::MAX);
        let passed = passed.min(self.counts.len());
        self.counts.rotate_left(passed);
        let kept = self.counts.len() - passed;
        self.counts[kept..].fill(0);
        self.second = self.second.max(second);
    }

    /// How many a second, in those seconds that are over.
    fn rate(&self) -> f64 {
        let over = &self.counts[..Self::SECONDS];
        over.iter().sum::<u64>() as f64 / Self::SECONDS as f64
    }
}

impl RangeCounts {
    /// How many were given out in a second lately.
    pub(crate) fn rate(&self) -> f64 {
        let mut lately = self.lately.lock();
        lately.pass(second());
        lately.rate()
    }

    /// This many were given out after so long.
    pub(crate) fn give(&self, took: Duration, count: u64) {
        let mut lately = self.lately.lock();
        lately.pass(second());
        lately.counts[Lately::SECONDS] += count;
        drop(lately);
        let mut histogram = self.took.lock();
        for _ in 0..count {
            histogram.record(took);
        }
    }

    /// Nothing was free.
    pub(crate) fn exhaust(&self) {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Seconds since this was first asked.
fn second() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let mut lately = Lately::default();
        for second in 100..115 {
            lately.pass(second);
            lately.counts[Lately::SECONDS] += 20;
        }
        assert!((lately.rate() - 20.0).abs() < 1e-9);
        lately.pass(120);
        assert!((lately.rate() - 10.0).abs() < 1e-9, "half of them are over");
        lately.pass(1_000_000);
        assert!(lately.rate().abs() < 1e-9);
    }
}
