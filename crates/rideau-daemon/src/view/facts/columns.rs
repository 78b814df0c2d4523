//! Counts up to bounds, as histograms of metrics have them.

use rideau::Histogram;

/// The bounds of leads, in seconds: the ask or the offer may come first.
const LEAD_BOUNDS: [f64; 14] = [
    -1.0, -0.5, -0.1, -0.05, -0.01, -0.005, -0.001, 0.0, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0,
];

/// Counts up to bounds.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Of what, if there are several.
    pub of: String,
    /// The sum of all that was counted.
    pub sum: f64,
    /// How many there are up to each bound, and above the bound before.
    pub counts: Vec<(f64, u64)>,
}

/// One of the two waited for the other. An ask or an offer that was matched the instant
/// it came is among the zeros of its own side.
pub(crate) fn leads(asks: &Histogram, offers: &Histogram) -> Vec<(f64, u64)> {
    let waited = |of: &Histogram| {
        let waited = of.buckets().filter(|(upper, _)| !upper.is_zero());
        waited.map(|(_, count)| count).sum::<u64>()
    };
    let at_once = asks.len().saturating_sub(waited(asks) + waited(offers));
    let ahead = |of: &Histogram, sign: f64| -> Vec<(f64, u64)> {
        let spans = of.buckets().filter(|(upper, _)| !upper.is_zero());
        spans
            .map(|(upper, count)| (sign * upper.as_secs_f64(), count))
            .collect()
    };
    let all = ahead(asks, 1.0).into_iter().chain(ahead(offers, -1.0));
    up_to(&LEAD_BOUNDS, all.chain([(0.0, at_once)]))
}

/// This many of each number, counted up to each bound.
pub(crate) fn up_to(bounds: &[f64], numbers: impl Iterator<Item = (f64, u64)>) -> Vec<(f64, u64)> {
    let mut counts = vec![0; bounds.len() + 1];
    for (number, count) in numbers {
        counts[bounds.partition_point(|bound| *bound < number)] += count;
    }
    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
    bounds.zip(counts).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_side_that_was_first_is_known_of_every_match() {
        let (mut asks, mut offers) = (Histogram::default(), Histogram::default());
        let mut matched = |ask, offer| {
            asks.record(Duration::from_millis(ask));
            offers.record(Duration::from_millis(offer));
        };
        matched(20, 0);
        matched(0, 300);
        matched(0, 0);
        let buckets = leads(&asks, &offers);
        let counted: Vec<_> = buckets
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [(-0.1, 1), (0.0, 1), (0.05, 1)]);
    }
}
