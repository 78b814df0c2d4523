//! Reads a whole file.

use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use toml_edit::{Document, Item, TableLike};

use super::app::AppConfig;
use super::broker::{BrokerConfig, RegulatorConfig};
use super::fault::Faults;
use super::lock::LockRule;
use super::parts::{LATER, PARTS, Part, part};
use super::pool::{GroupConfig, PoolConfig};
use super::range::{RangeConfig, StoreConfig};
use super::rules;
use super::section::{At, Notes, Section, kind_of, suggest};
use super::server::{Limits, Tls};
use super::table::{Key, Keyed};
use super::user::User;
use super::view::ViewConfig;
use super::{Config, Env};
use crate::label::is_wild;

/// Whether files that the file names are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Within,
    Around,
}

/// The tables of one named section.
pub(super) type Named<'a> = Vec<(&'a str, Section<'a>)>;

/// The sections of a file, opened.
pub(super) struct Sections<'a> {
    pub(super) server: Option<Section<'a>>,
    pub(super) limits: Option<Section<'a>>,
    pub(super) tls: Option<Section<'a>>,
    log: Option<Section<'a>>,
    store: Option<Section<'a>>,
    pub(super) users: Named<'a>,
    pub(super) pools: Named<'a>,
    pub(super) groups: Named<'a>,
    pub(super) brokers: Named<'a>,
    pub(super) regulators: Named<'a>,
    pub(super) locks: Named<'a>,
    pub(super) ranges: Named<'a>,
    pub(super) views: Named<'a>,
    pub(super) front: Option<Section<'a>>,
    pub(super) apps: Named<'a>,
}

/// The config in `text`, if it can be used, and all that is wrong with it.
pub(super) fn read(text: &str, file: &str, env: Env<'_>, look: Look) -> (Option<Config>, Faults) {
    let notes = Notes::new(text, env);
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
pub(super) fn read_pool(
    name: &str,
    text: &str,
    env: Env<'_>,
    limits: &Limits,
) -> Result<PoolConfig, Faults> {
    let read = |section: &Section<'_>| PoolConfig::read(name, section);
    read_alone(("pool", name), text, env, limits, read)
}

/// The range whose keys stand in `text`, without a header.
pub(super) fn read_range(
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
    let notes = Notes::new(text, env);
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
        for (path, at) in notes.files() {
            if let Err(error) = look_at(&path) {
                let message = format!("{} cannot be read: {error}", path.display());
                notes.error(at, message, "the server needs it to start");
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
    config
}

/// Fails unless there is a file that we may read.
fn look_at(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
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
        if let Some((_, what)) = LATER.iter().find(|(name, _)| *name == entry.name) {
            let verb = if what.ends_with('s') && !what.starts_with("the ") {
                "are"
            } else {
                "is"
            };
            let message = format!("{what} {verb} not built into this version");
            notes.error(at, message, format!("remove `{}`", entry.name));
            continue;
        }
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

impl<'a> Sections<'a> {
    fn open(notes: &'a Notes<'a>, root: &'a dyn TableLike) -> Self {
        let top = Section::all(notes, root, 0..0);
        let one = |name: &str| {
            let entry = top.entry(name)?;
            let what = format!("[{name}]");
            let Some(table) = entry.item.as_table_like() else {
                note_no_table(notes, name, entry.item, entry.key_at.clone());
                return None;
            };
            let at = entry.key_at.clone();
            Some(Section::open(notes, table, at, &what, keys_of(name)))
        };
        let limits = one("limits");
        let name_len_max = limits.as_ref().and_then(|limits| {
            let given = limits.entry("name_len_max")?.item.as_integer()?;
            usize::try_from(given).ok()
        });
        let name_len_max = name_len_max.unwrap_or(Limits::default().name_len_max);
        let named = |name: &str| named(&top, name, name_len_max);
        Self {
            server: one("server"),
            limits,
            tls: one("tls"),
            log: one("log"),
            store: one("store"),
            users: named("user"),
            pools: named("pool"),
            groups: named("group"),
            brokers: named("broker"),
            regulators: named("regulator"),
            locks: named("lock"),
            ranges: named("range"),
            views: named("view"),
            front: one("front"),
            apps: named("app"),
        }
    }

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
            front: read_one(self.front.as_ref()),
            apps: all(&self.apps, AppConfig::read).flatten().collect(),
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

/// What a section says, or what counts without it.
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

fn note_no_table(notes: &Notes<'_>, name: &str, item: &Item, at: At) {
    let message = format!("`{name}` is {}, and has to be a section", kind_of(item));
    notes.error(at, message, format!("write [{name}] on a line of its own"));
}

/// The keys of a section.
fn keys_of(name: &str) -> &'static [Key] {
    part(name).map_or(&[], |part| part.keys)
}

/// The tables `[kind.NAME]`, each with what it inherits.
fn named<'a>(top: &Section<'a>, kind: &str, name_len_max: usize) -> Named<'a> {
    let notes = top.notes;
    let Some(entry) = top.entry(kind) else {
        return Vec::new();
    };
    let Some(table) = entry.item.as_table_like() else {
        note_no_table(notes, kind, entry.item, entry.key_at.clone());
        return Vec::new();
    };
    let mut named: Named<'a> = Vec::new();
    for entry in Section::all(notes, table, entry.key_at.clone()).entries {
        let at = entry.key_at.clone();
        let Some(table) = entry.item.as_table_like() else {
            let message = format!("`{}` stands in [{kind}], where only names do", entry.name);
            notes.error(at, message, format!("write [{kind}.NAME] above it"));
            continue;
        };
        check_name(notes, kind, entry.name, &at, name_len_max);
        let what = format!("[{kind}.{}]", entry.name);
        let section = Section::open(notes, table, at, &what, keys_of(kind));
        named.push((entry.name, section));
    }
    inherit(notes, kind, named)
}

/// Give each table what those it is like have and it has not.
fn inherit<'a>(notes: &Notes<'_>, kind: &str, mut named: Named<'a>) -> Named<'a> {
    let place = |named: &Named<'_>, name: &str| named.iter().position(|(other, _)| *other == name);
    let like = |section: &Section<'_>| Some((section.text("like")?, section.at("like")));
    let origins: Vec<_> = named.iter().map(|(_, section)| like(section)).collect();
    // Each takes only from what stands in the file, so the order is no matter.
    let own: Vec<_> = named
        .iter()
        .map(|(_, section)| section.entries.clone())
        .collect();
    for at in 0..named.len() {
        let mut chain = vec![at];
        let mut next = origins[at].clone();
        while let Some((name, like_at)) = next {
            let Some(other) = place(&named, &name) else {
                let names = named.iter().map(|(other, _)| *other);
                let names = names.filter(|other| *other != named[at].0);
                let message = format!("there is no {kind} `{name}` to be like");
                notes.error(like_at, message, suggest(&name, names));
                break;
            };
            if chain.contains(&other) {
                let message = format!("{kind} `{}` is like itself", named[other].0);
                notes.error(like_at, message, "`like` has to end somewhere");
                break;
            }
            chain.push(other);
            let parent = Section {
                notes: named[at].1.notes,
                at: like_at,
                entries: own[other].clone(),
            };
            named[at].1.inherit(&parent);
            next = origins[other].clone();
        }
    }
    named
}

fn check_name(notes: &Notes<'_>, kind: &str, name: &str, at: &At, len_max: usize) {
    let is_pattern = kind == "lock";
    let is_bad = |c: char| {
        c.is_whitespace() || is_wild(c) || c == '"' || (!is_pattern && (c == '*' || c == '@'))
    };
    let bad = if is_pattern { "" } else { ", * or @" };
    if name.is_empty() {
        let message = format!("a {kind} has an empty name");
        notes.error(at.clone(), message, "give it one");
    } else if name.contains(is_bad) {
        let message = format!("the name {name:?} has letters that names cannot have");
        let hint = format!("no spaces, quotes{bad}");
        notes.error(at.clone(), message, hint);
    } else if name.len() > len_max {
        let message = format!("the name is {} bytes long", name.len());
        let hint = format!("limits.name_len_max is {len_max}");
        notes.error(at.clone(), message, hint);
    }
}
