//! All that the server is told, as one value.

use std::sync::Arc;

use rideau_core::{broker as core_broker, meter, regulator as core_regulator};

use super::alarm::AlarmConfig;
use super::app::AppConfig;
use super::broker::{BrokerConfig, RegulatorConfig, Source};
use super::certificate::CertificateConfig;
use super::cluster::ClusterConfig;
use super::front::FrontConfig;
use super::lock::LockRule;
use super::pool::{GroupConfig, PoolConfig};
use super::range::{RangeConfig, StoreConfig};
use super::section::Unexpanded;
use super::server::{Limits, Log, Server, Tls};
use super::upgrade::UpgradeConfig;
use super::upstream::UpstreamConfig;
use super::user::User;
use super::view::ViewConfig;

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
    /// Limits of what clients can use up.
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
    /// The cluster that this node is of; none if it is alone.
    pub cluster: Option<ClusterConfig>,
    /// The front of applications.
    pub front: FrontConfig,
    /// The applications.
    pub apps: Vec<AppConfig>,
    /// Servers that others start.
    pub upstreams: Vec<UpstreamConfig>,
    /// The certificates of the front.
    pub certificates: Vec<CertificateConfig>,
    /// How a newer program takes over.
    pub upgrade: UpgradeConfig,
    /// The alarms.
    pub alarms: Vec<AlarmConfig>,
    /// Values that were written with variables.
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
            cluster: None,
            front: FrontConfig::default(),
            apps: Vec::new(),
            upstreams: Vec::new(),
            certificates: Vec::new(),
            upgrade: UpgradeConfig::default(),
            alarms: Vec::new(),
            unexpanded: Arc::default(),
        }
    }
}

impl Config {
    /// All that requests are led to, apps first. Upstreams are like apps whose processes others
    /// start.
    pub fn served(&self) -> impl Iterator<Item = &AppConfig> {
        let upstreams = self.upstreams.iter().map(|upstream| &upstream.app);
        self.apps.iter().chain(upstreams)
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
