//! The file that says what the server does, as typed values.
//!
//! One TOML file. [`Config::parse`] finds all that is wrong with it in one go,
//! [`plan`] says what a change would mean, and [`text`] changes one value and
//! leaves the comments alone. Each key is one row in the struct that has it, see
//! `table.rs`: [`sample()`], [`schema()`] and the tables of the docs come from there,
//! too. What the values mean to a machine is said by the core, whose own options
//! they become.

mod app;
mod broker;
mod core_kinds;
mod core_read;
mod core_tables;
mod exec;
mod fault;
mod front;
pub mod human;
mod kinds;
pub mod label;
mod lock;
mod near;
mod open;
mod parts;
pub mod password;
mod pattern;
mod plan;
mod pool;
mod quota;
mod range;
mod read;
mod reference;
mod rules;
mod sample;
mod schema;
mod section;
mod server;
mod shown;
mod table;
pub mod text;
mod user;
mod view;
mod words;

use std::sync::Arc;

use rideau_core::{broker as core_broker, meter, regulator as core_regulator};

pub use app::{AppConfig, AppListen, AppReady, Health, Http, RunSpec};
pub use broker::{BrokerConfig, BrokerParts, Feed, RegulatorConfig, Source};
pub use exec::Exec;
pub use fault::{Fault, Faults, Level};
pub use front::{ErrorPages, FrontConfig, Network};
pub use lock::{Buckets, LockRule};
pub use near::{edits, far};
pub use open::{Opening, openings};
pub use parts::{all_keys, change_of};
pub use pattern::{fits, globs};
pub use plan::{Live, Now, Plan, PlanStep, plan};
pub use pool::{GroupConfig, Member, PoolConfig};
pub use quota::{HTTP_CONNECTIONS_MAX, Quota};
pub use range::{Hold, OnFailure, RangeConfig, StoreConfig, StoreKind, class_word};
pub use reference::{tables, with_tables};
pub use sample::sample;
pub use schema::schema;
pub use section::Unexpanded;
pub use server::{
    DeadPeer, History, Limits, Listen, Log, LogFormat, LogLevel, Series, Server, Tls,
};
pub use table::Change;
pub use user::{ALLOWED, CONTROL, KINDS, NOBODY, OPERATOR, OWN, Password, Scope, User, is_control};
pub use view::ViewConfig;
pub use words::{read_span, show_span};

use read::Look;

/// The variables of the environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All that the server is told.
///
/// The default is what it does without a file: locks for any key and one
/// broker, for those on this machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The server itself.
    pub server: Server,
    /// What outsiders can fill, and how far.
    pub limits: Limits,
    /// The files of TLS.
    pub tls: Option<Tls>,
    /// The log.
    pub log: Log,
    /// Who may do what; anyone may do anything if there are none.
    pub users: Vec<User>,
    /// The pools.
    pub pools: Vec<PoolConfig>,
    /// The groups that pools are in.
    pub groups: Vec<GroupConfig>,
    /// The brokers.
    pub brokers: Vec<BrokerConfig>,
    /// The regulators.
    pub regulators: Vec<RegulatorConfig>,
    /// The rules for locks; the first that fits a key is the key's.
    pub locks: Vec<LockRule>,
    /// The ranges.
    pub ranges: Vec<RangeConfig>,
    /// The views of ranges.
    pub views: Vec<ViewConfig>,
    /// Where the reservations of ranges are kept.
    pub store: StoreConfig,
    /// The front of applications.
    pub front: FrontConfig,
    /// The applications.
    pub apps: Vec<AppConfig>,
    /// What was written with variables.
    pub unexpanded: Arc<Vec<Unexpanded>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: Server::default(),
            limits: Limits::default(),
            tls: None,
            log: Log::default(),
            users: Vec::new(),
            pools: Vec::new(),
            groups: Vec::new(),
            brokers: vec![BrokerConfig::new("default")],
            regulators: Vec::new(),
            locks: vec![LockRule::new("*")],
            ranges: Vec::new(),
            views: Vec::new(),
            store: StoreConfig::default(),
            front: FrontConfig::default(),
            apps: Vec::new(),
            unexpanded: Arc::default(),
        }
    }
}

impl Config {
    /// The config in a text. `file` is how faults call it, `env` has the
    /// variables that the text names.
    ///
    /// What a section does not say has its default; pools, brokers and locks
    /// are only those of the text. No other file is looked at.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, if anything is an error.
    pub fn parse(text: &str, file: &str, env: Env<'_>) -> Result<Self, Faults> {
        let (config, faults) = read::read(text, file, env, Look::Within);
        config.ok_or(faults)
    }

    /// As [`parse`](Self::parse), and look whether the files that it names can
    /// be read. Warnings are there even if nothing is an error.
    pub fn check(text: &str, file: &str, env: Env<'_>) -> (Option<Self>, Faults) {
        read::read(text, file, env, Look::Around)
    }

    /// The pool whose keys stand in a text, for one that is added at run time:
    /// `member = { list = ["a"] }`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it or its name.
    pub fn parse_pool(&self, name: &str, text: &str, env: Env<'_>) -> Result<PoolConfig, Faults> {
        read::read_pool(name, text, env, &self.limits)
    }

    /// The range whose keys stand in a text, for one that is added at run time:
    /// `values = ["1-999"]`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it or its name.
    pub fn parse_range(&self, name: &str, text: &str, env: Env<'_>) -> Result<RangeConfig, Faults> {
        read::read_range(name, text, env, self)
    }

    /// The options of a broker for the core: its parts, and the meter that
    /// tells the regulators which learn from it.
    pub fn broker_options(&self, broker: &BrokerConfig) -> core_broker::Options {
        let parts = broker.options.clone();
        let mut meters = parts.meters;
        meters.extend(parts.protect.map(meter::Options::Pie));
        meters.extend(self.feeds(&Source::Broker(broker.name.clone())));
        core_broker::Options {
            asks: parts.asks,
            offers: parts.offers,
            meters,
            read_after: parts.read_after,
        }
    }

    /// The options of a regulator for the core, with the meter that tells the
    /// regulators which learn from it.
    pub fn regulator_options(&self, regulator: &RegulatorConfig) -> core_regulator::Options {
        let mut meters = regulator.meters.clone();
        meters.extend(self.feeds(&Source::Regulator(regulator.name.clone())));
        core_regulator::Options {
            queue: regulator.queue.clone(),
            valve: regulator.valve.clone(),
            meters,
            read_after: regulator.read_after,
        }
    }

    /// The meter that tells those which learn from this, if any do.
    fn feeds(&self, source: &Source) -> Option<meter::Options> {
        let feeds = self.regulators.iter().filter_map(|regulator| {
            let feed = regulator.feed.as_ref()?;
            (feed.source == *source).then(|| meter::Entry {
                regulator: regulator.name.clone(),
                side: feed.side,
                update: feed.update,
            })
        });
        let entries: Vec<_> = feeds.collect();
        let update = (!entries.is_empty()).then_some(meter::Update { entries, seed: 0 });
        update.map(meter::Options::Update)
    }
}
