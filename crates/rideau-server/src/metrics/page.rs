//! Writes metrics one family after the other.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rideau::Histogram;

/// The bounds that all histograms of waits share, in seconds.
pub(super) const BOUNDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Labels and their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// What is written so far.
pub(super) struct Page<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
}

impl<'a, 'e> Page<'a, 'e> {
    pub(super) fn new(encoder: &'a mut DescriptorEncoder<'e>) -> Self {
        Self { encoder }
    }

    /// What the program is, as labels of a one.
    pub(super) fn build(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&'static str, &'static str)],
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Info)?;
        metric.encode_info(&labels)
    }

    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// A number that only grows. `_total` is added to its name.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    /// A number that only grows, with a fraction.
    pub(super) fn span_counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, help, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    /// Several gauges of one name.
    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in rows {
            let labels = labels.as_slice();
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Several counters of one name.
    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in rows {
            let labels = labels.as_slice();
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    /// Several histograms of one name.
    pub(super) fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, &'h Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Histogram)?;
        for (labels, histogram) in rows {
            let labels = labels.as_slice();
            let (sum, buckets) = shared(histogram);
            metric
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, histogram.len(), &buckets, None)?;
        }
        Ok(())
    }

    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.encoder.encode_descriptor(name, help, None, kind)
    }
}

/// A histogram on the shared bounds, and about the sum of its spans.
///
/// A span is known to an eighth of itself, so one just below a bound may count
/// as just above it, and the sum is right to a sixteenth.
fn shared(histogram: &Histogram) -> (f64, Vec<(f64, u64)>) {
    let mut counts = [0; BOUNDS.len() + 1];
    let mut sum = 0.0;
    for (upper, count) in histogram.buckets() {
        let upper = upper.as_secs_f64();
        let at = BOUNDS.partition_point(|bound| *bound < upper);
        counts[at] += count;
        sum += upper * (15.0 / 16.0) * count as f64;
    }
    let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
    (sum, bounds.zip(counts).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_span_counts_once_and_near_its_bound() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::ZERO);
        histogram.record(Duration::from_micros(400));
        histogram.record(Duration::from_millis(80));
        histogram.record(Duration::from_secs(60));
        let (sum, buckets) = shared(&histogram);
        assert!((55.0..65.0).contains(&sum), "{sum}");
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!(buckets[0], (0.0005, 2));
        assert_eq!(buckets[7], (0.1, 1));
        assert_eq!(buckets[15].1, 1, "longer than any bound");
    }
}
