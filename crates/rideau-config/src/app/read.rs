//! Reads an application from its table, and notes what is wrong with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::apps::{self, TrialRules};

use super::{AppConfig, AppListen, AppReady, Health, Http, MANY};
use crate::exec;
use crate::hosts;
use crate::key::{Effect, Form, Key};
use crate::keyed::Keyed;
use crate::kinds::{Answer, Kind, List, Number, OrNone, Positive, Span, Text, Written, text_kinds};
use crate::near::suggest_word;
use crate::section::{Made, Section, kind_of};
use crate::shown::Rows;
use crate::table::section;
use crate::words::{show_size, show_span};

/// Ways to listen that are a word.
const LISTEN: &[&str] = &["socket", "port", "inherit"];
/// Ways to be ready that are a word.
const READY: &[&str] = &["auto", "connect", "http", "notify"];
/// Ways to be ready that are a table.
const READY_KEYS: &[Key] = &[
    Key {
        name: "line",
        effect: Effect::Started,
        help: &["It writes a line with this text in it."],
        ..Key::BARE
    },
    Key {
        name: "http",
        effect: Effect::Started,
        help: &["It answers a request for this path with a status below 500."],
        ..Key::BARE
    },
];

/// Paths that can be asked for.
pub(super) struct PathList;
/// How to know that a process is ready.
pub(super) struct AppReadyWays;
/// The rules of a trial, or none.
pub(super) struct TrialTable;
/// How to know that a process is well.
pub(crate) struct Checked;
/// A cookie that leads back to the same process, or a table with how long to wait for it.
pub(crate) struct Sticky;
/// What becomes of streams.
pub(crate) struct Streams;

impl AppConfig {
    /// None if it has no program; that is noted.
    pub(crate) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        check_name("apps", name, section);
        let command = command(name, section);
        let is_there = command.is_some();
        let mut app = Self::default();
        app.read_keys(section);
        app.name = name.into();
        (app.run.command, app.run.shown) = command.unwrap_or_default();
        app.check_listen(section);
        app.check_ready(section);
        app.check_counts(section);
        app.check_bounds(section);
        is_there.then_some(app)
    }

    /// Where it listens, if it does not say so, follows from its words.
    fn check_listen(&mut self, section: &Section<'_>) {
        let run = &mut self.run;
        check_env(section, &run.env);
        let listen: Option<AppListen> = Text::read(section, Self::key("listen"));
        run.listen = listen.unwrap_or_else(|| {
            let values = run.env.iter().map(|(_, value)| value);
            AppListen::usual(run.command.iter().chain(values))
        });
        check_port(section, &run.env, &run.listen);
    }

    fn check_ready(&self, section: &Section<'_>) {
        if self.run.ready == AppReady::Connect && self.run.listen == AppListen::Inherit {
            let message = "a connection says nothing of a process that inherits its socket";
            let hint = "it is taken before the process runs: write \"http\" or \"notify\"";
            section.notes.error(section.at("ready"), message, hint);
        }
    }

    fn check_counts(&mut self, section: &Section<'_>) {
        let options = &mut self.options;
        // Only one process can listen at an address.
        options.alone = matches!(self.run.listen, AppListen::Fixed(_));
        let max: Option<Option<usize>> = OrNone::<Number>::read(section, Self::key("max"));
        if options.alone && max.is_none() {
            options.max = Some(1);
        }
        if let Some(max) = options.max
            && options.min > max
        {
            note_over(section, ("min", options.min), ("max", max));
        }
        if let AppListen::Fixed(address) = self.run.listen
            && options.max != Some(1)
        {
            let message = format!("only one process can listen at {address}");
            let hint = "write max = 1, or let each have its own: listen = \"port\"";
            section.notes.error(section.at("max"), message, hint);
        }
    }

    fn check_bounds(&self, section: &Section<'_>) {
        let options = &self.options;
        if options.backoff_first > options.backoff_max {
            let first = ("backoff_first", show_span(options.backoff_first));
            let most = ("backoff_max", show_span(options.backoff_max));
            note_over(section, first, most);
        }
        if let (Some(soft), Some(hard)) = (options.memory_soft, options.memory_hard)
            && soft > hard
        {
            let soft = ("memory_soft", show_size(soft));
            note_over(section, soft, ("memory_hard", show_size(hard)));
        }
    }
}

impl Kind<Vec<String>> for PathList {
    const FORM: Form = Form::List(&Form::Text);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<String>> {
        let list = section.list(key.name)?;
        let paths = list.iter();
        let paths = paths.filter_map(|(text, at)| section.note(at, hosts::path(text)));
        Some(paths.collect())
    }

    fn show(value: &Vec<String>, key: &Key, rows: &mut Rows) {
        List::show(value, key, rows);
    }
}

text_kinds! {
    /// A path that can be asked for.
    pub(super) UrlPath: String, Form::Text, |text, _| hosts::path(text), |path| path.clone();

    /// A folder below another.
    pub(super) Below: PathBuf, Form::Path, |text, _| match text {
        "" => Err((
            "`restart_dir` is empty".into(),
            "write a folder below `root`, such as \"tmp\", or \"none\"".into(),
        )),
        text => Ok(text.into()),
    }, |path| path.display().to_string();

    /// The name of a user or a group.
    pub(super) Account: String, Form::Text, |text, key| {
        match text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == ':') {
            true => Err((
                format!("{text:?} is not a {}", key.name),
                "write its name or its number, such as \"www-data\"".into(),
            )),
            false => Ok(text.into()),
        }
    }, |name| name.clone();

    /// A mask for new files, in octal digits.
    pub(super) Mask: u32, Form::Text, |text, _| {
        let mask = u32::from_str_radix(text, 8).ok();
        mask.filter(|mask| *mask <= 0o777).ok_or_else(|| {
            let message = format!("{text:?} is not a mask for new files");
            (message, "write three octal digits, such as \"022\"".into())
        })
    }, |mask| format!("{mask:03o}");

    /// The name of a cookie.
    Cookie: String, Form::Text, |text, _| cookie(text), |name| name.clone();
}

impl Kind<AppReady> for AppReadyWays {
    const FORM: Form = Form::Any(&[Form::Words(READY), Form::Table(READY_KEYS, Vec::new)]);

    fn read(section: &Section<'_>, key: &Key) -> Option<AppReady> {
        ready(section, key)
    }

    fn show(value: &AppReady, key: &Key, rows: &mut Rows) {
        match value {
            AppReady::Auto => rows.text(key.name, "auto"),
            AppReady::Connect => rows.text(key.name, "connect"),
            AppReady::Notify => rows.text(key.name, "notify"),
            AppReady::Http(path) => rows.below(key.name, |rows| rows.text("http", path)),
            AppReady::Line(line) => rows.below(key.name, |rows| rows.text("line", line)),
        }
    }
}

impl Kind<Option<Health>> for Checked {
    const FORM: Form = Form::Any(&[
        Form::Table(Health::KEYS, || Health::default().rows()),
        Form::Words(&["none"]),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<Health>> {
        if section.is_word(key.name, "none") {
            return None;
        }
        let part = section.part(key)?;
        if !part.has("path") {
            let hint = "write { path = \"/up\" }";
            let message = "`health` does not say what to ask for";
            section.notes.error(section.at(key.name), message, hint);
        }
        let mut health = Health::default();
        health.read_keys(&part);
        Some(Some(health).filter(|health| !health.path.is_empty()))
    }

    fn show(value: &Option<Health>, key: &Key, rows: &mut Rows) {
        if let Some(health) = value {
            rows.below(key.name, |rows| health.show_keys(rows));
        }
    }
}

impl Kind<Option<TrialRules>> for TrialTable {
    const FORM: Form = Form::Any(&[
        Form::Table(TrialRules::KEYS, || TrialRules::default().rows()),
        Form::Words(&["none"]),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<TrialRules>> {
        if section.is_word(key.name, "none") {
            return Some(None);
        }
        let part = section.part(key)?;
        let mut rules = TrialRules::default();
        rules.read_keys(&part);
        Some(Some(rules))
    }

    fn show(value: &Option<TrialRules>, key: &Key, rows: &mut Rows) {
        match value {
            Some(rules) => rows.below(key.name, |rows| rules.show_keys(rows)),
            None => rows.text(key.name, "none"),
        }
    }
}

section! {
    /// A cookie, and how long to wait for the process it leads to.
    struct StickyTable {
        /// The name of the cookie.
        cookie: String = String::new(), Cookie, Requests, usual = "required";
        /// If the process is busy for longer, the request goes to another one.
        wait: Duration = apps::Options::default().sticky_wait, Span, Requests;
    }
}

section! {
    /// How streams are treated.
    struct StreamsTable {
        /// As many in one process take no place of its `concurrency`.
        max: usize = apps::Options::default().streams_max, Number, Live, bounds = (1, MANY);
        /// How long they may go on when their process is to end.
        grace: Duration = Http::default().stream_grace, Span, Live;
        /// How long they may go on without a byte.
        idle: Option<Duration> = None, OrNone<Positive>, Live;
        /// Each takes a place, as they always do with a `concurrency` of 1.
        count: bool = apps::Options::default().streams_count, Answer, Live;
    }
}

impl Kind<AppConfig> for Sticky {
    const FORM: Form = Form::Any(&[
        Form::Words(&["none"]),
        Form::Text,
        Form::Table(StickyTable::KEYS, || StickyTable::default().rows()),
    ]);

    fn read(_: &Section<'_>, _: &Key) -> Option<AppConfig> {
        None
    }

    fn read_into(app: &mut AppConfig, section: &Section<'_>, key: &Key) {
        let Some(entry) = section.entry(key.name) else {
            return;
        };
        if section.is_word(key.name, "none") {
            return;
        }
        if entry.item.is_str() {
            app.http.sticky = section.made(key.name, cookie);
            return;
        }
        let Some(part) = section.part(key) else {
            return;
        };
        if !part.has("cookie") {
            let hint = "write { cookie = \"route\" }";
            let message = "`sticky` has no cookie";
            section.notes.error(entry.at(), message, hint);
        }
        let mut sticky = StickyTable::default();
        sticky.read_keys(&part);
        app.http.sticky = Some(sticky.cookie).filter(|cookie| !cookie.is_empty());
        app.options.sticky_wait = sticky.wait;
    }

    fn show(app: &AppConfig, key: &Key, rows: &mut Rows) {
        if let Some(cookie) = &app.http.sticky {
            let sticky = StickyTable {
                cookie: cookie.clone(),
                wait: app.options.sticky_wait,
            };
            rows.below(key.name, |rows| sticky.show_keys(rows));
        }
    }
}

impl Kind<AppConfig> for Streams {
    const FORM: Form = Form::Table(StreamsTable::KEYS, || StreamsTable::default().rows());

    fn read(_: &Section<'_>, _: &Key) -> Option<AppConfig> {
        None
    }

    fn read_into(app: &mut AppConfig, section: &Section<'_>, key: &Key) {
        if let Some(part) = section.part(key) {
            let mut streams = StreamsTable::default();
            streams.read_keys(&part);
            app.http.stream_grace = streams.grace;
            app.http.stream_idle = streams.idle;
            app.options.streams_max = streams.max;
            app.options.streams_count = streams.count;
        }
    }

    fn show(app: &AppConfig, key: &Key, rows: &mut Rows) {
        let streams = StreamsTable {
            max: app.options.streams_max,
            grace: app.http.stream_grace,
            idle: app.http.stream_idle,
            count: app.options.streams_count,
        };
        rows.below(key.name, |rows| streams.show_keys(rows));
    }
}

/// The name is part of paths, and of a cookie.
pub(crate) fn check_name(kind: &str, name: &str, section: &Section<'_>) {
    const LEN_MAX: usize = 64;
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let (message, hint) = if name.len() > LEN_MAX {
        let message = format!("the name of one of the {kind} has {LEN_MAX} bytes at most");
        (message, "give it a shorter one")
    } else if !name.chars().all(is_known) || name.starts_with('.') {
        let message = format!("the name {name:?} has letters that {kind} cannot have");
        let hint = "letters, digits, dashes, underscores, and dots but for the first";
        (message, hint)
    } else {
        return;
    };
    section.notes.error(section.at.clone(), message, hint);
}

fn command(name: &str, section: &Section<'_>) -> Option<(Vec<String>, Vec<String>)> {
    let Some(entry) = section.entry("exec") else {
        let message = format!("app `{name}` has no program");
        let hint = "write exec = [\"program\", \"word\", …]";
        section.notes.error(section.at.clone(), message, hint);
        return None;
    };
    let is_line = |text: &str| text.trim().contains(char::is_whitespace);
    if entry.item.as_str().is_some_and(is_line) {
        let message = "`exec` is a line, and no shell reads it";
        let hint = "write [\"program\", \"word\", …], or [\"sh\", \"-c\", \"exec …\"]";
        section.notes.error(entry.at(), message, hint);
        return None;
    }
    exec::command(section)
}

/// No variable says where to listen.
fn check_env(section: &Section<'_>, env: &[(String, String)]) {
    for (name, _) in env {
        if name.starts_with("LISTEN_") {
            let message = format!("the variable `{name}` is set by rideau itself");
            let hint = "it is there with listen = \"inherit\"";
            section.notes.error(section.at("env"), message, hint);
        }
    }
}

/// An app that is told a port of its own is not told another.
fn check_port(section: &Section<'_>, env: &[(String, String)], listen: &AppListen) {
    let is_other = |(name, value): &(String, String)| {
        name == "PORT" && !value.contains("{port}") && !value.contains("$PORT")
    };
    if *listen == AppListen::Port && env.iter().any(is_other) {
        let message = "`PORT` is the port that each process is given";
        let hint = "remove it from `env`, or write listen = \"127.0.0.1:9000\" and max = 1";
        section.notes.error(section.at("env"), message, hint);
    }
}

impl Written for AppListen {
    const FORM: Form = Form::Any(&[Form::Words(LISTEN), Form::Address]);

    fn make(text: &str, key: &Key) -> Made<Self> {
        let words = [Self::Socket, Self::Port, Self::Inherit];
        if let Some(at) = LISTEN.iter().position(|word| *word == text) {
            return Ok(words[at].clone());
        }
        match SocketAddr::make(text, key) {
            Ok(address) if address.port() == 0 => Err((
                format!("{text:?} does not say which port"),
                "write the one where the program listens, or \"port\" to tell it one".into(),
            )),
            Ok(address) => Ok(Self::Fixed(address)),
            Err(_) => {
                let hint = suggest_word(text, LISTEN);
                let hint = format!("{hint}, or an address such as \"127.0.0.1:9000\"");
                Err((format!("`listen` cannot be {text:?}"), hint))
            }
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Inherit => "inherit".into(),
            Self::Socket => "socket".into(),
            Self::Port => "port".into(),
            Self::Fixed(address) => address.to_string(),
        }
    }
}

/// None if nothing is said, or nothing that can be meant.
fn ready(section: &Section<'_>, key: &Key) -> Option<AppReady> {
    let entry = section.entry(key.name)?;
    if entry.item.is_table_like() {
        let part = section.part(key)?;
        return match (part.has("line"), part.has("http")) {
            (true, false) => part.made("line", line).map(AppReady::Line),
            (false, true) => part.made("http", hosts::path).map(AppReady::Http),
            _ => {
                let message = "`ready` does not say what to wait for";
                let hint = "write { line = \"listening\" } or { http = \"/up\" }";
                section.notes.error(entry.at(), message, hint);
                None
            }
        };
    }
    let others = "or { line = \"…\" }, or { http = \"/…\" }";
    if !entry.item.is_str() {
        let message = format!("`ready` is {}, and has to be a word", kind_of(entry.item));
        let hint = format!("one of: {}, {others}", READY.join(", "));
        section.notes.error(entry.at(), message, hint);
        return None;
    }
    let health = Checked::read(section, AppConfig::key("health")).flatten();
    let path = health.map_or("/".into(), |health| health.path);
    section.made("ready", |word| match word {
        "auto" => Ok(AppReady::Auto),
        "connect" => Ok(AppReady::Connect),
        "http" => Ok(AppReady::Http(path)),
        "notify" => Ok(AppReady::Notify),
        "line" => Err((
            "`ready` does not say what line to wait for".into(),
            "write { line = \"listening\" }".into(),
        )),
        word => Err((
            format!("`ready` cannot be {word:?}"),
            format!("{}, {others}", suggest_word(word, READY)),
        )),
    })
}

fn line(text: &str) -> Made<String> {
    match text {
        "" => Err((
            "`line` is empty".into(),
            "write some of what the program says when it is ready".into(),
        )),
        text => Ok(text.into()),
    }
}

fn cookie(text: &str) -> Made<String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || !text.chars().all(is_known) {
        let message = format!("{text:?} cannot be the name of a cookie");
        return Err((
            message,
            "letters, digits, dots, dashes and underscores".into(),
        ));
    }
    Ok(text.into())
}

/// Point to whichever of the two stands in this table.
fn note_over(
    section: &Section<'_>,
    (key, value): (&str, impl ToString),
    (bound, most): (&str, impl ToString),
) {
    let is_ours = |key: &str| section.entry(key).map(|entry| !entry.is_inherited);
    let (value, most) = (value.to_string(), most.to_string());
    let (at, message, hint) = if is_ours(key) == Some(true) {
        let message = format!("`{key}` is over `{bound}`, which is {most}");
        (key, message, format!("lower it or raise `{bound}`"))
    } else {
        let message = format!("`{bound}` is under `{key}`, which is {value}");
        (
            bound,
            message,
            format!("raise it, or give `{key}` here, too"),
        )
    };
    section.notes.error(section.at(at), message, hint);
}
