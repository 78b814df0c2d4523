//! Reads and changes one value in the text of a file, and nothing else in it.
//!
//! Whether the new value is a good one is for [`Config::parse`] to say.
//!
//! [`Config::parse`]: super::config::Config::parse

use std::fmt;

use toml_edit::{DocumentMut, Item, Key, Table, TableLike, Value};

use super::config::Config;
use super::near::near;
use super::parts::{PARTS, effect, part};
use super::user::KINDS;

/// Why a value cannot be read or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathFault {
    /// The text is no TOML.
    NotToml,
    /// The path is none, as `pool..max`.
    Malformed,
    /// There is no such key; `near` is what could have been meant.
    Unknown {
        /// The part of the path that is not known.
        part: String,
        /// The nearest that is.
        near: Option<String>,
    },
    /// There is nothing of this name; `near` is what could have been meant.
    NoName {
        /// The kind that it should have been, such as `pool`.
        part: String,
        /// The name.
        name: String,
        /// The nearest that there is.
        near: Option<String>,
    },
    /// The path leads through something that is no table.
    NoTable {
        /// The part of the path that is not a table.
        part: String,
    },
    /// The path leads to a table, not to a value.
    IsTable,
}

/// The value at `path` as the text has it, as TOML; none if it is not there.
///
/// # Errors
///
/// If there can be no value at the path.
pub fn get(text: &str, path: &str) -> Result<Option<String>, PathFault> {
    let document: DocumentMut = text.parse().map_err(|_| PathFault::NotToml)?;
    let parts = parts(path)?;
    let mut item = document.as_item();
    let mut parts = parts.iter();
    while let Some(part) = parts.next() {
        if let Some(list) = item.as_array_of_tables() {
            let mut tables = list.iter();
            let table = tables.find(|table| is_called(table, part));
            match table
                .zip(parts.next())
                .and_then(|(table, key)| table.get(key))
            {
                Some(below) => item = below,
                None => return Ok(None),
            }
            continue;
        }
        let Some(table) = item.as_table_like() else {
            return Ok(None);
        };
        match table.get(part) {
            Some(below) => item = below,
            None => return Ok(None),
        }
    }
    match item {
        Item::Value(value) => Ok(Some(bare(value).to_string())),
        Item::None => Ok(None),
        _ => Err(PathFault::IsTable),
    }
}

/// The text with another value at `path`. Comments and the order of keys stay.
///
/// The value is TOML, or a text that needs no quotes here: `20`, `5s`,
/// `["a", "b"]`.
///
/// # Errors
///
/// If there can be no value at the path.
pub fn set(text: &str, path: &str, value: &str) -> Result<String, PathFault> {
    let mut document: DocumentMut = text.parse().map_err(|_| PathFault::NotToml)?;
    let parts = parts(path)?;
    let (last, above) = parts.split_last().ok_or(PathFault::Malformed)?;
    let mut value: Value = value.parse().unwrap_or_else(|_| Value::from(value));
    value.decor_mut().clear();
    if let [kind, name] = above
        && let Some(list) = document
            .get_mut(kind)
            .and_then(Item::as_array_of_tables_mut)
    {
        let at = list.iter().position(|table| is_called(table, name));
        let Some(table) = at.and_then(|at| list.get_mut(at)) else {
            return Err(PathFault::NoTable { part: name.clone() });
        };
        put(table, last, value)?;
        return Ok(document.to_string());
    }
    let mut item = document.as_item_mut();
    for (depth, part) in above.iter().enumerate() {
        let Some(table) = item.as_table_like_mut() else {
            return Err(PathFault::NoTable { part: part.clone() });
        };
        let is_inner = depth + 1 < above.len();
        item = table.entry(part).or_insert_with(|| {
            let mut table = Table::new();
            // Only the last table gets a header of its own.
            table.set_implicit(is_inner);
            Item::Table(table)
        });
    }
    let Some(table) = item.as_table_like_mut() else {
        return Err(PathFault::NoTable { part: last.clone() });
    };
    match table.get_mut(last) {
        Some(Item::None) | None => add(item, last, value),
        Some(_) => put(table, last, value)?,
    }
    Ok(document.to_string())
}

/// Whether a table of a list has this name.
fn is_called(table: &Table, name: &str) -> bool {
    table.get("name").and_then(Item::as_str) == Some(name)
}

/// Put a value into a table, with the comments of the one that was there.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) -> Result<(), PathFault> {
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(Item::None) | None => drop(table.insert(key, Item::Value(value))),
        Some(_) => return Err(PathFault::IsTable),
    }
    Ok(())
}

/// The table that a line of the text is in, as `pool.pg-1`; none at its top.
/// Lines are counted from one.
pub fn table_at(text: &str, line: usize) -> Option<&str> {
    let is_table = |head: &str| {
        let keys = Key::parse(head).unwrap_or_default();
        let first = keys.first().map(Key::get);
        first.is_some_and(|first| part(first).is_some())
    };
    let heads = text.lines().take(line).filter_map(|line| {
        let (head, _) = line.trim_start().strip_prefix('[')?.rsplit_once(']')?;
        // One of a list has brackets in brackets.
        let head = head.strip_prefix('[').unwrap_or(head);
        let head = head.strip_suffix(']').unwrap_or(head);
        is_table(head).then(|| head.trim())
    });
    heads.last()
}

/// The kind and name of the thing that a path is about, to check a user's rights.
pub fn named(path: &str) -> Option<(&'static str, String)> {
    let keys = Key::parse(path).ok()?;
    let [part, name, ..] = &keys[..] else {
        return None;
    };
    if part.get() == "group" {
        return Some(("pool", format!("@{}", name.get())));
    }
    let kind = KINDS.iter().find(|kind| **kind == part.get())?;
    Some((*kind, name.get().into()))
}

/// Whether a path sets a group: of a `pool` or a `broker`.
pub fn grouped(path: &str) -> Option<&'static str> {
    let keys = Key::parse(path).unwrap_or_default();
    let [part, _, key] = &keys[..] else {
        return None;
    };
    let mut kinds = ["pool", "broker"].into_iter();
    kinds.find(|kind| part.get() == *kind && key.get() == "group")
}

/// Say whether a path is about something that there is. That goes for rules for
/// locks, too: a new one would come last, where another may fit all its keys.
///
/// # Errors
///
/// If there is no pool, broker or the like of its name, or the path is none.
pub fn find(config: &Config, path: &str) -> Result<(), PathFault> {
    let parts = parts(path)?;
    let [part, name, ..] = &parts[..] else {
        return Ok(());
    };
    let Some(known) = self::part(part).filter(|part| part.is_named) else {
        return Ok(());
    };
    let known = (known.names)(config);
    if known.contains(&name.as_str()) {
        return Ok(());
    }
    Err(PathFault::NoName {
        part: part.clone(),
        name: name.clone(),
        near: near(name, known).map(Into::into),
    })
}

/// Add a key to a table. In `{ … }` the space before the brace stays there.
fn add(item: &mut Item, key: &str, mut value: Value) {
    let inline = item.as_inline_table_mut();
    if let Some((_, last)) = inline.and_then(|table| table.iter_mut().last())
        && let Some(space) = last.decor().suffix().cloned()
    {
        last.decor_mut().set_suffix("");
        value.decor_mut().set_suffix(space);
    }
    if let Some(table) = item.as_table_like_mut() {
        table.insert(key, Item::Value(value));
    }
}

/// The parts of a path whose keys are all known.
fn parts(path: &str) -> Result<Vec<String>, PathFault> {
    let keys = Key::parse(path).map_err(|_| PathFault::Malformed)?;
    let parts: Vec<String> = keys.iter().map(|key| key.get().to_owned()).collect();
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    let first = words.first().ok_or(PathFault::Malformed)?;
    let Some(part) = part(first) else {
        return Err(unknown(first, PARTS.iter().map(|part| part.name)));
    };
    let mut keys = part.keys;
    let below = words.get(1 + usize::from(part.is_named)..).unwrap_or(&[]);
    if below.is_empty() {
        return Err(PathFault::IsTable);
    }
    for word in below {
        if keys.is_empty() {
            break;
        }
        let Some(key) = keys.iter().find(|key| key.name == *word) else {
            return Err(unknown(word, keys.iter().map(|key| key.name)));
        };
        keys = key.below();
    }
    debug_assert!(effect(&words).is_some(), "both look at the same keys");
    Ok(parts)
}

fn unknown<'a>(part: &str, known: impl Iterator<Item = &'a str>) -> PathFault {
    PathFault::Unknown {
        part: part.into(),
        near: near(part, known).map(Into::into),
    }
}

/// The value without the spaces and comments around it.
fn bare(value: &Value) -> Value {
    value.clone().decorated("", "")
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotToml => f.write_str("the file is not TOML; check it first"),
            Self::Malformed => f.write_str(
                "this is not a path of a key; write it as \
                pool.pg-1.max",
            ),
            Self::Unknown {
                part,
                near: Some(near),
            } => write!(f, "there is no key `{part}`; did you mean `{near}`?"),
            Self::Unknown { part, near: None } => write!(f, "there is no key `{part}`"),
            Self::NoName {
                part,
                name,
                near: Some(near),
            } => write!(f, "there is no {part} `{name}`; did you mean `{near}`?"),
            Self::NoName { part, name, .. } => {
                let new = match part.as_str() {
                    "pool" => "POOL.ADD or CONFIG APPLY adds one",
                    "range" => "RANGE.ADD or CONFIG APPLY adds one",
                    "lock" => "CONFIG APPLY adds a rule, at its place among the others",
                    _ => "CONFIG APPLY adds one",
                };
                write!(f, "there is no {part} `{name}`; {new}")
            }
            Self::NoTable { part } => write!(f, "the path above `{part}` is not a table"),
            Self::IsTable => f.write_str("this is a table; name a key in it"),
        }
    }
}

impl std::error::Error for PathFault {}
