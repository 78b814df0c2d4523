//! Ranges of the file, and where their reservations are kept.

use std::path::PathBuf;
use std::time::Duration;

use rideau_core::allocator::{
    Class, OnExpire, Order, RangeOptions, Span, SpanError, Start, TIME_MAX,
};

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{
    Kind, List, Maybe, Positive, Span as TimeSpan, Word, Words, spelled, text_kinds,
};
use super::near::suggest_word;
use super::section::{At, Section};
use super::server::Folder;
use super::shown::Rows;
use super::table::section;
use super::words::show_span;

section! {
    /// A range, how its values are written, and what ends a hold.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct RangeConfig {
        plain {
            /// The name.
            name: String = String::new();
            /// How its values are given out.
            options: RangeOptions = RangeOptions::new(Vec::new());
        }
        /// Which values: networks, `"a-b"` with both ends, `"a,b"` without b, or single ones.
        values: Vec<String> = Vec::new(), List, Live, usual = "required",
            sample = r#"["10.20.0.0/16"]"#;
        /// Which of them are never given out.
        skip: Vec<String> = Vec::new(), List, Live, sample = r#"["10.20.0.0-10.20.0.255"]"#;
        /// How long a `WRITE`, `UPDATE` or `REFRESH` without `TTL` holds.
        ttl => (options.ttl): Duration, Positive, Renewed;
        /// The longest that may be asked for.
        ttl_max => (options.ttl_max): Duration, Positive, Renewed;
        /// How long a `RESERVE` without `TTL` holds: it is short, so that a forgotten value
        /// is free again soon. With `hold = "connection"`, `ttl`.
        offer_ttl => (options.offer_ttl): Duration, Positive, Renewed;
        /// Which free value is given out: `"random"` makes the next one hard to guess,
        /// `"oldest-freed"` gives out the value that was free for longest.
        order => (options.order): Order, Word, Live;
        /// When an answer is given. `"sync"`: when it is on disk. `"claimed"`: at once; no
        /// value is given twice, but the last moment may be lost. `"memory"`: at once;
        /// nothing is written.
        class => (options.class): Class, Word, Live;
        /// `"connection"`: a value is released when its connection or session ends, and when
        /// its time is over.
        hold: Hold = Hold::Lease, Word, Given;
        /// How long values with unknown holders are not given out: longer than any holder
        /// takes between two renewals.
        quarantine => (options.quarantine): Duration, TimeSpan, Live;
        /// How long values without a holder wait for an operator to decide.
        detach => (options.detach): Duration, TimeSpan, Live;
        /// How long a released value is not given out, so that caches elsewhere forget it.
        cool => (options.cool): Duration, TimeSpan, Live;
        /// `"notify"`: an event, and the value is detached instead of free.
        on_expire => (options.on_expire): OnExpire, Word, Live;
        /// The state of values when nothing is known of the range; `"quarantine"` for class
        /// `"memory"`.
        start => (options.start): Start, Word, Live;
        /// `start` in other words: `true` is `"free"`, and `false` is `"quarantine"`.
        restore_all_free => (options.start): Start, AllFree, Live, sample = "true",
            usual = "what `start` says";
        /// Whether the fence is needed to change or release a value of one's own.
        fence => (options.needs_fence): bool, Fence, Live;
    }
}

/// When a hold ends, besides its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nothing.
    Lease,
    /// The end of the connection or session that asked.
    Connection,
}

section! {
    /// Where reservations are kept.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct StoreConfig {
        /// Whether they outlive the server; with `"memory"` they do not.
        kind: StoreKind = StoreKind::Embedded, Word, Restart;
        /// The folder; it is made when a range needs it.
        path: Option<PathBuf> = None, Maybe<Folder>, Restart, sample = r#""/var/lib/rideau""#,
            usual = "$STATE_DIRECTORY, or $XDG_STATE_HOME/rideau/NAME, or \
                     ~/.local/state/rideau/NAME";
        /// When it cannot be written: `"wait"` gives out no values until it can, `"end"` ends
        /// the server, for a supervisor to start it again.
        on_failure: OnFailure = OnFailure::Wait, Word, Live;
    }
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

spelled! { Order { Lowest "lowest", Random "random", OldestFreed "oldest-freed" } }
spelled! { Class { Sync "sync", Claimed "claimed", Memory "memory" } }
spelled! { Hold { Lease "lease", Connection "connection" } }
spelled! { OnExpire { Release "release", Notify "notify" } }
spelled! { Start { Free "free", Quarantine "quarantine" } }
spelled! { StoreKind { Embedded "embedded", Memory "memory" } }
spelled! { OnFailure { Wait "wait", End "end" } }

/// The beginning of a range in other words.
struct AllFree;

const FENCES: &[&str] = &["required", "optional"];

impl RangeConfig {
    /// These values, with everything else as it usually is.
    pub fn new(name: &str, values: Vec<(String, Span)>) -> Self {
        let (values, spans) = values.into_iter().unzip();
        Self {
            name: name.into(),
            values,
            options: RangeOptions::new(spans),
            ..Self::default()
        }
    }

    /// Whether changes of its reservations are stored.
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
        let mut range = Self::default();
        range.read_keys(section);
        range.name = name.into();
        (range.values, range.options.spans) =
            values.filter(|all| !all.is_empty())?.into_iter().unzip();
        (range.skip, range.options.skip) = skip.into_iter().unzip();
        check_skip(&range, section);
        range.check_class(section, store);
        range.check_times(section);
        Some(range)
    }

    /// Takes the class from the store if the range names none.
    fn check_class(&mut self, section: &Section<'_>, store: StoreKind) {
        let options = &mut self.options;
        let class: Option<Class> = Word::read(section, Self::key("class"));
        options.class = class.unwrap_or(match store {
            StoreKind::Embedded => Class::Sync,
            StoreKind::Memory => Class::Memory,
        });
        if store == StoreKind::Memory && options.class != Class::Memory {
            let class = options.class.as_word();
            let message = format!("class {class:?} needs a store that keeps something");
            let hint = "write class = \"memory\", or kind = \"embedded\" under [store]";
            section.notes.error(section.at("class"), message, hint);
        }
        // Which holder held what before is known only where it was written down.
        let is_said = section.has("start") || section.has("restore_all_free");
        if options.class == Class::Memory && !is_said {
            options.start = Start::Quarantine;
        }
    }

    /// Times that are not said follow from each other, and none is too long.
    fn check_times(&mut self, section: &Section<'_>) {
        let options = &mut self.options;
        let is_said = |key| Positive::read(section, Self::key(key)).is_some();
        if !is_said("ttl") {
            options.ttl = options.ttl.min(options.ttl_max);
        }
        if !is_said("offer_ttl") {
            // A holder that would forget a value goes, and the value comes back.
            options.offer_ttl = match self.hold {
                Hold::Lease => options.offer_ttl.min(options.ttl_max),
                Hold::Connection => options.ttl,
            };
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

impl Kind<Start> for AllFree {
    const FORM: Form = Form::Answer;

    fn read(section: &Section<'_>, key: &Key) -> Option<Start> {
        let name = key.name;
        let entry = section.entry(name)?;
        let Some(is_free) = entry.item.as_bool() else {
            let message = format!("`{name}` is true or false");
            let hint = "or write start = \"free\"";
            section.notes.error(section.at(name), message, hint);
            return None;
        };
        let meant = match is_free {
            true => Start::Free,
            false => Start::Quarantine,
        };
        let start: Option<Start> = Word::read(section, RangeConfig::key("start"));
        if start.is_some_and(|start| start != meant) {
            let message = format!("`{name}` and `start` contradict each other");
            let at = section.at(name);
            section.notes.error(at, message, "keep one of them");
        }
        start.or(Some(meant))
    }

    fn show(_: &Start, _: &Key, _: &mut Rows) {}
}

text_kinds! {
    /// Whether a fence is needed.
    Fence: bool, Form::Words(FENCES), |text, key| match text {
        "required" => Ok(true),
        "optional" => Ok(false),
        _ => {
            let message = format!("`{}` cannot be {text:?}", key.name);
            Err((message, suggest_word(text, FENCES)))
        }
    }, |is_needed| FENCES[usize::from(!is_needed)].into();
}

/// It is a list that has nothing, not even what means nothing.
pub(super) fn is_empty(section: &Section<'_>, key: &str) -> bool {
    let entry = section.entry(key);
    let array = entry.and_then(|entry| entry.item.as_array());
    array.is_some_and(|array| array.is_empty())
}

/// A class as it is written.
pub fn class_word(class: Class) -> &'static str {
    class.as_word()
}

/// A name must not be readable as something else in a command.
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

/// Skipped values have to be in `values`, and some values have to be left.
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
