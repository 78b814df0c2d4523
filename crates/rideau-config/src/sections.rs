//! The sections of a file, opened: each with what it inherits, before its values are read.

use toml_edit::{Item, Table, TableLike, Value};

use super::human::is_wild;
use super::key::Key;
use super::parts::part;
use super::section::{At, Entry, Notes, Section, kind_of, suggest_section};
use super::server::Limits;

/// The tables of one named section.
pub(super) type Named<'a> = Vec<(&'a str, Section<'a>)>;

/// The sections of a file, opened.
pub(super) struct Sections<'a> {
    pub(super) server: Option<Section<'a>>,
    pub(super) limits: Option<Section<'a>>,
    pub(super) tls: Option<Section<'a>>,
    pub(super) log: Option<Section<'a>>,
    pub(super) store: Option<Section<'a>>,
    pub(super) cluster: Option<Section<'a>>,
    pub(super) users: Named<'a>,
    pub(super) pools: Named<'a>,
    pub(super) groups: Named<'a>,
    pub(super) brokers: Named<'a>,
    pub(super) regulators: Named<'a>,
    pub(super) locks: Named<'a>,
    pub(super) ranges: Named<'a>,
    pub(super) views: Named<'a>,
    pub(super) front: Option<Section<'a>>,
    pub(super) certificates: Named<'a>,
    pub(super) routes: Named<'a>,
    pub(super) apps: Named<'a>,
    pub(super) upstreams: Named<'a>,
    pub(super) upgrade: Option<Section<'a>>,
    pub(super) alarms: Named<'a>,
}

impl<'a> Sections<'a> {
    pub(super) fn open(notes: &'a Notes<'a>, root: &'a dyn TableLike) -> Self {
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
            cluster: one("cluster"),
            users: named("user"),
            pools: named("pool"),
            groups: named("group"),
            brokers: named("broker"),
            regulators: named("regulator"),
            locks: named("lock"),
            ranges: named("range"),
            views: named("view"),
            front: one("front"),
            certificates: named("certificate"),
            routes: named("route"),
            apps: named("app"),
            upstreams: named("upstream"),
            upgrade: one("upgrade"),
            alarms: listed(&top, "alarm", name_len_max),
        }
    }
}

fn note_no_table(notes: &Notes<'_>, name: &str, item: &Item, at: At) {
    let message = format!("`{name}` is {}, and has to be a section", kind_of(item));
    notes.error(at, message, format!("write [{name}] on a line of its own"));
}

/// The keys of a section.
pub(super) fn keys_of(name: &str) -> &'static [Key] {
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

/// The tables `[[kind]]`, each by its key `name`. Tables `[kind.NAME]` are the same.
fn listed<'a>(top: &Section<'a>, kind: &str, name_len_max: usize) -> Named<'a> {
    let notes = top.notes;
    let Some(entry) = top.entry(kind) else {
        return Vec::new();
    };
    let mut named: Named<'a> = Vec::new();
    for (head, table, at) in tables_of(notes, kind, entry) {
        let what = format!("[[{kind}]]");
        let section = Section::open(notes, table, at, &what, keys_of(kind));
        let given = section.entry("name").and_then(|entry| entry.item.as_str());
        let Some(name) = head.or(given) else {
            match section.has("name") {
                true => drop(section.text("name")),
                false => {
                    let message = format!("[[{kind}]] has no `name`");
                    notes.error(section.at.clone(), message, "give it one");
                }
            }
            continue;
        };
        let at = section.at("name");
        if given.is_some_and(|given| given != name) {
            let message = format!("{kind} `{name}` has another name in its header");
            notes.error(at.clone(), message, "remove one of them");
        }
        check_listed_name(notes, kind, name, &at, name_len_max);
        if named.iter().any(|(known, _)| *known == name) {
            let message = format!("there are two {kind}s named `{name}`");
            notes.error(at, message, "give one of them another name");
            continue;
        }
        named.push((name, section));
    }
    named
}

/// A table, its name if that is in its header, and where it begins.
type Listed<'a> = (Option<&'a str>, &'a dyn TableLike, At);

/// The tables of a list, however it is written.
fn tables_of<'a>(notes: &'a Notes<'a>, kind: &str, entry: &Entry<'a>) -> Vec<Listed<'a>> {
    match entry.item {
        Item::ArrayOfTables(all) => {
            let table = |table: &'a Table| -> Listed<'a> {
                let at = table.span().map(|at| header(notes, at));
                (None, table, at.unwrap_or_else(|| entry.key_at.clone()))
            };
            all.iter().map(table).collect()
        }
        Item::Value(Value::Array(all)) => {
            let table = |value: &'a Value| -> Option<Listed<'a>> {
                let at = value.span().unwrap_or_else(|| entry.key_at.clone());
                let Some(table) = value.as_inline_table() else {
                    let message = format!("an element of `{kind}` is no table");
                    let hint = format!("write [[{kind}]] on a line of its own");
                    notes.error(at, message, hint);
                    return None;
                };
                Some((None, table, at))
            };
            all.iter().filter_map(table).collect()
        }
        item => {
            let Some(table) = item.as_table_like() else {
                note_no_table(notes, kind, item, entry.key_at.clone());
                return Vec::new();
            };
            let entries = Section::all(notes, table, entry.key_at.clone()).entries;
            let table = |entry: Entry<'a>| -> Option<Listed<'a>> {
                let Some(table) = entry.item.as_table_like() else {
                    let name = entry.name;
                    let message = format!("`{name}` stands in [{kind}], where only names do");
                    notes.error(entry.key_at, message, format!("write [[{kind}]] above it"));
                    return None;
                };
                Some((Some(entry.name), table, entry.key_at))
            };
            entries.into_iter().filter_map(table).collect()
        }
    }
}

/// The first line of a table is its header.
fn header(notes: &Notes<'_>, at: At) -> At {
    let line = notes
        .text
        .get(at.clone())
        .and_then(|text| text.lines().next());
    at.start..at.start + line.map_or(0, |line| line.trim_end().len())
}

/// Such a name is read by people, and may have spaces.
fn check_listed_name(notes: &Notes<'_>, kind: &str, name: &str, at: &At, len_max: usize) {
    if name.trim().is_empty() {
        let message = format!("a {kind} has an empty name");
        notes.error(at.clone(), message, "give it one");
    } else if name.contains(is_wild) {
        let message = format!("the name {name:?} has letters that names cannot have");
        notes.error(at.clone(), message, "write letters that can be seen");
    } else if name.len() > len_max {
        let message = format!("the name is {} bytes long", name.len());
        notes.error(
            at.clone(),
            message,
            format!("limits.name_len_max is {len_max}"),
        );
    }
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
                let message = format!("there is no {kind} `{name}` to inherit from");
                notes.error(like_at, message, suggest_section(kind, &name, names));
                break;
            };
            if chain.contains(&other) {
                let message = format!("{kind} `{}` inherits from itself", named[other].0);
                notes.error(like_at, message, "remove one `like`");
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

pub(super) fn check_name(notes: &Notes<'_>, kind: &str, name: &str, at: &At, len_max: usize) {
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
