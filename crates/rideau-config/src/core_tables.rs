//! The keys of options that the core has and that are of several kinds: what they are
//! for, and where each lies. Defaults and rules between keys are the core's; tests compare
//! what is said of them.

use std::num::NonZeroU32;
use std::time::Duration;

use rideau_core::meter::{self, Pie, PieSide};
use rideau_core::queue::{self, FairOptions, Order, Overflow, Shedding};
use rideau_core::{Flow, Lead, valve};

use super::core_words::{FairBy, Lines, MeterTarget, Most, OrderWord, QueueMax, Valves, Weights};
use super::kinds::{Answer, Maybe, Number, Positive, Span, Table, Text, Word, spelled};
use super::table::{kinds_section, section};

/// The kinds of valves.
pub(super) const VALVES: &[&str] = &[
    "open", "relative", "codel", "rate", "breaker", "gradient", "least_of",
];
/// The meters that can be asked for by name. What protects a broker and what
/// feeds a regulator have keys of their own.
pub(super) const METERS: &[&str] = &["overload", "underload", "better"];

spelled! { Overflow { Newest "newest", Oldest "oldest" } }

kinds_section! { for queue::Options {
    /// Which asks are shed: `"paced"` sheds those that named no wait, by age under overload;
    /// `"never"` sheds none; the others shed by their numbers.
    kind: queue::KINDS, |queue| queue_kind(&queue.shedding);
    /// `"timeout"`: an ask that has waited this long is shed.
    timeout: Duration = |queue| match &mut queue.shedding {
        Shedding::Timeout { wait_max } => Some(wait_max),
        _ => None,
    }, Span, usual = "\"5s\"";
    /// `"codel"`, `"bounded-codel"`, `"min-delay"`, `"standing"`: waits below this are fine.
    target: Duration = |queue| law(&mut queue.shedding).map(|law| law.0), Span,
        usual = "\"100ms\"";
    /// The same kinds: waits may be over the target for this long.
    interval: Duration = |queue| law(&mut queue.shedding).map(|law| law.1), Positive,
        usual = "\"1s\"";
    /// `"bounded-codel"`: under overload no ask waits longer.
    wait_max: Duration = |queue| match &mut queue.shedding {
        Shedding::BoundedCoDel { wait_max, .. } => Some(wait_max),
        _ => None,
    }, Span, usual = "twice the target";
    /// `"paced"`: the longest wait that an ask may name; a longer one is cut to it.
    wait_cap: Option<Duration> = |queue| match &mut queue.shedding {
        Shedding::Paced { wait_cap } => Some(wait_cap),
        _ => None,
    }, Maybe<Positive>, usual = "none";
    /// Which ask is served first; `"adaptive"`: the newest once the oldest waited `slow`.
    order: Order = |queue| Some(&mut queue.order), OrderWord;
    /// With `order = "adaptive"`.
    slow: Duration = |queue| match &mut queue.order {
        Order::Adaptive { slow } => Some(slow),
        _ => None,
    }, Span, usual = "\"100ms\"";
    /// No ask is shed while this many or fewer wait.
    min: u32 = |queue| Some(&mut queue.min), Number;
    /// The most asks that may wait; `"none"` for no limit; `"auto"`: 64 for each that is
    /// served at a time, but 1,000 at least and 10,000 at most.
    max: queue::Options = |queue| Some(queue), QueueMax;
    /// Which ask is refused when the queue is full: the newest or the oldest.
    overflow: Overflow = |queue| Some(&mut queue.overflow), Word;
    /// Serves in turns: by `"flow"`, or by a hash of it over 64 sub-queues (`"hash:64"`).
    fair_by: Option<FairOptions> = |queue| Some(&mut queue.fair), FairBy, usual = "none";
    /// With `fair_by`: flows with a sub-queue of their own; the others share one.
    flows_max: NonZeroU32 = |queue| Some(&mut queue.fair.as_mut()?.flows_max), Lines,
        bounds = (1, u32::MAX as u64), usual = "1024";
    /// With `fair_by = "flow"`: flows that get more than one ask per turn.
    weights: Vec<(Flow, NonZeroU32)> = |queue| Some(&mut queue.fair.as_mut()?.weights), Weights,
        usual = "none";
    /// With `fair_by`: a flow that asks seldom gets the first turn.
    sparse_first: bool = |queue| Some(&mut queue.fair.as_mut()?.sparse_first), Answer,
        usual = "false";
} }

kinds_section! { for valve::Options {
    /// What decides whether one more may run: `open` (`max`), `relative` (`target`, `min`, `max`),
    /// `codel` (`target`, `interval`, `min`, `max`), `rate` (`limit`, `interval`, `min`, `max`),
    /// `breaker` (`failures`, `window`, `pause`, `pause_max`, `probes`, `max`), `gradient` (`min`,
    /// `max`, `initial`, `tolerance`) or `least_of` (`of`).
    kind: VALVES, |valve| valve.kind(), usual = "required";
    /// One more may run while leads are below this; may be negative.
    target: Lead = |valve| match valve {
        valve::Options::Relative(relative) => Some(&mut relative.target),
        valve::Options::CoDel(codel) => Some(&mut codel.target),
        _ => None,
    }, Span, usual = "\"100ms\"";
    /// `rate`: how many may start within an interval, beyond `min`.
    limit: usize = |valve| match valve {
        valve::Options::Rate(rate) => Some(&mut rate.limit),
        _ => None,
    }, Number, usual = "100";
    /// `codel`: leads were below the target for this long. `rate`: the span that is counted.
    interval: Duration = |valve| match valve {
        valve::Options::CoDel(codel) => Some(&mut codel.interval),
        valve::Options::Rate(rate) => Some(&mut rate.interval),
        _ => None,
    }, Positive, usual = "\"1s\"";
    /// How many may always run.
    min: usize = |valve| match valve {
        valve::Options::Relative(relative) => Some(&mut relative.min),
        valve::Options::CoDel(codel) => Some(&mut codel.min),
        valve::Options::Rate(rate) => Some(&mut rate.min),
        valve::Options::Gradient(gradient) => Some(&mut gradient.min),
        _ => None,
    }, Number, usual = "0; `gradient`: 20";
    /// Never more.
    max: usize = |valve| match valve {
        valve::Options::Open(open) => Some(&mut open.max),
        valve::Options::Relative(relative) => Some(&mut relative.max),
        valve::Options::CoDel(codel) => Some(&mut codel.max),
        valve::Options::Rate(rate) => Some(&mut rate.max),
        valve::Options::Breaker(breaker) => Some(&mut breaker.max),
        valve::Options::Gradient(gradient) => Some(&mut gradient.max),
        _ => None,
    }, Most, usual = "none; `gradient`: 200";
    /// `breaker`: none may run after this many failures within `window`.
    failures: u32 = |valve| Some(&mut breaker(valve)?.failures), Number,
        bounds = (1, u32::MAX as u64), usual = "5";
    /// `breaker`: how many of the last leases it looks at.
    window: u32 = |valve| Some(&mut breaker(valve)?.window), Number, bounds = (1, 64),
        usual = "10";
    /// `breaker`: for this long, and twice as long each time that a probe fails.
    pause: Duration = |valve| Some(&mut breaker(valve)?.pause), Positive, usual = "\"1s\"";
    /// `breaker`: the longest pause.
    pause_max: Duration = |valve| Some(&mut breaker(valve)?.pause_max), Span, usual = "\"1m\"";
    /// `breaker`: how many probes find out whether it works again.
    probes: u32 = |valve| Some(&mut breaker(valve)?.probes), Number,
        bounds = (1, u32::MAX as u64), usual = "1";
    /// `gradient`: how many may run at the start.
    initial: usize = |valve| Some(&mut gradient(valve)?.initial), Number, usual = "20";
    /// `gradient`: by how many percent leases may get slower.
    tolerance: u32 = |valve| Some(&mut gradient(valve)?.tolerance), Number, usual = "50";
    /// `least_of`: valves that all have to agree.
    of: Vec<Self> = |valve| match valve {
        valve::Options::LeastOf(parts) => Some(parts),
        _ => None,
    }, Valves, usual = "required";
} }

kinds_section! { for meter::Options {
    /// What it watches: whether asks wait for the server itself (`overload`), whether offers wait
    /// for asks (`underload`), or what wait to expect (`better`).
    kind: METERS, |meter| meter_kind(meter), usual = "required";
    /// The name of the alarm.
    alarm: String = |meter| match meter {
        meter::Options::Overload(overload) => Some(&mut overload.alarm),
        meter::Options::Underload(underload) => Some(&mut underload.alarm),
        _ => None,
    }, Text, usual = "that of the kind";
    /// An alarm is raised when waits are at least this long for an `interval`.
    target: Self = |meter| match meter {
        meter::Options::Overload(_) | meter::Options::Underload(_) => Some(meter),
        _ => None,
    }, MeterTarget, usual = "\"100ms\"";
    /// How long waits are at least `target` before an alarm.
    interval: Duration = |meter| match meter {
        meter::Options::Overload(overload) => Some(&mut overload.interval),
        meter::Options::Underload(underload) => Some(&mut underload.interval),
        _ => None,
    }, Positive, usual = "\"1s\"";
    /// `better`: the longest wait that it expects for asks.
    ask_upper: Duration = |meter| Some(&mut better(meter)?.ask_upper), Span, usual = "\"5s\"";
    /// `better`: the longest wait that it expects for offers.
    offer_upper: Duration = |meter| Some(&mut better(meter)?.offer_upper), Span,
        usual = "\"5s\"";
    /// `better`: how often the expected waits are updated.
    update: Duration = |meter| Some(&mut better(meter)?.update), Positive, usual = "\"100ms\"";
} }

section! { for Pie {
    /// Of asks.
    ask => (ask): PieSide, Table, Live;
    /// Of offers.
    offer => (offer): PieSide, Table, Live;
    /// How often the probabilities change.
    update => (update): Duration, Positive, Live;
    /// None is refused while this many or fewer wait.
    min => (min): u32, Number, Live;
    /// All are refused while this many wait.
    max => (max): Option<u32>, Maybe<Number>, Live, usual = "none";
    /// How many probes are admitted all the same.
    probes => (probes): u32, Number, Live;
} }

section! { for PieSide {
    /// The wait that is aimed at.
    target => (target): Duration, Span, Live;
    /// How long waits may be over it.
    interval => (interval): Duration, Positive, Live;
} }

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
const fn law(shedding: &mut Shedding) -> Option<(&mut Duration, &mut Duration)> {
    match shedding {
        Shedding::CoDel { target, interval }
        | Shedding::BoundedCoDel {
            target, interval, ..
        }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => Some((target, interval)),
        _ => None,
    }
}

const fn breaker(valve: &mut valve::Options) -> Option<&mut valve::Breaker> {
    match valve {
        valve::Options::Breaker(breaker) => Some(breaker),
        _ => None,
    }
}

const fn gradient(valve: &mut valve::Options) -> Option<&mut valve::Gradient> {
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

const fn better(meter: &mut meter::Options) -> Option<&mut meter::Better> {
    match meter {
        meter::Options::Better(better) => Some(better),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::{OptionError, Rule, Settings, apps, broker, pool};

    use super::*;
    use crate::key::{Form, Key};
    use crate::keyed::Keyed;

    /// The core's parser for a kind alone.
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
            for (key, value) in options.rows() {
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
        check(queue::KINDS, queue::Options::parse);
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
        assert_eq!(kinds(queue::Options::parse), queue::KINDS);
        assert_eq!(kinds(valve::Options::parse), VALVES);
        assert!(
            METERS
                .iter()
                .all(|kind| kinds(meter::Options::parse).contains(kind))
        );
    }

    /// Bounds of rows are those of the core: it takes both ends and nothing beyond.
    fn check_bounds<T: Keyed>(kind: &[(&str, &str)], parse: Parse<T>) {
        for key in T::KEYS {
            let takes = |word: &str| {
                let words = kind.iter().copied().chain([(key.name, word)]);
                let parsed = Settings::new(words).and_then(parse);
                let is_about = |error: OptionError| {
                    let is_other = matches!(error.rule, Rule::Over { .. } | Rule::Unknown { .. });
                    error.option == key.name && !is_other
                };
                !parsed.is_err_and(is_about)
            };
            let form = match key.form {
                Form::Any([form, ..]) => *form,
                form => form,
            };
            match (form, key.bounds) {
                // A bound that other keys or the kind make.
                _ if key.name == "initial" || (kind == [("kind", "gradient")]) => (),
                // The core does not read it for this kind.
                _ if takes("?") => (),
                (Form::Span, _) => assert!(takes("0s"), "{} {kind:?}", key.name),
                (Form::Positive, _) => assert!(!takes("0s"), "{} {kind:?}", key.name),
                (Form::Number, (least, most)) => {
                    let takes = |number: u64| takes(&number.to_string());
                    assert!(takes(least), "{} of {least}", key.name);
                    assert!(least == 0 || !takes(least - 1), "{} of less", key.name);
                    let is_bounded = most < u64::from(u32::MAX);
                    assert!(!is_bounded || takes(most), "{} of {most}", key.name);
                    assert!(!is_bounded || !takes(most + 1), "{} of more", key.name);
                }
                _ => (),
            }
        }
    }

    #[test]
    fn the_bounds_in_the_rows_are_those_of_the_core() {
        check_bounds(&[], pool::Options::parse);
        for kind in queue::KINDS {
            check_bounds(&[("kind", kind)], queue::Options::parse);
        }
        for kind in VALVES {
            check_bounds(&[("kind", kind)], valve::Options::parse);
        }
        for kind in METERS {
            check_bounds(&[("kind", kind)], meter::Options::parse);
        }
    }
}
