//! Views: values of whatever ranges that are counted under one name.

use std::collections::BTreeMap;
use std::sync::Arc;

use rideau::allocator::{Count, Interval, Size, Span};
use rideau_config::ViewConfig;

use super::Values;
use super::place::{NamedRange, NamedRanges};

/// Views by their names.
#[derive(Clone, Default)]
pub(crate) struct ViewPlaces(BTreeMap<String, ViewPlace>);

/// A view with what it counts.
#[derive(Clone)]
pub(crate) struct ViewPlace {
    /// How it was set up.
    pub config: ViewConfig,
    /// The values that it counts.
    pub counted: Counted,
}

/// Values that are counted together, each once.
///
/// Invariant: the intervals are in order and have nothing in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    intervals: Vec<Interval>,
    /// The lowest value, as it is written.
    base: String,
}

impl ViewPlaces {
    pub(crate) fn new(views: &[ViewConfig]) -> Self {
        let place = |config: &ViewConfig| {
            let counted = Counted::new(&config.spans)?;
            let place = ViewPlace {
                config: config.clone(),
                counted,
            };
            Some((config.name.clone(), place))
        };
        Self(views.iter().filter_map(place).collect())
    }

    /// The view of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&ViewPlace> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ViewPlace> {
        self.0.values()
    }
}

impl Counted {
    /// All values of the spans; none if there are no spans.
    pub(crate) fn new(spans: &[Span]) -> Option<Self> {
        let mut spans = spans.to_vec();
        spans.sort_by_key(|span| span.interval.first());
        let lowest = spans.first()?;
        let base = lowest.kind.print(lowest.interval.first());
        let mut intervals: Vec<Interval> = Vec::with_capacity(spans.len());
        for Span { interval, .. } in spans {
            let rest = match intervals.last() {
                Some(last) => interval.after(*last),
                None => Some(interval),
            };
            intervals.extend(rest);
        }
        Some(Self { intervals, base })
    }

    /// The lowest value, as it is written.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The ranges that have some of these values; one may be there twice.
    pub(crate) fn touched<'a>(
        &'a self,
        ranges: &'a NamedRanges,
    ) -> impl Iterator<Item = &'a Arc<NamedRange>> {
        let intervals = self.intervals.iter();
        intervals.flat_map(|interval| ranges.within(*interval))
    }
}

impl Values {
    /// How many of these values are in which state. Those that no range has do
    /// not count. Each interval is right for a moment of its own.
    pub(crate) fn count(&self, counted: &Counted) -> Count {
        let nothing = Count {
            size: Size::ZERO,
            free: Size::ZERO,
            quarantined: Size::ZERO,
            held: Size::ZERO,
        };
        let counts = counted.intervals.iter().map(|one| self.ranges.count(*one));
        counts.fold(nothing, |sum, one| Count {
            size: sum.size.saturating_add(one.size),
            free: sum.free.saturating_add(one.free),
            quarantined: sum.quarantined.saturating_add(one.quarantined),
            held: sum.held.saturating_add(one.held),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(texts: &[&str]) -> Counted {
        let spans = texts.iter().map(|text| Span::parse(text).unwrap());
        Counted::new(&spans.collect::<Vec<_>>()).unwrap()
    }

    fn intervals(texts: &[&str]) -> Vec<(u128, u128)> {
        let intervals = counted(texts).intervals.into_iter();
        intervals.map(|one| (one.first(), one.last())).collect()
    }

    #[test]
    fn what_is_in_several_intervals_counts_once() {
        assert_eq!(intervals(&["5-9", "1-6", "20"]), [(1, 6), (7, 9), (20, 20)]);
        assert_eq!(intervals(&["1-9", "3-4", "9"]), [(1, 9)]);
        assert_eq!(intervals(&["1-9", "1-9"]), [(1, 9)]);
        assert_eq!(intervals(&["1-9", "2-3", "4-12"]), [(1, 9), (10, 12)]);
        assert_eq!(intervals(&["::/0", "7", "::1"]), [(0, u128::MAX)]);
    }

    #[test]
    fn the_lowest_value_is_written_as_it_was() {
        let both = ["10.0.0.8/29", "::ffff:10.0.0.0/120"];
        assert_eq!(counted(&both).base(), "::ffff:10.0.0.0");
        assert_eq!(counted(&both[..1]).base(), "10.0.0.8");
        assert_eq!(counted(&["9", "10.0.0.0"]).base(), "9");
    }

    #[test]
    fn nothing_is_no_view() {
        assert_eq!(Counted::new(&[]), None);
    }
}
