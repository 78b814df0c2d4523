//! Reads options of the core that are of several kinds.
//!
//! Each key is read as its row says. Rules between keys are the core's: what it says of
//! one that is broken becomes a fault at the right place.

use rideau_core::{OptionError, Rule};
use toml_edit::{Item, Value};

use super::key::Key;
use super::keyed::Keyed;
use super::near::suggest_word;
use super::section::{At, Entry, Section, kind_of};

/// Options of which there are several kinds, each with keys of its own.
pub(super) trait OfKinds: Keyed + Clone {
    /// The kinds.
    const KINDS: &'static [&'static str];

    /// Whether this kind has the key.
    fn has(&mut self, name: &str) -> bool;
}

/// Options that the core parses and checks.
pub(super) trait CoreOptions: OfKinds {
    /// The noun for errors, such as `queue`.
    const WHAT: &'static str;
    /// Words that are no kind here, but are one elsewhere, and what to write there.
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[];

    /// The defaults of a kind.
    fn of_kind(kind: &str) -> Option<Self>;

    /// Whether a rule between keys is broken.
    fn validate(&self) -> Result<(), OptionError>;

    /// Give what was not said, and follows from what was.
    fn finish(&mut self, _: &Section<'_>) {}
}

/// The options at an entry: a table, or the word for its kind. `usual` is the kind that
/// need not be named, and `base` has the defaults of each.
pub(super) fn read<'a, T: CoreOptions>(
    section: &Section<'a>,
    entry: &Entry<'a>,
    usual: Option<&'static str>,
    base: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let (notes, what) = (section.notes, T::WHAT);
    let mut part = match entry.item.as_table_like() {
        Some(table) => {
            let at = entry.key_at.clone();
            Section::open(notes, table, at, &format!("a {what}"), T::KEYS)
        }
        None => Section {
            notes,
            at: entry.at(),
            entries: vec![Entry {
                name: "kind",
                ..entry.clone()
            }],
        },
    };
    part.at = entry.at();
    for below in &mut part.entries {
        below.is_inherited = entry.is_inherited;
    }
    if !entry.item.is_table_like() && !entry.item.is_str() {
        let message = format!("`{}` cannot be {}", entry.name, kind_of(entry.item));
        notes.error(entry.at(), message, "write { kind = … }");
        return None;
    }
    let Some(kind) = kind::<T>(&part, usual) else {
        // The keys that some kind has are looked at all the same.
        for entry in &part.entries {
            let of_kinds = T::KINDS.iter().filter_map(|kind| T::of_kind(kind));
            if let Some(mut some) = of_kinds.into_iter().find_map(|mut some| {
                let has = some.has(entry.name);
                has.then_some(some)
            }) {
                let entries = vec![entry.clone()];
                let at = part.at.clone();
                some.read_keys(&Section { notes, at, entries });
            }
        }
        return None;
    };
    let (mut options, usual) = (base(kind)?, base(kind)?);
    options.read_keys(&part);
    options.finish(&part);
    check(&part, &mut options, &usual, T::validate).then_some(options)
}

/// The kind that is named, or the usual one.
fn kind<T: CoreOptions>(part: &Section<'_>, usual: Option<&'static str>) -> Option<&'static str> {
    let what = T::WHAT;
    let all = T::KINDS.join(", ");
    if !part.has("kind") {
        if usual.is_none() {
            let message = format!("the {what} has no `kind`");
            let at = part.at.clone();
            part.notes.error(at, message, format!("one of: {all}"));
        }
        return usual;
    }
    let word = part.text("kind")?;
    let known = T::KINDS.iter().find(|kind| **kind == word);
    if known.is_none() {
        let elsewhere = T::ELSEWHERE.iter().find(|(kind, _)| *kind == word);
        let (message, hint) = match elsewhere {
            Some((_, hint)) => (
                format!("the {what} {word:?} has a key of its own"),
                (*hint).into(),
            ),
            None => (
                format!("unknown {what} kind {word:?}"),
                suggest_word(&word, T::KINDS),
            ),
        };
        part.notes.error(part.at("kind"), message, hint);
    }
    known.copied()
}

/// The options of each element of a list.
pub(super) fn read_all<T: CoreOptions>(section: &Section<'_>, key: &Key, items: &[Item]) -> Vec<T> {
    let is_inherited = section
        .entry(key.name)
        .is_some_and(|entry| entry.is_inherited);
    let one = |item| {
        let one = Section {
            notes: section.notes,
            at: section.at(key.name),
            entries: Vec::new(),
        };
        let entry = Entry {
            name: T::WHAT,
            key_at: Item::span(item).unwrap_or_else(|| section.at(key.name)),
            item,
            is_inherited,
        };
        read(&one, &entry, None, T::of_kind)
    };
    items.iter().filter_map(one).collect()
}

/// The elements of a list; one alone is a list, too.
pub(super) fn items(item: &Item) -> Vec<Item> {
    match item {
        Item::Value(Value::Array(array)) => array.iter().cloned().map(Item::Value).collect(),
        Item::ArrayOfTables(tables) => tables.iter().cloned().map(Item::Table).collect(),
        item => vec![item.clone()],
    }
}

/// Note a key that the kind does not have.
pub(super) fn note_misfit<T: CoreOptions>(section: &Section<'_>, name: &str) {
    let other = match name {
        "slow" => Some(("order", "order = \"adaptive\"")),
        "flows_max" | "weights" | "sparse_first" => Some(("fair_by", "fair_by = \"flow\"")),
        _ => None,
    };
    let (message, hint) = match other {
        Some((key, _)) if section.is_blamed(key) => return,
        Some((_, other)) => (
            format!("`{name}` needs {other}"),
            "give both or none".into(),
        ),
        None => {
            let has = |kind: &&&str| T::of_kind(kind).is_some_and(|mut some| some.has(name));
            let fitting: Vec<_> = T::KINDS.iter().filter(has).copied().collect();
            (
                format!("`{name}` does not apply to a {} of this kind", T::WHAT),
                format!("remove it, or take another kind: {}", fitting.join(", ")),
            )
        }
    };
    let at = section.entry(name).map(|entry| entry.key_at.clone());
    let at = at.unwrap_or_else(|| section.at.clone());
    section.notes.error(at, message, hint);
}

/// Note every rule between keys that is broken; true if none is. What breaks one counts as
/// not given for the next.
pub(super) fn check<T: Keyed>(
    section: &Section<'_>,
    options: &mut T,
    usual: &T,
    validate: impl Fn(&T) -> Result<(), OptionError>,
) -> bool {
    let mut is_fine = true;
    for _ in T::KEYS {
        let Err(error) = validate(options) else {
            return is_fine;
        };
        is_fine = false;
        note(section, &error);
        options.reset_key(&error.option, usual);
        if let Rule::Over { bound } = error.rule {
            options.reset_key(bound, usual);
        }
    }
    is_fine
}

fn note(section: &Section<'_>, error: &OptionError) {
    let option = error.option.as_str();
    let is_blamed = |key: &str| section.is_blamed(key);
    match &error.rule {
        // What could not be read does not accuse another.
        Rule::Over { bound } if is_blamed(option) || is_blamed(bound) => {}
        Rule::Over { bound } => note_over(section, option, bound),
        _ if section.entries.iter().any(|entry| is_blamed(entry.name)) => {}
        rule => {
            let name = option.rsplit('.').next().unwrap_or(option);
            let (message, hint) = sentence(name, rule);
            section.notes.error(place(section, option), message, hint);
        }
    }
}

/// Where an option of the core stands: `valve.min` in the table `valve`.
fn place(section: &Section<'_>, option: &str) -> At {
    let mut parts = option.split('.');
    let Some(entry) = parts.next().and_then(|name| section.entry(name)) else {
        return section.at.clone();
    };
    let below = parts.try_fold(entry.item, |item, name| item.get(name));
    below.and_then(Item::span).unwrap_or_else(|| entry.at())
}

/// The sentences for a broken rule of the core: what is wrong, and what to do.
pub(super) fn sentence(name: &str, rule: &Rule) -> (String, String) {
    if let Rule::Outside { least, most } = rule {
        let hint = format!("write a whole number from {least} to {most}");
        return (format!("`{name}` is out of range"), hint);
    }
    if let Rule::NotANumber = rule {
        let message = format!("`{name}` has something that is not a whole number that fits");
        return (message, "write a whole number there".into());
    }
    let words = OptionError::new(name, rule.clone()).to_string();
    let words = words.strip_prefix("option ").unwrap_or(&words);
    let (message, hint) = words.split_once("; ").unwrap_or((words, ""));
    (message.into(), hint.into())
}

/// Point to whichever of the two stands in this table.
fn note_over(section: &Section<'_>, name: &str, bound: &str) {
    let word = |entry: &Entry<'_>| match entry.item.as_str() {
        Some(text) => text.to_owned(),
        None => entry.item.to_string().trim().to_owned(),
    };
    let (at, message, hint) = match (section.entry(name), section.entry(bound)) {
        (Some(entry), Some(most)) if entry.is_inherited && !most.is_inherited => (
            most.at(),
            format!(
                "`{bound}` is under `{name}`, which is {} by `like`",
                word(entry)
            ),
            format!("raise it, or give `{name}` here, too"),
        ),
        (Some(entry), Some(most)) => (
            entry.at(),
            format!("`{name}` is over `{bound}`, which is {}", word(most)),
            format!("lower it or raise `{bound}`"),
        ),
        (Some(entry), None) => (
            entry.at(),
            format!("`{name}` is over the default of `{bound}`"),
            format!("lower it or give `{bound}`"),
        ),
        (None, most) => (
            most.map_or(section.at.clone(), Entry::at),
            format!("`{bound}` is under the default of `{name}`"),
            format!("raise it or give `{name}`"),
        ),
    };
    section.notes.error(at, message, hint);
}
