//! New pools, brokers and regulators for a partition that has come to this node: what the
//! old ones knew is of an earlier ownership.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rideau::{Broker, OptionError, Regulator};
use rideau_config::Source;

use super::{
    BrokerGroup, Catalog, NamedBroker, NamedGroup, NamedPool, NamedRegulator, SharedPlace, group_of,
};

impl Catalog {
    /// The same with new ones for all whose home is meant.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, as none does that was taken before.
    pub(crate) fn renewed(&self, is_meant: &dyn Fn(&str) -> bool) -> Result<Self, OptionError> {
        let mut next = self.clone();
        for pool in next.pools.values_mut() {
            if let Some(shared) = pool.shared.as_ref().filter(|it| is_meant(&it.home)) {
                let home = Some(&*shared.home);
                let config = pool.config.load_full();
                *pool = Arc::new(NamedPool::new(&config, &self.run_dirs, home)?);
            }
        }
        for place in next.regulators.values_mut() {
            if let Some(shared) = place.shared.as_ref().filter(|it| is_meant(&it.home)) {
                let options = place.regulator.options();
                *place = Arc::new(NamedRegulator {
                    name: Arc::clone(&place.name),
                    regulator: Regulator::named(&place.name, options)?,
                    config: ArcSwap::new(place.config.load_full()),
                    shared: Some(SharedPlace::new(&shared.home)),
                });
            }
        }
        for place in next.brokers.values_mut() {
            if let Some(shared) = place.shared.as_ref().filter(|it| is_meant(&it.home)) {
                let options = place.broker.options();
                *place = Arc::new(NamedBroker {
                    name: Arc::clone(&place.name),
                    broker: Broker::named(&place.name, options)?,
                    config: ArcSwap::new(place.config.load_full()),
                    shared: Some(SharedPlace::new(&shared.home)),
                });
            }
        }
        next.connect();
        for (name, group) in &mut next.groups {
            if is_meant(&format!("@{name}")) {
                *group = Arc::new(NamedGroup {
                    name: Arc::clone(&group.name),
                    group: group_of(&group.config, &next.pools),
                    brokers: BrokerGroup::new(&group.config, &next.brokers),
                    config: group.config.clone(),
                });
            }
        }
        Ok(next)
    }

    /// Have each regulator learn from its source.
    fn connect(&self) {
        for fed in self.regulators.values() {
            let config = fed.config.load();
            match config.feed.as_ref().map(|feed| &feed.source) {
                Some(Source::Broker(name)) => {
                    if let Some(source) = self.brokers.get(name) {
                        source.broker.feed(&fed.name, &fed.regulator);
                    }
                }
                Some(Source::Regulator(name)) => {
                    if let Some(source) = self.regulators.get(name) {
                        source.regulator.feed(&fed.name, &fed.regulator);
                    }
                }
                None => (),
            }
        }
    }

    /// Look at all that nodes share.
    pub(crate) fn each_shared(&self, mut look: impl FnMut(&SharedPlace)) {
        let pools = self.pools.values().map(|pool| &pool.shared);
        let brokers = self.brokers.values().map(|broker| &broker.shared);
        let regulators = self.regulators.values().map(|place| &place.shared);
        let all = pools.chain(brokers).chain(regulators);
        all.flatten().for_each(&mut look);
    }

    /// The home of a pool or group of pools, if nodes share it.
    pub(crate) fn home_of_pool(&self, name: &str) -> Option<&str> {
        let pool = match name.strip_prefix('@') {
            Some(group) => self
                .pools
                .get(self.groups.get(group)?.config.pools.first()?),
            None => self.pools.get(name),
        };
        home(&pool?.shared)
    }

    /// The home of a broker or group of brokers, if nodes share it.
    pub(crate) fn home_of_broker(&self, name: &str) -> Option<&str> {
        let broker = match name.strip_prefix('@') {
            Some(group) => self
                .brokers
                .get(self.groups.get(group)?.config.brokers.first()?),
            None => self.brokers.get(name),
        };
        home(&broker?.shared)
    }

    /// The home of a regulator, if nodes share it.
    pub(crate) fn home_of_regulator(&self, name: &str) -> Option<&str> {
        home(&self.regulators.get(name)?.shared)
    }
}

fn home(shared: &Option<SharedPlace>) -> Option<&str> {
    shared.as_ref().map(|shared| &*shared.home)
}
