//! Ranges of the file, and where their reservations are kept.

use std::path::PathBuf;
use std::time::Duration;

use rideau_core::allocator::{
    Class, OnExpire, Order, RangeOptions, Span, SpanError, Start, TIME_MAX,
};

use super::section::{At, Section};
use super::words::show_span;

/// A range, how its values are written, and what ends a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeConfig {
    /// The name.
    pub name: String,
    /// Its values, as they are written.
    pub values: Vec<String>,
    /// Those among them that are never given out, as they are written.
    pub skip: Vec<String>,
    /// What ends a hold besides its time.
    pub hold: Hold,
    /// How its values are given out.
    pub options: RangeOptions,
}

/// What ends a hold besides its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nothing.
    Lease,
    /// The end of the connection or session that asked.
    Connection,
}

/// Where reservations are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Whether they outlive the server.
    pub kind: StoreKind,
    /// In which folder; none for the usual one.
    pub path: Option<PathBuf>,
    /// What the server does when it cannot be written.
    pub on_failure: OnFailure,
}

/// What the server does when reservations cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Values are not given out until they can be.
    Wait,
    /// It ends.
    End,
}

/// Whether reservations outlive the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// They are in a folder.
    Embedded,
    /// They are in memory, and gone with the server.
    Memory,
}

const ORDERS: &[&str] = &["lowest", "random", "oldest-freed"];
const CLASSES: &[&str] = &["sync", "claimed", "memory"];
const HOLDS: &[&str] = &["lease", "connection"];
const ON_EXPIRE: &[&str] = &["release", "notify"];
const STARTS: &[&str] = &["free", "quarantine"];
const FENCES: &[&str] = &["required", "optional"];
const KINDS: &[&str] = &["embedded", "memory"];
const ON_FAILURE: &[&str] = &["wait", "end"];

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            kind: StoreKind::Embedded,
            path: None,
            on_failure: OnFailure::Wait,
        }
    }
}

impl StoreConfig {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let kinds = [StoreKind::Embedded, StoreKind::Memory];
        let path = section.made("path", |text| match text.starts_with('/') {
            true => Ok(PathBuf::from(text)),
            false => Err((
                format!("the folder {text:?} has no full path"),
                "write \"/var/lib/rideau\"".into(),
            )),
        });
        Self {
            kind: section.word("kind", KINDS).map_or(kinds[0], |at| kinds[at]),
            path,
            on_failure: match section.word("on_failure", ON_FAILURE) {
                Some(1) => OnFailure::End,
                _ => OnFailure::Wait,
            },
        }
    }

    /// What happens when it fails, as it is written.
    pub const fn on_failure_word(&self) -> &'static str {
        ON_FAILURE[self.on_failure as usize]
    }

    /// The kind as it is written.
    pub const fn kind_word(&self) -> &'static str {
        KINDS[self.kind as usize]
    }
}

impl RangeConfig {
    /// These values, with everything else as it usually is.
    pub fn new(name: &str, values: Vec<(String, Span)>) -> Self {
        let (values, spans) = values.into_iter().unzip();
        Self {
            name: name.into(),
            values,
            skip: Vec::new(),
            hold: Hold::Lease,
            options: RangeOptions::new(spans),
        }
    }

    /// What becomes of its reservations is written down.
    pub fn is_durable(&self) -> bool {
        self.options.class != Class::Memory
    }

    pub(super) fn read(name: &str, section: &Section<'_>, store: StoreKind) -> Option<Self> {
        check_name("range", name, section);
        let values = once(section, "values");
        let skip = once(section, "skip").unwrap_or_default();
        if !section.has("values") {
            let message = format!("range `{name}` has no values");
            let hint = "write values = [\"10.20.0.0/16\"], or numbers as [\"1-999\"]";
            section.notes.error(section.at.clone(), message, hint);
        } else if is_empty(section, "values") {
            let hint = "name at least one";
            let at = section.at("values");
            section.notes.error(at, "`values` is empty", hint);
        }
        let mut range = Self::new(name, values.filter(|all| !all.is_empty())?);
        let skip = skip.into_iter();
        (range.skip, range.options.skip) = skip.unzip();
        check_skip(&range, section);
        range.read_ways(section, store);
        range.read_times(section);
        Some(range)
    }

    fn read_ways(&mut self, section: &Section<'_>, store: StoreKind) {
        let orders = [Order::Lowest, Order::Random, Order::OldestFreed];
        let classes = [Class::Sync, Class::Claimed, Class::Memory];
        let options = &mut self.options;
        if let Some(at) = section.word("order", ORDERS) {
            options.order = orders[at];
        }
        let usual = match store {
            StoreKind::Embedded => Class::Sync,
            StoreKind::Memory => Class::Memory,
        };
        options.class = section
            .word("class", CLASSES)
            .map_or(usual, |at| classes[at]);
        if store == StoreKind::Memory && options.class != Class::Memory {
            let class = CLASSES[options.class as usize];
            let message = format!("class {class:?} needs a store that keeps something");
            let hint = "write class = \"memory\", or kind = \"embedded\" under [store]";
            section.notes.error(section.at("class"), message, hint);
        }
        if let Some(at) = section.word("hold", HOLDS) {
            self.hold = [Hold::Lease, Hold::Connection][at];
        }
        if let Some(at) = section.word("on_expire", ON_EXPIRE) {
            options.on_expire = [OnExpire::Release, OnExpire::Notify][at];
        }
        // Which holder held what before is known only where it was written down.
        let usual = match options.class {
            Class::Memory => Start::Quarantine,
            Class::Sync | Class::Claimed => Start::Free,
        };
        options.start = read_start(section).unwrap_or(usual);
        if let Some(at) = section.word("fence", FENCES) {
            options.needs_fence = at == 0;
        }
    }

    fn read_times(&mut self, section: &Section<'_>) {
        let options = &mut self.options;
        let positive = |key, default: Duration| section.positive_span(key).unwrap_or(default);
        options.ttl_max = positive("ttl_max", options.ttl_max.max(options.ttl));
        options.ttl = positive("ttl", options.ttl.min(options.ttl_max));
        // A holder that would forget a value goes, and the value comes back.
        let offer = match self.hold {
            Hold::Lease => options.offer_ttl.min(options.ttl_max),
            Hold::Connection => options.ttl,
        };
        options.offer_ttl = positive("offer_ttl", offer);
        for (key, place) in [
            ("quarantine", &mut options.quarantine),
            ("detach", &mut options.detach),
            ("cool", &mut options.cool),
        ] {
            *place = section.span(key).unwrap_or(*place);
        }
        for (key, span) in [("ttl", options.ttl), ("offer_ttl", options.offer_ttl)] {
            if span > options.ttl_max {
                let ttl_max = show_span(options.ttl_max);
                let message = format!("`{key}` is over `ttl_max`, {ttl_max}");
                let hint = "lower it, or raise `ttl_max`";
                section.notes.error(section.at(key), message, hint);
            }
        }
        for (key, span) in [
            ("ttl_max", options.ttl_max),
            ("quarantine", options.quarantine),
            ("detach", options.detach),
            ("cool", options.cool),
        ] {
            if span > TIME_MAX {
                let message = format!("`{key}` is over ten years");
                let hint = "nothing is held or kept apart for longer";
                section.notes.error(section.at(key), message, hint);
            }
        }
    }
}

/// What a range is of which nothing is known, in the words of `start` or as the
/// answer to `restore_all_free`.
fn read_start(section: &Section<'_>) -> Option<Start> {
    const KEY: &str = "restore_all_free";
    let start = section.word("start", STARTS);
    let start = start.map(|at| [Start::Free, Start::Quarantine][at]);
    let Some(entry) = section.entry(KEY) else {
        return start;
    };
    let Some(is_free) = entry.item.as_bool() else {
        let message = format!("`{KEY}` is true or false");
        let hint = "or write start = \"free\"";
        section.notes.error(section.at(KEY), message, hint);
        return start;
    };
    let meant = match is_free {
        true => Start::Free,
        false => Start::Quarantine,
    };
    if start.is_some_and(|start| start != meant) {
        let message = format!("`{KEY}` and `start` contradict each other");
        section
            .notes
            .error(section.at(KEY), message, "keep one of them");
    }
    start.or(Some(meant))
}

/// It is a list that has nothing, not even what means nothing.
pub(super) fn is_empty(section: &Section<'_>, key: &str) -> bool {
    let entry = section.entry(key);
    let array = entry.and_then(|entry| entry.item.as_array());
    array.is_some_and(|array| array.is_empty())
}

/// Words of a range as they are written.
pub(super) struct Words {
    pub(super) order: &'static str,
    pub(super) class: &'static str,
    pub(super) hold: &'static str,
    pub(super) on_expire: &'static str,
    pub(super) start: &'static str,
    pub(super) fence: &'static str,
}

impl Words {
    pub(super) fn of(range: &RangeConfig) -> Self {
        let options = &range.options;
        Self {
            order: ORDERS[options.order as usize],
            class: class_word(options.class),
            hold: HOLDS[range.hold as usize],
            on_expire: ON_EXPIRE[options.on_expire as usize],
            start: STARTS[options.start as usize],
            fence: FENCES[usize::from(!options.needs_fence)],
        }
    }
}

/// A class as it is written.
pub const fn class_word(class: Class) -> &'static str {
    CLASSES[class as usize]
}

/// What a word of a command may mean instead is no name.
pub(super) fn check_name(kind: &str, name: &str, section: &Section<'_>) {
    const LEN_MAX: usize = 64;
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let (message, hint) = if name.len() > LEN_MAX {
        let message = format!("the name of a {kind} has {LEN_MAX} bytes at most");
        (message, "give it a shorter one")
    } else if !name.chars().all(is_known) {
        let message = format!("the name {name:?} has letters that {kind}s cannot have");
        (message, "letters, digits, dots, dashes and underscores")
    } else if Span::parse(name).is_ok() {
        let message = format!("the name {name:?} reads like values");
        (message, "begin it with a letter")
    } else {
        return;
    };
    section.notes.error(section.at.clone(), message, hint);
}

/// The texts of a list with what they mean; those that mean nothing are noted.
pub(super) fn spans(section: &Section<'_>, key: &str) -> Option<Vec<(String, Span)>> {
    let spans = spans_at(section, key)?.into_iter();
    Some(spans.map(|(text, span, _)| (text, span)).collect())
}

/// The same; those that have values in common are noted, too.
fn once(section: &Section<'_>, key: &str) -> Option<Vec<(String, Span)>> {
    let mut spans: Vec<(String, Span)> = Vec::new();
    for (text, span, at) in spans_at(section, key)? {
        check_double(section, &spans, &text, span, at);
        spans.push((text, span));
    }
    Some(spans)
}

fn spans_at(section: &Section<'_>, key: &str) -> Option<Vec<(String, Span, At)>> {
    let mut spans = Vec::new();
    for (text, at) in section.list(key)? {
        match Span::parse(&text) {
            Ok(span) => spans.push((text, span, at)),
            Err(error) => note(section, &text, &error, at),
        }
    }
    Some(spans)
}

fn note(section: &Section<'_>, text: &str, error: &SpanError, at: At) {
    let message = format!("{text:?} stands for no values: {error}");
    let hint = "write \"10.20.0.0/16\", \"10.20.0.10-10.20.0.99\", \"2001:db8::/64\" or \"1-999\"";
    section.notes.error(at, message, hint);
}

fn check_double(section: &Section<'_>, all: &[(String, Span)], text: &str, span: Span, at: At) {
    let is_in = |(_, other): &&(String, Span)| !other.interval.is_disjoint(span.interval);
    if let Some((other, _)) = all.iter().find(is_in) {
        let message = format!("{text:?} and {other:?} have values in common");
        section.notes.error(at, message, "name every value once");
    }
}

/// What is skipped has to be there, and something has to be left.
fn check_skip(range: &RangeConfig, section: &Section<'_>) {
    let options = &range.options;
    for (text, skip) in range.skip.iter().zip(&options.skip) {
        let is_there = |span: &Span| !span.interval.is_disjoint(skip.interval);
        if !options.spans.iter().any(is_there) {
            let message = format!("{text:?} is skipped, and is not in `values`");
            let hint = "it does nothing: remove it";
            section.notes.warn(section.at("skip"), message, hint);
        }
    }
    let is_all = |span: &Span| {
        let mut skips = options.skip.iter();
        skips.any(|skip| skip.interval.covers(span.interval))
    };
    if options.spans.iter().all(is_all) {
        let message = format!("range `{}` skips all of its values", range.name);
        let hint = "leave some to be given out";
        section.notes.error(section.at("skip"), message, hint);
    }
}
