//! The kinds of values that keys have: how each is read, shown and described.
//!
//! A kind is a type without values. The same kind may stand for several types, as
//! [`Number`] does, and a type may be read in several ways, as a `u64` is as a
//! [`Number`] or a [`Size`].

use std::fmt::Display;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::Lead;
use toml_edit::Value;

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::near::suggest_word;
use super::section::{Made, Section, kind_of, not_a_span};
use super::shown::Rows;
use super::words::{self, SIZE_UNITS, show_size, show_span};

/// A way to read and show values of type `V`.
pub(crate) trait Kind<V> {
    /// The form of the value.
    const FORM: Form;

    /// The value of a key; none if it is not there, or cannot be read, which is noted.
    fn read(section: &Section<'_>, key: &Key) -> Option<V>;

    /// The same, where `or` says what else could stand there.
    fn read_or(section: &Section<'_>, key: &Key, or: &str) -> Option<V> {
        let _ = or;
        Self::read(section, key)
    }

    /// Put the value of a key where it belongs, if it is there and can be read.
    fn read_into(place: &mut V, section: &Section<'_>, key: &Key) {
        if let Some(value) = Self::read(section, key) {
            *place = value;
        }
    }

    /// Add a row.
    fn show(value: &V, key: &Key, rows: &mut Rows);
}

/// A value that is written as a text.
pub(crate) trait Written: Sized {
    /// The form of the text.
    const FORM: Form = Form::Text;

    /// Parses the text.
    fn make(text: &str, key: &Key) -> Made<Self>;

    /// The text.
    fn word(&self) -> String;
}

/// Values that are words.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// The words.
    const WORDS: &'static [&'static str];
    /// The values, in the same order.
    const ALL: &'static [Self];

    /// The word for this.
    fn as_word(self) -> &'static str {
        let at = Self::ALL.iter().position(|other| *other == self);
        at.map_or("", |at| Self::WORDS[at])
    }
}

/// Which words stand for the values of a type.
macro_rules! spelled {
    ($type:ty { $($variant:ident $word:literal),+ $(,)? }) => {
        impl $crate::kinds::Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}
pub(crate) use spelled;

/// Kinds of values that are written as a text: what is made of it, and how it is shown.
macro_rules! text_kinds {
    ($(
        $(#[$meta:meta])*
        $vis:vis $kind:ident: $type:ty, $form:expr,
        |$text:pat_param, $key:pat_param| $make:expr, |$value:pat_param| $show:expr;
    )+) => {$(
        $(#[$meta])*
        $vis struct $kind;

        impl $crate::kinds::Kind<$type> for $kind {
            const FORM: $crate::key::Form = $form;

            fn read(
                section: &$crate::section::Section<'_>,
                key: &$crate::key::Key,
            ) -> Option<$type> {
                let $key = key;
                section.made(key.name, |$text| $make)
            }

            fn show(
                $value: &$type,
                key: &$crate::key::Key,
                rows: &mut $crate::shown::Rows,
            ) {
                let shown: String = $show;
                rows.text(key.name, &shown);
            }
        }
    )+};
}
pub(crate) use text_kinds;

/// A text.
pub(crate) struct Text;
/// A list of texts.
pub(crate) struct List;
/// One of some words.
pub(crate) struct Word;
/// True or false.
pub(crate) struct Answer;
/// A whole number.
pub(crate) struct Number;
/// A span of time.
pub(crate) struct Span;
/// A span of time that is more than none.
pub(crate) struct Positive;
/// A size in bytes.
pub(crate) struct Size;
/// Bytes in a second.
pub(crate) struct ByteRate;
/// A table of keys.
pub(crate) struct Table;
/// A value, or nothing at all: then the key is not shown.
pub(crate) struct Maybe<K>(PhantomData<K>);
/// A value, or a word instead of one.
pub(crate) struct Or<K, W>(PhantomData<(K, W)>);
text_kinds! {
    /// The path of a file or folder, whatever it is relative to.
    pub(crate) Path: PathBuf, Form::Path, |text, _| Ok(text.into()), |it| it.display().to_string();

    /// A path from the root on.
    pub(crate) FullPath: PathBuf, Form::Path, |text, key| match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err((
            format!("{text:?} is not a full path"),
            format!("write it from the root on, such as {}", key.sample),
        )),
    }, |path| path.display().to_string();
}

/// A value, or `"none"`.
pub(crate) type OrNone<K> = Or<K, NoneWord>;

/// A word that stands for no value.
pub(crate) trait Instead {
    /// The word.
    const WORD: &'static str;
}

/// `"none"`.
pub(crate) struct NoneWord;
/// `"auto"`.
pub(crate) struct AutoWord;

impl Instead for NoneWord {
    const WORD: &'static str = "none";
}

impl Instead for AutoWord {
    const WORD: &'static str = "auto";
}

impl<T: Written> Kind<T> for Text {
    const FORM: Form = T::FORM;

    fn read(section: &Section<'_>, key: &Key) -> Option<T> {
        section.made(key.name, |text| T::make(text, key))
    }

    fn show(value: &T, key: &Key, rows: &mut Rows) {
        rows.text(key.name, &value.word());
    }
}

impl<T: Written> Kind<Vec<T>> for List {
    const FORM: Form = Form::List(&T::FORM);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<T>> {
        let list = section.list(key.name)?;
        let made = list
            .iter()
            .filter_map(|(text, at)| section.note(at, T::make(text, key)));
        Some(made.collect())
    }

    fn show(value: &Vec<T>, key: &Key, rows: &mut Rows) {
        rows.list(key.name, value.iter().map(Written::word));
    }
}

impl<T: Words> Kind<T> for Word {
    const FORM: Form = Form::Words(T::WORDS);

    fn read(section: &Section<'_>, key: &Key) -> Option<T> {
        let at = section.made(key.name, |text| {
            let found = T::WORDS.iter().position(|word| *word == text);
            found.ok_or_else(|| {
                let message = format!("`{}` cannot be {text:?}", key.name);
                (message, suggest_word(text, T::WORDS))
            })
        });
        at.map(|at| T::ALL[at])
    }

    fn show(value: &T, key: &Key, rows: &mut Rows) {
        rows.text(key.name, value.as_word());
    }
}

impl Kind<bool> for Answer {
    const FORM: Form = Form::Answer;

    fn read(section: &Section<'_>, key: &Key) -> Option<bool> {
        Self::read_or(section, key, "")
    }

    fn read_or(section: &Section<'_>, key: &Key, or: &str) -> Option<bool> {
        let entry = section.entry(key.name)?;
        let answer = entry.item.as_bool();
        if answer.is_none() {
            let kind = kind_of(entry.item);
            let message = format!("`{}` is {kind}, and has to be yes or no", key.name);
            let hint = format!("write true or false without quotes{or}");
            section.notes.error(entry.at(), message, hint);
        }
        answer
    }

    fn show(value: &bool, key: &Key, rows: &mut Rows) {
        rows.push(key.name, value.to_string());
    }
}

impl<N: TryFrom<u64> + Display> Kind<N> for Number {
    const FORM: Form = Form::Number;

    fn read(section: &Section<'_>, key: &Key) -> Option<N> {
        Self::read_or(section, key, "")
    }

    fn read_or(section: &Section<'_>, key: &Key, or: &str) -> Option<N> {
        let entry = section.entry(key.name)?;
        let name = key.name;
        let given = match entry.item.as_value() {
            Some(Value::Integer(number)) => u64::try_from(*number.value()).ok(),
            Some(Value::String(text)) if text.value().contains("${") => {
                let text = section.notes.expand(text.value(), &entry.at())?;
                text.trim().replace('_', "").parse().ok()
            }
            Some(Value::String(text)) if text.value().parse::<i64>().is_ok() => {
                let message = format!("`{name}` is text, and has to be a whole number");
                let hint = "take the quotes away";
                section.notes.error(entry.at(), message, hint);
                return None;
            }
            _ => None,
        };
        let (least, most) = key.bounds;
        let given = given.filter(|number| (least..=most).contains(number));
        let given = given.and_then(|number| N::try_from(number).ok());
        if given.is_none() {
            let what = match entry.item.as_integer() {
                Some(_) => "is out of range",
                None => "is not a whole number",
            };
            let hint = match (least, most) {
                (0, u64::MAX) => format!("write a whole number that is not negative{or}"),
                (least, u64::MAX) => format!("write a whole number from {least}{or}"),
                (least, most) => {
                    format!("write a whole number from {least} to {}{or}", grouped(most))
                }
            };
            section
                .notes
                .error(entry.at(), format!("`{name}` {what}"), hint);
        }
        given
    }

    fn show(value: &N, key: &Key, rows: &mut Rows) {
        rows.push(key.name, value.to_string());
    }
}

impl Kind<Duration> for Span {
    const FORM: Form = Form::Span;

    fn read(section: &Section<'_>, key: &Key) -> Option<Duration> {
        let entry = section.entry(key.name)?;
        let text = match entry.item.as_str() {
            Some(text) => section.notes.expand(text, &entry.at())?,
            None if entry.item.as_integer() == Some(0) => "0".into(),
            None => String::new(),
        };
        let span = words::span(&text);
        if span.is_none() {
            let (message, hint) = not_a_span(key.name, entry.item);
            section.notes.error(entry.at(), message, hint);
        }
        span
    }

    fn show(value: &Duration, key: &Key, rows: &mut Rows) {
        rows.text(key.name, &show_span(*value));
    }
}

impl Kind<Duration> for Positive {
    const FORM: Form = Form::Positive;

    fn read(section: &Section<'_>, key: &Key) -> Option<Duration> {
        let span: Duration = Span::read(section, key)?;
        if span.is_zero() {
            let message = format!("`{}` is zero", key.name);
            let at = section.at(key.name);
            section.notes.error(at, message, "it has to be more");
            return None;
        }
        Some(span)
    }

    fn show(value: &Duration, key: &Key, rows: &mut Rows) {
        Span::show(value, key, rows);
    }
}

impl Kind<Lead> for Span {
    const FORM: Form = Form::Lead;

    fn read(section: &Section<'_>, key: &Key) -> Option<Lead> {
        let entry = section.entry(key.name)?;
        let text = match entry.item.as_str() {
            Some(text) => section.notes.expand(text, &entry.at())?,
            None if entry.item.as_integer() == Some(0) => "0".into(),
            None => String::new(),
        };
        let lead = words::lead(&text);
        if lead.is_none() {
            let (message, hint) = not_a_span(key.name, entry.item);
            section.notes.error(entry.at(), message, hint);
        }
        lead
    }

    fn show(value: &Lead, key: &Key, rows: &mut Rows) {
        let sign = if value.as_nanos() < 0 { "-" } else { "" };
        let span = Duration::from_nanos(value.as_nanos().unsigned_abs());
        rows.text(key.name, &format!("{sign}{}", show_span(span)));
    }
}

impl Kind<u64> for Size {
    const FORM: Form = Form::Size;

    fn read(section: &Section<'_>, key: &Key) -> Option<u64> {
        let entry = section.entry(key.name)?;
        let name = key.name;
        let text = match entry.item.as_str() {
            Some(text) => section.notes.expand(text, &entry.at())?,
            None => String::new(),
        };
        let (least, most) = key.bounds;
        let (message, hint) = match (words::size(&text), entry.item.as_integer()) {
            (Some(size), _) if (least..=most).contains(&size) => return Some(size),
            (Some(_), _) => {
                let (least, most) = (show_size(least), show_size(most));
                let hint = format!("write a size from {least} to {most}");
                (format!("`{name}` is out of range"), hint)
            }
            (None, Some(number)) => (
                format!("`{name}` has no unit"),
                format!("write \"{number}B\", or a number and {SIZE_UNITS}"),
            ),
            (None, None) => (
                format!("`{name}` is not a size"),
                format!("write a number and {SIZE_UNITS}, such as \"64KiB\""),
            ),
        };
        section.notes.error(entry.at(), message, hint);
        None
    }

    fn show(value: &u64, key: &Key, rows: &mut Rows) {
        rows.text(key.name, &show_size(*value));
    }
}

impl Kind<u64> for ByteRate {
    const FORM: Form = Form::Rate;

    fn read(section: &Section<'_>, key: &Key) -> Option<u64> {
        Self::read_or(section, key, "")
    }

    fn read_or(section: &Section<'_>, key: &Key, or: &str) -> Option<u64> {
        section.made(key.name, |text| {
            let (least, most) = key.bounds;
            let size = text.trim_end().strip_suffix("/s").and_then(words::size);
            match size {
                Some(size) if (least..=most).contains(&size) => Ok(size),
                Some(_) => Err((
                    format!("`{}` is out of range", key.name),
                    format!(
                        "write from {}/s to {}/s{or}",
                        show_size(least),
                        show_size(most)
                    ),
                )),
                None => Err((
                    format!("`{}` is not a rate of bytes per second", key.name),
                    format!("write a size and /s, such as {:?}{or}", "500B/s"),
                )),
            }
        })
    }

    fn show(value: &u64, key: &Key, rows: &mut Rows) {
        rows.text(key.name, &format!("{}/s", show_size(*value)));
    }
}

impl<T: Keyed + Default> Kind<T> for Table {
    const FORM: Form = Form::Table(T::KEYS, || T::default().rows());

    fn read(section: &Section<'_>, key: &Key) -> Option<T> {
        let part = section.part(key)?;
        let mut value = T::default();
        value.read_keys(&part);
        Some(value)
    }

    fn show(value: &T, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| value.show_keys(rows));
    }
}

impl<V, K: Kind<V>> Kind<Option<V>> for Maybe<K> {
    const FORM: Form = K::FORM;

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<V>> {
        K::read(section, key).map(Some)
    }

    fn show(value: &Option<V>, key: &Key, rows: &mut Rows) {
        value.iter().for_each(|value| K::show(value, key, rows));
    }
}

impl<V, K: Kind<V>, W: Instead> Kind<Option<V>> for Or<K, W> {
    const FORM: Form = Form::Any(&[K::FORM, Form::Words(&[W::WORD])]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<V>> {
        if section.is_word(key.name, W::WORD) {
            return Some(None);
        }
        let or = format!(", or {:?}", W::WORD);
        K::read_or(section, key, &or).map(Some)
    }

    fn show(value: &Option<V>, key: &Key, rows: &mut Rows) {
        match value {
            Some(value) => K::show(value, key, rows),
            None => rows.text(key.name, W::WORD),
        }
    }
}

impl Written for String {
    fn make(text: &str, _: &Key) -> Made<Self> {
        Ok(text.into())
    }

    fn word(&self) -> String {
        self.clone()
    }
}

impl Written for SocketAddr {
    const FORM: Form = Form::Address;

    fn make(text: &str, _: &Key) -> Made<Self> {
        let local = text.replacen("localhost:", "127.0.0.1:", 1);
        local.parse().map_err(|_| {
            let hint = match text.rsplit_once(':') {
                Some(("" | "*", port)) => {
                    format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface")
                }
                _ => "write an address and a port, such as \"127.0.0.1:7433\" or \"[::1]:7433\""
                    .into(),
            };
            (format!("{text:?} is not an address to listen at"), hint)
        })
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

/// A number as TOML takes it and a person reads it: `1_000_000`.
pub(crate) fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// A value as a person reads it: a count in groups of digits.
pub(crate) fn counted(value: String) -> String {
    value.parse::<u64>().map_or(value, grouped)
}
