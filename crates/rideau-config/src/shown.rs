//! A config as rows of key and value: what counts, defaults included.
//!
//! Rows are what plans compare and what is shown; put together they are TOML
//! again. The one thing they cannot say is the names of weighted flows, of which
//! only the hash is kept.

use std::sync::Arc;

use super::section::Unexpanded;

/// Rows as they are collected: the path, and the value as TOML.
#[derive(Default)]
pub(crate) struct Rows {
    path: String,
    rows: Vec<(String, String)>,
    /// Values that were written with variables.
    unexpanded: Arc<Vec<Unexpanded>>,
}

impl Rows {
    /// No rows, for a config in which this was written with variables.
    pub(crate) fn new(unexpanded: &Arc<Vec<Unexpanded>>) -> Self {
        Self {
            unexpanded: Arc::clone(unexpanded),
            ..Self::default()
        }
    }

    pub(crate) fn into_rows(self) -> Vec<(String, String)> {
        self.rows
    }

    /// Puts what `fill` adds below `key`.
    pub(crate) fn below(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path = self.join(key);
        fill(self);
        self.path.truncate(len);
    }

    fn join(&self, key: &str) -> String {
        let key = quoted_key(key);
        if self.path.is_empty() {
            return key;
        }
        format!("{}.{key}", self.path)
    }

    pub(crate) fn push(&mut self, key: &str, value: String) {
        let path = self.join(key);
        self.rows.push((path, value));
    }

    /// A text as it was written, if that was with variables.
    fn written<'t>(&'t self, key: &str, text: &'t str) -> &'t str {
        let mut all = self.unexpanded.iter();
        let found = all.find(|one| one.key == key && one.value == text);
        found.map_or(text, |one| &one.raw)
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        let text = quoted(self.written(key, text));
        self.push(key, text);
    }

    pub(crate) fn list(&mut self, key: &str, list: impl IntoIterator<Item = String>) {
        let list = list.into_iter();
        let list: Vec<_> = list.map(|text| quoted(self.written(key, &text))).collect();
        self.push(key, format!("[{}]", list.join(", ")));
    }

    /// An array of tables, each on its own.
    pub(crate) fn tables<T>(&mut self, key: &str, all: &[T], show: fn(&T, &mut Self)) {
        let table = |one: &T| {
            let mut rows = Self::new(&self.unexpanded);
            show(one, &mut rows);
            inline(&rows.rows)
        };
        let all: Vec<_> = all.iter().map(table).collect();
        self.push(key, format!("[{}]", all.join(", ")));
    }
}

/// Rows as one table on a line.
pub(crate) fn inline(rows: &[(String, String)]) -> String {
    let pairs = rows.iter().map(|(key, value)| format!("{key} = {value}"));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

/// A text as TOML.
pub(crate) fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// A key as TOML, in quotes where it needs them.
pub(crate) fn quoted_key(key: &str) -> String {
    toml_edit::Key::new(key).display_repr().into_owned()
}

/// The value of a key among rows; that of a table as one value.
pub(crate) fn value_of(rows: &[(String, String)], name: &str) -> Option<String> {
    let below = rows_below(rows, name);
    match rows.iter().find(|(path, _)| path == name) {
        Some((_, value)) => Some(value.clone()),
        None => (!below.is_empty()).then(|| inline(&below)),
    }
}

/// The rows below a key.
pub(crate) fn rows_below(rows: &[(String, String)], name: &str) -> Vec<(String, String)> {
    let below = rows.iter().filter_map(|(path, value)| {
        let path = path.strip_prefix(name)?.strip_prefix('.')?;
        Some((path.to_owned(), value.clone()))
    });
    below.collect()
}
