//! Every key there is, and whether a change of it needs a restart.
//!
//! What a value may be is said where it is read; the reference file
//! `config/rideau.toml` says what it is for, and a test holds both together.

/// What it takes for a change of a key to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It counts at once, and no client loses a place or a lease.
    Live,
    /// It counts after the next start.
    Restart,
}

/// A key, and the keys below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) change: Change,
    pub(super) below: &'static [Self],
}

/// A top-level section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    /// There is a table for each name, as in `[pool.pg-1]`.
    pub(super) is_named: bool,
    pub(super) keys: &'static [Key],
}

/// Sections that a later version will have, and what they are about.
pub(super) const LATER: &[(&str, &str)] = &[("cluster", "clusters"), ("alarm", "alarms")];

const fn live(name: &'static str) -> Key {
    above(name, &[])
}

const fn restart(name: &'static str) -> Key {
    Key {
        name,
        change: Change::Restart,
        below: &[],
    }
}

const fn above(name: &'static str, below: &'static [Key]) -> Key {
    Key {
        name,
        change: Change::Live,
        below,
    }
}

pub(super) const SERVER: &[Key] = &[
    live("name"),
    restart("listen"),
    restart("tls_listen"),
    restart("admin"),
    restart("tls_admin"),
    restart("socket_mode"),
    restart("run_dir"),
    restart("threads"),
    live("insecure"),
    live("wait_max"),
    live("wait_default"),
    above("dead_peer", DEAD_PEER),
    live("drain"),
    Key {
        name: "history",
        change: Change::Restart,
        below: HISTORY,
    },
];

pub(super) const DEAD_PEER: &[Key] = &[live("idle"), live("every"), live("probes")];
pub(super) const HISTORY: &[Key] = &[restart("fine"), restart("coarse")];

pub(super) const LIMITS: &[Key] = &[
    live("connections_max"),
    live("frame_max"),
    live("input_max"),
    live("pipeline_max"),
    live("output_max"),
    live("keys_max"),
    live("waiters_max"),
    live("held_max"),
    live("sessions_max"),
    live("names_max"),
    live("name_len_max"),
    live("login_within"),
    live("before_login_max"),
    live("password_checks_max"),
    restart("reservations_max"),
    live("ranges_max"),
    live("range_keys_max"),
    live("range_data_max"),
    live("views_max"),
];

pub(super) const TLS: &[Key] = &[live("cert"), live("key"), live("client_ca")];
pub(super) const LOG: &[Key] = &[live("level"), restart("format"), restart("debug_for")];

pub(super) const USER: &[Key] = &[
    live("password"),
    live("password_file"),
    live("uids"),
    live("allow"),
    live("on"),
    live("connections_max"),
    live("http_connections_max"),
    live("sessions_max"),
    live("streams_max"),
    live("waiting_max"),
];

pub(super) const POOL: &[Key] = &[
    live("like"),
    live("group"),
    above("member", MEMBER),
    live("on_crash"),
    live("on_quit"),
    live("leak_after"),
    live("init"),
    live("max"),
    live("idle_min"),
    live("grow_at"),
    live("idle_age_max"),
    live("life_max"),
    live("life_jitter"),
    live("uses_max"),
    live("reuse"),
    live("starts_max"),
    live("start_timeout"),
    live("backoff_first"),
    live("backoff_max"),
    live("failures"),
    live("fail_fast"),
    live("stop_timeout"),
    live("check_after"),
    live("on_cancel"),
    live("on_error"),
    live("seed"),
    above("queue", QUEUE),
    above("valve", VALVE),
];

pub(super) const MEMBER: &[Key] = &[
    live("list"),
    live("exec"),
    above("ready", READY),
    live("dir"),
    // The names below `env` are the file's own.
    live("env"),
    live("stop_signal"),
    live("new_privileges"),
];
pub(super) const READY: &[Key] = &[live("line")];

pub(super) const GROUP: &[Key] = &[live("pick")];

pub(super) const BROKER: &[Key] = &[
    live("like"),
    live("group"),
    above("asks", QUEUE),
    above("offers", QUEUE),
    above("meters", METER),
    above("protect", PROTECT),
    live("read_after"),
];

pub(super) const REGULATOR: &[Key] = &[
    live("like"),
    live("broker"),
    live("regulator"),
    live("side"),
    live("update"),
    above("queue", QUEUE),
    above("valve", VALVE),
    above("meters", METER),
    live("read_after"),
];

pub(super) const LOCK: &[Key] = &[
    live("like"),
    live("per"),
    live("buckets"),
    live("keys_max"),
    live("idle_forget"),
    above("queue", QUEUE),
];

pub(super) const RANGE: &[Key] = &[
    live("like"),
    live("values"),
    live("skip"),
    live("ttl"),
    live("ttl_max"),
    live("offer_ttl"),
    live("order"),
    live("class"),
    live("hold"),
    live("quarantine"),
    live("detach"),
    live("cool"),
    live("on_expire"),
    live("start"),
    live("restore_all_free"),
    live("fence"),
];

pub(super) const VIEW: &[Key] = &[live("values")];

pub(super) const FRONT: &[Key] = &[
    restart("listen"),
    restart("tls_listen"),
    live("max"),
    live("headroom"),
    live("starts_max"),
    live("evict_for"),
    live("starve_min"),
    live("trust"),
    live("error_pages"),
    live("header_max"),
    live("headers_max"),
    live("header_timeout"),
    live("idle_timeout"),
    live("shutdown_timeout"),
    live("connections_max"),
];

pub(super) const APP: &[Key] = &[
    live("like"),
    live("hosts"),
    live("paths"),
    live("strip"),
    live("exec"),
    live("root"),
    // The names below `env` are the file's own.
    live("env"),
    live("user"),
    live("group"),
    live("umask"),
    live("new_privileges"),
    live("files_max"),
    live("processes_max"),
    live("listen"),
    above("ready", APP_READY),
    live("watchdog"),
    live("warm_up"),
    live("log"),
    live("min"),
    live("max"),
    live("concurrency"),
    above("queue", QUEUE),
    live("target_wait"),
    live("idle_after"),
    live("requests_max"),
    live("life_max"),
    live("memory_soft"),
    live("memory_hard"),
    live("start_timeout"),
    live("drain_timeout"),
    live("stop_timeout"),
    live("stop_signal"),
    live("uptime_min"),
    live("backoff_first"),
    live("backoff_max"),
    live("deploy_tries"),
    live("restart_dir"),
    above("health", HEALTH),
    live("request_timeout"),
    live("timeouts_max"),
    live("timeouts_window"),
    live("body_max"),
    live("buffer_requests"),
    live("buffer_responses"),
    live("keep_alive"),
    live("retry"),
    above("sticky", STICKY),
    above("upgrades", UPGRADES),
    live("timing"),
];

pub(super) const APP_READY: &[Key] = &[live("line"), live("http")];
pub(super) const HEALTH: &[Key] = &[live("path"), live("every"), live("timeout"), live("fails")];
pub(super) const STICKY: &[Key] = &[live("cookie"), live("wait")];
pub(super) const UPGRADES: &[Key] = &[live("grace"), live("idle"), live("max"), live("count")];

pub(super) const STORE: &[Key] = &[restart("kind"), restart("path"), live("on_failure")];

pub(super) const QUEUE: &[Key] = &[
    live("kind"),
    live("timeout"),
    live("target"),
    live("interval"),
    live("wait_max"),
    live("wait_cap"),
    live("order"),
    live("slow"),
    live("min"),
    live("max"),
    live("overflow"),
    live("fair_by"),
    live("flows_max"),
    live("weights"),
    live("sparse_first"),
];

pub(super) const VALVE: &[Key] = &[
    live("kind"),
    live("target"),
    live("interval"),
    live("min"),
    live("max"),
    live("limit"),
    live("failures"),
    live("window"),
    live("pause"),
    live("pause_max"),
    live("probes"),
    live("initial"),
    live("tolerance"),
    // The parts of `least_of`: valves again.
    live("of"),
];

/// The meters that can be asked for by name. What protects a broker and what
/// feeds a regulator have keys of their own.
pub(super) const METER: &[Key] = &[
    live("kind"),
    live("alarm"),
    live("target"),
    live("interval"),
    live("ask_upper"),
    live("offer_upper"),
    live("update"),
];

pub(super) const PROTECT: &[Key] = &[
    above("ask", PROTECTED),
    above("offer", PROTECTED),
    live("update"),
    live("min"),
    live("max"),
    live("probes"),
];
pub(super) const PROTECTED: &[Key] = &[live("target"), live("interval")];

/// All sections of this version.
pub(super) const PARTS: &[Part] = &[
    one("server", SERVER),
    one("limits", LIMITS),
    one("tls", TLS),
    one("log", LOG),
    one("store", STORE),
    named("user", USER),
    named("pool", POOL),
    named("group", GROUP),
    named("broker", BROKER),
    named("regulator", REGULATOR),
    named("lock", LOCK),
    named("range", RANGE),
    named("view", VIEW),
    one("front", FRONT),
    named("app", APP),
];

const fn one(name: &'static str, keys: &'static [Key]) -> Part {
    Part {
        name,
        is_named: false,
        keys,
    }
}

const fn named(name: &'static str, keys: &'static [Key]) -> Part {
    Part {
        name,
        is_named: true,
        keys,
    }
}

/// Every key with what a change of it takes, as `pool.*.queue.max`.
pub fn all() -> Vec<(String, Change)> {
    let mut found = Vec::new();
    for part in PARTS {
        let name = if part.is_named { ".*" } else { "" };
        walk(&format!("{}{name}", part.name), part.keys, &mut found);
    }
    found
}

fn walk(path: &str, keys: &[Key], found: &mut Vec<(String, Change)>) {
    for key in keys {
        let path = format!("{path}.{}", key.name);
        found.push((path.clone(), key.change));
        walk(&path, key.below, found);
    }
}

/// What a change of a key takes that is written as `pool.pg-1.max`.
pub fn change_of(path: &str) -> Change {
    let keys = toml_edit::Key::parse(path).unwrap_or_default();
    let parts: Vec<&str> = keys.iter().map(toml_edit::Key::get).collect();
    change(&parts).unwrap_or(Change::Live)
}

/// What a change of `path` takes. A path that goes on below a key is the key's.
pub(super) fn change(path: &[&str]) -> Option<Change> {
    let (first, rest) = path.split_first()?;
    let part = PARTS.iter().find(|part| part.name == *first)?;
    let mut rest = rest.get(usize::from(part.is_named)..)?;
    let mut keys = part.keys;
    let mut change = Change::Live;
    while let Some((name, more)) = rest.split_first() {
        if keys.is_empty() {
            return Some(change);
        }
        let key = keys.iter().find(|key| key.name == *name)?;
        (change, keys, rest) = (key.change, key.below, more);
    }
    Some(change)
}
