//! Brokers and regulators of the file.

use std::time::Duration;

use rideau_core::{Side, broker, meter, queue, valve};

use super::core_kinds::{Meters, Protector, Queue, Valve};
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, Maybe, Number, Positive, Text, Word, Words, spelled};
use super::scope::SharedBy;
use super::section::Section;
use super::shown::Rows;
use super::table::section;

section! {
    /// A broker and its options.
    #[derive(Clone, PartialEq, Debug)]
    pub struct BrokerConfig {
        plain {
            /// The name.
            name: String = String::new();
        }
        flatten {
            /// Where both sides wait, and what watches them. The meter that tells
            /// regulators is not among them: see [`Config::broker_options`].
            ///
            /// [`Config::broker_options`]: super::Config::broker_options
            options: BrokerParts = BrokerParts::default();
        }
        /// `ASK @shops` asks any broker of the group.
        group: Option<String> = None, Maybe<Text>, Live, usual = "none", sample = r#""shops""#;
        /// `"cluster"`: asks and offers of all nodes of a cluster meet in it.
        scope: SharedBy = SharedBy::Node, Word, Live;
    }
}

section! {
    /// The options of a broker, part by part.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct BrokerParts {
        /// Where asks wait.
        asks: queue::Options = core().asks, Queue, Live, usual = r#"{ kind = "paced" }"#,
            above = ABOUT_ASKS, sample = concat!(
            r#"{ kind = "bounded-codel", target = "100ms", interval = "1s", "#,
            r#"wait_max = "200ms", order = "adaptive", slow = "100ms", min = 0, max = 2_000, "#,
            r#"overflow = "newest", fair_by = "flow", flows_max = 1024, "#,
            r#"weights = { storefront = 3 }, sparse_first = false }"#,
        );
        /// Where offers wait.
        offers: queue::Options = core().offers, Queue, Live, usual = r#"{ kind = "never" }"#,
            sample = r#"{ kind = "timeout", timeout = "30s", order = "lifo" }"#;
        /// What watches the waits: a kind, or a table with its numbers.
        meters: Vec<meter::Options> = core().meters, Meters, Live, sample = concat!(
            "[\n",
            "    { kind = \"overload\", alarm = \"overload\", target = \"100ms\", ",
            "interval = \"1s\" },\n",
            "    \"underload\",\n",
            "    { kind = \"better\", ask_upper = \"5s\", offer_upper = \"5s\", ",
            "update = \"100ms\" },\n",
            "]",
        );
        /// Refuses some asks or offers at once, at random, when waits grow.
        protect: Option<meter::Pie> = None, Maybe<Protector>, Live, usual = "none",
            sample = concat!(
                r#"{ ask = { target = "100ms", interval = "1s" }, "#,
                r#"offer = { target = "100ms", interval = "1s" }, update = "100ms", "#,
                "min = 20, max = 5_000, probes = 1 }",
            );
        /// Meters are read after this many inputs.
        read_after: u32 = core().read_after, Number, Live, bounds = (1, READ_AFTER_MAX);
    }
}

section! {
    /// A regulator, and what it learns from.
    #[derive(Clone, PartialEq, Debug)]
    pub struct RegulatorConfig {
        plain {
            /// The name.
            name: String = String::new();
            /// Whose leads it is told.
            feed: Option<Feed> = None;
        }
        /// The broker whose leads it learns from.
        broker => (feed): Option<Feed>, FeedKey, Live, usual = "none", sample = r#""checkout""#;
        /// Another regulator to learn from instead.
        regulator => (feed): Option<Feed>, FeedKey, Live, usual = "none";
        /// Whose lead.
        side => (feed): Option<Feed>, FeedKey, Live, usual = r#""ask""#, sample = r#""ask""#,
            form = Form::Words(Side::WORDS);
        /// How often it is told the lead.
        update => (feed): Option<Feed>, FeedKey, Live, usual = r#""100ms""#,
            sample = r#""200ms""#, form = Form::Positive;
        /// Where asks wait.
        queue: queue::Options = queue::Options::default(), Queue, Live,
            usual = r#"{ kind = "paced" }"#,
            sample = r#"{ kind = "timeout", timeout = "200ms" }"#;
        /// What decides whether one more may run.
        valve: valve::Options = valve::Options::Open(valve::Open::default()), Valve, Live,
            usual = "required", above = ABOUT_VALVES,
            sample = r#"{ kind = "relative", target = "100ms", min = 4, max = 16 }"#;
        /// What watches how long asks wait.
        meters: Vec<meter::Options> = Vec::new(), Meters, Live;
        /// Meters are read after this many inputs.
        read_after: u32 = core().read_after, Number, Live, bounds = (1, READ_AFTER_MAX);
        /// `"cluster"`: it counts the leases of all nodes of a cluster.
        scope: SharedBy = SharedBy::Node, Word, Live;
    }
}

/// The comment about queues of a broker in the sample file.
const ABOUT_ASKS: &str = "\
All that a queue has besides its kind, with the defaults:
  order         \"fifo\", \"lifo\", or \"adaptive\": the newest once the oldest waited `slow`
  slow          100ms
  min           0: none is shed while this many or fewer wait
  max           65_536: the most that may wait; \"none\" for no limit
  overflow      \"newest\": which is refused when the queue is full, or \"oldest\"
  fair_by       default none: turns by \"flow\", or by its hash over 64 sub-queues: \"hash:64\"
  flows_max     1024: flows with a sub-queue of their own
  weights       default none: flows that get more than one ask per turn
  sparse_first  false: a flow that asks seldom gets the first turn";

/// The comment about valves in the sample file.
const ABOUT_VALVES: &str = "\
Kinds: open (max), relative (target, min, max), codel (target, interval, min, max), \
rate (limit, interval, min, max), breaker (failures, window, pause, pause_max, probes, max), \
gradient (min, max, initial, tolerance), least_of (of).";

spelled! { Side { Ask "ask", Offer "offer" } }

/// Leads that a regulator gets from a broker or another regulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    /// The source of the leads.
    pub source: Source,
    /// Whose lead.
    pub side: Side,
    /// How often.
    pub update: Duration,
}

/// The source of leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The broker of this name.
    Broker(String),
    /// The regulator of this name.
    Regulator(String),
}

/// Meters count inputs by a number of this size.
const READ_AFTER_MAX: u64 = 1_000_000;

/// The defaults of the core.
fn core() -> broker::Options {
    broker::Options::default()
}

/// The kind of the keys that together make up a `Feed`.
struct FeedKey;

impl Kind<Option<Feed>> for FeedKey {
    const FORM: Form = Form::Text;

    fn read(section: &Section<'_>, _: &Key) -> Option<Option<Feed>> {
        Feed::read(section).map(Some)
    }

    fn show(value: &Option<Feed>, key: &Key, rows: &mut Rows) {
        let Some(feed) = value else {
            return;
        };
        let (source, name) = feed.source.named();
        match key.name {
            "side" => Word::show(&feed.side, key, rows),
            "update" => Positive::show(&feed.update, key, rows),
            named if named == source => rows.text(source, name),
            _ => (),
        }
    }
}

impl BrokerConfig {
    /// A broker with the defaults of the core.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        let mut broker = Self::new(name);
        broker.read_keys(section);
        broker
    }
}

impl RegulatorConfig {
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        if !section.has("valve") {
            let message = format!("regulator `{name}` has no `valve`");
            let hint = "write valve = { kind = \"open\", max = 10 }, or another kind";
            section.notes.error(section.at.clone(), message, hint);
        }
        let mut regulator = Self::default();
        regulator.read_keys(section);
        regulator.name = name.into();
        regulator.valve = Valve::read(section, Self::key("valve"))?;
        if regulator.feed.is_none() && needs_leads(&regulator.valve) {
            let message = format!(
                "the valve {:?} learns from leads, and nothing tells it",
                regulator.valve.kind()
            );
            let hint = "write broker = \"NAME\" or regulator = \"NAME\", unless clients tell it \
                        with REG.UPDATE";
            section.notes.warn(section.at("valve"), message, hint);
        }
        Some(regulator)
    }
}

impl Feed {
    fn read(section: &Section<'_>) -> Option<Self> {
        let side = Word::read(section, RegulatorConfig::key("side"));
        let update = Positive::read(section, RegulatorConfig::key("update"));
        for key in ["side", "update"] {
            let is_fed = section.has("broker") || section.has("regulator");
            if let Some(entry) = section.entry(key).filter(|_| !is_fed) {
                let message = format!("`{key}` needs `broker` or `regulator`");
                let hint = "name one of them, or remove it";
                section.notes.error(entry.key_at.clone(), message, hint);
            }
        }
        if section.has("broker") && section.has("regulator") {
            let message = "it learns from a broker and from a regulator";
            section
                .notes
                .error(section.at("regulator"), message, "keep one of them");
        }
        let source = match section.text("broker") {
            Some(broker) => Source::Broker(broker),
            None => Source::Regulator(section.text("regulator")?),
        };
        Some(Self {
            source,
            side: side.unwrap_or(Side::Ask),
            update: update.unwrap_or(meter::Entry::UPDATE),
        })
    }
}

impl Source {
    /// The key that names it, and the name.
    pub fn named(&self) -> (&'static str, &str) {
        match self {
            Self::Broker(name) => ("broker", name),
            Self::Regulator(name) => ("regulator", name),
        }
    }
}

/// Whether the valve goes by what a broker tells it.
fn needs_leads(valve: &valve::Options) -> bool {
    match valve {
        valve::Options::Relative(_) | valve::Options::CoDel(_) => true,
        valve::Options::LeastOf(parts) => parts.iter().any(needs_leads),
        _ => false,
    }
}
