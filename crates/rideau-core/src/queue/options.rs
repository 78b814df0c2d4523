//! How a queue orders, limits and sheds.

use std::num::NonZeroU32;
use std::time::Duration;

use super::custom::CustomLaw;
use crate::custom::Custom;
use crate::ids::Flow;
use crate::settings::{OptionError, Rule, Settings};
use crate::time::Instant;

/// Options of a queue: its limit, its order, and its shedding policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which ask is served first.
    pub order: Order,
    /// Which asks are let go before being served.
    pub shedding: Shedding,
    /// The law sheds no ask while no more than this many wait.
    pub min: u32,
    /// How many may wait; none for no limit.
    pub max: Option<u32>,
    /// As many may wait as fit what is served at a time, whatever `max` is: 64 for each, but
    /// 1,000 at least and 10,000 at most.
    pub max_fits: bool,
    /// Which ask goes when one more comes than may wait.
    pub overflow: Overflow,
    /// Turns by flow. `min`, `max` and the law then hold for each flow.
    pub fair: Option<Fair>,
}

/// Which ask is served first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The one that came first.
    #[default]
    Fifo,
    /// The one that came last.
    Lifo,
    /// The one that came first, but the one that came last once the oldest has
    /// waited this long: under overload it serves askers that still care.
    Adaptive {
        /// The wait of the oldest from which on the newest is served.
        slow: Duration,
    },
}

/// Which ask goes when one more comes than may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The newcomer is refused.
    #[default]
    Newest,
    /// The oldest makes room. If no ask may wait, the newcomer is refused.
    Oldest,
}

/// The law by which a queue sheds asks that wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shedding {
    /// No ask is shed.
    Never,
    /// An ask that waited this long is shed.
    Timeout {
        /// The longest wait.
        wait_max: Duration,
    },
    /// Controlled delay, for askers that slow down when they are shed.
    CoDel {
        /// Waits below this are fine.
        target: Duration,
        /// Waits may be over the target for this long.
        interval: Duration,
    },
    /// Controlled delay that also sheds, from when it sheds at all until no ask
    /// was slow for an interval, every ask that waited over a bound: for askers
    /// that keep coming whatever happens to them.
    BoundedCoDel {
        /// Waits below this are fine.
        target: Duration,
        /// Waits may be over the target for this long.
        interval: Duration,
        /// Waits over this are not borne during overload.
        wait_max: Duration,
    },
    /// Sheds waits over twice the target once the least wait of an interval
    /// was over it.
    MinDelay {
        /// Some ask should wait no longer than this in every interval.
        target: Duration,
        /// How long no ask may have been served quickly.
        interval: Duration,
    },
    /// Lets newcomers wait only for the target once the queue has not been
    /// empty for an interval, else for the interval.
    Standing {
        /// The wait that is allowed behind a standing queue.
        target: Duration,
        /// A queue stands that was not empty for this long.
        interval: Duration,
    },
    /// Never sheds an ask that named its wait, nor any ask while few wait;
    /// sheds the others by age. Few, and the ages, follow from the capacity and
    /// the holds that the place tells.
    Paced {
        /// An ask that names a longer wait gets this one.
        wait_cap: Option<Duration>,
    },
    /// Whatever a law of your own decides.
    Custom(Custom<dyn CustomLaw>),
}

/// Turns by flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fair {
    /// How asks are assigned to flows.
    pub index: Index,
    /// How many flows have a line of their own; those beyond share one.
    pub flows_max: NonZeroU32,
    /// How many are served in one turn, for flows that deserve more than one.
    pub weights: Vec<(Flow, NonZeroU32)>,
    /// A flow that comes anew has its first turn before the others: flows
    /// that ask seldom then hardly wait.
    pub sparse_first: bool,
}

/// How asks are assigned to flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Index {
    /// The flow that the asker names.
    #[default]
    Flow,
    /// The flows are spread over this many lines by hash.
    Hashed(NonZeroU32),
}

/// One hundred milliseconds feel instant to a person.
const TARGET: Duration = Duration::from_millis(100);
/// One second still holds a person's attention.
const INTERVAL: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(5);
const MAX: u32 = 65_536;
const FLOWS_MAX: NonZeroU32 = NonZeroU32::new(1024).expect("it is not zero");

/// The words for the kinds of queues.
pub const KINDS: &[&str] = &[
    "never",
    "timeout",
    "codel",
    "bounded-codel",
    "min-delay",
    "standing",
    "paced",
];
/// The words for the orders of queues.
pub const ORDERS: &[&str] = &["fifo", "lifo", "adaptive"];
const OVERFLOWS: &[&str] = &["newest", "oldest"];
const ANSWERS: &[&str] = &["no", "yes"];

impl Default for Options {
    /// First come, first served; an ask that named its wait gets it, the others
    /// are shed by age under overload, and no more than 65,536 may wait.
    fn default() -> Self {
        Self {
            order: Order::Fifo,
            shedding: Shedding::default(),
            min: 0,
            max: Some(MAX),
            max_fits: false,
            overflow: Overflow::Newest,
            fair: None,
        }
    }
}

impl Default for Shedding {
    fn default() -> Self {
        Self::Paced { wait_cap: None }
    }
}

impl Default for Fair {
    fn default() -> Self {
        Self {
            index: Index::Flow,
            flows_max: FLOWS_MAX,
            weights: Vec::new(),
            sparse_first: false,
        }
    }
}

impl Options {
    /// An ask that waited `wait_max` is shed.
    pub fn timeout(wait_max: Duration) -> Self {
        Self {
            shedding: Shedding::Timeout { wait_max },
            ..Self::default()
        }
    }

    /// Options from words, such as `kind=codel target=5ms interval=100ms max=50
    /// overflow=oldest order=lifo fair_by=flow`. What is not named has its
    /// default.
    ///
    /// # Errors
    ///
    /// If an option is not known, is malformed, or breaks a rule.
    pub fn parse(mut settings: Settings) -> Result<Self, OptionError> {
        let options = Self {
            shedding: Shedding::take(&mut settings)?,
            order: Order::take(&mut settings)?,
            min: settings.number("min")?.unwrap_or(0),
            max_fits: take_word(&mut settings, "max", "auto"),
            max: take_max(&mut settings)?,
            overflow: match settings.word("overflow", OVERFLOWS)? {
                Some(1) => Overflow::Oldest,
                _ => Overflow::Newest,
            },
            fair: Fair::take(&mut settings)?,
        };
        settings.finish()?;
        options.validate()?;
        Ok(options)
    }

    /// Nothing contradicts.
    ///
    /// # Errors
    ///
    /// Names the first option that breaks a rule, and the rule.
    pub fn validate(&self) -> Result<(), OptionError> {
        if !self.max_fits && self.max.is_some_and(|max| self.min > max) {
            return Err(OptionError::new("min", Rule::Over { bound: "max" }));
        }
        self.shedding.validate()?;
        self.fair.as_ref().map_or(Ok(()), Fair::validate)
    }
}

impl Shedding {
    /// A law of your own. `make` is called for each line that needs one, with the
    /// instant from which on it counts. The name is shown where kinds are.
    pub fn custom<L: CustomLaw + 'static>(
        name: &'static str,
        make: impl Fn(Instant) -> L + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(Custom::new(name, move |now| -> Box<dyn CustomLaw> {
            Box::new(make(now))
        }))
    }

    fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        const BOUNDED: usize = 3;
        const PACED: usize = 6;
        let kind = settings.word("kind", KINDS)?.unwrap_or(PACED);
        if kind == 0 {
            return Ok(Self::Never);
        }
        if kind == 1 {
            let wait_max = settings.span("timeout")?.unwrap_or(WAIT_MAX);
            return Ok(Self::Timeout { wait_max });
        }
        if kind == PACED {
            let wait_cap = settings.span("wait_cap")?;
            return Ok(Self::Paced { wait_cap });
        }
        let target = settings.span("target")?.unwrap_or(TARGET);
        let interval = settings.span("interval")?.unwrap_or(INTERVAL);
        Ok(match kind {
            2 => Self::CoDel { target, interval },
            BOUNDED => Self::BoundedCoDel {
                target,
                interval,
                wait_max: settings
                    .span("wait_max")?
                    .unwrap_or(target.saturating_mul(2)),
            },
            4 => Self::MinDelay { target, interval },
            _ => Self::Standing { target, interval },
        })
    }

    fn validate(&self) -> Result<(), OptionError> {
        let (target, interval, bound) = match *self {
            Self::Paced {
                wait_cap: Some(Duration::ZERO),
            } => return Err(OptionError::new("wait_cap", Rule::Zero)),
            Self::Never | Self::Timeout { .. } | Self::Paced { .. } | Self::Custom(_) => {
                return Ok(());
            }
            Self::BoundedCoDel {
                target,
                interval,
                wait_max,
            } => (target, interval, wait_max),
            Self::CoDel { target, interval }
            | Self::MinDelay { target, interval }
            | Self::Standing { target, interval } => (target, interval, Duration::MAX),
        };
        if interval.is_zero() {
            return Err(OptionError::new("interval", Rule::Zero));
        }
        if target > bound {
            return Err(OptionError::new("target", Rule::Over { bound: "wait_max" }));
        }
        Ok(())
    }
}

impl Order {
    fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        Ok(match settings.word("order", ORDERS)? {
            None | Some(0) => Self::Fifo,
            Some(1) => Self::Lifo,
            Some(_) => Self::Adaptive {
                slow: settings.span("slow")?.unwrap_or(TARGET),
            },
        })
    }
}

impl Fair {
    fn take(settings: &mut Settings) -> Result<Option<Self>, OptionError> {
        let Some(index) = settings.take("fair_by") else {
            return Ok(None);
        };
        Ok(Some(Self {
            index: Index::read(&index)?,
            flows_max: settings.positive("flows_max")?.unwrap_or(FLOWS_MAX),
            weights: settings
                .take("weights")
                .map_or(Ok(Vec::new()), |words| weights(&words))?,
            sparse_first: settings.word("sparse_first", ANSWERS)? == Some(1),
        }))
    }

    fn validate(&self) -> Result<(), OptionError> {
        let mut flows: Vec<_> = self.weights.iter().map(|(flow, _)| *flow).collect();
        flows.sort_unstable();
        if flows.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(OptionError::new("weights", Rule::Repeated));
        }
        let Index::Hashed(lines) = self.index else {
            return Ok(());
        };
        if !flows.is_empty() {
            let other = "fair_by=flow";
            return Err(OptionError::new("weights", Rule::OnlyWith { other }));
        }
        if lines > self.flows_max {
            return Err(OptionError::new(
                "fair_by",
                Rule::Over { bound: "flows_max" },
            ));
        }
        Ok(())
    }
}

impl Index {
    /// `flow`, or `hash:64`.
    fn read(words: &str) -> Result<Self, OptionError> {
        let error = |rule| OptionError::new("fair_by", rule);
        if words == "flow" {
            return Ok(Self::Flow);
        }
        let Some(lines) = words.strip_prefix("hash:") else {
            return Err(error(Rule::NotOneOf(&["flow", "hash:LINES"])));
        };
        if lines.starts_with("hash") {
            return Err(error(Rule::NestedHash));
        }
        let lines: u32 = lines.parse().map_err(|_| error(Rule::NotANumber))?;
        NonZeroU32::new(lines)
            .map(Self::Hashed)
            .ok_or(error(Rule::Zero))
    }
}

/// `max=none` lifts the limit.
fn take_max(settings: &mut Settings) -> Result<Option<u32>, OptionError> {
    if take_word(settings, "max", "none") {
        return Ok(None);
    }
    Ok(Some(settings.number("max")?.unwrap_or(MAX)))
}

/// Whether an option is this word; then it is read.
fn take_word(settings: &mut Settings, option: &'static str, word: &str) -> bool {
    let is = settings.is(option, word);
    if is {
        settings.take(option);
    }
    is
}

/// `acme:3,zenith:2`: a name makes the flow [`Flow::of`] gives it.
fn weights(words: &str) -> Result<Vec<(Flow, NonZeroU32)>, OptionError> {
    let error = |rule| OptionError::new("weights", rule);
    words
        .split(',')
        .map(|word| {
            let (name, weight) = word.rsplit_once(':').ok_or(error(Rule::Missing))?;
            let weight: u32 = weight.parse().map_err(|_| error(Rule::NotANumber))?;
            let weight = NonZeroU32::new(weight).ok_or(error(Rule::Zero))?;
            Ok((Flow::of(name), weight))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, OptionError> {
        Options::parse(Settings::parse(words).unwrap())
    }

    #[test]
    fn words_become_options() {
        let options = parse("kind=codel target=5ms interval=100ms max=50 overflow=oldest").unwrap();
        assert_eq!(options.max, Some(50));
        assert_eq!(options.overflow, Overflow::Oldest);
        assert_eq!(
            options.shedding,
            Shedding::CoDel {
                target: Duration::from_millis(5),
                interval: Duration::from_millis(100),
            }
        );
        assert_eq!(parse("").unwrap(), Options::default());
        assert_eq!(parse("max=none").unwrap().max, None);
        assert!(parse("max=auto min=70000").unwrap().max_fits);
        let fair = parse("fair_by=hash:8").unwrap().fair.unwrap();
        assert_eq!(fair.index, Index::Hashed(NonZeroU32::new(8).unwrap()));
        let fair = parse("fair_by=flow weights=acme:3 sparse_first=yes")
            .unwrap()
            .fair
            .unwrap();
        assert_eq!(fair.weights[0].0, Flow::of("acme"));
        assert!(fair.sparse_first);
    }

    #[test]
    fn the_default_law_has_no_numbers_but_a_cap() {
        let shedding = |words| parse(words).unwrap().shedding;
        assert_eq!(shedding(""), Shedding::Paced { wait_cap: None });
        assert_eq!(shedding("kind=paced"), Shedding::default());
        let wait_cap = Some(Duration::from_secs(20));
        assert_eq!(shedding("wait_cap=20s"), Shedding::Paced { wait_cap });
    }

    #[test]
    fn bad_options_name_the_option_and_the_rule() {
        for (words, message) in [
            (
                "min=5 max=3",
                "option `min` is over `max`; lower it or raise `max`",
            ),
            (
                "kind=codel interval=0",
                "option `interval` is zero; it has to be more",
            ),
            (
                "fair_by=hash:hash:8",
                "option `fair_by` hashes a hash; hash the flow once",
            ),
            (
                "fair_by=hash:0",
                "option `fair_by` is zero; it has to be more",
            ),
            (
                "fair_by=node",
                "option `fair_by` has to be one of flow, hash:LINES",
            ),
            ("mux=3", "option `mux` is unknown; did you mean `max`?"),
            (
                "kind=timeout target=5ms",
                "option `target` is unknown; remove it",
            ),
            ("max=many", "option `max` is not a whole number that fits"),
            ("target=5ms", "option `target` is unknown; remove it"),
            ("wait_cap=0", "option `wait_cap` is zero; it has to be more"),
            (
                "kind=codel target=5",
                "option `target` is not a span of time; write a number and ns, us, ms, s, m or h",
            ),
            (
                "kind=bounded-codel target=1s wait_max=1ms",
                "option `target` is over `wait_max`; lower it or raise `wait_max`",
            ),
            (
                "order=random",
                "option `order` has to be one of fifo, lifo, adaptive",
            ),
            (
                "fair_by=flow flows_max=0",
                "option `flows_max` is zero; it has to be more",
            ),
            (
                "fair_by=flow weights=a:1,a:2",
                "option `weights` names the same thing twice; keep one",
            ),
            (
                "sparse_first=yes",
                "option `sparse_first` is unknown; remove it",
            ),
        ] {
            assert_eq!(parse(words).unwrap_err().to_string(), message, "{words}");
        }
    }
}
