//! Every number of a thing, described once: its name, its type, on which surfaces it is, where
//! its value comes from, and one sentence.
//!
//! `SHOW`, `INFO`, the dashboard, JSON, the OpenAPI document, metrics, the history, the tables
//! in docs and those of the command line are made from these descriptions. What only one of them
//! needs, such as colours and widths, is there. Names are written as they are on the wire, with
//! their unit, so that a search finds the row; metrics have a unit of their own.

mod alarms;
mod apps;
mod brokers;
mod certificates;
mod columns;
#[cfg(test)]
mod docs;
mod groups;
mod holders;
mod limits;
mod locks;
mod nodes;
mod pools;
mod ranges;
mod refusals;
mod regulators;

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rideau::allocator::Size;
use rideau::{Histogram, Reason, Tally};

use crate::state::refusal_log::Dropped;

pub(crate) use alarms::AlarmNow;
pub(crate) use apps::{AppNow, ProcessNow};
pub(crate) use brokers::BrokerNow;
pub(crate) use certificates::CertificateNow;
pub(crate) use columns::{Columns, leads, up_to};
pub(crate) use groups::GroupNow;
pub(crate) use holders::{ClientNow, HolderNow, SessionNow};
pub(crate) use limits::Limit;
pub(crate) use locks::RuleNow;
pub(crate) use nodes::{ClusterNow, NodeNow, PartitionNow};
pub(crate) use pools::{PoolNow, state};
pub(crate) use ranges::{RangeNow, ViewNow};
pub(crate) use regulators::RegulatorNow;

/// Something that has numbers, at one moment.
pub(crate) trait Facts: Sized + 'static {
    /// The kind of the things.
    const KIND: TicketKind;
    /// Its facts. The first is its name.
    const ALL: &'static [Fact<Self>];

    /// The name of the thing.
    fn called(&self) -> String {
        match (Self::ALL[0].value)(self) {
            Value::Text(name) => name.into_owned(),
            _ => String::new(),
        }
    }
}

/// A kind of thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketKind {
    /// The word in names of metrics and series.
    pub word: &'static str,
    /// The label of metrics that has its name.
    pub label: &'static str,
    /// Sentences about metrics that several facts make up.
    pub joined: &'static [(&'static str, &'static str)],
}

/// All that can be said of a kind without a thing of it.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    /// Which.
    pub kind: TicketKind,
    /// Its facts.
    pub facts: fn() -> Vec<&'static About>,
}

/// Every kind, for what is said of all of them: the OpenAPI document, docs and tests.
pub(crate) const KINDS: [Described; 19] = [
    described::<PoolNow>(),
    described::<GroupNow>(),
    described::<BrokerNow>(),
    described::<RegulatorNow>(),
    described::<RuleNow>(),
    described::<RangeNow>(),
    described::<ViewNow>(),
    described::<AppNow>(),
    described::<ProcessNow>(),
    described::<CertificateNow>(),
    described::<ClientNow>(),
    described::<SessionNow>(),
    described::<HolderNow>(),
    described::<Dropped>(),
    described::<Limit>(),
    described::<AlarmNow>(),
    described::<ClusterNow>(),
    described::<NodeNow>(),
    described::<PartitionNow>(),
];

const fn described<T: Facts>() -> Described {
    Described {
        kind: T::KIND,
        facts: || T::ALL.iter().map(|fact| &fact.about).collect(),
    }
}

/// A number, text or list that a thing has.
pub(crate) struct Fact<T> {
    /// The part that is the same for all things of the kind.
    pub about: About,
    /// Reads the current value.
    pub value: for<'a> fn(&'a T) -> Value<'a>,
}

/// The static description of a fact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub is: Type,
    /// There may be none.
    pub is_optional: bool,
    /// Where it is seen.
    pub on: &'static [On],
    /// A sentence.
    pub help: &'static str,
}

/// What a value is. A span, and an instant, has its unit at the end of its name: `_us`, `_ms`
/// or `_s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    /// How many.
    Count,
    /// How many bytes.
    Bytes,
    /// A number with a fraction.
    Ratio,
    /// How long.
    Span,
    /// When.
    Instant,
    /// A word or a sentence.
    Text,
    /// Whether it is so.
    Flag,
    /// Several names.
    Names,
    /// Counts by name.
    Counts,
    /// How long each of many took.
    Spans,
    /// Outcomes of asks.
    Tally,
    /// Counts up to bounds, of one thing or of several.
    Columns,
    /// How many, even if it is more than a number can say.
    Size,
    /// JSON of this shape, as `admin/shapes.rs` writes it.
    Shape(&'static str),
}

/// A value of a fact.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    None,
    Count(u64),
    Ratio(f64),
    Span(Duration),
    Instant(SystemTime),
    Text(Cow<'a, str>),
    Flag(bool),
    Names(Vec<String>),
    Counts(Vec<(Cow<'a, str>, u64)>),
    Spans(&'a Histogram),
    Tally(&'a Tally),
    Columns(Vec<Columns>),
    Size(Size),
    Json(serde_json::Value),
}

/// A surface that a fact is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Surface {
    /// A column of `SHOW`, and whether there is room for it elsewhere.
    Show {
        /// It is in the tables of the dashboard.
        is_on_page: bool,
        /// It is in the overview of the command line.
        is_in_overview: bool,
    },
    /// The JSON of the API, and so its document.
    Json,
    /// A metric that goes up and down.
    Gauge,
    /// A metric that only grows.
    Counter,
    /// A metric of many spans.
    Histogram,
    /// A series of the history. Spans become two quantiles of the new ones.
    History,
    /// A series that tells how fast it grows.
    Rate,
    /// A number that only alarms look at; they may look at any that is on another surface, too.
    Alarm,
}

/// A fact on a surface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On {
    /// Which one.
    pub surface: Surface,
    /// Its name there, if it has another one.
    name: Option<&'static str>,
    /// Labels of the metric: facts of one name differ in them. A star stands for the names of
    /// counts.
    pub labels: &'static [(&'static str, &'static str)],
}

impl On {
    /// A column of `SHOW`, no more.
    pub(crate) const SHOW: Self = Self::show(false, false);
    /// A column that is in the tables of the dashboard, too.
    pub(crate) const PAGE: Self = Self::show(true, false);
    /// A column that is in the overview of the command line, too.
    pub(crate) const BRIEF: Self = Self::show(false, true);
    /// A column that is wherever there is little room.
    pub(crate) const NARROW: Self = Self::show(true, true);
    pub(crate) const JSON: Self = Self::new(Surface::Json);
    pub(crate) const GAUGE: Self = Self::new(Surface::Gauge);
    pub(crate) const COUNTER: Self = Self::new(Surface::Counter);
    pub(crate) const HISTOGRAM: Self = Self::new(Surface::Histogram);
    pub(crate) const HISTORY: Self = Self::new(Surface::History);
    pub(crate) const RATE: Self = Self::new(Surface::Rate);
    pub(crate) const ALARM: Self = Self::new(Surface::Alarm);

    const fn new(surface: Surface) -> Self {
        Self {
            surface,
            name: None,
            labels: &[],
        }
    }

    const fn show(is_on_page: bool, is_in_overview: bool) -> Self {
        Self::new(Surface::Show {
            is_on_page,
            is_in_overview,
        })
    }

    /// It has this name there.
    pub(crate) const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The metric has these labels, with a star for the names of its counts.
    pub(crate) const fn with(mut self, labels: &'static [(&'static str, &'static str)]) -> Self {
        self.labels = labels;
        self
    }

    const fn is_metric(&self) -> bool {
        matches!(
            self.surface,
            Surface::Gauge | Surface::Counter | Surface::Histogram
        )
    }
}

impl About {
    /// How it is called on each surface of these.
    pub(crate) fn names(
        &self,
        is_wanted: fn(Surface) -> bool,
    ) -> impl Iterator<Item = &'static str> {
        let on = self.on.iter().filter(move |on| is_wanted(on.surface));
        on.map(|on| on.name.unwrap_or(self.name))
    }

    /// Its column, if it has one.
    pub(crate) fn column(&self) -> Option<&'static str> {
        self.names(|surface| matches!(surface, Surface::Show { .. }))
            .next()
    }

    /// Its key in JSON, if it has one.
    pub(crate) fn key(&self) -> Option<&'static str> {
        self.names(|surface| surface == Surface::Json).next()
    }

    /// Its metrics, each with the name of its family below that of the kind. The unit is the
    /// one that Prometheus wants.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (String, &'static On)> {
        let all = self.on.iter().filter(|on| on.is_metric());
        all.map(|on| {
            let name = on.name.unwrap_or_else(|| bare(self.name));
            let unit = match self.is {
                Type::Span | Type::Spans => "_seconds",
                Type::Bytes => "_bytes",
                _ => "",
            };
            (format!("{name}{unit}"), on)
        })
    }
}

impl TicketKind {
    /// The help of a metric: the sentence of its fact, unless several facts make it up.
    pub(crate) fn help(&self, family: &str, fact: &About) -> &'static str {
        let joined = self.joined.iter().find(|(known, _)| *known == family);
        let help = joined.map_or(fact.help, |(_, help)| help);
        help.trim_end_matches('.')
    }
}

/// The columns of a kind, by whether there is room for them.
pub(crate) fn columns<T: Facts>(is_wanted: fn(Surface) -> bool) -> Vec<&'static str> {
    let all = T::ALL.iter();
    all.flat_map(|fact| fact.about.names(is_wanted)).collect()
}

/// A name without its unit.
pub(crate) fn bare(name: &str) -> &str {
    let units = ["_us", "_ms", "_s"].into_iter();
    let mut bare = units.filter_map(|unit| name.strip_suffix(unit));
    bare.next().unwrap_or(name)
}

/// A span in the unit that the name ends with.
pub(crate) fn in_unit(span: Duration, name: &str) -> u64 {
    let whole = match name.rsplit('_').next() {
        Some("us") => span.as_micros(),
        Some("ms") => span.as_millis(),
        _ => span.as_secs().into(),
    };
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// An instant as the span since 1970.
pub(crate) fn since_1970(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A size as a number, if one can say it so.
pub(crate) fn number(size: Size) -> Option<i64> {
    i64::try_from(size.to_u128()?).ok()
}

/// All asks that came for nothing, but those that withdrew.
pub(crate) fn refused(tally: &Tally) -> u64 {
    tally.shed_total() - tally.shed[Reason::Cancelled.index()]
}

/// `codel 12, full 3`, the commonest first.
pub(crate) fn reasons(tally: &Tally) -> String {
    let mut all: Vec<_> = Reason::ALL
        .into_iter()
        .map(|reason| (tally.shed[reason.index()], reason.word()))
        .filter(|(count, _)| *count > 0)
        .collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let all: Vec<_> = all
        .into_iter()
        .map(|(count, word)| format!("{word} {count}"))
        .collect();
    all.join(", ")
}

/// The facts of a kind, a row each: its name and type, the surfaces, the value and a sentence.
/// `|null` behind a type says that there may be no value.
macro_rules! facts {
    (
        $now:ty: $word:literal by $label:literal, joined {$($family:literal: $joined:literal),*};
        $($name:ident: $type:ident $(($shape:literal))? $(| $null:ident)?,
            [$($on:ident $(.$how:ident($($with:expr),*))*),*],
            |$it:ident| $value:expr, $help:literal;)*
    ) => {
        impl $crate::view::facts::Facts for $now {
            const KIND: $crate::view::facts::TicketKind = $crate::view::facts::TicketKind {
                word: $word,
                label: $label,
                joined: &[$(($family, $joined)),*],
            };
            const ALL: &'static [$crate::view::facts::Fact<Self>] = &[$(
                $crate::view::facts::Fact {
                    about: $crate::view::facts::About {
                        name: stringify!($name),
                        is: $crate::view::facts::Type::$type $(($shape))?,
                        is_optional: !stringify!($($null)?).is_empty(),
                        on: &[$($crate::view::facts::On::$on $(.$how($($with),*))*),*],
                        help: $help,
                    },
                    value: |$it| $crate::view::facts::Value::from($value),
                }
            ),*];
        }
    };
}
pub(crate) use facts;

macro_rules! values {
    ($($from:ty: |$it:ident| $value:expr;)*) => {$(
        impl<'a> From<$from> for Value<'a> {
            fn from($it: $from) -> Self {
                $value
            }
        }
    )*};
}

values! {
    u64: |count| Self::Count(count);
    u32: |count| Self::Count(count.into());
    usize: |count| Self::Count(count as u64);
    f64: |ratio| Self::Ratio(ratio);
    bool: |is| Self::Flag(is);
    Duration: |span| Self::Span(span);
    SystemTime: |at| Self::Instant(at);
    &'a str: |text| Self::Text(text.into());
    String: |text| Self::Text(text.into());
    Vec<String>: |names| Self::Names(names);
    Vec<(&'static str, u64)>: |counts|
        Self::Counts(counts.into_iter().map(|(name, count)| (name.into(), count)).collect());
    &'a Histogram: |spans| Self::Spans(spans);
    &'a Tally: |tally| Self::Tally(tally);
    Vec<Columns>: |columns| Self::Columns(columns);
    Size: |size| Self::Size(size);
    serde_json::Value: |json| Self::Json(json);
}

impl<'a, T: Into<Self>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cup {
        name: &'static str,
        drops: u64,
        age: Duration,
    }

    facts! { Cup: "cup" by "cup", joined { "content": "What is in it." };
        name: Text, [NARROW, JSON], |it| it.name, "Its name.";
        drops: Count, [PAGE, JSON.named("len"),
            GAUGE.named("content").with(&[("of", "drops")])], |it| it.drops, "Drops in it.";
        age_us: Span|null, [SHOW, JSON.named("age_ms"), GAUGE],
            |it| Some(it.age).filter(|age| !age.is_zero()), "How old it is.";
    }

    #[test]
    fn a_row_says_where_it_is_and_how_it_is_called_there() {
        let all = |_| true;
        assert_eq!(Cup::ALL.len(), 3);
        let columns = columns::<Cup>(|surface| matches!(surface, Surface::Show { .. }));
        assert_eq!(columns, ["name", "drops", "age_us"]);
        let age = &Cup::ALL[2].about;
        assert_eq!(age.key(), Some("age_ms"));
        assert_eq!(age.names(all).count(), 3);
        assert!(age.is_optional && !Cup::ALL[1].about.is_optional);
        let families = |at: usize| -> Vec<String> {
            let metrics = Cup::ALL[at].about.metrics();
            metrics.map(|(family, _)| family).collect()
        };
        assert_eq!(families(1), ["content"]);
        assert_eq!(families(2), ["age_seconds"]);
        assert_eq!(Cup::KIND.help("content", age), "What is in it");
        assert_eq!(Cup::KIND.help("age_seconds", age), "How old it is");
    }

    #[test]
    fn a_value_is_read_from_the_thing() {
        let cup = Cup {
            name: "blue",
            drops: 7,
            age: Duration::ZERO,
        };
        assert_eq!(cup.called(), "blue");
        assert!(matches!((Cup::ALL[1].value)(&cup), Value::Count(7)));
        assert!(matches!((Cup::ALL[2].value)(&cup), Value::None));
    }

    /// The fault of a fact, if any.
    fn fault(fact: &About) -> Option<&'static str> {
        let is = |all: &[Type]| all.contains(&fact.is);
        let is_number = is(&[Type::Count, Type::Bytes, Type::Span]);
        let is_plain = is_number || is(&[Type::Instant, Type::Text, Type::Flag, Type::Names]);
        let is_plain = is_plain || is(&[Type::Size, Type::Ratio, Type::Shape("any")]);
        let is_many = is(&[Type::Counts, Type::Tally]);
        if !fact.help.ends_with('.') || !fact.help.starts_with(|first: char| !first.is_lowercase())
        {
            return Some("its help is no sentence");
        }
        if fact.on.is_empty() {
            return Some("it is nowhere");
        }
        for on in fact.on {
            let name = on.name.unwrap_or(fact.name);
            let has_unit = bare(name) != name;
            let has_star = on.labels.iter().any(|(_, value)| *value == "*");
            let wrong = match on.surface {
                Surface::Show { .. } | Surface::Json | Surface::History
                    if is(&[Type::Span, Type::Instant]) != has_unit && name != "leases_s" =>
                {
                    "its name does not end with its unit"
                }
                Surface::Show { .. } if !is_plain => "it does not fit into a cell",
                Surface::Json if is(&[Type::Columns]) => "it has no JSON",
                Surface::Histogram if !is(&[Type::Spans, Type::Columns]) => "it is no histogram",
                Surface::Gauge | Surface::Counter
                    if !is_number && !is_many && !is(&[Type::Ratio, Type::Flag, Type::Size]) =>
                {
                    "it is no number"
                }
                Surface::Gauge | Surface::Counter if has_star != is_many => "it has a star or none",
                Surface::History if !is(&[Type::Count, Type::Span, Type::Spans, Type::Size]) => {
                    "no series"
                }
                Surface::Rate if fact.is != Type::Count => "it does not grow",
                Surface::Alarm if !is_number && !is(&[Type::Ratio, Type::Size]) => "no number",
                _ => continue,
            };
            return Some(wrong);
        }
        None
    }

    #[test]
    fn every_fact_can_be_shown_where_it_is() {
        for Described { kind, facts } in KINDS {
            let facts = facts();
            for fact in &facts {
                assert_eq!(fault(fact), None, "{} {}", kind.word, fact.name);
            }
            let twice = |names: Vec<String>| {
                let mut names = names;
                names.sort_unstable();
                names
                    .windows(2)
                    .find(|pair| pair[0] == pair[1])
                    .map(|pair| pair[0].clone())
            };
            let columns = facts.iter().filter_map(|fact| fact.column());
            assert_eq!(
                twice(columns.map(str::to_owned).collect()),
                None,
                "{}",
                kind.word
            );
            let keys = facts.iter().filter_map(|fact| fact.key());
            assert_eq!(
                twice(keys.map(str::to_owned).collect()),
                None,
                "{}",
                kind.word
            );
            let metrics = facts.iter().flat_map(|fact| fact.metrics());
            let metrics: Vec<_> = metrics.collect();
            let series = metrics.iter();
            let series = series.map(|(family, on)| format!("{family} {:?}", on.labels));
            assert_eq!(twice(series.collect()), None, "{}", kind.word);
            for (family, _) in kind.joined {
                let parts = metrics.iter().filter(|(known, _)| known == family);
                assert!(parts.count() > 1, "{} {family} is one fact", kind.word);
            }
            let is_named = facts[0].is == Type::Text;
            assert!(is_named || metrics.is_empty(), "{} has no name", kind.word);
        }
    }

    #[test]
    fn the_end_of_a_name_is_its_unit() {
        let span = Duration::from_millis(2_500);
        assert_eq!(in_unit(span, "age_s"), 2);
        assert_eq!(in_unit(span, "left_ms"), 2_500);
        assert_eq!(in_unit(span, "wait_p99_us"), 2_500_000);
        assert_eq!((bare("wait_p99_us"), bare("idle")), ("wait_p99", "idle"));
    }
}
