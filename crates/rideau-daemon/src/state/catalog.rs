//! Everything that has a name: pools, brokers, regulators, ranges,
//! rules for locks.
//!
//! The names are a snapshot that is replaced as a whole: a task that looks one up takes
//! no lock, and a change of configuration is seen at once or not at all.

mod renewed;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rideau::{
    Balancer, BalancerMethod, Broker, Group, GroupMethod, OptionError, Pool, PoolOptions,
    PoolStats, Reason, Regulator, Side,
};
use rideau_apps::RunDirs;
use rideau_config::human::count;
use rideau_config::{
    BrokerConfig, Config, GroupConfig, LockRule, Member, PoolConfig, RegulatorConfig, Source,
};

use crate::state::answer;
use crate::state::matches::Party;
use crate::state::members::{Follow, Members};
use crate::state::shared_place::SharedPlace;
use crate::state::values::{NamedRanges, ViewPlaces};
use crate::state::viewer::Viewer;

/// Longer than any ask waits.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Names, and what they are of.
#[derive(Clone, Default)]
pub(crate) struct Catalog {
    /// Pools, by name.
    pub pools: HashMap<String, Arc<NamedPool>>,
    /// Groups of pools and of brokers, by name without `@`.
    pub groups: HashMap<String, Arc<NamedGroup>>,
    /// Brokers, by name.
    pub brokers: HashMap<String, Arc<NamedBroker>>,
    /// Regulators, by name.
    pub regulators: HashMap<String, Arc<NamedRegulator>>,
    /// Rules for locks: the first that fits.
    pub rules: Arc<Vec<Arc<RulePlace>>>,
    /// Ranges.
    pub ranges: Arc<NamedRanges>,
    /// Views of ranges.
    pub views: Arc<ViewPlaces>,
    /// Where members that are processes are started.
    pub run_dirs: Arc<RunDirs>,
}

/// A pool with its name.
pub struct NamedPool {
    /// The name.
    pub name: Arc<str>,
    /// The pool.
    pub pool: Pool<Members>,
    /// The source of its members.
    pub members: Members,
    /// How it was set up.
    pub config: ArcSwap<PoolConfig>,
    /// What there is to know of it if all nodes of a cluster share it.
    pub(crate) shared: Option<SharedPlace>,
}

/// A group with its name.
pub(crate) struct NamedGroup {
    /// The name, without `@`.
    pub name: Arc<str>,
    /// Its pools.
    pub group: Group<Members>,
    /// Its brokers.
    pub brokers: BrokerGroup,
    /// How it was set up.
    pub config: GroupConfig,
}

/// Brokers, one of which is chosen for each that comes.
pub(crate) struct BrokerGroup {
    all: Vec<Arc<NamedBroker>>,
    /// By what they tell asks, and what they tell offers.
    better: [Balancer<Arc<NamedBroker>>; 2],
    /// How many came when there was nothing to compare.
    turns: AtomicUsize,
}

/// A broker with its name.
pub(crate) struct NamedBroker {
    /// The name.
    pub name: Arc<str>,
    /// The broker.
    pub broker: Broker<Party, Party>,
    /// How it was set up.
    pub config: ArcSwap<BrokerConfig>,
    /// As that of a pool.
    pub shared: Option<SharedPlace>,
}

/// A regulator with its name.
pub struct NamedRegulator {
    /// The name.
    pub name: Arc<str>,
    /// The regulator.
    pub regulator: Regulator,
    /// How it was set up.
    pub config: ArcSwap<RegulatorConfig>,
    /// As that of a pool.
    pub(crate) shared: Option<SharedPlace>,
}

/// A rule for locks, and what became of the asks that came under it.
pub(crate) struct RulePlace {
    /// The rule.
    pub rule: LockRule,
    /// What became of the asks that came. The counts are the same for the same pattern,
    /// whatever else changes.
    pub counts: Arc<RuleCounts>,
}

/// Outcomes of asks for keys of a rule.
#[derive(Default)]
pub(crate) struct RuleCounts {
    /// How many were granted, at once or after a wait.
    pub acquired: AtomicU64,
    /// How many were refused at once.
    pub full: AtomicU64,
    /// How many waited until a law let them go.
    pub shed: AtomicU64,
    /// How many waited as long as they might.
    pub timeout: AtomicU64,
    /// How many were refused because there were too many keys.
    pub keys_refused: AtomicU64,
}

impl RuleCounts {
    /// An ask was refused.
    pub(crate) fn refuse(&self, reason: Reason) {
        let count = match answer::word(reason) {
            _ if reason == Reason::Keys => &self.keys_refused,
            "full" => &self.full,
            "shed" => &self.shed,
            "timeout" => &self.timeout,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were told no.
    pub(crate) fn refused(&self) -> u64 {
        let all = [&self.full, &self.shed, &self.timeout, &self.keys_refused];
        all.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The parts of the old config that a change removed.
#[derive(Default)]
pub(crate) struct Left {
    /// Pools that are gone; a holder of one of their members keeps it for now.
    pub pools: Vec<Arc<NamedPool>>,
    /// Brokers that are gone.
    pub brokers: Vec<Arc<NamedBroker>>,
    /// Regulators that are gone.
    pub regulators: Vec<Arc<NamedRegulator>>,
}

impl Catalog {
    /// Make everything that a config names.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub(crate) fn new(config: &Config, run_dirs: Arc<RunDirs>) -> Result<Self, OptionError> {
        let nothing = Self {
            run_dirs,
            ..Self::default()
        };
        nothing.changed(config).map(|(catalog, _)| catalog)
    }

    /// The same places after a change of configuration. What stays keeps its waiters
    /// and its holders; nothing has changed if this fails.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub(crate) fn changed(&self, config: &Config) -> Result<(Self, Left), OptionError> {
        Self::validate(config)?;
        let mut left = Left::default();
        let mut pools = HashMap::new();
        for pool in &config.pools {
            let home = config.home_of_pool(pool);
            let old = self.pools.get(&pool.name);
            let is_at_home = |old: &&Arc<NamedPool>| is_at(&old.shared, home.as_deref());
            let kept = old.filter(is_at_home).filter(|old| old.follow(pool));
            let place = match kept {
                Some(place) => Arc::clone(place),
                None => {
                    left.pools.extend(old.cloned());
                    Arc::new(NamedPool::new(pool, &self.run_dirs, home.as_deref())?)
                }
            };
            pools.insert(pool.name.clone(), place);
        }
        let regulators = self.changed_regulators(config, &mut left)?;
        let brokers = self.changed_brokers(config, &regulators, &mut left)?;
        let gone = |name: &String| !pools.contains_key(name);
        left.pools.extend(gone_of(&self.pools, gone));
        left.brokers
            .extend(gone_of(&self.brokers, |name| !brokers.contains_key(name)));
        left.regulators.extend(gone_of(&self.regulators, |name| {
            !regulators.contains_key(name)
        }));
        let catalog = Self {
            groups: groups(config, &pools, &brokers),
            pools,
            brokers,
            regulators,
            rules: Arc::new(self.changed_rules(&config.locks)),
            ranges: Arc::clone(&self.ranges),
            views: Arc::new(ViewPlaces::new(&config.views)),
            run_dirs: Arc::clone(&self.run_dirs),
        };
        Ok((catalog, left))
    }

    /// Whether a config keeps all rules, so that nothing is changed by one that
    /// does not.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub(crate) fn validate(config: &Config) -> Result<(), OptionError> {
        for pool in &config.pools {
            pool_options(pool).validate()?;
        }
        for regulator in &config.regulators {
            Regulator::new(config.regulator_options(regulator))?;
        }
        for broker in &config.brokers {
            Broker::<(), ()>::new(config.broker_options(broker))?;
        }
        for lock in &config.locks {
            lock.queue.validate().map_err(|no| no.within("queue"))?;
        }
        Ok(())
    }

    fn changed_regulators(
        &self,
        config: &Config,
        left: &mut Left,
    ) -> Result<HashMap<String, Arc<NamedRegulator>>, OptionError> {
        let mut regulators: HashMap<_, Arc<NamedRegulator>> = HashMap::new();
        for regulator in &config.regulators {
            let options = config.regulator_options(regulator);
            let home = config.home_of_regulator(regulator);
            let old = self.regulators.get(&regulator.name);
            let place = match old.filter(|old| is_at(&old.shared, home.as_deref())) {
                Some(old) => {
                    old.regulator.reconfigure(options)?;
                    old.config.store(Arc::new(regulator.clone()));
                    Arc::clone(old)
                }
                None => {
                    left.regulators.extend(old.cloned());
                    Arc::new(NamedRegulator {
                        name: regulator.name.as_str().into(),
                        regulator: Regulator::named(&regulator.name, options)?,
                        config: ArcSwap::from_pointee(regulator.clone()),
                        shared: home.as_deref().map(SharedPlace::new),
                    })
                }
            };
            regulators.insert(regulator.name.clone(), place);
        }
        for place in regulators.values() {
            let source = Source::Regulator(place.name.to_string());
            for (name, fed) in fed_by(&source, config, &regulators) {
                place.regulator.feed(name, &fed.regulator);
            }
        }
        Ok(regulators)
    }

    fn changed_brokers(
        &self,
        config: &Config,
        regulators: &HashMap<String, Arc<NamedRegulator>>,
        left: &mut Left,
    ) -> Result<HashMap<String, Arc<NamedBroker>>, OptionError> {
        let mut brokers = HashMap::new();
        for broker in &config.brokers {
            let options = config.broker_options(broker);
            let home = config.home_of_broker(broker);
            let old = self.brokers.get(&broker.name);
            let place = match old.filter(|old| is_at(&old.shared, home.as_deref())) {
                Some(old) => {
                    old.broker.reconfigure(options)?;
                    old.config.store(Arc::new(broker.clone()));
                    Arc::clone(old)
                }
                None => {
                    left.brokers.extend(old.cloned());
                    Arc::new(NamedBroker {
                        name: broker.name.as_str().into(),
                        broker: Broker::named(&broker.name, options)?,
                        config: ArcSwap::from_pointee(broker.clone()),
                        shared: home.as_deref().map(SharedPlace::new),
                    })
                }
            };
            let source = Source::Broker(broker.name.clone());
            for (name, fed) in fed_by(&source, config, regulators) {
                place.broker.feed(name, &fed.regulator);
            }
            brokers.insert(broker.name.clone(), place);
        }
        Ok(brokers)
    }

    fn changed_rules(&self, rules: &[LockRule]) -> Vec<Arc<RulePlace>> {
        let place = |rule: &LockRule| {
            let is_same = |old: &&Arc<RulePlace>| old.rule.pattern == rule.pattern;
            let same = self.rules.iter().find(is_same);
            Arc::new(RulePlace {
                rule: rule.clone(),
                counts: same.map_or_else(Arc::default, |old| Arc::clone(&old.counts)),
            })
        };
        rules.iter().map(place).collect()
    }

    /// The part of the catalog that a user may see.
    pub(crate) fn seen(&self, viewer: Viewer<'_>) -> Self {
        let mut seen = self.clone();
        seen.pools.retain(|name, _| viewer.sees("pool", name));
        seen.groups
            .retain(|name, _| viewer.sees("pool", &format!("@{name}")));
        seen.brokers.retain(|name, _| viewer.sees("broker", name));
        seen.regulators
            .retain(|name, _| viewer.sees("regulator", name));
        Arc::make_mut(&mut seen.rules).retain(|place| viewer.sees("lock", &place.rule.pattern));
        seen
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        let named = self.pools.len() + self.groups.len() + self.brokers.len();
        named + self.regulators.len() + self.rules.len() + self.ranges.len()
    }

    /// The rule of a key.
    pub(crate) fn rule(&self, key: &str) -> Option<&Arc<RulePlace>> {
        self.rules.iter().find(|place| place.rule.fits(key))
    }
}

impl NamedPool {
    fn new(
        config: &PoolConfig,
        run_dirs: &Arc<RunDirs>,
        home: Option<&str>,
    ) -> Result<Self, OptionError> {
        let name: Arc<str> = config.name.as_str().into();
        let members = Members::new(&name, config, run_dirs);
        Ok(Self {
            pool: Pool::new(members.clone(), pool_options(config))?,
            members,
            name,
            config: ArcSwap::from_pointee(config.clone()),
            shared: home.map(SharedPlace::new),
        })
    }

    /// Whether this node decides about it.
    pub(crate) fn is_here(&self) -> bool {
        self.shared.as_ref().is_none_or(SharedPlace::is_here)
    }

    /// The pool's numbers. A place that waits for a client to bring a member starts
    /// nothing, and a value of a list is free before it was ever taken.
    pub fn stats(&self) -> PoolStats {
        let mut stats = self.pool.stats();
        match self.config.load().member {
            Member::Offered => stats.members.starting = 0,
            Member::List(_) if !stats.is_closing => {
                let members = &mut stats.members;
                let busy = members.size() - members.idle;
                members.idle = stats.max.saturating_sub(busy).max(members.idle);
            }
            Member::List(_) | Member::Exec(_) => (),
        }
        stats
    }

    /// Whether it has a value that no take has had yet, and no take waits for it. Such
    /// a value is made when it is asked for.
    pub fn has_new_value(&self) -> bool {
        if !matches!(self.config.load().member, Member::List(_)) {
            return false;
        }
        let stats = self.pool.stats();
        let is_open = !stats.is_closing && !stats.is_suspended;
        is_open && stats.members.size() < stats.max && stats.is_empty()
    }

    /// How the pool is and why it gives nothing, in plain words.
    pub fn explain(&self) -> String {
        let explained = self.pool.explain();
        let Member::List(list) = &self.config.load().member else {
            return explained;
        };
        // It counts the values that were taken before; a list has all from the start.
        let stats = self.stats();
        let (held, idle) = (stats.members.held, stats.members.idle);
        let (values, waiting) = (count(list.len(), "value"), stats.len());
        let (_, rest) = explained.split_once('\n').unwrap_or_default();
        format!("{values} in its list: {held} held, {idle} free. {waiting} wait.\n{rest}")
    }

    /// Follow a changed config; false if that needs another pool.
    fn follow(&self, config: &PoolConfig) -> bool {
        let follow = self.members.reconfigure(config);
        if follow == Follow::Anew || self.pool.reconfigure(pool_options(config)).is_err() {
            return false;
        }
        if follow == Follow::Replace {
            self.pool.replace(Duration::ZERO);
        }
        self.config.store(Arc::new(config.clone()));
        true
    }
}

/// Members that clients bring are started as soon as they come, and a start
/// that waits for one waits for as long as it takes. Processes keep to the
/// limits themselves, and know what to say of it if they do not.
fn pool_options(config: &PoolConfig) -> PoolOptions {
    const STARTS_MAX: usize = 4;
    /// Longer than it takes to kill a process and hear what it said last.
    const LAST_WORDS: Duration = Duration::from_secs(10);
    let mut options = config.options.clone();
    if config.member == Member::Offered {
        options.idle_min = options.max;
        options.starts_max = STARTS_MAX;
        options.start_timeout = FOR_EVER;
    }
    if matches!(config.member, Member::Exec(_)) {
        options.start_timeout += LAST_WORDS;
        options.stop_timeout += LAST_WORDS;
    }
    options
}

fn groups(
    config: &Config,
    pools: &HashMap<String, Arc<NamedPool>>,
    brokers: &HashMap<String, Arc<NamedBroker>>,
) -> HashMap<String, Arc<NamedGroup>> {
    let group = |config: &GroupConfig| {
        let place = Arc::new(NamedGroup {
            name: config.name.as_str().into(),
            group: group_of(config, pools),
            brokers: BrokerGroup::new(config, brokers),
            config: config.clone(),
        });
        (config.name.clone(), place)
    };
    config.groups.iter().map(group).collect()
}

fn group_of(config: &GroupConfig, pools: &HashMap<String, Arc<NamedPool>>) -> Group<Members> {
    let group = Group::new(config.pick);
    for name in &config.pools {
        if let Some(place) = pools.get(name) {
            group.join(name, &place.pool);
        }
    }
    group
}

/// Whether something that has been there stays where it is.
fn is_at(shared: &Option<SharedPlace>, home: Option<&str>) -> bool {
    shared.as_ref().map(|shared| &*shared.home) == home
}

impl NamedBroker {
    /// Whether this node decides about it.
    pub(crate) fn is_here(&self) -> bool {
        self.shared.as_ref().is_none_or(SharedPlace::is_here)
    }
}

impl NamedRegulator {
    /// Whether this node decides about it.
    pub(crate) fn is_here(&self) -> bool {
        self.shared.as_ref().is_none_or(SharedPlace::is_here)
    }
}

/// The regulators that learn from this, by name.
fn fed_by<'a>(
    source: &'a Source,
    config: &'a Config,
    regulators: &'a HashMap<String, Arc<NamedRegulator>>,
) -> impl Iterator<Item = (&'a str, &'a NamedRegulator)> {
    let learns = move |one: &&RegulatorConfig| {
        let feed = one.feed.as_ref();
        feed.is_some_and(|feed| feed.source == *source)
    };
    let fed = config.regulators.iter().filter(learns);
    fed.filter_map(|one| Some((one.name.as_str(), &**regulators.get(&one.name)?)))
}

impl BrokerGroup {
    fn new(config: &GroupConfig, brokers: &HashMap<String, Arc<NamedBroker>>) -> Self {
        let all = config.brokers.iter();
        let all: Vec<_> = all.filter_map(|name| brokers.get(name)).cloned().collect();
        let method = match config.pick {
            GroupMethod::Random => BalancerMethod::Random,
            GroupMethod::BestOfTwo => BalancerMethod::Better,
        };
        let better = [Side::Ask, Side::Offer].map(|side| {
            let balancer = Balancer::new(method, side);
            for place in &all {
                balancer.add(&place.name, Arc::clone(place), Some(place.broker.rank()));
            }
            balancer
        });
        Self {
            all,
            better,
            turns: AtomicUsize::new(0),
        }
    }

    /// One of them, for an ask or offer that comes to this side: the better of two, or if
    /// their meters tell nothing, each in turn. None if there is none.
    pub(crate) fn choose(&self, side: Side) -> Option<Arc<NamedBroker>> {
        if let Some(chosen) = self.better[side as usize].choose() {
            return Some(Arc::clone(&chosen));
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let at = turn.checked_rem(self.all.len())?;
        Some(Arc::clone(&self.all[at]))
    }
}

fn gone_of<T>(
    old: &HashMap<String, Arc<T>>,
    gone: impl Fn(&String) -> bool,
) -> impl Iterator<Item = Arc<T>> {
    old.iter()
        .filter(move |(name, _)| gone(name))
        .map(|(_, place)| Arc::clone(place))
}
