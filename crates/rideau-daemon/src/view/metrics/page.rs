//! Writes metrics one family after the other.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use rideau::{Histogram, Reason, Tally};

use crate::state::answer;
use crate::view::facts::{Columns, Facts, On, Surface, Value, up_to};

/// The bounds that all histograms of waits share, in seconds.
pub(super) const BOUNDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// A histogram with negative values: its sum may fall, so the format has none.
const SUMLESS: &str = "rideau_broker_relative_seconds";

/// The words a take or an ask can be answered with, apart from `go`.
const REFUSED: [&str; 5] = ["full", "shed", "timeout", "cancelled", "closed"];

/// Labels and their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A page of metrics that is being written.
pub(super) struct Page<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
}

impl<'a, 'e> Page<'a, 'e> {
    pub(super) fn new(encoder: &'a mut DescriptorEncoder<'e>) -> Self {
        Self { encoder }
    }

    /// Build information as labels of a metric with the value 1.
    pub(super) fn build(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&'static str, &'static str)],
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Info)?;
        metric.encode_info(&labels)
    }

    /// Every metric of a kind of thing, with a series for each of these.
    pub(super) fn facts<T: Facts>(&mut self, all: &[T]) -> fmt::Result {
        let own = |one: &T| (T::KIND.label, one.called());
        let all: Vec<_> = all.iter().map(|one| (own(one), one)).collect();
        let mut rest: Vec<_> = T::ALL
            .iter()
            .flat_map(|fact| {
                let metrics = fact.about.metrics();
                metrics.map(move |(family, on)| (family, on, fact))
            })
            .collect();
        while let Some((family, on, fact)) = rest.first() {
            let (family, surface) = (family.clone(), on.surface);
            let name = format!("rideau_{}_{family}", T::KIND.word);
            let help = T::KIND.help(&family, &fact.about);
            let mut metric = self.family(&name, help, kind(surface))?;
            let (same, others): (Vec<_>, _) =
                rest.into_iter().partition(|(known, ..)| *known == family);
            rest = others;
            for (own, one) in &all {
                for (_, on, fact) in &same {
                    encode(&mut metric, on, own, &(fact.value)(one))?;
                }
            }
        }
        Ok(())
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
    pub(super) fn counters<N: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, N)>,
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

    /// Several histograms of one name that were counted in columns: what all of
    /// them took, and how many took so long.
    pub(super) fn columns(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, f64, Vec<(f64, u64)>)>,
    ) -> fmt::Result {
        let mut metric = self.family(name, help, MetricType::Histogram)?;
        let mut rows = rows.into_iter();
        rows.try_for_each(|(labels, sum, columns)| histogram(&mut metric, &labels, sum, &columns))
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

const fn kind(surface: Surface) -> MetricType {
    match surface {
        Surface::Counter => MetricType::Counter,
        Surface::Histogram => MetricType::Histogram,
        _ => MetricType::Gauge,
    }
}

/// The labels of one series; a star is one of those that a fact counts.
fn labels(own: &(&'static str, String), on: &On, star: &str) -> Labels {
    let more = on.labels.iter().map(|(label, value)| {
        let value = if *value == "*" { star } else { value };
        (*label, value.to_owned())
    });
    std::iter::once(own.clone()).chain(more).collect()
}

/// Write what a fact is worth. One without a value has no series.
fn encode(
    metric: &mut MetricEncoder<'_>,
    on: &On,
    own: &(&'static str, String),
    value: &Value<'_>,
) -> fmt::Result {
    let mut number = |star: &str, value: f64, count: Option<u64>| {
        let labels = labels(own, on, star);
        let labels = labels.as_slice();
        let mut metric = metric.encode_family(&labels)?;
        match (on.surface, count) {
            (Surface::Counter, Some(count)) => {
                metric.encode_counter::<NoLabelSet, _, f64>(&count, None)
            }
            (Surface::Counter, None) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => metric.encode_gauge(&value),
        }
    };
    match value {
        Value::Count(count) => number("", *count as f64, Some(*count)),
        Value::Flag(is) => number("", f64::from(u8::from(*is)), None),
        Value::Ratio(ratio) => number("", *ratio, None),
        Value::Span(span) => number("", span.as_secs_f64(), None),
        Value::Size(size) => number("", size.to_f64(), None),
        Value::Counts(counts) => {
            let mut counts = counts.iter();
            counts.try_for_each(|(name, count)| number(name, *count as f64, Some(*count)))
        }
        Value::Tally(asks) => {
            let mut outcomes = tally(asks);
            outcomes.try_for_each(|(name, count)| number(name, count as f64, Some(count)))
        }
        Value::Spans(spans) => {
            let (sum, labels) = (spans.sum().as_secs_f64(), labels(own, on, ""));
            histogram(metric, &labels, sum, &shared(spans))
        }
        Value::Columns(all) => all.iter().try_for_each(|Columns { of, sum, counts }| {
            histogram(metric, &labels(own, on, of), *sum, counts)
        }),
        Value::None | Value::Instant(_) | Value::Text(_) | Value::Names(_) | Value::Json(_) => {
            Ok(())
        }
    }
}

fn histogram(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    sum: f64,
    columns: &[(f64, u64)],
) -> fmt::Result {
    let labels = labels.as_slice();
    let len = columns.iter().map(|(_, count)| count).sum();
    metric
        .encode_family(&labels)?
        .encode_histogram::<NoLabelSet>(sum, len, columns, None)
}

/// Outcomes of asks, by the word of the answer.
fn tally(tally: &Tally) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let mut refused = REFUSED.map(|word| (word, 0));
    for reason in Reason::ALL {
        let word = answer::word(reason);
        if let Some((_, count)) = refused.iter_mut().find(|(known, _)| *known == word) {
            *count += tally.shed[reason.index()];
        }
    }
    for (word, count) in &mut refused {
        if *word == "cancelled" {
            *count += tally.cancelled;
        }
    }
    [("go", tally.served)].into_iter().chain(refused)
}

/// A histogram on the shared bounds.
///
/// A span is known to an eighth of itself, so one just below a bound may count
/// as just above it.
fn shared(histogram: &Histogram) -> Vec<(f64, u64)> {
    let spans = histogram.buckets();
    up_to(
        &BOUNDS,
        spans.map(|(upper, count)| (upper.as_secs_f64(), count)),
    )
}

/// The page without the sums, and so without the counts, of what has none.
pub(super) fn without_sums(page: &str) -> String {
    let is_kept = |line: &&str| {
        let rest = line.strip_prefix(SUMLESS);
        !rest.is_some_and(|rest| rest.starts_with("_sum") || rest.starts_with("_count"))
    };
    page.split_inclusive('\n').filter(is_kept).collect()
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
        let buckets = shared(&histogram);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!(buckets[0], (0.0005, 2));
        assert_eq!(buckets[7], (0.1, 1));
        assert_eq!(buckets[15].1, 1, "longer than any bound");
    }
}
