//! Which partition of a cluster the things are in that nodes share: that of a name.

use super::broker::{BrokerConfig, RegulatorConfig, Source};
use super::config::Config;
use super::pool::PoolConfig;
use super::scope::SharedBy;

impl Config {
    /// The name that says in which partition a pool is, if all nodes share it: pools of a
    /// group are where the group is.
    pub fn home_of_pool(&self, pool: &PoolConfig) -> Option<String> {
        self.home(pool.scope, pool.group.as_deref(), &pool.name)
    }

    /// The same of a broker.
    pub fn home_of_broker(&self, broker: &BrokerConfig) -> Option<String> {
        self.home(broker.scope, broker.group.as_deref(), &broker.name)
    }

    /// The same of a regulator. It is where it learns from.
    pub fn home_of_regulator(&self, regulator: &RegulatorConfig) -> Option<String> {
        let own = self.home(regulator.scope, None, &regulator.name)?;
        let mut at = regulator;
        // Regulators that learn from each other in a circle have no first one.
        for _ in 0..self.regulators.len() {
            match at.feed.as_ref().map(|feed| &feed.source) {
                Some(Source::Broker(name)) => {
                    let broker = self.brokers.iter().find(|broker| broker.name == *name);
                    return broker.and_then(|broker| self.home_of_broker(broker));
                }
                Some(Source::Regulator(name)) => {
                    let next = self.regulators.iter().find(|other| other.name == *name);
                    at = next?;
                }
                None => return self.home(at.scope, None, &at.name),
            }
        }
        Some(own)
    }

    fn home(&self, scope: SharedBy, group: Option<&str>, name: &str) -> Option<String> {
        let is_shared = scope == SharedBy::Cluster && self.cluster.is_some();
        is_shared.then(|| group.map_or_else(|| name.to_owned(), |group| format!("@{group}")))
    }
}
