//! Whether a thing with a name is one node's or that of all nodes of a cluster.

use super::broker::{BrokerConfig, RegulatorConfig, Source};
use super::config::Config;
use super::kinds::spelled;
use super::pool::{Member, PoolConfig};
use super::section::Notes;
use super::sections::{Named, Sections};

/// Which nodes have a thing in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedBy {
    /// Each node has one of its own.
    #[default]
    Node,
    /// All nodes of the cluster have one together.
    Cluster,
}

spelled! { SharedBy { Node "node", Cluster "cluster" } }

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

/// What nodes share has to be of one kind, and together.
pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    for pool in &config.pools {
        let found = sections.pools.iter().find(|(name, _)| *name == pool.name);
        let is_list = matches!(pool.member, Member::List(_));
        if let Some((_, section)) = found.filter(|_| pool.scope == SharedBy::Cluster && !is_list) {
            let message = "nodes share pools of a list only: a process or a connection cannot move";
            let hint = "remove `scope`, or write member = { list = […] }";
            notes.error(section.at("scope"), message, hint);
        }
    }
    let pools = config.pools.iter();
    let pools = pools.map(|pool| (pool.group.as_deref(), &*pool.name, pool.scope));
    check_groups(notes, &sections.pools, &pools.collect::<Vec<_>>());
    let brokers = config.brokers.iter();
    let brokers = brokers.map(|broker| (broker.group.as_deref(), &*broker.name, broker.scope));
    check_groups(notes, &sections.brokers, &brokers.collect::<Vec<_>>());
    check_feeds(notes, sections, config);
}

/// All of a group are shared, or none.
fn check_groups(notes: &Notes<'_>, sections: &Named<'_>, all: &[(Option<&str>, &str, SharedBy)]) {
    for (at, (group, name, scope)) in all.iter().enumerate() {
        let mut others = all[..at].iter();
        let other =
            others.find(|(other, _, theirs)| group.is_some() && other == group && theirs != scope);
        let found = sections.iter().find(|(other, _)| other == name);
        if let (Some((_, other, _)), Some((_, section))) = (other, found) {
            let message = format!("`{other}` of the same group has another `scope`");
            let hint = "write the same `scope` for all of a group";
            notes.error(section.at("scope"), message, hint);
        }
    }
}

/// A regulator learns from what is shared as it is.
fn check_feeds(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    for regulator in &config.regulators {
        let source = regulator.feed.as_ref().map(|feed| &feed.source);
        let theirs = match source {
            Some(Source::Broker(name)) => {
                let mut brokers = config.brokers.iter();
                brokers
                    .find(|broker| broker.name == *name)
                    .map(|it| it.scope)
            }
            Some(Source::Regulator(name)) => {
                let mut regulators = config.regulators.iter();
                regulators
                    .find(|other| other.name == *name)
                    .map(|it| it.scope)
            }
            None => None,
        };
        let mut named = sections.regulators.iter();
        let found = named.find(|(name, _)| *name == regulator.name);
        if let (Some(theirs), Some((_, section))) = (theirs, found)
            && theirs != regulator.scope
        {
            let message = "what it learns from has another `scope`";
            notes.error(
                section.at("scope"),
                message,
                "write the same `scope` for both",
            );
        }
    }
}
