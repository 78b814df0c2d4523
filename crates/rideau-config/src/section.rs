//! Reads the values of one table, and notes what is wrong with each.
//!
//! A value that cannot be read is noted and counts as not given, so that one
//! look at a file finds all that is wrong with it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::PathBuf;

use toml_edit::{Item, TableLike, Value};

use super::fault::{Fault, Level};
use super::key::Key;
use super::near::near;
use super::words::{self, SPAN_UNITS, Unfilled};

/// Bytes of the file.
pub(super) type At = Range<usize>;

/// The parsed value, or what is wrong with the text and what to write.
pub(crate) type Made<T> = Result<T, (String, String)>;

/// The hint for a key that is known elsewhere, but not here.
pub(super) type Elsewhere = fn(name: &str, known: &[Key]) -> Option<String>;

/// Shorter values are not treated as secrets: they occur in too many texts by chance.
const SECRET_LEN_MIN: usize = 4;
/// No operator mends more than this at a time.
const FAULTS_MAX: usize = 100;

/// The faults that were found while a file is read.
pub(super) struct Notes<'a> {
    pub(super) text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    elsewhere: Elsewhere,
    faults: RefCell<Vec<Fault>>,
    more: Cell<usize>,
    files: RefCell<Vec<(PathBuf, At)>>,
    secrets: RefCell<Vec<(PathBuf, At)>>,
    new_files: RefCell<Vec<(PathBuf, At)>>,
    folders: RefCell<Vec<(PathBuf, At)>>,
    pages: RefCell<Vec<(PathBuf, At)>>,
    unexpanded: RefCell<Vec<Unexpanded>>,
    /// The variables that were put in, and what they stand for.
    variables: RefCell<Vec<(String, String)>>,
    /// The last text has some of them.
    is_filled: Cell<bool>,
}

/// A text that was written with variables. What these stand for may be secret, so it is
/// shown as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unexpanded {
    /// The last part of its key.
    pub(super) key: String,
    /// The parsed value.
    pub(super) value: String,
    /// As it was written.
    pub(super) raw: String,
}

/// A table and where it stands.
pub(super) struct Section<'a> {
    pub(super) notes: &'a Notes<'a>,
    /// Where the table begins: its header, or its key.
    pub(super) at: At,
    pub(super) entries: Vec<Entry<'a>>,
}

/// A key of a table and its value.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) key_at: At,
    pub(super) item: &'a Item,
    /// It stands in the table that this one is like.
    pub(super) is_inherited: bool,
}

impl<'a> Notes<'a> {
    pub(super) fn new(
        text: &'a str,
        env: &'a dyn Fn(&str) -> Option<String>,
        elsewhere: Elsewhere,
    ) -> Self {
        Self {
            text,
            env,
            elsewhere,
            faults: RefCell::default(),
            more: Cell::default(),
            files: RefCell::default(),
            secrets: RefCell::default(),
            new_files: RefCell::default(),
            folders: RefCell::default(),
            pages: RefCell::default(),
            unexpanded: RefCell::default(),
            variables: RefCell::default(),
            is_filled: Cell::default(),
        }
    }

    pub(super) fn error(&self, at: At, message: impl Into<String>, hint: impl Into<String>) {
        self.note(Level::Error, at, message.into(), hint.into());
    }

    pub(super) fn warn(&self, at: At, message: impl Into<String>, hint: impl Into<String>) {
        self.note(Level::Warning, at, message.into(), hint.into());
    }

    /// An error was noted within these bytes.
    pub(super) fn is_blamed(&self, at: &At) -> bool {
        let is_within = |fault: &Fault| at.start <= fault.at.start && fault.at.end <= at.end;
        let faults = self.faults.borrow();
        faults
            .iter()
            .any(|f| f.level == Level::Error && is_within(f))
    }

    /// The file names another file, which has to be there.
    pub(super) fn file(&self, path: PathBuf, at: At) {
        self.files.borrow_mut().push((path, at));
    }

    /// The same for a file that no other user should read.
    pub(super) fn secret_file(&self, path: PathBuf, at: At) {
        self.secrets.borrow_mut().push((path.clone(), at.clone()));
        self.file(path, at);
    }

    /// The file names a file that is written, whose folder has to be there.
    pub(super) fn new_file(&self, path: PathBuf, at: At) {
        self.new_files.borrow_mut().push((path, at));
    }

    /// The file names a folder, which has to be there.
    pub(super) fn folder(&self, path: PathBuf, at: At) {
        self.folders.borrow_mut().push((path, at));
    }

    pub(super) fn folders(&self) -> Vec<(PathBuf, At)> {
        self.folders.borrow().clone()
    }

    pub(super) fn new_files(&self) -> Vec<(PathBuf, At)> {
        self.new_files.borrow().clone()
    }

    /// The file names a page for the front's own answers.
    pub(super) fn page(&self, path: PathBuf, at: At) {
        self.pages.borrow_mut().push((path, at));
    }

    pub(super) fn pages(&self) -> Vec<(PathBuf, At)> {
        self.pages.borrow().clone()
    }

    pub(super) fn secret_files(&self) -> Vec<(PathBuf, At)> {
        self.secrets.borrow().clone()
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, At)> {
        self.files.borrow().clone()
    }

    /// The faults, and how many more there were.
    pub(super) fn into_faults(self) -> (Vec<Fault>, usize) {
        (self.faults.into_inner(), self.more.get())
    }

    /// As [`expand`](Self::expand), and remember how it was written: what variables
    /// stand for is not shown.
    pub(super) fn expand_key(&self, key: &str, text: &str, at: &At) -> Option<String> {
        let value = self.expand(text, at)?;
        if self.is_filled.get() {
            self.unexpanded.borrow_mut().push(Unexpanded {
                key: key.into(),
                value: value.clone(),
                raw: text.into(),
            });
        }
        Some(value)
    }

    /// How a text of this key was written.
    pub(super) fn written(&self, key: &str, text: &str) -> String {
        let all = self.unexpanded.borrow();
        let found = all.iter().find(|one| one.key == key && one.value == text);
        found.map_or(text, |one| &one.raw).into()
    }

    /// All that was written with variables.
    pub(super) fn unexpanded(&self) -> Vec<Unexpanded> {
        self.unexpanded.borrow().clone()
    }

    /// Text with its variables put in; none if one of them is not there.
    pub(super) fn expand(&self, text: &str, at: &At) -> Option<String> {
        self.is_filled.set(false);
        let env = |name: &str| {
            let value = (self.env)(name)?;
            self.is_filled.set(true);
            let mut variables = self.variables.borrow_mut();
            let known = variables.iter().any(|(known, _)| known == name);
            if value.len() >= SECRET_LEN_MIN && !known {
                variables.push((name.into(), value.clone()));
            }
            Some(value)
        };
        let unfilled = match words::expand(text, &env) {
            Ok(text) => return Some(text),
            Err(unfilled) => unfilled,
        };
        let part = |name: &str| {
            let raw = &self.text[at.clone()];
            let found = raw.find(&format!("${{{name}"));
            let begin = at.start + found.unwrap_or(0);
            let len = self.text[begin..at.end].find('}').map(|end| end + 1);
            begin..len.map_or(at.end, |len| begin + len)
        };
        match unfilled {
            Unfilled::Unset { name } => self.error(
                part(&name),
                format!("the environment has no `{name}`"),
                format!("set it, or write \"${{{name}:-default}}\""),
            ),
            Unfilled::Misnamed { name } => self.error(
                part(&name),
                format!("`{name}` cannot be the name of a variable"),
                "names have letters, digits and _; write $$ for a plain $",
            ),
            Unfilled::Open => self.error(
                part(""),
                "`${` has no end",
                "write \"${NAME}\", or $$ for a plain $",
            ),
        }
        None
    }

    /// A text about something that was read, with names of variables instead of what
    /// they stand for.
    fn without_values(&self, text: String) -> String {
        let variables = self.variables.borrow();
        variables.iter().fold(text, |text, (name, value)| {
            match text.contains(value.as_str()) {
                true => text.replace(value.as_str(), &format!("${{{name}}}")),
                false => text,
            }
        })
    }

    /// Which key was probably meant, here or elsewhere.
    fn suggest_key(&self, name: &str, known: &[Key]) -> String {
        let names = || known.iter().map(|key| key.name);
        if let Some(near) = near(name, names()) {
            return format!("did you mean `{near}`?");
        }
        let has = |key: &Key| key.below().iter().any(|below| below.name == name);
        if let Some(above) = known.iter().find(|key| has(key)) {
            return format!("it belongs below: {} = {{ {name} = … }}", above.name);
        }
        let elsewhere = (self.elsewhere)(name, known);
        elsewhere
            .unwrap_or_else(|| format!("known keys: {}", names().collect::<Vec<_>>().join(", ")))
    }

    fn note(&self, level: Level, at: At, message: String, hint: String) {
        let (message, hint) = (self.without_values(message), self.without_values(hint));
        let mut faults = self.faults.borrow_mut();
        // The first error always counts, however many warnings there were.
        let is_told = level == Level::Warning || faults.iter().any(|f| f.level == level);
        if faults.len() >= FAULTS_MAX && is_told {
            self.more.set(self.more.get() + 1);
            return;
        }
        let fault = Fault::new(self.text, level, at, message, hint);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
}

impl<'a> Section<'a> {
    /// The table, with what is not known noted and left out.
    pub(super) fn open(
        notes: &'a Notes<'a>,
        table: &'a dyn TableLike,
        at: At,
        what: &str,
        known: &[Key],
    ) -> Self {
        let mut section = Self::all(notes, table, at);
        section.entries.retain(|entry| {
            let is_known = known.iter().any(|key| key.name == entry.name);
            if !is_known {
                let message = format!("unknown key `{}` in {what}", entry.name);
                let hint = notes.suggest_key(entry.name, known);
                notes.error(entry.key_at.clone(), message, hint);
            }
            is_known
        });
        section
    }

    /// The table with whatever it has.
    pub(super) fn all(notes: &'a Notes<'a>, table: &'a dyn TableLike, at: At) -> Self {
        let entry = |(name, item): (&'a str, &'a Item)| {
            let key = table.get_key_value(name).and_then(|(key, _)| key.span());
            Entry {
                name,
                key_at: key.unwrap_or_else(|| at.clone()),
                item,
                is_inherited: false,
            }
        };
        let entries = table.iter().map(entry).collect();
        Self { notes, at, entries }
    }

    /// Take from `other` what is not given here.
    pub(super) fn inherit(&mut self, other: &Self) {
        for entry in &other.entries {
            if self.entry(entry.name).is_none() && entry.name != "like" {
                self.entries.push(Entry {
                    is_inherited: true,
                    ..entry.clone()
                });
            }
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.name == key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Where the value of `key` stands, or else the table.
    pub(super) fn at(&self, key: &str) -> At {
        self.entry(key).map_or(self.at.clone(), Entry::at)
    }

    /// Where `key` itself stands, or else the table.
    pub(super) fn key_at(&self, key: &str) -> At {
        self.entry(key)
            .map_or(self.at.clone(), |entry| entry.key_at.clone())
    }

    /// Text with its variables put in.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let entry = self.entry(key)?;
        let Some(text) = entry.item.as_str() else {
            let kind = kind_of(entry.item);
            let message = format!("`{key}` is {kind}, and has to be text");
            self.notes.error(entry.at(), message, "write it in quotes");
            return None;
        };
        self.notes.expand_key(key, text, &entry.at())
    }

    /// Text of which something is made, or a fault with a hint.
    pub(super) fn made<T>(&self, key: &str, make: impl FnOnce(&str) -> Made<T>) -> Option<T> {
        let text = self.text(key)?;
        self.note(&self.at(key), make(&text))
    }

    /// The parsed value; or none, and its fault is noted.
    pub(super) fn note<T>(&self, at: &At, made: Made<T>) -> Option<T> {
        made.map_err(|(message, hint)| self.notes.error(at.clone(), message, hint))
            .ok()
    }

    /// The value is this word.
    pub(super) fn is_word(&self, key: &str, word: &str) -> bool {
        let entry = self.entry(key);
        let text = entry.and_then(|entry| self.notes.expand(entry.item.as_str()?, &entry.at()));
        text.as_deref() == Some(word)
    }

    /// A list of texts, each with its place. One text alone is a list, too.
    pub(super) fn list(&self, key: &str) -> Option<Vec<(String, At)>> {
        let entry = self.entry(key)?;
        if entry.item.is_str() {
            return Some(vec![(self.text(key)?, entry.at())]);
        }
        let Some(array) = entry.item.as_array() else {
            let kind = kind_of(entry.item);
            let message = format!("`{key}` is {kind}, and has to be a list of texts");
            self.notes
                .error(entry.at(), message, "write [\"one\", \"two\"]");
            return None;
        };
        let mut list = Vec::new();
        for value in array {
            let at = value.span().unwrap_or_else(|| entry.at());
            match value.as_str() {
                Some(text) => {
                    let text = self.notes.expand_key(key, text, &at);
                    list.extend(text.map(|text| (text, at)));
                }
                None => {
                    let message = format!("an element of `{key}` is not text");
                    self.notes.error(at, message, "write it in quotes");
                }
            }
        }
        Some(list)
    }

    /// Whether a fault of this key's value was noted.
    pub(super) fn is_blamed(&self, key: &str) -> bool {
        let entry = self.entry(key);
        entry.is_some_and(|entry| self.notes.is_blamed(&entry.at()))
    }

    /// A table below this one.
    pub(super) fn part(&self, key: &Key) -> Option<Self> {
        self.part_as(key, &format!("`{}`", key.name))
    }

    /// The same, with another name in what is said of it.
    pub(super) fn part_as(&self, key: &Key, what: &str) -> Option<Self> {
        let (name, known) = (key.name, key.below());
        let entry = self.entry(name)?;
        let Some(table) = entry.item.as_table_like() else {
            let kind = kind_of(entry.item);
            let message = format!("`{name}` is {kind}, and has to be a table");
            let names: Vec<_> = known.iter().map(|key| key.name).collect();
            let hint = format!("write {{ … }} with {}", names.join(", "));
            self.notes.error(entry.at(), message, hint);
            return None;
        };
        let at = entry.key_at.clone();
        Some(Section::open(self.notes, table, at, what, known))
    }
}

impl Entry<'_> {
    /// Where the value stands.
    pub(super) fn at(&self) -> At {
        self.item.span().unwrap_or_else(|| self.key_at.clone())
    }
}

/// The fault of a span, and how to write it.
pub(super) fn not_a_span(key: &str, item: &Item) -> (String, String) {
    if let Some(number) = item.as_integer() {
        let hint = format!("write \"{number}ms\", \"{number}s\", or another unit: {SPAN_UNITS}");
        return (format!("`{key}` has no unit"), hint);
    }
    let hint = format!("write a number and {SPAN_UNITS}, such as \"200ms\"");
    (format!("`{key}` is not a span of time"), hint)
}

/// Which section was probably meant, or that there is none yet.
pub(super) fn suggest_section<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let known: Vec<_> = known.collect();
    match near(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("add [{kind}.{name}]"),
        None => format!("add [{kind}.{name}], or use one of: {}", known.join(", ")),
    }
}

/// Which key was probably meant.
pub(super) fn suggest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    match near(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known keys: {}", known.join(", ")),
    }
}

/// The type of a value, in words.
pub(super) fn kind_of(item: &Item) -> &'static str {
    match item {
        Item::Value(Value::String(_)) => "text",
        Item::Value(Value::Integer(_) | Value::Float(_)) => "a number",
        Item::Value(Value::Boolean(_)) => "yes or no",
        Item::Value(Value::Datetime(_)) => "a date",
        Item::Value(Value::Array(_)) | Item::ArrayOfTables(_) => "a list",
        Item::Value(Value::InlineTable(_)) | Item::Table(_) => "a table",
        Item::None => "nothing",
    }
}
