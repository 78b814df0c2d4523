//! Facts of a thing as JSON.

use std::time::Duration;

use rideau::{Histogram, Reason, Tally};
use serde_json::{Map, Value, json};

use crate::view::facts::{Facts, Value as Fact, in_unit, number, since_1970};

/// All facts of a thing that the API has.
pub(super) fn object<T: Facts>(one: &T) -> Value {
    let pairs = T::ALL.iter().filter_map(|fact| {
        let key = fact.about.key()?;
        Some((key.to_owned(), fact_json((fact.value)(one), key)))
    });
    Value::Object(pairs.collect())
}

pub(super) fn objects<T: Facts>(all: &[T]) -> Vec<Value> {
    all.iter().map(object).collect()
}

fn fact_json(value: Fact<'_>, key: &str) -> Value {
    match value {
        Fact::Count(count) => count.into(),
        Fact::Ratio(ratio) => ratio.into(),
        Fact::Span(span) => in_unit(span, key).into(),
        Fact::Instant(at) => in_unit(since_1970(at), key).into(),
        Fact::Text(text) => text.into(),
        Fact::Flag(is) => is.into(),
        Fact::Names(names) => names.into(),
        Fact::Counts(counts) => {
            let pairs = counts.into_iter();
            let pairs = pairs.map(|(name, count)| (name.into_owned(), count.into()));
            Value::Object(pairs.collect())
        }
        Fact::Spans(all) => spans(all),
        Fact::Tally(asks) => tally(asks),
        Fact::Size(size) => number(size).map_or_else(|| size.to_string().into(), Value::from),
        Fact::Json(json) => json,
        // Columns are for metrics alone.
        Fact::None | Fact::Columns(_) => Value::Null,
    }
}

/// The outcomes of asks.
fn tally(tally: &Tally) -> Value {
    let refused = Reason::ALL.into_iter();
    let refused = refused.map(|reason| (reason.word(), tally.shed[reason.index()]));
    let refused = refused.filter(|(_, count)| *count > 0);
    let refused: Map<_, _> = refused
        .map(|(word, count)| (word.to_owned(), count.into()))
        .collect();
    json!({
        "came": tally.came,
        "served": tally.served,
        "cancelled": tally.cancelled,
        "refused": refused,
        "wait": spans(&tally.waits),
    })
}

fn spans(spans: &Histogram) -> Value {
    json!({
        "count": spans.len(),
        "p50_us": micros(spans.quantile(0.5)),
        "p90_us": micros(spans.quantile(0.9)),
        "p99_us": micros(spans.quantile(0.99)),
        "longest_us": micros(spans.longest()),
    })
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
