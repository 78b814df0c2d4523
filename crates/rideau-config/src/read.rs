//! Reads a whole file.

use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use toml_edit::{Document, TableLike};

use super::alarm::AlarmConfig;
use super::app::AppConfig;
use super::broker::{BrokerConfig, RegulatorConfig};
use super::certificate::CertificateConfig;
use super::cluster::ClusterConfig;
use super::config::{Config, Env};
use super::error_page;
use super::fault::Faults;
use super::front::FrontConfig;
use super::keyed::Keyed;
use super::lock::LockRule;
use super::parts::{PARTS, Part, suggest_elsewhere};
use super::pool::{GroupConfig, PoolConfig};
use super::range::{RangeConfig, StoreConfig};
use super::route::RouteConfig;
use super::rules;
use super::section::{Notes, Section, suggest};
use super::sections::{Named, Sections, check_name, keys_of};
use super::server::{Limits, Tls};
use super::upstream::UpstreamConfig;
use super::user::User;
use super::view::ViewConfig;

/// Whether files that the file names are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Within,
    Around,
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
        let (config, faults) = read(text, file, env, Look::Within);
        config.ok_or(faults)
    }

    /// As [`parse`](Self::parse), and look whether the files that it names can
    /// be read. Warnings are there even if nothing is an error.
    pub fn check(text: &str, file: &str, env: Env<'_>) -> (Option<Self>, Faults) {
        read(text, file, env, Look::Around)
    }

    /// The pool whose keys stand in a text, for one that is added at run time:
    /// `member = { list = ["a"] }`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it or its name.
    pub fn parse_pool(&self, name: &str, text: &str, env: Env<'_>) -> Result<PoolConfig, Faults> {
        read_pool(name, text, env, &self.limits)
    }

    /// The range whose keys stand in a text, for one that is added at run time:
    /// `values = ["1-999"]`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it or its name.
    pub fn parse_range(&self, name: &str, text: &str, env: Env<'_>) -> Result<RangeConfig, Faults> {
        read_range(name, text, env, self)
    }
}

/// The config in `text`, if it can be used, and all that is wrong with it.
fn read(text: &str, file: &str, env: Env<'_>, look: Look) -> (Option<Config>, Faults) {
    let notes = Notes::new(text, env, suggest_elsewhere);
    let config = match Document::parse(text) {
        Ok(document) => Some(config(&notes, document.as_table(), look)),
        Err(error) => {
            note_syntax(&notes, error.message(), error.span());
            None
        }
    };
    let (faults, more) = notes.into_faults();
    let faults = Faults::new(file, faults, more);
    (config.filter(|_| faults.errors() == 0), faults)
}

/// The pool whose keys stand in `text`, without a header.
fn read_pool(name: &str, text: &str, env: Env<'_>, limits: &Limits) -> Result<PoolConfig, Faults> {
    let read = |section: &Section<'_>| PoolConfig::read(name, section);
    read_alone(("pool", name), text, env, limits, read)
}

/// The range whose keys stand in `text`, without a header.
fn read_range(
    name: &str,
    text: &str,
    env: Env<'_>,
    config: &Config,
) -> Result<RangeConfig, Faults> {
    let read = |section: &Section<'_>| RangeConfig::read(name, section, config.store.kind);
    read_alone(("range", name), text, env, &config.limits, read)
}

/// The thing of this kind and name whose keys stand in `text`.
fn read_alone<T>(
    (kind, name): (&str, &str),
    text: &str,
    env: Env<'_>,
    limits: &Limits,
    read: impl FnOnce(&Section<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let notes = Notes::new(text, env, suggest_elsewhere);
    check_name(&notes, kind, name, &(0..0), limits.name_len_max);
    let thing = match Document::parse(text) {
        Ok(document) => {
            let (table, what) = (document.as_table(), format!("a {kind}"));
            let section = Section::open(&notes, table, 0..0, &what, keys_of(kind));
            if let Some(like) = section.entry("like") {
                let message = format!("a {kind} that is added on its own is like no other");
                notes.error(like.key_at.clone(), message, "write its keys out");
            }
            read(&section)
        }
        Err(error) => {
            note_syntax(&notes, error.message(), error.span());
            None
        }
    };
    let (faults, more) = notes.into_faults();
    let faults = Faults::new(name, faults, more);
    thing.filter(|_| faults.errors() == 0).ok_or(faults)
}

fn config(notes: &Notes<'_>, root: &dyn TableLike, look: Look) -> Config {
    check_top(notes, root);
    let sections = Sections::open(notes, root);
    let mut config = sections.config();
    config.unexpanded = Arc::new(notes.unexpanded());
    rules::check(notes, &sections, &config);
    if look == Look::Around {
        look_around(notes);
    }
    config
}

/// Note what is wrong with the files that the file names.
fn look_around(notes: &Notes<'_>) {
    for (path, at) in notes.files() {
        if let Err(error) = look_at(&path) {
            let message = format!("{} cannot be read: {error}", path.display());
            notes.error(at, message, "the server needs it to start");
        }
    }
    for (path, at) in notes.pages() {
        if let Err(error) = error_page::read(&path) {
            let message = format!("{} cannot be used: {error}", path.display());
            let hint = "a page is a file of text in UTF-8, 64KiB at most";
            notes.error(at, message, hint);
        }
    }
    let new_files = notes.new_files().into_iter();
    let around =
        new_files.map(|(path, at)| (path.parent().map_or(path.clone(), Path::to_owned), at));
    for (folder, at) in around.chain(notes.folders()) {
        if !folder.is_dir() {
            let folder = folder.display();
            let message = format!("there is no folder {folder}");
            notes.error(at, message, format!("run mkdir -p {folder}"));
        }
    }
    for (path, at) in notes.secret_files() {
        let about = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
        let mode = about.map_or(0, |about| about.permissions().mode());
        if mode & 0o007 != 0 {
            let (path, mode) = (path.display(), mode & 0o777);
            let message = format!("{path} can be read by every account here (mode {mode:03o})");
            notes.warn(at, message, format!("run chmod o= {path}"));
        }
    }
}

/// Fails unless there is a file that we may read.
fn look_at(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    fs::File::open(path).map(drop)
}

fn note_syntax(notes: &Notes<'_>, message: &str, span: Option<Range<usize>>) {
    let at = span.unwrap_or(0..0);
    let message = message.lines().collect::<Vec<_>>().join(", ");
    let (message, hint) = match message.split_once(", expected ") {
        Some((message, expected)) => (message, format!("expected {expected}")),
        None if message == "duplicate key" => ("this key is there twice", "keep one".into()),
        None => (message.as_str(), String::new()),
    };
    notes.error(at, message, hint);
}

/// Note sections that are not known.
fn check_top(notes: &Notes<'_>, root: &dyn TableLike) {
    for entry in Section::all(notes, root, 0..0).entries {
        if PARTS.iter().any(|part| part.name == entry.name) {
            continue;
        }
        let at = entry.key_at.clone();
        let what = if entry.item.is_table_like() {
            "section"
        } else {
            "key"
        };
        let message = format!("unknown {what} `{}`", entry.name);
        let owner = |part: &&Part| part.keys.iter().any(|key| key.name == entry.name);
        let hint = match PARTS.iter().find(owner) {
            Some(part) if what == "key" => format!("it belongs under [{}]", part.name),
            _ => suggest(entry.name, PARTS.iter().map(|part| part.name)),
        };
        notes.error(at, message, hint);
    }
}

impl Sections<'_> {
    fn config(&self) -> Config {
        let pools: Vec<_> = all(&self.pools, PoolConfig::read).flatten().collect();
        let mut groups: Vec<_> = all(&self.groups, GroupConfig::read).collect();
        for pool in &pools {
            if let Some(group) = &pool.group {
                GroupConfig::of(&mut groups, group)
                    .pools
                    .push(pool.name.clone());
            }
        }
        let brokers: Vec<_> = all(&self.brokers, BrokerConfig::read).collect();
        for broker in &brokers {
            if let Some(group) = &broker.group {
                GroupConfig::of(&mut groups, group)
                    .brokers
                    .push(broker.name.clone());
            }
        }
        let store: StoreConfig = read_one(self.store.as_ref());
        let ranges = self.ranges.iter().filter_map(|(name, section)| {
            // What it lacks is noted.
            RangeConfig::read(name, section, store.kind)
        });
        Config {
            ranges: ranges.collect(),
            views: all(&self.views, ViewConfig::read).flatten().collect(),
            store,
            cluster: self.cluster.as_ref().and_then(ClusterConfig::read),
            front: FrontConfig {
                routes: all(&self.routes, RouteConfig::read).flatten().collect(),
                ..read_one(self.front.as_ref())
            },
            certificates: all(&self.certificates, CertificateConfig::read)
                .flatten()
                .collect(),
            apps: all(&self.apps, AppConfig::read).flatten().collect(),
            upstreams: all(&self.upstreams, UpstreamConfig::read)
                .flatten()
                .collect(),
            upgrade: read_one(self.upgrade.as_ref()),
            alarms: all(&self.alarms, AlarmConfig::read).flatten().collect(),
            unexpanded: Arc::default(),
            server: read_one(self.server.as_ref()),
            limits: read_one(self.limits.as_ref()),
            tls: self.tls.as_ref().and_then(Tls::read),
            log: read_one(self.log.as_ref()),
            users: all(&self.users, User::read).collect(),
            pools,
            groups,
            brokers,
            regulators: all(&self.regulators, RegulatorConfig::read)
                .flatten()
                .collect(),
            locks: all(&self.locks, LockRule::read).collect(),
        }
    }
}

/// Reads a section, or takes its defaults.
fn read_one<T: Keyed + Default>(section: Option<&Section<'_>>) -> T {
    let mut thing = T::default();
    if let Some(section) = section {
        thing.read_keys(section);
    }
    thing
}

fn all<'a, T>(
    named: &'a Named<'a>,
    read: fn(&str, &Section<'_>) -> T,
) -> impl Iterator<Item = T> + 'a
where
    T: 'a,
{
    named.iter().map(move |(name, section)| read(name, section))
}
