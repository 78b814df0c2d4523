//! Ranges by their names, and by the values they have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rideau::Histogram;
use rideau::allocator::{Interval, Kind, RangeId};

use crate::config::{Hold, RangeConfig};

/// Ranges by their names, and by the values they have.
#[derive(Clone, Default)]
pub struct RangePlaces {
    by_name: HashMap<String, Arc<RangePlace>>,
    /// By their first values.
    spans: Vec<(Interval, Kind, Arc<RangePlace>)>,
}

/// A range with its name.
pub struct RangePlace {
    /// The name.
    pub name: Arc<str>,
    /// Which of the ranges it is.
    pub id: RangeId,
    /// How it was set up.
    pub config: RangeConfig,
    /// What became of those who asked.
    pub counts: Arc<RangeCounts>,
}

/// What became of those who asked for a value of a range.
#[derive(Default)]
pub struct RangeCounts {
    /// How often no value was free.
    pub exhausted: AtomicU64,
    /// How long it took to give one out, until that was safe.
    pub took: Mutex<Histogram>,
}

impl RangePlaces {
    pub(super) fn new(places: Vec<Arc<RangePlace>>) -> Self {
        let mut spans = Vec::new();
        let mut by_name = HashMap::new();
        for place in places {
            for span in &place.config.options.spans {
                spans.push((span.interval, span.kind, Arc::clone(&place)));
            }
            by_name.insert(place.config.name.clone(), place);
        }
        spans.sort_by_key(|(interval, ..)| interval.first());
        Self { by_name, spans }
    }

    /// The range of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<RangePlace>> {
        self.by_name.get(name)
    }

    /// The range that has this value, and how the value is written there.
    pub fn of(&self, value: u128) -> Option<(&Arc<RangePlace>, Kind)> {
        let after = self
            .spans
            .partition_point(|(interval, ..)| interval.first() <= value);
        let (interval, kind, place) = self.spans.get(after.checked_sub(1)?)?;
        interval.contains(value).then_some((place, *kind))
    }

    /// The ranges that have some of these values.
    pub fn within(&self, within: Interval) -> impl Iterator<Item = &Arc<RangePlace>> {
        let spans = self.spans.iter();
        let spans = spans.filter(move |(interval, ..)| !interval.is_disjoint(within));
        spans.map(|(_, _, place)| place)
    }

    /// The range with this number.
    pub fn by_id(&self, id: RangeId) -> Option<&Arc<RangePlace>> {
        self.by_name.values().find(|place| place.id == id)
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<&Arc<RangePlace>> {
        let mut all: Vec<_> = self.by_name.values().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl RangePlace {
    /// Its values go with the connection that asked.
    pub fn is_of_connection(&self) -> bool {
        self.config.hold == Hold::Connection
    }
}

impl RangeCounts {
    /// As many were given out after so long.
    pub fn give(&self, took: Duration, count: u64) {
        let mut histogram = self.took.lock();
        for _ in 0..count {
            histogram.record(took);
        }
    }

    /// Nothing was free.
    pub fn exhaust(&self) {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
    }
}
