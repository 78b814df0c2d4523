//! Reads an application from its table, and notes what is wrong with it.

use std::path::PathBuf;
use std::time::Duration;

use super::{AppConfig, AppListen, AppReady, Health, Http, hosts};
use crate::near::suggest_word;
use crate::section::{Section, kind_of};
use crate::server::{Made, address, note};
use crate::words::{show_size, show_span};
use crate::{exec, keys, options};

/// Ways to listen that are a word.
const LISTEN: &[&str] = &["socket", "port", "inherit"];
/// Ways to be ready that are a word.
const READY: &[&str] = &["auto", "connect", "http", "notify"];
const PROCESSES_MAX: usize = 100_000;
const MANY: usize = 1_000_000;
const MIB: u64 = 1 << 20;
/// No machine has more.
const SIZE_MAX: u64 = 1 << 50;

impl AppConfig {
    pub(crate) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        check_name(name, section);
        let command = command(name, section);
        let is_there = command.is_some();
        let (command, shown) = command.unwrap_or_default();
        let mut app = Self::new(name, command);
        app.run.shown = shown;
        app.hosts = hosts::hosts(section).unwrap_or_default();
        app.paths = hosts::paths(section).unwrap_or(app.paths);
        app.strips_path = section.answer("strip").unwrap_or(false);
        app.health = health(section);
        app.read_run(section);
        app.read_ready(section);
        app.read_counts(section);
        app.read_times(section);
        app.read_memory(section);
        app.read_sticky(section);
        app.read_upgrades(section);
        app.http.read(section);
        if section.is_none("restart_dir") {
            app.restart_dir = None;
        } else if let Some(dir) = section.made("restart_dir", folder_below) {
            app.restart_dir = Some(dir);
        }
        is_there.then_some(app)
    }

    fn read_run(&mut self, section: &Section<'_>) {
        let run = &mut self.run;
        run.env = env(section);
        let values = run.env.iter().map(|(_, value)| value);
        let usual = AppListen::usual(run.command.iter().chain(values));
        run.listen = section.made("listen", listen).unwrap_or(usual);
        check_port(section, &run.env, &run.listen);
        run.root = section.made("root", |text| full_path(text, "/srv/shop"));
        run.user = section.made("user", |text| account("user", text));
        run.group = section.made("group", |text| account("group", text));
        run.umask = section.made("umask", umask);
        run.new_privileges = section.answer("new_privileges").unwrap_or(false);
        run.files_max = section
            .number_or_none("files_max", 16..=1_000_000_000)
            .flatten();
        run.processes_max = section
            .number_or_none("processes_max", 1..=1_000_000_000)
            .flatten();
        run.warm_up = paths(section, "warm_up").unwrap_or_default();
        run.stop_signal = section
            .made("stop_signal", exec::stop_signal)
            .unwrap_or(run.stop_signal);
        if !section.is_none("log") {
            run.log = section.made("log", |text| full_path(text, "/var/log/shop.log"));
        }
    }

    fn read_ready(&mut self, section: &Section<'_>) {
        let Some(ready) = ready(section, self.health.as_ref()) else {
            return;
        };
        if ready == AppReady::Connect && self.run.listen == AppListen::Inherit {
            let message = "a connection says nothing of a process that inherits its socket";
            let hint = "it is taken before the process runs: write \"http\" or \"notify\"";
            section.notes.error(section.at("ready"), message, hint);
        }
        self.run.ready = ready;
    }

    fn read_counts(&mut self, section: &Section<'_>) {
        let options = &mut self.options;
        // Only one process can listen at an address.
        options.alone = matches!(self.run.listen, AppListen::Fixed(_));
        let usual = match options.alone {
            true => Some(1),
            false => options.max,
        };
        options.min = section
            .number("min", 0..=PROCESSES_MAX)
            .unwrap_or(options.min);
        options.max = section
            .number_or_none("max", 1..=PROCESSES_MAX)
            .unwrap_or(usual);
        options.concurrency = section
            .number("concurrency", 1..=MANY)
            .unwrap_or(options.concurrency);
        options.requests_max = section
            .number_or_none("requests_max", 1..=1_000_000_000_000)
            .unwrap_or(options.requests_max);
        options.deploy_tries = section
            .number("deploy_tries", 1..=100)
            .unwrap_or(options.deploy_tries);
        options.timeouts_max = section
            .number("timeouts_max", 1..=1_000_000)
            .unwrap_or(options.timeouts_max);
        if let Some(queue) = options::app_queue(section, "queue") {
            options.queue = queue;
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

    fn read_times(&mut self, section: &Section<'_>) {
        let (options, run) = (&mut self.options, &mut self.run);
        for (key, place) in [
            ("start_timeout", &mut run.start_timeout),
            ("timeouts_window", &mut options.timeouts_window),
            ("backoff_first", &mut options.backoff_first),
            ("backoff_max", &mut options.backoff_max),
        ] {
            *place = section.positive_span(key).unwrap_or(*place);
        }
        for (key, place) in [
            ("stop_timeout", &mut run.stop_timeout),
            ("drain_timeout", &mut options.drain_timeout),
            ("uptime_min", &mut options.uptime_min),
        ] {
            *place = section.span(key).unwrap_or(*place);
        }
        for (key, place) in [
            ("idle_after", &mut options.idle_after),
            ("life_max", &mut options.life_max),
            ("target_wait", &mut options.target_wait),
            ("watchdog", &mut run.watchdog),
        ] {
            *place = section.span_or_none(key).unwrap_or(*place);
        }
        if options.backoff_first > options.backoff_max {
            let first = ("backoff_first", show_span(options.backoff_first));
            let most = ("backoff_max", show_span(options.backoff_max));
            note_over(section, first, most);
        }
    }

    fn read_memory(&mut self, section: &Section<'_>) {
        let options = &mut self.options;
        let size = |key| section.size_or_none(key, MIB..=SIZE_MAX).flatten();
        options.memory_soft = size("memory_soft");
        options.memory_hard = size("memory_hard");
        if let (Some(soft), Some(hard)) = (options.memory_soft, options.memory_hard)
            && soft > hard
        {
            let soft = ("memory_soft", show_size(soft));
            note_over(section, soft, ("memory_hard", show_size(hard)));
        }
    }

    fn read_sticky(&mut self, section: &Section<'_>) {
        let Some(entry) = section.entry("sticky") else {
            return;
        };
        if section.is_none("sticky") {
            return;
        }
        if entry.item.is_str() {
            self.http.sticky = section.made("sticky", cookie);
            return;
        }
        let Some(part) = section.part("sticky", "`sticky`", keys::STICKY) else {
            return;
        };
        if !part.has("cookie") {
            let hint = "write { cookie = \"route\" }";
            let message = "`sticky` has no cookie";
            section.notes.error(entry.at(), message, hint);
        }
        self.http.sticky = part.made("cookie", cookie);
        let wait = part.span("wait");
        self.options.sticky_wait = wait.unwrap_or(self.options.sticky_wait);
    }

    fn read_upgrades(&mut self, section: &Section<'_>) {
        let Some(part) = section.part("upgrades", "`upgrades`", keys::UPGRADES) else {
            return;
        };
        let (http, options) = (&mut self.http, &mut self.options);
        http.upgrade_grace = part.span("grace").unwrap_or(http.upgrade_grace);
        http.upgrade_idle = part.span_or_none("idle").flatten();
        options.upgrades_count = part.answer("count").unwrap_or(options.upgrades_count);
        let max = part.number("max", 1..=MANY);
        options.upgrades_max = max.unwrap_or(options.upgrades_max);
    }
}

impl Http {
    fn read(&mut self, section: &Section<'_>) {
        self.request_timeout = section.span_or_none("request_timeout").flatten();
        self.body_max = section
            .size("body_max", 0..=SIZE_MAX)
            .unwrap_or(self.body_max);
        let answer_or_auto = |key| {
            let entry = section.entry(key)?;
            match entry.item.as_str() {
                Some("auto") => None,
                _ => section.answer_or(key, ", or \"auto\""),
            }
        };
        self.buffers_requests = answer_or_auto("buffer_requests");
        self.buffers_responses = answer_or_auto("buffer_responses");
        self.keep_alive = section.span("keep_alive").unwrap_or(self.keep_alive);
        self.retries = section.answer("retry").unwrap_or(self.retries);
        self.tells_timing = section.answer("timing").unwrap_or(self.tells_timing);
    }
}

/// The name is part of paths, and of a cookie.
fn check_name(name: &str, section: &Section<'_>) {
    const LEN_MAX: usize = 64;
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let (message, hint) = if name.len() > LEN_MAX {
        let message = format!("the name of an app has {LEN_MAX} bytes at most");
        (message, "give it a shorter one")
    } else if !name.chars().all(is_known) || name.starts_with('.') {
        let message = format!("the name {name:?} has letters that apps cannot have");
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

/// The variables, but for those that say where to listen.
fn env(section: &Section<'_>) -> Vec<(String, String)> {
    let env = exec::env(section);
    for (name, _) in &env {
        if name.starts_with("LISTEN_") {
            let message = format!("the variable `{name}` is set by rideau itself");
            let hint = "it is there with listen = \"inherit\"";
            section.notes.error(section.at("env"), message, hint);
        }
    }
    env
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

fn listen(text: &str) -> Made<AppListen> {
    let words = [AppListen::Socket, AppListen::Port, AppListen::Inherit];
    if let Some(at) = LISTEN.iter().position(|word| *word == text) {
        return Ok(words[at].clone());
    }
    match address(text) {
        Ok(address) if address.port() == 0 => Err((
            format!("{text:?} does not say which port"),
            "write the one where the program listens, or \"port\" to tell it one".into(),
        )),
        Ok(address) => Ok(AppListen::Fixed(address)),
        Err(_) => {
            let hint = suggest_word(text, LISTEN);
            let hint = format!("{hint}, or an address such as \"127.0.0.1:9000\"");
            Err((format!("`listen` cannot be {text:?}"), hint))
        }
    }
}

/// None if nothing is said, or nothing that can be meant.
fn ready(section: &Section<'_>, health: Option<&Health>) -> Option<AppReady> {
    let entry = section.entry("ready")?;
    if entry.item.is_table_like() {
        let part = section.part("ready", "`ready`", keys::APP_READY)?;
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
    let path = health.map_or("/", |health| &health.path);
    section.made("ready", |word| match word {
        "auto" => Ok(AppReady::Auto),
        "connect" => Ok(AppReady::Connect),
        "http" => Ok(AppReady::Http(path.into())),
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

fn health(section: &Section<'_>) -> Option<Health> {
    if section.is_none("health") {
        return None;
    }
    let part = section.part("health", "`health`", keys::HEALTH)?;
    if !part.has("path") {
        let hint = "write { path = \"/up\" }";
        let message = "`health` does not say what to ask for";
        section.notes.error(section.at("health"), message, hint);
    }
    let span = |key, default| part.positive_span(key).unwrap_or(default);
    let every = span("every", Duration::from_secs(10));
    let timeout = span("timeout", Duration::from_secs(2));
    let fails = part.number("fails", 1..=1000).unwrap_or(3);
    Some(Health {
        path: part.made("path", hosts::path)?,
        every,
        timeout,
        fails,
    })
}

fn paths(section: &Section<'_>, key: &str) -> Option<Vec<String>> {
    let list = section.list(key)?;
    let paths = list.iter();
    Some(
        paths
            .filter_map(|(text, at)| note(section, at, hosts::path(text)))
            .collect(),
    )
}

fn full_path(text: &str, such_as: &str) -> Made<PathBuf> {
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err((
            format!("{text:?} is no full path"),
            format!("write it from the root on, such as {such_as:?}"),
        )),
    }
}

fn folder_below(text: &str) -> Made<PathBuf> {
    match text {
        "" => Err((
            "`restart_dir` is empty".into(),
            "write a folder below `root`, such as \"tmp\", or \"none\"".into(),
        )),
        text => Ok(text.into()),
    }
}

fn account(what: &str, text: &str) -> Made<String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == ':') {
        let hint = "write its name or its number, such as \"www-data\"";
        return Err((format!("{text:?} is no {what}"), hint.into()));
    }
    Ok(text.into())
}

fn umask(text: &str) -> Made<u32> {
    let mask = u32::from_str_radix(text, 8).ok();
    mask.filter(|mask| *mask <= 0o777).ok_or_else(|| {
        let message = format!("{text:?} is no mask for new files");
        (message, "write three octal digits, such as \"022\"".into())
    })
}

fn cookie(text: &str) -> Made<String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || !text.chars().all(is_known) {
        let message = format!("{text:?} is no name for a cookie");
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
