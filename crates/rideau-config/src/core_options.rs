//! Options that the core reads itself, from the tables of the file.
//!
//! The core reads options as pairs of words and says which option breaks which
//! rule. Here tables become such pairs, and what the core says becomes a fault
//! at the right place, so that no rule is stated twice.

use std::mem;

use rideau_core::meter::PieSide;
use rideau_core::{OptionError, Rule, Settings, queue, valve};
use toml_edit::{Item, TableLike, Value};

use super::core_tables::METERS;
use super::near::suggest_word;
use super::section::{At, Entry, Section, kind_of, not_a_span, suggest_key};
use super::table::{Key, Keyed};

/// A value as the core wants it, and where it came from.
#[derive(Clone)]
struct Pair<'a> {
    option: String,
    word: String,
    key_at: At,
    at: At,
    item: Option<&'a Item>,
    is_inherited: bool,
}

/// The pairs of one thing.
pub(super) struct Pairs<'a> {
    section: &'a Section<'a>,
    /// What the options are of: a pool, a queue.
    what: &'static str,
    known: &'static [Key],
    /// Where it stands.
    pub(super) at: At,
    pairs: Vec<Pair<'a>>,
    /// Options that are there and could not become pairs.
    broken: Vec<String>,
}

impl<'a> Pairs<'a> {
    /// The entries of a table that are options of the core. All that is known there
    /// is `known`.
    pub(super) fn of<T: Keyed>(
        section: &'a Section<'a>,
        what: &'static str,
        known: &'static [Key],
    ) -> Self {
        let mut pairs = Self {
            section,
            what,
            known,
            at: section.at.clone(),
            pairs: Vec::new(),
            broken: Vec::new(),
        };
        for entry in &section.entries {
            if T::KEYS.iter().any(|key| key.name == entry.name) {
                pairs.flatten(entry.name.into(), entry);
            }
        }
        pairs
    }

    /// The options below one key: a table, or the word for its kind.
    pub(super) fn below(
        section: &'a Section<'a>,
        key: &str,
        what: &'static str,
        known: &'static [Key],
    ) -> Option<Self> {
        let entry = section.entry(key)?;
        let mut pairs = Self {
            section,
            what,
            known,
            at: entry.at(),
            pairs: Vec::new(),
            broken: Vec::new(),
        };
        match entry.item.as_table_like() {
            Some(table) => pairs.table("", table, entry),
            None if entry.item.is_str() => pairs.flatten("kind".into(), entry),
            None => pairs.refuse("kind".into(), entry, "write { kind = … }"),
        }
        Some(pairs)
    }

    /// The word of an option that is given, and where it stands.
    pub(super) fn word(&self, option: &str) -> Option<(&str, At)> {
        let pair = self.pairs.iter().find(|pair| pair.option == option)?;
        Some((&pair.word, pair.at.clone()))
    }

    /// The option is not given.
    fn lacks(&self, option: &str) -> bool {
        self.pairs.iter().all(|pair| pair.option != option)
    }

    /// Give an option that the file does not, at the value it follows from.
    pub(super) fn give(&mut self, option: &str, word: String, at: &At) {
        if self.lacks(option) {
            self.pairs.push(Pair {
                option: option.into(),
                word,
                key_at: at.clone(),
                at: at.clone(),
                item: None,
                is_inherited: false,
            });
        }
    }

    /// What the core makes of the pairs; else all that it finds wrong is noted.
    pub(super) fn read<T>(
        mut self,
        parse: impl Fn(Settings) -> Result<T, OptionError>,
    ) -> Option<T> {
        let mut removed = mem::take(&mut self.broken);
        loop {
            let words = self.pairs.iter();
            let words = words.map(|pair| (pair.option.as_str(), pair.word.as_str()));
            let error = match Settings::new(words).and_then(&parse) {
                Ok(options) if removed.is_empty() => return Some(options),
                Ok(_) => return None,
                Err(error) => error,
            };
            if !follows(&error, &removed) {
                self.note(&error, &parse);
            }
            // What is wrong is taken out, and the rest looked at again.
            let culprit = [error.option.clone(), bound(&error)];
            let at = culprit.iter().find_map(|option| self.place(option))?;
            removed.push(self.pairs.remove(at).option);
        }
    }

    fn place(&self, option: &str) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.option == option)
    }

    fn flatten(&mut self, option: String, entry: &Entry<'a>) {
        if last(&option) == "weights"
            && let Some(table) = entry.item.as_table_like()
        {
            return self.weights(option, table, entry);
        }
        let prefix = option.strip_suffix("of").unwrap_or("");
        match entry.item {
            Item::Value(Value::String(text)) => self.text(option, text.value(), entry),
            Item::Value(Value::Integer(number)) => {
                self.push(option, number.value().to_string(), entry);
            }
            Item::Value(Value::Float(number)) => {
                self.push(option, number.value().to_string(), entry);
            }
            Item::Value(Value::Boolean(answer)) => {
                let word = if *answer.value() { "yes" } else { "no" };
                self.push(option, word.into(), entry);
            }
            Item::Value(Value::Array(array)) if option.ends_with("of") => {
                for (place, value) in (1..).zip(array) {
                    match value.as_inline_table() {
                        Some(table) => self.table(&format!("{prefix}{place}."), table, entry),
                        None => {
                            self.refuse(option.clone(), entry, "write [{ kind = … }, { kind = … }]")
                        }
                    }
                }
            }
            Item::ArrayOfTables(array) if option.ends_with("of") => {
                for (place, table) in (1..).zip(array) {
                    self.table(&format!("{prefix}{place}."), table, entry);
                }
            }
            item => match item.as_table_like() {
                Some(table) => self.table(&format!("{option}."), table, entry),
                None => self.refuse(option, entry, "write one value"),
            },
        }
    }

    fn table(&mut self, prefix: &str, table: &'a dyn TableLike, above: &Entry<'a>) {
        let section = Section::all(self.section.notes, table, above.key_at.clone());
        for mut entry in section.entries {
            entry.is_inherited = above.is_inherited;
            self.flatten(format!("{prefix}{}", entry.name), &entry);
        }
        // An empty table has no pair to tell the core that a valve is wanted.
        if table.is_empty() && prefix.ends_with("valve.") {
            let at = above.at();
            let hint = "write { kind = … }, or remove it";
            self.section
                .notes
                .error(at, "the valve has no `kind`", hint);
            self.broken.push(format!("{prefix}kind"));
        }
    }

    fn text(&mut self, option: String, text: &str, entry: &Entry<'a>) {
        let is_part = ["queue", "valve"].contains(&option.as_str());
        let option = if is_part {
            format!("{option}.kind")
        } else {
            option
        };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && text != "0" && !option.ends_with("alarm") {
            let message = format!("`{}` is text", last(&option));
            let hint = "take the quotes away, or write a unit if it is a span";
            self.section.notes.error(entry.at(), message, hint);
            self.broken.push(option);
            return;
        }
        match self.section.notes.expand(text, &entry.at()) {
            Some(word) => self.push(option, word, entry),
            None => self.broken.push(option),
        }
    }

    /// `{ acme = 3 }` as `acme:3`.
    fn weights(&mut self, option: String, table: &dyn TableLike, entry: &Entry<'a>) {
        let weight = |(name, item): (&str, &Item)| {
            let weight = item.as_integer().filter(|_| !name.contains(','));
            weight.map(|weight| format!("{name}:{weight}"))
        };
        match table.iter().map(weight).collect::<Option<Vec<_>>>() {
            Some(words) => self.push(option, words.join(","), entry),
            None => self.refuse(
                option,
                entry,
                "write { name = 3, other = 2 }, without commas in names",
            ),
        }
    }

    fn push(&mut self, option: String, word: String, entry: &Entry<'a>) {
        self.pairs.push(Pair {
            option,
            word,
            key_at: entry.key_at.clone(),
            at: entry.at(),
            item: Some(entry.item),
            is_inherited: entry.is_inherited,
        });
    }

    fn refuse(&mut self, option: String, entry: &Entry<'a>, hint: &str) {
        let message = format!("`{}` cannot be {}", entry.name, kind_of(entry.item));
        self.section.notes.error(entry.at(), message, hint);
        self.broken.push(option);
    }

    fn note<T>(&self, error: &OptionError, parse: &impl Fn(Settings) -> Result<T, OptionError>) {
        let name = last(&error.option);
        let pair = self.pairs.iter().find(|pair| pair.option == error.option);
        let at = pair.map_or(self.at.clone(), |pair| pair.at.clone());
        let word = pair.map_or("", |pair| pair.word.as_str());
        let notes = self.section.notes;
        let what = self.what(&error.option);
        match (&error.rule, pair) {
            (Rule::Unknown { .. }, Some(pair)) => {
                let (message, hint) = self.unknown(pair, what, parse);
                notes.error(pair.key_at.clone(), message, hint);
            }
            (Rule::Over { bound }, pair) => self.note_over(error, bound, pair),
            (
                Rule::NotASpan,
                Some(Pair {
                    item: Some(item), ..
                }),
            ) => {
                let (message, hint) = not_a_span(name, item);
                notes.error(at, message, hint);
            }
            (Rule::NotOneOf(words), _) if name == "kind" => {
                let message = format!("unknown {what} kind {word:?}");
                let own = |word: &&&str| what != "meter" || METERS.contains(*word);
                let words: Vec<_> = words.iter().filter(own).copied().collect();
                notes.error(at, message, suggest_word(word, &words));
            }
            (Rule::NotANumber, _) => {
                let message = format!("`{name}` is not a whole number that fits");
                notes.error(at, message, "write a whole number, without quotes");
            }
            (Rule::Outside { least, most }, _) => {
                let hint = format!("write a whole number from {least} to {most}");
                notes.error(at, format!("`{name}` is out of range"), hint);
            }
            (Rule::NotOneOf(words), _) => {
                let message = format!("`{name}` cannot be {word:?}");
                notes.error(at, message, suggest_word(word, words));
            }
            (Rule::Missing, None) => {
                let hint = kinds(&self.prefix(error), parse).join(", ");
                notes.error(
                    at,
                    format!("the {what} has no `{name}`"),
                    format!("one of: {hint}"),
                );
            }
            _ => {
                let words = OptionError::new(name, error.rule.clone()).to_string();
                let words = words.strip_prefix("option ").unwrap_or(&words);
                let (message, hint) = words.split_once("; ").unwrap_or((words, ""));
                notes.error(at, message, hint);
            }
        }
    }

    /// Point to whichever of the two stands in this table.
    fn note_over(&self, error: &OptionError, bound_name: &str, pair: Option<&Pair<'a>>) {
        let bound = bound(error);
        let bound = self.pairs.iter().find(|pair| pair.option == bound);
        let name = last(&error.option);
        let notes = self.section.notes;
        match (pair, bound) {
            (Some(pair), Some(bound)) if pair.is_inherited && !bound.is_inherited => notes.error(
                bound.at.clone(),
                format!(
                    "`{bound_name}` is under `{name}`, which is {} by `like`",
                    pair.word
                ),
                format!("raise it, or give `{name}` here, too"),
            ),
            (Some(pair), Some(bound)) => notes.error(
                pair.at.clone(),
                format!("`{name}` is over `{bound_name}`, which is {}", bound.word),
                format!("lower it or raise `{bound_name}`"),
            ),
            (Some(pair), None) => notes.error(
                pair.at.clone(),
                format!("`{name}` is over the default of `{bound_name}`"),
                format!("lower it or give `{bound_name}`"),
            ),
            (None, bound) => notes.error(
                bound.map_or(self.at.clone(), |bound| bound.at.clone()),
                format!("`{bound_name}` is under the default of `{name}`"),
                format!("raise it or give `{name}`"),
            ),
        }
    }

    fn unknown<T>(
        &self,
        pair: &Pair<'a>,
        what: &str,
        parse: &impl Fn(Settings) -> Result<T, OptionError>,
    ) -> (String, String) {
        let name = last(&pair.option);
        let known = self.known(&pair.option);
        if known.iter().all(|key| key.name != name) {
            let message = format!("unknown key `{name}` in a {what}");
            return (message, suggest_key(name, known));
        }
        let other = match name {
            "slow" => Some("order = \"adaptive\""),
            "flows_max" | "weights" | "sparse_first" => Some("fair_by = \"flow\""),
            _ => None,
        };
        if let Some(other) = other {
            let message = format!("`{name}` means something only with {other}");
            return (message, "give both or none".into());
        }
        let prefix = pair.option.strip_suffix(name).unwrap_or("");
        let fitting: Vec<_> = kinds(prefix, parse)
            .iter()
            .copied()
            .filter(|kind| {
                let (kind_option, option) = (format!("{prefix}kind"), &pair.option);
                let words = [(kind_option.as_str(), *kind), (option.as_str(), &pair.word)];
                let unknown = |error: OptionError| {
                    error.option == pair.option && matches!(error.rule, Rule::Unknown { .. })
                };
                !Settings::new(words).and_then(parse).is_err_and(unknown)
            })
            .collect();
        let message = format!("`{name}` means nothing in a {what} of this kind");
        (
            message,
            format!("remove it, or take another kind: {}", fitting.join(", ")),
        )
    }

    /// The name of what the option belongs to.
    fn what(&self, option: &str) -> &'static str {
        match option.split_once('.') {
            Some(("queue", _)) => "queue",
            Some(("valve", _)) => "valve",
            _ => self.what,
        }
    }

    /// The keys that could stand beside the option.
    fn known(&self, option: &str) -> &'static [Key] {
        match option.split_once('.') {
            Some(("queue", _)) => queue::Options::KEYS,
            Some(("valve", _)) => valve::Options::KEYS,
            Some(("ask" | "offer", _)) => PieSide::KEYS,
            _ => self.known,
        }
    }

    fn prefix(&self, error: &OptionError) -> String {
        let name = last(&error.option);
        error.option.strip_suffix(name).unwrap_or("").into()
    }
}

/// The kinds that the core knows: it names them when it is asked for another.
fn kinds<T>(
    prefix: &str,
    parse: &impl Fn(Settings) -> Result<T, OptionError>,
) -> &'static [&'static str] {
    let option = format!("{prefix}kind");
    let asked = Settings::new([(option.as_str(), "?")]).and_then(parse);
    match asked.map_err(|error| error.rule) {
        Err(Rule::NotOneOf(words)) => words,
        _ => &[],
    }
}

/// The error is only there because something else was taken out.
fn follows(error: &OptionError, removed: &[String]) -> bool {
    let prefix = error.option.strip_suffix(last(&error.option)).unwrap_or("");
    let kind = format!("{prefix}kind");
    match &error.rule {
        Rule::Over { .. } => removed.contains(&bound(error)) || removed.contains(&error.option),
        Rule::Unknown { .. } | Rule::Missing => removed.contains(&kind),
        _ => removed.contains(&error.option),
    }
}

/// The full name of the option that bounds another.
fn bound(error: &OptionError) -> String {
    let prefix = error.option.strip_suffix(last(&error.option)).unwrap_or("");
    match &error.rule {
        Rule::Over { bound } => format!("{prefix}{bound}"),
        _ => String::new(),
    }
}

fn last(option: &str) -> &str {
    option.rsplit('.').next().unwrap_or(option)
}
