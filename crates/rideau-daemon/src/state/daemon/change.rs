//! Changes of the running config.
//!
//! A change is a new text. It is read and planned first, and counts as a whole
//! or not at all; the text before it is kept for a while.

mod edit;
mod shared;
mod unchanged;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_cluster::ConfigError;
use rideau_config::{Change, Config, Faults, Live, Now, Plan, text};

use super::Daemon;
use crate::state::upgrades::UpgradeShown;
use crate::state::versions::{Inner, Version};

pub(crate) use shared::{joined, warn_of_file};
pub(crate) use unchanged::Unchanged;

/// A change that another node was faster with is made again on what is there then, so often.
const TRIES: u32 = 32;

/// How a change comes about.
struct Way<'a> {
    /// In a word.
    how: &'static str,
    /// The user that makes the change.
    by: &'a str,
    /// Members of removed pools are taken back after this.
    within: Option<Duration>,
    /// The text of the file, if it is read anew.
    file: Option<Arc<str>>,
    /// The new text is ours, with the wanted change in it.
    is_ours: bool,
    /// It has all that nodes share, whatever that was before.
    is_whole: bool,
}

impl<'a> Way<'a> {
    fn new(how: &'static str, by: &'a str) -> Self {
        Self {
            how,
            by,
            within: None,
            file: None,
            is_ours: false,
            is_whole: false,
        }
    }

    fn with_ours(how: &'static str, by: &'a str) -> Self {
        Self {
            is_ours: true,
            ..Self::new(how, by)
        }
    }
}

impl Daemon {
    /// Read a config and look at the files that it names. Warnings are no
    /// fault.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn check(&self, text: &str) -> Result<(Config, Faults), Unchanged> {
        let env = |name: &str| std::env::var(name).ok();
        match Config::check(text, &self.settings.label(), &env) {
            (Some(config), faults) => Ok((config, faults)),
            (None, faults) => Err(Unchanged::Faults(faults)),
        }
    }

    /// The plan for a change to this config now.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn plan(&self, text: &str) -> Result<Plan, Unchanged> {
        let (new, _) = self.check(text)?;
        Ok(self.plan_from(&self.config.load(), &new))
    }

    /// Do from now on what a text says. Says what that changed.
    ///
    /// # Errors
    ///
    /// If something is wrong with it; then nothing has changed.
    pub fn apply(self: &Arc<Self>, text: &str, by: &str) -> Result<Plan, Unchanged> {
        self.change(&Way::new("apply", by), |_| Ok(text.to_owned()))
    }

    /// Do from now on what the file says that the server was started with.
    ///
    /// # Errors
    ///
    /// If there is none, or something is wrong with it; then nothing has
    /// changed.
    pub fn reload(self: &Arc<Self>, by: &str) -> Result<Plan, Unchanged> {
        let file: Arc<str> = self.read_file()?.into();
        let way = Way {
            file: Some(Arc::clone(&file)),
            ..Way::new("reload", by)
        };
        self.change(&way, |_| self.with_shared(&file))
    }

    /// Have what all nodes share be as another text says, which has all of a config.
    ///
    /// # Errors
    ///
    /// If something is wrong with it, or nodes share nothing; then nothing has changed.
    pub fn push(self: &Arc<Self>, text: &str, by: &str) -> Result<Plan, Unchanged> {
        let way = Way {
            is_whole: true,
            ..Way::with_ours("push", by)
        };
        self.change(&way, |inner| {
            self.with_shared_of(&inner.newest().text, text)
        })
    }

    /// Go back to a version of the history, or to the one before the newest.
    ///
    /// # Errors
    ///
    /// If there is none, or it does not fit any more; then nothing has changed.
    pub fn rollback(self: &Arc<Self>, serial: Option<u64>, by: &str) -> Result<Plan, Unchanged> {
        self.change(&Way::new("rollback", by), |inner| {
            Ok(version(inner, serial)?.text.to_string())
        })
    }

    /// Change some values, all at once, each a path and what is to stand there.
    /// They are values of what there is: a name with a typing error would make
    /// something new.
    ///
    /// # Errors
    ///
    /// If something is wrong with one; then nothing has changed.
    pub fn set(self: &Arc<Self>, values: &[(String, String)], by: &str) -> Result<Plan, Unchanged> {
        self.change(&Way::with_ours("set", by), |inner| {
            self.with_values(&inner.newest().text, values)
        })
    }

    /// The plan for a change of some values.
    ///
    /// # Errors
    ///
    /// If something is wrong with one.
    pub fn plan_set(&self, values: &[(String, String)]) -> Result<Plan, Unchanged> {
        let now = Arc::clone(&self.settings.inner.lock().newest().text);
        let changed = self.with_values(&now, values)?;
        self.plan(&changed)
    }

    /// A text with some values changed.
    fn with_values(&self, now: &str, values: &[(String, String)]) -> Result<String, Unchanged> {
        let mut changed = now.to_owned();
        let config = self.config.load();
        for (path, value) in values {
            text::find(&config, path).map_err(Unchanged::Path)?;
            changed = text::set(&changed, path, value).map_err(Unchanged::Path)?;
        }
        Ok(changed)
    }

    /// Add a pool whose keys stand in a text.
    ///
    /// # Errors
    ///
    /// If there is one of this name, there are too many names, or something is
    /// wrong with the text; then nothing has changed.
    pub fn add_pool(self: &Arc<Self>, name: &str, keys: &str, by: &str) -> Result<Plan, Unchanged> {
        let config = self.config.load_full();
        let most = config.limits.names_max;
        if self.catalog.load().len() >= most {
            let counts = &self.counts;
            counts.names_refused.fetch_add(1, Ordering::Relaxed);
            return Err(Unchanged::TooMany { most });
        }
        let env = |name: &str| std::env::var(name).ok();
        let pool = config.parse_pool(name, keys, &env);
        pool.map_err(Unchanged::Faults)?;
        self.change(&Way::with_ours("pool.add", by), |inner| {
            if self.catalog.load().pools.contains_key(name) {
                return Err(Unchanged::PoolThere { name: name.into() });
            }
            edit::add("pool", &inner.newest().text, name, keys)
        })
    }

    /// Remove a pool. A take that waits is refused; a holder of a member keeps it for
    /// that long at most, or until it is given back.
    ///
    /// # Errors
    ///
    /// If there is none, or something else needs it; then nothing has changed.
    pub fn remove_pool(
        self: &Arc<Self>,
        name: &str,
        within: Option<Duration>,
        by: &str,
    ) -> Result<Plan, Unchanged> {
        let way = Way {
            within,
            ..Way::with_ours("pool.del", by)
        };
        self.change(&way, |inner| {
            let text = edit::remove("pool", &inner.newest().text, name)?;
            text.ok_or_else(|| Unchanged::NoPool { name: name.into() })
        })
    }

    /// Add a range whose keys stand in a text.
    ///
    /// # Errors
    ///
    /// If there is one of this name, there are too many, or something is wrong
    /// with the text; then nothing has changed.
    pub fn add_range(
        self: &Arc<Self>,
        name: &str,
        keys: &str,
        by: &str,
    ) -> Result<Plan, Unchanged> {
        let config = self.config.load_full();
        let most = config.limits.ranges_max;
        if config.ranges.len() >= most {
            let counts = &self.counts;
            counts.ranges_refused.fetch_add(1, Ordering::Relaxed);
            return Err(Unchanged::TooManyRanges { most });
        }
        let env = |name: &str| std::env::var(name).ok();
        let range = config.parse_range(name, keys, &env);
        range.map_err(Unchanged::Faults)?;
        self.change(&Way::with_ours("range.add", by), |inner| {
            if self.catalog.load().ranges.find(name).is_some() {
                return Err(Unchanged::RangeThere { name: name.into() });
            }
            edit::add("range", &inner.newest().text, name, keys)
        })
    }

    /// Remove a range. A holder of a value keeps it; when the last has come back, the
    /// range is gone.
    ///
    /// # Errors
    ///
    /// If there is none; then nothing has changed.
    pub fn remove_range(self: &Arc<Self>, name: &str, by: &str) -> Result<Plan, Unchanged> {
        self.change(&Way::with_ours("range.drain", by), |inner| {
            let text = edit::remove("range", &inner.newest().text, name)?;
            text.ok_or_else(|| Unchanged::NoRange { name: name.into() })
        })
    }

    /// Write the running config into the file that the server was started with.
    /// Says what was written.
    ///
    /// # Errors
    ///
    /// If there is none, it cannot be written, or it was edited since it was
    /// read, unless that is to be overwritten.
    pub fn rewrite(&self, is_forced: bool, by: &str) -> Result<PathBuf, Unchanged> {
        let file = self.settings.file.as_ref().ok_or(Unchanged::NoFile)?;
        let mut inner = self.settings.inner.lock();
        let text = Arc::clone(&inner.newest().text);
        let is_edited = fs::read_to_string(file).is_ok_and(|there| *there != *inner.on_disk);
        if is_edited && !is_forced {
            return Err(Unchanged::Edited { file: file.clone() });
        }
        edit::write(file, &text).map_err(|error| Unchanged::Unwritten {
            file: file.clone(),
            error: error.to_string(),
        })?;
        inner.on_disk = text;
        drop(inner);
        self.set_shared(|shared| shared.is_file_other = false);
        let said = format!("the running config was written to {}", file.display());
        self.events.add("config", "rewrite", said, Some(by));
        Ok(file.clone())
    }

    fn read_file(&self) -> Result<String, Unchanged> {
        let file = self.settings.file.as_ref().ok_or(Unchanged::NoFile)?;
        fs::read_to_string(file).map_err(|error| Unchanged::Unread {
            file: file.clone(),
            error: error.to_string(),
        })
    }

    /// Make a new text and let it count, one change at a time. On a node of a cluster it may
    /// wait for etcd.
    fn change(
        self: &Arc<Self>,
        way: &Way<'_>,
        make: impl Fn(&Inner) -> Result<String, Unchanged>,
    ) -> Result<Plan, Unchanged> {
        let changed = self.try_change(way, make);
        if let Err(why) = &changed {
            let said = format!("{} changed nothing: {why}", way.how);
            self.events.add("config", way.how, said, Some(way.by));
        }
        changed
    }

    fn try_change(
        self: &Arc<Self>,
        way: &Way<'_>,
        make: impl Fn(&Inner) -> Result<String, Unchanged>,
    ) -> Result<Plan, Unchanged> {
        let turn = self.settings.turn.lock();
        // The newer program has read the config, and would not know of the change.
        if let Some(running) = self.upgrades.last().filter(UpgradeShown::is_running) {
            return Err(Unchanged::Upgrading {
                serial: running.serial,
            });
        }
        let mut tries = 1;
        let (text, new, stored) = loop {
            let text = make(&self.settings.inner.lock())?;
            let (new, _) = self.check(&text).map_err(|why| match way.is_ours {
                true => why.by_table(&text),
                false => why,
            })?;
            match self.share(way, &text, &new) {
                Ok(stored) => break (text, new, stored),
                Err(Unchanged::NotShared(why)) if way.is_ours && tries < TRIES => match &*why {
                    ConfigError::Changed(newer) => {
                        tries += 1;
                        self.adopt(newer)?;
                    }
                    _ => return Err(Unchanged::NotShared(why)),
                },
                Err(why) => return Err(why),
            }
        };
        let put = self.put(way, text, new);
        let version = stored.map(|stored| {
            let version = stored.version;
            match &put {
                Ok(_) => self.follows(stored),
                // It is tried again.
                Err(why) => self.set_shared(|shared| {
                    shared.stored = Some(stored);
                    shared.fault = Some(why.to_string());
                }),
            }
            version
        });
        drop(turn);
        if let Some(version) = version {
            self.wait_for_others(version);
        }
        put
    }

    /// Let a text count that was checked, while it is this change's turn.
    fn put(self: &Arc<Self>, way: &Way<'_>, text: String, new: Config) -> Result<Plan, Unchanged> {
        let mut inner = self.settings.inner.lock();
        let old = self.config.load_full();
        let plan = self.plan_from(&old, &new);
        let is_new = *text != *inner.newest().text;
        let summary = format!("{}: {}", way.how, summary(&plan));
        if is_new {
            self.reconfigure(new, way.within)?;
            inner.push(way.by, summary.clone(), text);
        }
        // Files that the file names may have changed, too.
        if is_new || way.file.is_some() {
            self.front.follow_apps();
            self.settings.generation.fetch_add(1, Ordering::Release);
        }
        if let Some(file) = &way.file {
            inner.on_disk = Arc::clone(file);
        }
        drop(inner);
        if is_new {
            self.tell_change(&old, way.how, &plan, summary, way.by);
            self.end_users(&old);
            self.follow_users(&old);
        }
        Ok(plan)
    }

    /// Let other users count and tell no client of it: the moment between both.
    #[cfg(test)]
    pub(crate) fn set_users_unseen(&self, users: Vec<rideau_config::User>) {
        let mut config = Config::clone(&self.config.load());
        config.users = users;
        self.config.store(Arc::new(config));
        self.settings.generation.fetch_add(1, Ordering::Release);
    }

    /// What changes. What goes back to what the server was started with needs no
    /// other start.
    fn plan_from(&self, old: &Config, new: &Config) -> Plan {
        let mut plan = rideau_config::plan(old, new, Some(&self.now(old, new)));
        if plan.restarts() > 0 {
            let pending = self.settings.pending(new);
            let steps = plan.steps.iter_mut();
            for step in steps.filter(|step| step.change == Change::Restart) {
                if !pending.contains(&step.path) {
                    step.change = Change::Live;
                    step.meaning = "The server was started with it, so it is in effect.".into();
                }
            }
        }
        plan
    }

    fn tell_change(&self, old: &Config, how: &str, plan: &Plan, summary: String, by: &str) {
        let rest = match plan.restarts() {
            0 => "",
            _ => "; part of it takes effect after the next start",
        };
        let text = format!("{summary}{rest}");
        self.events.add("config", how, text, Some(by));
        let new = self.config.load();
        let has = |config: &Config, name: &str| config.pools.iter().any(|pool| pool.name == name);
        for pool in old.pools.iter().filter(|pool| !has(&new, &pool.name)) {
            let text = format!("pool {} was removed", pool.name);
            self.events.add("pool", &pool.name, text, Some(by));
        }
        for pool in new.pools.iter().filter(|pool| !has(old, &pool.name)) {
            let text = format!("pool {} was added", pool.name);
            self.events.add("pool", &pool.name, text, Some(by));
        }
    }

    /// How many hold and wait, for what a change means.
    fn now(&self, old: &Config, new: &Config) -> Now {
        let mut now = Now::default();
        let catalog = self.catalog.load();
        for (name, place) in &catalog.pools {
            let stats = place.stats();
            let (held, waiting) = (stats.members.held, stats.len());
            let live = Live { held, waiting };
            now.things.insert(format!("pool.{name}"), live);
        }
        for (name, place) in &catalog.brokers {
            let stats = place.broker.stats();
            for (queue, waiting) in [
                (".asks", stats.asks_len),
                (".offers", stats.offers_len),
                ("", stats.asks_len + stats.offers_len),
            ] {
                let live = Live { held: 0, waiting };
                now.things.insert(format!("broker.{name}{queue}"), live);
            }
        }
        for (name, place) in &catalog.regulators {
            let live = Live {
                held: place.regulator.size(),
                waiting: place.regulator.len(),
            };
            now.things.insert(format!("regulator.{name}"), live);
        }
        for stats in self.values.ranges.all_stats() {
            let held = stats.reserved + stats.detached + stats.cooling;
            let held = usize::try_from(held).unwrap_or(usize::MAX);
            let live = Live { held, waiting: 0 };
            now.things.insert(format!("range.{}", stats.name), live);
        }
        for app in self.apps.all().iter() {
            if let Some(shown) = self.apps.shown(app) {
                let kind = if shown.has_servers { "upstream" } else { "app" };
                let (held, waiting) = (shown.stats.sessions, shown.stats.waiting);
                let live = Live { held, waiting };
                now.things.insert(format!("{kind}.{}", app.name), live);
            }
        }
        // All keys have to be looked at: only if it matters.
        if old.locks != new.locks {
            let counts = self.lock_counts(&catalog.rules, true);
            for (place, count) in catalog.rules.iter().zip(counts) {
                let held = usize::try_from(count.held).unwrap_or(usize::MAX);
                let waiting = count.waiting;
                let path = format!("lock.{}", place.rule.pattern);
                now.things.insert(path, Live { held, waiting });
            }
        }
        now
    }
}

/// A short summary of a plan.
fn summary(plan: &Plan) -> String {
    const MOST: usize = 3;
    let one = |step: &rideau_config::PlanStep| match (&step.old, &step.new) {
        (Some(old), Some(new)) => format!("{} {old} -> {new}", step.path),
        (Some(_), None) => format!("- {}", step.path),
        _ => format!("+ {}", step.path),
    };
    let mut steps: Vec<_> = plan.steps.iter().take(MOST).map(one).collect();
    match plan.steps.len() {
        0 => steps.push("only the text".into()),
        len if len > MOST => steps.push(format!("and {} more", len - MOST)),
        _ => (),
    }
    steps.join(", ")
}

/// The version of this number, or the one before the newest.
fn version(inner: &Inner, serial: Option<u64>) -> Result<&Arc<Version>, Unchanged> {
    let Some(serial) = serial else {
        let before = inner.history.len().checked_sub(2);
        return before
            .and_then(|at| inner.history.get(at))
            .ok_or(Unchanged::NothingBefore);
    };
    let mut all = inner.history.iter();
    all.find(|version| version.serial == serial)
        .ok_or(Unchanged::NoVersion {
            serial,
            oldest: inner.history.front().map_or(1, |version| version.serial),
            newest: inner.newest().serial,
        })
}
