//! The sections of a file: which keys each has, and what a config has of it.

use super::alarm::{self, AlarmConfig};
use super::app::AppConfig;
use super::broker::{BrokerConfig, RegulatorConfig};
use super::certificate::CertificateConfig;
use super::cluster::ClusterConfig;
use super::config::Config;
use super::front::FrontConfig;
use super::key::{Change, Effect, Form, Key, Usual, joined};
use super::keyed::Keyed;
use super::lock::LockRule;
use super::near::near;
use super::pool::{GroupConfig, Member, PoolConfig};
use super::range::{RangeConfig, StoreConfig};
use super::route::RouteConfig;
use super::server::{Limits, Log, Server, Tls};
use super::shown::Rows;
use super::upgrade::UpgradeConfig;
use super::upstream::UpstreamConfig;
use super::user::User;
use super::view::ViewConfig;

/// A top-level section.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) name: &'static str,
    /// There is a table for each name, as in `[pool.pg-1]`.
    pub(super) is_named: bool,
    /// The tables are a list, as `[[alarm]]`, and each has its name as a key.
    pub(super) is_list: bool,
    pub(super) keys: &'static [Key],
    /// The names of what a config has of it.
    pub(super) names: fn(&Config) -> Vec<&str>,
    /// Show what a config has of it.
    show: fn(&Config, &mut Rows),
    /// The rows of one that is told nothing.
    pub(super) usual: Usual,
}

/// The key of everything that can be like another of its kind.
const LIKE: Key = Key {
    name: "like",
    form: Form::Text,
    help: &["Inherits the keys that are missing here from another of its kind."],
    usual: "none",
    ..Key::BARE
};

/// A section that is there once.
macro_rules! one {
    ($name:literal, $type:ty, |$config:ident| $thing:expr) => {
        Part {
            name: $name,
            is_named: false,
            is_list: false,
            keys: <$type>::KEYS,
            names: |_| Vec::new(),
            show: |$config, rows| {
                let things: Option<&$type> = $thing.into();
                if let Some(thing) = things {
                    rows.below($name, |rows| thing.show_keys(rows));
                }
            },
            usual: || <$type>::default().rows(),
        }
    };
}

/// A section that is there for each name.
macro_rules! named {
    ($name:literal, $type:ty, $keys:expr, $($all:ident).+, $($field:ident).+) => {
        Part {
            name: $name,
            is_named: true,
            is_list: false,
            keys: $keys,
            names: |config| config.$($all).+.iter().map(|one| one.$($field).+.as_str()).collect(),
            show: |config, rows| {
                for one in &config.$($all).+ {
                    let fill =
                        |rows: &mut Rows| rows.below(&one.$($field).+, |rows| one.show_keys(rows));
                    rows.below($name, fill);
                }
            },
            usual: || <$type>::default().rows(),
        }
    };
}

/// All sections of this version.
pub(super) const PARTS: &[Part] = &[
    one!("server", Server, |config| &config.server),
    one!("limits", Limits, |config| &config.limits),
    one!("tls", Tls, |config| config.tls.as_ref()),
    one!("log", Log, |config| &config.log),
    one!("store", StoreConfig, |config| &config.store),
    one!("cluster", ClusterConfig, |config| config.cluster.as_ref()),
    named!("user", User, User::KEYS, users, name),
    named!(
        "pool",
        PoolConfig,
        joined!(&[LIKE], PoolConfig::KEYS),
        pools,
        name
    ),
    named!("group", GroupConfig, GroupConfig::KEYS, groups, name),
    named!(
        "broker",
        BrokerConfig,
        joined!(&[LIKE], BrokerConfig::KEYS),
        brokers,
        name
    ),
    named!(
        "regulator",
        RegulatorConfig,
        joined!(&[LIKE], RegulatorConfig::KEYS),
        regulators,
        name
    ),
    named!(
        "lock",
        LockRule,
        joined!(&[LIKE], LockRule::KEYS),
        locks,
        pattern
    ),
    named!(
        "range",
        RangeConfig,
        joined!(&[LIKE], RangeConfig::KEYS),
        ranges,
        name
    ),
    named!("view", ViewConfig, ViewConfig::KEYS, views, name),
    one!("front", FrontConfig, |config| &config.front),
    named!(
        "certificate",
        CertificateConfig,
        CertificateConfig::KEYS,
        certificates,
        name
    ),
    named!("route", RouteConfig, RouteConfig::KEYS, front.routes, name),
    named!(
        "app",
        AppConfig,
        joined!(&[LIKE], AppConfig::KEYS),
        apps,
        name
    ),
    named!(
        "upstream",
        UpstreamConfig,
        joined!(&[LIKE], UpstreamConfig::KEYS),
        upstreams,
        app.name
    ),
    one!("upgrade", UpgradeConfig, |config| &config.upgrade),
    Part {
        is_list: true,
        ..named!(
            "alarm",
            AlarmConfig,
            joined!(&[alarm::NAME], AlarmConfig::KEYS),
            alarms,
            name
        )
    },
];

/// The section of this name.
pub(super) fn part(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

/// What to write instead of a key that is not among the known ones, if another section
/// has it.
pub(super) fn suggest_elsewhere(name: &str, known: &[Key]) -> Option<String> {
    let names = |keys: &[Key]| -> Vec<&'static str> { keys.iter().map(|key| key.name).collect() };
    let has = |keys: &[Key]| keys.iter().any(|key| key.name == name);
    // A pool is the one thing whose parts have parts that are taken for its own.
    if names(known) == names(Member::KEYS) && has(PoolConfig::KEYS) {
        return Some("it belongs to the pool, not to its `member`".into());
    }
    let mut one = PARTS.iter().filter(|part| !part.is_named);
    one.find_map(|part| {
        let near = near(name, names(part.keys))?;
        Some(format!("did you mean `{near}` under [{}]?", part.name))
    })
}

impl Config {
    /// Every key that counts and its value as TOML, as
    /// `("pool.pg-1.start_timeout", "\"5s\"")`. Hashes of passwords and values
    /// of a program's environment are left out, and a text with variables is as it
    /// was written.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Rows::new(&self.unexpanded);
        for part in PARTS {
            (part.show)(self, &mut rows);
        }
        rows.into_rows()
    }

    /// The value that counts for a key, as TOML.
    pub fn value(&self, path: &str) -> Option<String> {
        let mut rows = self.rows().into_iter();
        rows.find(|(known, _)| known == path)
            .map(|(_, value)| value)
    }
}

/// Every key with what a change of it takes, as `pool.*.queue.max`.
pub fn all_keys() -> Vec<(String, Change)> {
    fn walk(path: &str, keys: &[Key], found: &mut Vec<(String, Change)>) {
        for key in keys {
            let path = format!("{path}.{}", key.name);
            found.push((path.clone(), key.effect.change()));
            walk(&path, key.below(), found);
        }
    }
    let mut found = Vec::new();
    for part in PARTS {
        let name = if part.is_named { ".*" } else { "" };
        walk(&format!("{}{name}", part.name), part.keys, &mut found);
    }
    found
}

/// When a change of this path takes effect, such as `pool.pg-1.max`.
pub fn change_of(path: &str) -> Change {
    let keys = toml_edit::Key::parse(path).unwrap_or_default();
    let parts: Vec<&str> = keys.iter().map(toml_edit::Key::get).collect();
    effect(&parts).map_or(Change::Live, Effect::change)
}

/// What a change of `path` takes effect on. A path that goes on below a key is the key's.
pub(super) fn effect(path: &[&str]) -> Option<Effect> {
    let (first, rest) = path.split_first()?;
    let part = part(first)?;
    let mut rest = rest.get(usize::from(part.is_named)..)?;
    let mut keys = part.keys;
    let mut effect = Effect::Live;
    while let Some((name, more)) = rest.split_first() {
        if keys.is_empty() {
            return Some(effect);
        }
        let key = keys.iter().find(|key| key.name == *name)?;
        (effect, keys, rest) = (key.effect, key.below(), more);
    }
    Some(effect)
}
