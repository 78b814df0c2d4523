//! The keys of options that the core has and reads itself: what they are for, and where
//! each lies. Defaults and rules are the core's; a test compares what is said of them.

use std::num::NonZeroU32;
use std::time::Duration;

use rideau_core::meter::{self, Pie, PieSide};
use rideau_core::queue::{self, Order, Overflow, Shedding};
use rideau_core::{Flow, Lead, valve};

use super::kinds::{Answer, Kind, Number, OrNone, Positive, Span, Table, Text, Word};
use super::section::Section;
use super::shown::Rows;
use super::table::{Form, Key, core_section};

/// The kinds of queues.
pub(super) const QUEUES: &[&str] = &[
    "never",
    "timeout",
    "codel",
    "bounded-codel",
    "min-delay",
    "standing",
    "paced",
];
/// The kinds of valves.
pub(super) const VALVES: &[&str] = &[
    "open", "relative", "codel", "rate", "breaker", "gradient", "least_of",
];
/// The meters that can be asked for by name. What protects a broker and what
/// feeds a regulator have keys of their own.
pub(super) const METERS: &[&str] = &["overload", "underload", "better"];

core_section! { for queue::Options {
    /// Which asks are shed: `"paced"` those that named no wait, by age under overload; `"never"`
    /// none; the others as their numbers say.
    kind: &'static str = |queue| Some(queue_kind(&queue.shedding)), Word, Live,
        form = Form::Words(QUEUES);
    /// `"timeout"`: an ask that waited so long is shed.
    timeout: Duration = |queue| match queue.shedding {
        Shedding::Timeout { wait_max } => Some(wait_max),
        _ => None,
    }, Span, Live, usual = "\"5s\"";
    /// The laws `"codel"`, `"bounded-codel"`, `"min-delay"`, `"standing"`: waits below this are
    /// fine.
    target: Duration = |queue| law(&queue.shedding).map(|law| law.0), Span, Live,
        usual = "\"100ms\"";
    /// The same laws: waits may be over the target for so long.
    interval: Duration = |queue| law(&queue.shedding).map(|law| law.1), Positive, Live,
        usual = "\"1s\"";
    /// `"bounded-codel"`: waits over this are not borne under overload.
    wait_max: Duration = |queue| match queue.shedding {
        Shedding::BoundedCoDel { wait_max, .. } => Some(wait_max),
        _ => None,
    }, Span, Live, usual = "twice the target";
    /// `"paced"`: an ask that names a longer wait gets this one.
    wait_cap: Duration = |queue| match queue.shedding {
        Shedding::Paced { wait_cap } => wait_cap,
        _ => None,
    }, Positive, Live, usual = "none";
    /// Which ask is served first; `"adaptive"`: the newest once the oldest waited `slow`.
    order: &'static str = |queue| Some(match queue.order {
        Order::Fifo => "fifo",
        Order::Lifo => "lifo",
        Order::Adaptive { .. } => "adaptive",
    }), Word, Live, form = Form::Words(&["fifo", "lifo", "adaptive"]);
    /// With `order = "adaptive"`.
    slow: Duration = |queue| match queue.order {
        Order::Adaptive { slow } => Some(slow),
        _ => None,
    }, Span, Live, usual = "\"100ms\"";
    /// No ask is shed while so few wait.
    min: u32 = |queue| Some(queue.min), Number, Live;
    /// As many may wait; `"none"` for no limit.
    max: Option<u32> = |queue| Some(queue.max), OrNone<Number>, Live;
    /// Which ask goes when there is no room: the newcomer, or the oldest makes room.
    overflow: &'static str = |queue| Some(match queue.overflow {
        Overflow::Newest => "newest",
        Overflow::Oldest => "oldest",
    }), Word, Live, form = Form::Words(&["newest", "oldest"]);
    /// Turns by `"flow"`, or by `"hash:64"` over so many lines.
    fair_by: String = |queue| Some(match queue.fair.as_ref()?.index {
        queue::Index::Flow => "flow".into(),
        queue::Index::Hashed(lines) => format!("hash:{lines}"),
    }), Text, Live, usual = "none";
    /// With `fair_by`: flows with a line of their own; those beyond share one.
    flows_max: u32 = |queue| Some(queue.fair.as_ref()?.flows_max.get()), Number, Live,
        bounds = (1, u32::MAX as u64), usual = "1024";
    /// With `fair_by = "flow"`: turns that count more than one.
    weights: Vec<(Flow, NonZeroU32)> = |queue| {
        let weights = &queue.fair.as_ref()?.weights;
        (!weights.is_empty()).then(|| weights.clone())
    }, Weights, Live, usual = "none";
    /// With `fair_by`: a flow that asks seldom has the first turn.
    sparse_first: bool = |queue| Some(queue.fair.as_ref()?.sparse_first), Answer, Live,
        usual = "false";
} }

core_section! { for valve::Options {
    /// What decides whether one more may run: `open` (`max`), `relative` (`target`, `min`, `max`),
    /// `codel` (`target`, `interval`, `min`, `max`), `rate` (`limit`, `interval`, `min`, `max`),
    /// `breaker` (`failures`, `window`, `pause`, `pause_max`, `probes`, `max`), `gradient` (`min`,
    /// `max`, `initial`, `tolerance`) or `least_of` (`of`).
    kind: &'static str = |valve| Some(valve.kind()), Word, Live, form = Form::Words(VALVES),
        usual = "has to be given";
    /// One more may run while leads are below this; may be negative.
    target: Lead = |valve| match valve {
        valve::Options::Relative(relative) => Some(relative.target),
        valve::Options::CoDel(codel) => Some(codel.target),
        _ => None,
    }, Span, Live, usual = "\"100ms\"";
    /// `rate`: as many within an interval, over `min`.
    limit: usize = |valve| match valve {
        valve::Options::Rate(rate) => Some(rate.limit),
        _ => None,
    }, Number, Live, usual = "100";
    /// `codel`: leads were below the target for so long. `rate`: the span that is counted.
    interval: Duration = |valve| match valve {
        valve::Options::CoDel(codel) => Some(codel.interval),
        valve::Options::Rate(rate) => Some(rate.interval),
        _ => None,
    }, Positive, Live, usual = "\"1s\"";
    /// As many may always run.
    min: usize = |valve| match valve {
        valve::Options::Relative(relative) => Some(relative.min),
        valve::Options::CoDel(codel) => Some(codel.min),
        valve::Options::Rate(rate) => Some(rate.min),
        valve::Options::Gradient(gradient) => Some(gradient.min),
        _ => None,
    }, Number, Live, usual = "0; `gradient`: 20";
    /// Never more.
    max: usize = |valve| match valve {
        valve::Options::Open(open) => Some(open.max),
        valve::Options::Relative(relative) => Some(relative.max),
        valve::Options::CoDel(codel) => Some(codel.max),
        valve::Options::Rate(rate) => Some(rate.max),
        valve::Options::Breaker(breaker) => Some(breaker.max),
        valve::Options::Gradient(gradient) => Some(gradient.max),
        _ => None,
    }.filter(|max| *max != usize::MAX), Number, Live, usual = "none; `gradient`: 200";
    /// `breaker`: none may run after as many went wrong,
    failures: u32 = |valve| breaker(valve).map(|breaker| breaker.failures), Number, Live,
        usual = "5";
    /// of the last so many.
    window: u32 = |valve| breaker(valve).map(|breaker| breaker.window), Number, Live,
        usual = "10";
    /// `breaker`: for so long, and twice as long each time that it did not help.
    pause: Duration = |valve| breaker(valve).map(|breaker| breaker.pause), Span, Live,
        usual = "\"1s\"";
    /// `breaker`: never for longer.
    pause_max: Duration = |valve| breaker(valve).map(|breaker| breaker.pause_max), Span, Live,
        usual = "\"1m\"";
    /// `breaker`: as many find out whether it works again.
    probes: u32 = |valve| breaker(valve).map(|breaker| breaker.probes), Number, Live,
        usual = "1";
    /// `gradient`: as many from the start.
    initial: usize = |valve| gradient(valve).map(|gradient| gradient.initial), Number, Live,
        usual = "20";
    /// `gradient`: by how many percent leases may get slower.
    tolerance: u32 = |valve| gradient(valve).map(|gradient| gradient.tolerance), Number, Live,
        usual = "50";
    /// `least_of`: valves that all have to agree.
    of: Vec<Self> = |valve| match valve {
        valve::Options::LeastOf(parts) => Some(parts.clone()),
        _ => None,
    }, Valves, Live, usual = "has to be given";
} }

core_section! { for meter::Options {
    /// What it watches: whether asks wait for the server itself (`overload`), whether offers wait
    /// for asks (`underload`), or what wait to expect (`better`).
    kind: &'static str = |meter| Some(meter_kind(meter)), Word, Live, form = Form::Words(METERS),
        usual = "has to be given";
    /// The name of the alarm.
    alarm: String = |meter| match meter {
        meter::Options::Overload(overload) => Some(overload.alarm.clone()),
        meter::Options::Underload(underload) => Some(underload.alarm.clone()),
        _ => None,
    }, Text, Live, usual = "that of the kind";
    /// An alarm while waits are at least this long;
    target: Lead = |meter| match meter {
        meter::Options::Overload(overload) => {
            Some(Lead::from_nanos(overload.target.as_nanos().try_into().unwrap_or(i64::MAX)))
        }
        meter::Options::Underload(underload) => Some(underload.target),
        _ => None,
    }, Span, Live, usual = "\"100ms\"";
    /// for so long.
    interval: Duration = |meter| match meter {
        meter::Options::Overload(overload) => Some(overload.interval),
        meter::Options::Underload(underload) => Some(underload.interval),
        _ => None,
    }, Positive, Live, usual = "\"1s\"";
    /// `better`: asks are expected to wait no longer.
    ask_upper: Duration = |meter| better(meter).map(|better| better.ask_upper), Span, Live,
        usual = "\"5s\"";
    /// `better`: the same of offers.
    offer_upper: Duration = |meter| better(meter).map(|better| better.offer_upper), Span, Live,
        usual = "\"5s\"";
    /// `better`: how often that is told.
    update: Duration = |meter| better(meter).map(|better| better.update), Positive, Live,
        usual = "\"100ms\"";
} }

core_section! { for Pie {
    /// Of asks.
    ask: PieSide = |pie| Some(pie.ask), Table, Live;
    /// Of offers.
    offer: PieSide = |pie| Some(pie.offer), Table, Live;
    /// How often the chances change.
    update: Duration = |pie| Some(pie.update), Positive, Live;
    /// None is refused while so few wait.
    min: u32 = |pie| Some(pie.min), Number, Live;
    /// All are refused while as many wait.
    max: u32 = |pie| pie.max, Number, Live, usual = "none";
    /// As many are let in all the same, to find out.
    probes: u32 = |pie| Some(pie.probes), Number, Live;
} }

core_section! { for PieSide {
    /// The wait that is aimed at.
    target: Duration = |side| Some(side.target), Span, Live;
    /// How long waits may be over it.
    interval: Duration = |side| Some(side.interval), Positive, Live;
} }

/// Turns of flows. Only the hashes of their names are kept.
struct Weights;
/// Valves within a valve.
struct Valves;

impl Kind<Vec<(Flow, NonZeroU32)>> for Weights {
    const FORM: Form = Form::Any(&[Form::Names(&Form::Number), Form::Text]);

    fn read(_: &Section<'_>, _: &Key) -> Option<Vec<(Flow, NonZeroU32)>> {
        None
    }

    fn show(value: &Vec<(Flow, NonZeroU32)>, key: &Key, rows: &mut Rows) {
        let weights = value
            .iter()
            .map(|(flow, weight)| format!("{:x}:{weight}", flow.0));
        rows.text(key.name, &weights.collect::<Vec<_>>().join(","));
    }
}

impl Kind<Vec<valve::Options>> for Valves {
    const FORM: Form = Form::List(&Form::Again("valve"));

    fn read(_: &Section<'_>, _: &Key) -> Option<Vec<valve::Options>> {
        None
    }

    fn show(value: &Vec<valve::Options>, key: &Key, rows: &mut Rows) {
        rows.tables(key.name, value);
    }
}

fn queue_kind(shedding: &Shedding) -> &'static str {
    match shedding {
        Shedding::Never => "never",
        Shedding::Timeout { .. } => "timeout",
        Shedding::CoDel { .. } => "codel",
        Shedding::BoundedCoDel { .. } => "bounded-codel",
        Shedding::MinDelay { .. } => "min-delay",
        Shedding::Standing { .. } => "standing",
        Shedding::Paced { .. } => "paced",
        // Only programs that link the library have these.
        Shedding::Custom(custom) => custom.name(),
    }
}

/// The target and the interval of the laws that have them.
const fn law(shedding: &Shedding) -> Option<(Duration, Duration)> {
    match *shedding {
        Shedding::CoDel { target, interval }
        | Shedding::BoundedCoDel {
            target, interval, ..
        }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => Some((target, interval)),
        _ => None,
    }
}

const fn breaker(valve: &valve::Options) -> Option<&valve::Breaker> {
    match valve {
        valve::Options::Breaker(breaker) => Some(breaker),
        _ => None,
    }
}

const fn gradient(valve: &valve::Options) -> Option<&valve::Gradient> {
    match valve {
        valve::Options::Gradient(gradient) => Some(gradient),
        _ => None,
    }
}

fn meter_kind(meter: &meter::Options) -> &'static str {
    match meter {
        meter::Options::Overload(_) => "overload",
        meter::Options::Underload(_) => "underload",
        meter::Options::Better(_) => "better",
        meter::Options::Pie(_) => "pie",
        meter::Options::Update(_) => "update",
        // Only programs that link the library have these.
        meter::Options::Custom(custom) => custom.name(),
    }
}

const fn better(meter: &meter::Options) -> Option<&meter::Better> {
    match meter {
        meter::Options::Better(better) => Some(better),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::{OptionError, Rule, Settings, apps, broker, pool};

    use super::*;
    use crate::table::Keyed;

    /// What the core makes of a kind alone.
    type Parse<T> = fn(Settings) -> Result<T, OptionError>;

    /// The defaults of each kind are what the rows say, and all of them are.
    fn check<T: Keyed>(kinds: &[&str], parse: Parse<T>) {
        let of = |kind: &str| Settings::new([("kind", kind)]).and_then(parse);
        for kind in kinds {
            // A list of valves needs valves.
            let Ok(options) = of(kind) else {
                assert_eq!(*kind, "least_of");
                continue;
            };
            for (key, value) in Rows::of(&options) {
                let key = T::key(&key);
                let is_value = key.usual.parse::<toml_edit::Value>().is_ok();
                if is_value && key.name != "kind" {
                    assert_eq!(value, key.usual, "{} of {kind}", key.name);
                }
            }
        }
    }

    #[test]
    fn the_defaults_in_the_rows_are_those_of_the_core() {
        check(QUEUES, queue::Options::parse);
        check(VALVES, valve::Options::parse);
        check(METERS, meter::Options::parse);
        let queue = |said: &str| {
            let pair = said.trim_matches(['{', '}', ' ']);
            let (_, kind) = pair.split_once(" = ").expect("it is a kind");
            let kind = kind.split(',').next().unwrap_or(kind).trim_matches('"');
            Settings::new([("kind", kind)]).and_then(queue::Options::parse)
        };
        let said = |keys: &[Key], name: &str| {
            let key = keys.iter().find(|key| key.name == name).expect("there");
            queue(key.usual).map(|queue| queue.shedding)
        };
        let shedding = |queue: queue::Options| Ok(queue.shedding);
        let sides = broker::Options::default();
        let parts = crate::BrokerParts::KEYS;
        assert_eq!(said(parts, "asks"), shedding(sides.asks));
        assert_eq!(said(parts, "offers"), shedding(sides.offers));
        let pool = pool::Options::default();
        assert_eq!(said(pool::Options::KEYS, "queue"), shedding(pool.queue));
        let app = apps::Options::default();
        assert_eq!(said(apps::Options::KEYS, "queue"), shedding(app.queue));
    }

    #[test]
    fn the_kinds_are_those_of_the_core() {
        fn kinds<T: std::fmt::Debug>(parse: Parse<T>) -> &'static [&'static str] {
            let asked = Settings::new([("kind", "?")]).and_then(parse);
            match asked.expect_err("there is no such kind").rule {
                Rule::NotOneOf(words) => words,
                rule => panic!("{rule:?}"),
            }
        }
        assert_eq!(kinds(queue::Options::parse), QUEUES);
        assert_eq!(kinds(valve::Options::parse), VALVES);
        assert!(
            METERS
                .iter()
                .all(|kind| kinds(meter::Options::parse).contains(kind))
        );
    }

    /// Bounds of a row are those of the core: it takes both ends and nothing beyond.
    #[test]
    fn the_bounds_in_the_rows_are_those_of_the_core() {
        for key in pool::Options::KEYS {
            let takes = |word: &str| {
                let parsed = Settings::new([(key.name, word)]).and_then(pool::Options::parse);
                let is_about = |error: OptionError| {
                    error.option == key.name && !matches!(error.rule, Rule::Over { .. })
                };
                !parsed.is_err_and(is_about)
            };
            let form = match key.form {
                Form::Any([form, ..]) => *form,
                form => form,
            };
            match (form, key.bounds) {
                (Form::Span, _) => assert!(takes("0s"), "{}", key.name),
                (Form::Positive, _) => assert!(!takes("0s"), "{}", key.name),
                (Form::Number, (least, most)) => {
                    let takes = |number: u64| takes(&number.to_string());
                    assert!(takes(least), "{} of {least}", key.name);
                    assert!(least == 0 || !takes(least - 1), "{} of less", key.name);
                    assert!(most == u64::MAX || takes(most), "{} of {most}", key.name);
                    assert!(most == u64::MAX || !takes(most + 1), "{} of more", key.name);
                }
                _ => (),
            }
        }
    }
}
