//! The rows of applications and of their front.

use super::{Rows, queue};
use crate::app::{AppConfig, AppListen, AppReady, Http, RunSpec};
use crate::front::FrontConfig;
use crate::words::show_size;

pub(super) fn front(rows: &mut Rows, front: &FrontConfig) {
    rows.list("listen", front.listen.iter().map(ToString::to_string));
    let tls_listen = front.tls_listen.iter();
    rows.list("tls_listen", tls_listen.map(ToString::to_string));
    rows.number("max", front.limits.max);
    rows.number("headroom", front.limits.headroom);
    rows.number("starts_max", front.limits.starts_max);
    rows.text("evict_for", front.evict_word());
    rows.span("starve_min", front.limits.starve_min);
    rows.list("trust", front.trust.iter().map(ToString::to_string));
    rows.text("error_pages", front.pages_word());
    rows.text("header_max", &show_size(front.header_max));
    rows.number("headers_max", front.headers_max);
    rows.span("header_timeout", front.header_timeout);
    rows.span("idle_timeout", front.idle_timeout);
    rows.span("shutdown_timeout", front.shutdown_timeout);
    rows.number("connections_max", front.connections_max);
}

pub(super) fn app(rows: &mut Rows, app: &AppConfig) {
    rows.list("hosts", app.hosts.iter().cloned());
    rows.list("paths", app.paths.iter().cloned());
    rows.number("strip", app.strips_path);
    run(rows, &app.run);
    counts(rows, app);
    times(rows, app);
    match &app.restart_dir {
        Some(dir) => rows.path_of("restart_dir", dir),
        None => rows.text("restart_dir", "none"),
    }
    if let Some(health) = &app.health {
        rows.below("health", |rows| {
            rows.text("path", &health.path);
            rows.span("every", health.every);
            rows.span("timeout", health.timeout);
            rows.number("fails", health.fails);
        });
    }
    http(rows, &app.http);
    if let Some(cookie) = &app.http.sticky {
        rows.below("sticky", |rows| {
            rows.text("cookie", cookie);
            rows.span("wait", app.options.sticky_wait);
        });
    }
    rows.below("upgrades", |rows| {
        rows.span("grace", app.http.upgrade_grace);
        rows.span_or_none("idle", app.http.upgrade_idle);
        rows.number("max", app.options.upgrades_max);
        rows.number("count", app.options.upgrades_count);
    });
}

fn run(rows: &mut Rows, run: &RunSpec) {
    rows.push_list("exec", &run.shown);
    run.root.iter().for_each(|root| rows.path_of("root", root));
    run.user.iter().for_each(|user| rows.text("user", user));
    run.group.iter().for_each(|group| rows.text("group", group));
    let umask = run.umask.iter();
    umask.for_each(|mask| rows.text("umask", &format!("{mask:03o}")));
    rows.number("new_privileges", run.new_privileges);
    rows.or_none("files_max", run.files_max);
    rows.or_none("processes_max", run.processes_max);
    match &run.listen {
        AppListen::Inherit => rows.text("listen", "inherit"),
        AppListen::Socket => rows.text("listen", "socket"),
        AppListen::Port => rows.text("listen", "port"),
        AppListen::Fixed(address) => rows.text("listen", &address.to_string()),
    }
    match &run.ready {
        AppReady::Auto => rows.text("ready", "auto"),
        AppReady::Connect => rows.text("ready", "connect"),
        AppReady::Notify => rows.text("ready", "notify"),
        AppReady::Http(path) => rows.below("ready", |rows| rows.text("http", path)),
        AppReady::Line(line) => rows.below("ready", |rows| rows.text("line", line)),
    }
    rows.span_or_none("watchdog", run.watchdog);
    rows.list("warm_up", run.warm_up.iter().cloned());
    match &run.log {
        Some(path) => rows.path_of("log", path),
        None => rows.text("log", "none"),
    }
}

fn counts(rows: &mut Rows, app: &AppConfig) {
    let options = &app.options;
    rows.number("min", options.min);
    rows.or_none("max", options.max);
    rows.number("concurrency", options.concurrency);
    rows.below("queue", |rows| queue(rows, &options.queue));
    rows.or_none("requests_max", options.requests_max);
    rows.size_or_none("memory_soft", options.memory_soft);
    rows.size_or_none("memory_hard", options.memory_hard);
    rows.number("deploy_tries", options.deploy_tries);
    rows.number("timeouts_max", options.timeouts_max);
}

fn times(rows: &mut Rows, app: &AppConfig) {
    let (run, options) = (&app.run, &app.options);
    rows.span_or_none("target_wait", options.target_wait);
    rows.span_or_none("idle_after", options.idle_after);
    rows.span_or_none("life_max", options.life_max);
    rows.span("start_timeout", run.start_timeout);
    rows.span("drain_timeout", options.drain_timeout);
    rows.span("stop_timeout", run.stop_timeout);
    rows.text("stop_signal", run.stop_signal.word());
    rows.span("uptime_min", options.uptime_min);
    rows.span("backoff_first", options.backoff_first);
    rows.span("backoff_max", options.backoff_max);
    rows.span("timeouts_window", options.timeouts_window);
}

fn http(rows: &mut Rows, http: &Http) {
    rows.span_or_none("request_timeout", http.request_timeout);
    rows.text("body_max", &show_size(http.body_max));
    for (key, answer) in [
        ("buffer_requests", http.buffers_requests),
        ("buffer_responses", http.buffers_responses),
    ] {
        match answer {
            Some(answer) => rows.number(key, answer),
            None => rows.text(key, "auto"),
        }
    }
    rows.span("keep_alive", http.keep_alive);
    rows.number("retry", http.retries);
    rows.number("timing", http.tells_timing);
}

impl Rows {
    fn or_none(&mut self, key: &str, number: Option<impl ToString>) {
        match number {
            Some(number) => self.number(key, number),
            None => self.text(key, "none"),
        }
    }

    fn size_or_none(&mut self, key: &str, size: Option<u64>) {
        let words = size.map_or("none".into(), show_size);
        self.text(key, &words);
    }
}
