//! Brokers and regulators of the file.

use std::time::Duration;

use rideau_core::{Side, broker, meter, queue, valve};

use super::options;
use super::section::Section;

/// A broker and its options.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerConfig {
    /// The name.
    pub name: String,
    /// The group it is in.
    pub group: Option<String>,
    /// Where both sides wait, and what watches them. The meter that tells
    /// regulators is not among them: see [`Config::broker_options`].
    ///
    /// [`Config::broker_options`]: super::Config::broker_options
    pub options: BrokerParts,
}

/// The options of a broker, part by part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerParts {
    /// Where asks wait.
    pub asks: queue::Options,
    /// Where offers wait.
    pub offers: queue::Options,
    /// What is told how long they wait.
    pub meters: Vec<meter::Options>,
    /// What refuses at admission.
    pub protect: Option<meter::Pie>,
    /// The meters are fed after this many inputs.
    pub read_after: u32,
}

/// A regulator, and what it learns from.
#[derive(Clone, PartialEq, Debug)]
pub struct RegulatorConfig {
    /// The name.
    pub name: String,
    /// Whose leads it is told.
    pub feed: Option<Feed>,
    /// Where asks wait.
    pub queue: queue::Options,
    /// What decides whether one more lease may be granted.
    pub valve: valve::Options,
    /// What is told how long they wait.
    pub meters: Vec<meter::Options>,
    /// The meters are fed after this many inputs.
    pub read_after: u32,
}

/// What a regulator is told by a broker or another regulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    /// What tells it.
    pub source: Source,
    /// Whose lead.
    pub side: Side,
    /// How often.
    pub update: Duration,
}

/// What measures leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The broker of this name.
    Broker(String),
    /// The regulator of this name.
    Regulator(String),
}

const SIDES: &[&str] = &["ask", "offer"];
/// Meters count inputs by a number of this size.
const READ_AFTER_MAX: u32 = 1_000_000;

impl BrokerConfig {
    /// A broker with the defaults of the core.
    pub fn new(name: &str) -> Self {
        let broker::Options {
            asks,
            offers,
            meters,
            read_after,
        } = broker::Options::default();
        Self {
            name: name.into(),
            group: None,
            options: BrokerParts {
                asks,
                offers,
                meters,
                protect: None,
                read_after,
            },
        }
    }

    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        let default = Self::new(name).options;
        let meters = options::meters(section, "meters").unwrap_or_default();
        options::check_meters(section, "meters", &meters);
        let protect = match options::protect(section, "protect") {
            Some(meter::Options::Pie(pie)) => Some(pie),
            _ => None,
        };
        let read_after = section.number("read_after", 1..=READ_AFTER_MAX);
        Self {
            name: name.into(),
            group: section.text("group"),
            options: BrokerParts {
                asks: options::queue(section, "asks").unwrap_or(default.asks),
                offers: options::queue(section, "offers").unwrap_or(default.offers),
                meters,
                protect,
                read_after: read_after.unwrap_or(default.read_after),
            },
        }
    }
}

impl RegulatorConfig {
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        let meters = options::meters(section, "meters").unwrap_or_default();
        options::check_meters(section, "meters", &meters);
        if !section.has("valve") {
            let message = format!("regulator `{name}` has no `valve`");
            let hint = "write valve = { kind = \"open\", max = 10 }, or another kind";
            section.notes.error(section.at.clone(), message, hint);
        }
        let read_after = section.number("read_after", 1..=READ_AFTER_MAX);
        let feed = Feed::read(section);
        let queue = options::queue(section, "queue").unwrap_or_default();
        let valve = options::valve(section, "valve")?;
        if feed.is_none() && needs_leads(&valve) {
            let message = format!(
                "the valve {:?} learns from leads, and nothing tells it",
                valve.kind()
            );
            let hint = "write broker = \"NAME\" or regulator = \"NAME\", unless clients tell it \
                        with REG.UPDATE";
            section.notes.warn(section.at("valve"), message, hint);
        }
        Some(Self {
            name: name.into(),
            feed,
            queue,
            valve,
            meters,
            read_after: read_after.unwrap_or(broker::Options::default().read_after),
        })
    }
}

impl Feed {
    fn read(section: &Section<'_>) -> Option<Self> {
        let sides = [Side::Ask, Side::Offer];
        let side = section.word("side", SIDES);
        let update = section.positive_span("update");
        for key in ["side", "update"] {
            let is_fed = section.has("broker") || section.has("regulator");
            if let Some(entry) = section.entry(key).filter(|_| !is_fed) {
                let message = format!("`{key}` means something only with `broker` or `regulator`");
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
            side: side.map_or(Side::Ask, |at| sides[at]),
            update: update.unwrap_or(meter::Entry::UPDATE),
        })
    }

    pub(super) fn side_word(&self) -> &'static str {
        SIDES[self.side as usize]
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
