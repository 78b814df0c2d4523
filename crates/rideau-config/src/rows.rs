//! A config as rows of key and value: what counts, defaults included.
//!
//! Rows are what plans compare and what is shown; put together they are TOML
//! again. The one thing they cannot say is the names of weighted flows, of which
//! only the hash is kept.

mod apps;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::{Lead, meter, pool, queue, valve};
use rideau_process::Ready;

use super::Config;
use super::broker::{BrokerConfig, RegulatorConfig};
use super::exec::ready_word;
use super::lock::{Buckets, LockRule};
use super::pool::{Member, PoolConfig, fate_word, pick_word};
use super::quota::Quota;
use super::range::{RangeConfig, Words};
use super::section::Unexpanded;
use super::server::{Limits, OPEN_TO_ANYONE, Server};
use super::user::{Password, User};
use super::words::{show_size, show_span};

/// Rows as they are collected: the path, and the value as TOML.
struct Rows {
    path: String,
    rows: Vec<(String, String)>,
    /// What was written with variables.
    unexpanded: Arc<Vec<Unexpanded>>,
}

impl Config {
    /// Every key that counts and its value as TOML, as
    /// `("pool.pg-1.start_timeout", "\"5s\"")`. Hashes of passwords and values
    /// of a program's environment are left out, and a text with variables is as it
    /// was written.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Rows {
            path: String::new(),
            rows: Vec::new(),
            unexpanded: Arc::clone(&self.unexpanded),
        };
        rows.below("server", |rows| server(rows, &self.server));
        rows.below("limits", |rows| limits(rows, &self.limits));
        if let Some(tls) = &self.tls {
            rows.below("tls", |rows| {
                rows.path_of("cert", &tls.cert);
                rows.path_of("key", &tls.key);
                tls.client_ca
                    .iter()
                    .for_each(|ca| rows.path_of("client_ca", ca));
            });
        }
        rows.below("log", |rows| {
            rows.text("level", self.log.level.word());
            rows.text("format", self.log.format.word());
            match self.log.debug_for {
                Some(span) => rows.span("debug_for", span),
                None => rows.text("debug_for", "none"),
            }
        });
        rows.below("store", |rows| {
            rows.text("kind", self.store.kind_word());
            let path = self.store.path.iter();
            path.for_each(|path| rows.path_of("path", path));
            rows.text("on_failure", self.store.on_failure_word());
        });
        rows.named("user", &self.users, |user| &user.name, user);
        rows.named("pool", &self.pools, |pool| &pool.name, pool_rows);
        rows.named(
            "group",
            &self.groups,
            |group| &group.name,
            |rows, group| {
                rows.text("pick", pick_word(group.pick));
            },
        );
        rows.named("broker", &self.brokers, |broker| &broker.name, broker);
        rows.named(
            "regulator",
            &self.regulators,
            |regulator| &regulator.name,
            regulator,
        );
        rows.named("lock", &self.locks, |lock| &lock.pattern, lock);
        rows.named("range", &self.ranges, |range| &range.name, range);
        rows.named(
            "view",
            &self.views,
            |view| &view.name,
            |rows, view| rows.list("values", view.values.iter().cloned()),
        );
        rows.below("front", |rows| apps::front(rows, &self.front));
        rows.named("app", &self.apps, |app| &app.name, apps::app);
        rows.rows
    }

    /// The value that counts for a key, as TOML.
    pub fn value(&self, path: &str) -> Option<String> {
        let rows = self.rows().into_iter();
        rows.filter(|(known, _)| known == path)
            .map(|(_, value)| value)
            .next()
    }
}

impl Rows {
    /// What `fill` adds stands below `key`.
    fn below(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path = self.join(key);
        fill(self);
        self.path.truncate(len);
    }

    fn named<T>(
        &mut self,
        kind: &str,
        all: &[T],
        name: impl Fn(&T) -> &String,
        fill: impl Fn(&mut Self, &T),
    ) {
        self.below(kind, |rows| {
            for one in all {
                rows.below(name(one), |rows| fill(rows, one));
            }
        });
    }

    fn join(&self, key: &str) -> String {
        let key = quoted_key(key);
        if self.path.is_empty() {
            return key;
        }
        format!("{}.{key}", self.path)
    }

    fn push(&mut self, key: &str, value: String) {
        let path = self.join(key);
        self.rows.push((path, value));
    }

    /// A text as it was written, if that was with variables.
    fn written<'t>(&'t self, key: &str, text: &'t str) -> &'t str {
        let mut all = self.unexpanded.iter();
        let found = all.find(|one| one.key == key && one.value == text);
        found.map_or(text, |one| &one.raw)
    }

    fn text(&mut self, key: &str, text: &str) {
        let text = quoted(self.written(key, text));
        self.push(key, text);
    }

    fn path_of(&mut self, key: &str, path: &Path) {
        self.text(key, &path.display().to_string());
    }

    fn number(&mut self, key: &str, number: impl ToString) {
        self.push(key, number.to_string());
    }

    /// A bound, unless it is none.
    fn bound(&mut self, key: &str, bound: usize) {
        if bound != usize::MAX {
            self.number(key, bound);
        }
    }

    fn span(&mut self, key: &str, span: Duration) {
        self.text(key, &show_span(span));
    }

    fn lead(&mut self, key: &str, lead: Lead) {
        let sign = if lead.as_nanos() < 0 { "-" } else { "" };
        let span = Duration::from_nanos(lead.as_nanos().unsigned_abs());
        self.text(key, &format!("{sign}{}", show_span(span)));
    }

    fn span_or_none(&mut self, key: &str, span: Option<Duration>) {
        let words = span.map_or("none".into(), show_span);
        self.text(key, &words);
    }

    fn list(&mut self, key: &str, list: impl IntoIterator<Item = String>) {
        let list = list.into_iter();
        let list: Vec<_> = list.map(|text| quoted(self.written(key, &text))).collect();
        self.push(key, format!("[{}]", list.join(", ")));
    }

    /// Texts as they are to be shown.
    fn push_list(&mut self, key: &str, list: &[String]) {
        let list: Vec<_> = list.iter().map(|text| quoted(text)).collect();
        self.push(key, format!("[{}]", list.join(", ")));
    }

    /// An array of tables, each on its own.
    fn tables<T>(&mut self, key: &str, all: &[T], fill: impl Fn(&mut Self, &T)) {
        let table = |one: &T| {
            let mut rows = Self {
                path: String::new(),
                rows: Vec::new(),
                unexpanded: Arc::clone(&self.unexpanded),
            };
            fill(&mut rows, one);
            let pairs = rows.rows.iter();
            let pairs: Vec<_> = pairs
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let all: Vec<_> = all.iter().map(table).collect();
        self.push(key, format!("[{}]", all.join(", ")));
    }
}

/// A text as TOML.
pub(super) fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// A key as TOML, in quotes where it needs them.
pub(super) fn quoted_key(key: &str) -> String {
    toml_edit::Key::new(key).display_repr().into_owned()
}

fn server(rows: &mut Rows, server: &Server) {
    rows.text("name", &server.name);
    rows.list("listen", server.listen.iter().map(ToString::to_string));
    rows.list(
        "tls_listen",
        server.tls_listen.iter().map(ToString::to_string),
    );
    for (key, address) in [("admin", server.admin), ("tls_admin", server.tls_admin)] {
        let address = address.map_or("none".into(), |address| address.to_string());
        rows.text(key, &address);
    }
    rows.text("socket_mode", &format!("{:03o}", server.socket_mode));
    let run_dir = server.run_dir.iter();
    run_dir.for_each(|path| rows.path_of("run_dir", path));
    rows.number("threads", server.threads.unwrap_or(0));
    let insecure = if server.is_open_to_anyone {
        OPEN_TO_ANYONE
    } else {
        "no"
    };
    rows.text("insecure", insecure);
    rows.span("wait_max", server.wait_max);
    rows.span("wait_default", server.wait_default);
    rows.below("dead_peer", |rows| {
        rows.span("idle", server.dead_peer.idle);
        rows.span("every", server.dead_peer.every);
        rows.number("probes", server.dead_peer.probes);
    });
    rows.span("drain", server.drain);
    rows.below("history", |rows| {
        rows.text("fine", &server.history.fine.to_string());
        rows.text("coarse", &server.history.coarse.to_string());
    });
}

fn limits(rows: &mut Rows, limits: &Limits) {
    rows.number("connections_max", limits.connections_max);
    rows.text("frame_max", &show_size(limits.frame_max));
    rows.text("input_max", &show_size(limits.input_max));
    rows.text("pipeline_max", &show_size(limits.pipeline_max));
    rows.text("output_max", &show_size(limits.output_max));
    rows.number("keys_max", limits.keys_max);
    rows.number("waiters_max", limits.waiters_max);
    rows.number("held_max", limits.held_max);
    rows.number("sessions_max", limits.sessions_max);
    rows.number("names_max", limits.names_max);
    rows.number("name_len_max", limits.name_len_max);
    rows.span("login_within", limits.login_within);
    rows.number("before_login_max", limits.before_login_max);
    rows.number("password_checks_max", limits.password_checks_max);
    rows.number("reservations_max", limits.reservations_max);
    rows.number("ranges_max", limits.ranges_max);
    rows.number("range_keys_max", limits.range_keys_max);
    rows.text("range_data_max", &show_size(limits.range_data_max));
    rows.number("views_max", limits.views_max);
}

fn user(rows: &mut Rows, user: &User) {
    if let Some(Password::File(path)) = &user.password {
        rows.path_of("password_file", path);
    }
    let uids: Vec<_> = user.uids.iter().map(ToString::to_string).collect();
    rows.push("uids", format!("[{}]", uids.join(", ")));
    rows.list("allow", user.allow.iter().cloned());
    rows.list("on", user.on.iter().map(ToString::to_string));
    for quota in Quota::ALL {
        let said = user.quotas[quota as usize].iter();
        said.for_each(|most| rows.number(quota.key(), most));
    }
}

fn pool_rows(rows: &mut Rows, pool: &PoolConfig) {
    pool.group
        .iter()
        .for_each(|group| rows.text("group", group));
    member(rows, &pool.member);
    rows.text("on_crash", fate_word(pool.on_crash));
    rows.text("on_quit", fate_word(pool.on_quit));
    rows.span_or_none("leak_after", pool.leak_after);
    let options = &pool.options;
    rows.number("init", options.init);
    rows.number("max", options.max);
    rows.number("idle_min", options.idle_min);
    options
        .grow_at
        .iter()
        .for_each(|at| rows.number("grow_at", at));
    rows.span_or_none("idle_age_max", options.idle_age_max);
    rows.span_or_none("life_max", options.life_max);
    rows.span("life_jitter", options.life_jitter);
    options
        .uses_max
        .iter()
        .for_each(|max| rows.number("uses_max", max));
    let reuse = match options.reuse {
        pool::Reuse::Lifo => "lifo",
        pool::Reuse::Fifo => "fifo",
    };
    rows.text("reuse", reuse);
    rows.number("starts_max", options.starts_max);
    rows.span("start_timeout", options.start_timeout);
    rows.span("backoff_first", options.backoff.first);
    rows.span("backoff_max", options.backoff.max);
    rows.number("failures", options.backoff.failures);
    rows.number("fail_fast", options.fail_fast);
    rows.span("stop_timeout", options.stop_timeout);
    rows.span_or_none("check_after", options.check_after);
    rows.text("on_cancel", fate_word(options.on_cancel));
    rows.text("on_error", fate_word(options.on_error));
    rows.number("seed", options.seed);
    rows.below("queue", |rows| queue(rows, &options.queue));
    if let Some(options) = &options.valve {
        rows.below("valve", |rows| valve(rows, options));
    }
}

fn member(rows: &mut Rows, member: &Member) {
    match member {
        Member::Offered => rows.text("member", "offered"),
        Member::List(list) => {
            rows.below("member", |rows| rows.list("list", list.iter().cloned()));
        }
        Member::Exec(exec) => rows.below("member", |rows| {
            rows.push_list("exec", &exec.shown);
            match &exec.ready {
                Ready::Line(text) => rows.below("ready", |rows| rows.text("line", text)),
                ready => rows.text("ready", ready_word(ready)),
            }
            exec.dir.iter().for_each(|dir| rows.path_of("dir", dir));
            rows.text("stop_signal", exec.stop_signal.word());
            rows.number("new_privileges", exec.new_privileges);
        }),
    }
}

fn broker(rows: &mut Rows, broker: &BrokerConfig) {
    let group = broker.group.iter();
    group.for_each(|group| rows.text("group", group));
    let parts = &broker.options;
    rows.below("asks", |rows| queue(rows, &parts.asks));
    rows.below("offers", |rows| queue(rows, &parts.offers));
    rows.tables("meters", &parts.meters, meter);
    if let Some(pie) = &parts.protect {
        rows.below("protect", |rows| protect(rows, pie));
    }
    rows.number("read_after", parts.read_after);
}

fn regulator(rows: &mut Rows, regulator: &RegulatorConfig) {
    if let Some(feed) = &regulator.feed {
        let (key, name) = feed.source.named();
        rows.text(key, name);
        rows.text("side", feed.side_word());
        rows.span("update", feed.update);
    }
    rows.below("queue", |rows| queue(rows, &regulator.queue));
    rows.below("valve", |rows| valve(rows, &regulator.valve));
    rows.tables("meters", &regulator.meters, meter);
    rows.number("read_after", regulator.read_after);
}

fn lock(rows: &mut Rows, lock: &LockRule) {
    rows.number("per", lock.per);
    match lock.buckets {
        Buckets::Client => rows.text("buckets", "client"),
        Buckets::Fixed(buckets) => rows.number("buckets", buckets),
    }
    rows.number("keys_max", lock.keys_max);
    rows.span("idle_forget", lock.idle_forget);
    rows.below("queue", |rows| queue(rows, &lock.queue));
}

fn range(rows: &mut Rows, range: &RangeConfig) {
    let (options, words) = (&range.options, Words::of(range));
    rows.list("values", range.values.iter().cloned());
    rows.list("skip", range.skip.iter().cloned());
    rows.span("ttl", options.ttl);
    rows.span("ttl_max", options.ttl_max);
    rows.span("offer_ttl", options.offer_ttl);
    rows.text("order", words.order);
    rows.text("class", words.class);
    rows.text("hold", words.hold);
    rows.span("quarantine", options.quarantine);
    rows.span("detach", options.detach);
    rows.span("cool", options.cool);
    rows.text("on_expire", words.on_expire);
    rows.text("start", words.start);
    rows.text("fence", words.fence);
}

fn queue(rows: &mut Rows, options: &queue::Options) {
    use queue::{Order, Overflow, Shedding};
    let (kind, law, wait_max) = match options.shedding {
        Shedding::Never => ("never", None, None),
        Shedding::Timeout { .. } => ("timeout", None, None),
        Shedding::CoDel { target, interval } => ("codel", Some((target, interval)), None),
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max,
        } => ("bounded-codel", Some((target, interval)), Some(wait_max)),
        Shedding::MinDelay { target, interval } => ("min-delay", Some((target, interval)), None),
        Shedding::Standing { target, interval } => ("standing", Some((target, interval)), None),
        Shedding::Paced { .. } => ("paced", None, None),
        // Only programs that link the library have these.
        Shedding::Custom(ref custom) => (custom.name(), None, None),
    };
    rows.text("kind", kind);
    if let Shedding::Timeout { wait_max } = options.shedding {
        rows.span("timeout", wait_max);
    }
    if let Some((target, interval)) = law {
        rows.span("target", target);
        rows.span("interval", interval);
    }
    wait_max
        .iter()
        .for_each(|wait_max| rows.span("wait_max", *wait_max));
    if let Shedding::Paced {
        wait_cap: Some(wait_cap),
    } = options.shedding
    {
        rows.span("wait_cap", wait_cap);
    }
    match options.order {
        Order::Fifo => rows.text("order", "fifo"),
        Order::Lifo => rows.text("order", "lifo"),
        Order::Adaptive { slow } => {
            rows.text("order", "adaptive");
            rows.span("slow", slow);
        }
    }
    rows.number("min", options.min);
    match options.max {
        Some(max) => rows.number("max", max),
        None => rows.text("max", "none"),
    }
    let overflow = match options.overflow {
        Overflow::Newest => "newest",
        Overflow::Oldest => "oldest",
    };
    rows.text("overflow", overflow);
    options.fair.iter().for_each(|options| fair(rows, options));
}

fn fair(rows: &mut Rows, fair: &queue::FairOptions) {
    match fair.index {
        queue::Index::Flow => rows.text("fair_by", "flow"),
        queue::Index::Hashed(lines) => rows.text("fair_by", &format!("hash:{lines}")),
    }
    rows.number("flows_max", fair.flows_max);
    if !fair.weights.is_empty() {
        let weight = |(flow, weight): &(rideau_core::Flow, _)| format!("{:x}:{weight}", flow.0);
        let weights: Vec<_> = fair.weights.iter().map(weight).collect();
        rows.text("weights", &weights.join(","));
    }
    rows.number("sparse_first", fair.sparse_first);
}

fn valve(rows: &mut Rows, options: &valve::Options) {
    rows.text("kind", options.kind());
    match options {
        valve::Options::Open(open) => rows.bound("max", open.max),
        valve::Options::Relative(relative) => {
            rows.lead("target", relative.target);
            rows.number("min", relative.min);
            rows.bound("max", relative.max);
        }
        valve::Options::CoDel(codel) => {
            rows.lead("target", codel.target);
            rows.span("interval", codel.interval);
            rows.number("min", codel.min);
            rows.bound("max", codel.max);
        }
        valve::Options::Rate(rate) => {
            rows.number("limit", rate.limit);
            rows.span("interval", rate.interval);
            rows.number("min", rate.min);
            rows.bound("max", rate.max);
        }
        valve::Options::Breaker(breaker) => {
            rows.number("failures", breaker.failures);
            rows.number("window", breaker.window);
            rows.span("pause", breaker.pause);
            rows.span("pause_max", breaker.pause_max);
            rows.number("probes", breaker.probes);
            rows.bound("max", breaker.max);
        }
        valve::Options::Gradient(gradient) => {
            rows.number("min", gradient.min);
            rows.bound("max", gradient.max);
            rows.number("initial", gradient.initial);
            rows.number("tolerance", gradient.tolerance);
        }
        // Only programs that link the library have these.
        valve::Options::Custom(_) => (),
        valve::Options::LeastOf(parts) => rows.tables("of", parts, valve),
    }
}

fn meter(rows: &mut Rows, options: &meter::Options) {
    match options {
        meter::Options::Overload(overload) => {
            rows.text("kind", "overload");
            rows.text("alarm", &overload.alarm);
            rows.span("target", overload.target);
            rows.span("interval", overload.interval);
        }
        meter::Options::Underload(underload) => {
            rows.text("kind", "underload");
            rows.text("alarm", &underload.alarm);
            rows.lead("target", underload.target);
            rows.span("interval", underload.interval);
        }
        meter::Options::Better(better) => {
            rows.text("kind", "better");
            rows.span("ask_upper", better.ask_upper);
            rows.span("offer_upper", better.offer_upper);
            rows.span("update", better.update);
        }
        meter::Options::Pie(pie) => protect(rows, pie),
        // Regulators say themselves what tells them.
        meter::Options::Update(_) => rows.text("kind", "update"),
        // Only programs that link the library have these.
        meter::Options::Custom(custom) => rows.text("kind", custom.name()),
    }
}

fn protect(rows: &mut Rows, pie: &meter::Pie) {
    for (name, side) in [("ask", &pie.ask), ("offer", &pie.offer)] {
        rows.below(name, |rows| {
            rows.span("target", side.target);
            rows.span("interval", side.interval);
        });
    }
    rows.span("update", pie.update);
    rows.number("min", pie.min);
    pie.max.iter().for_each(|max| rows.number("max", max));
    rows.number("probes", pie.probes);
}
