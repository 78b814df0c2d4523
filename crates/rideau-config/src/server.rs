//! The server itself: where it listens, what it bears, how it logs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::allocator;

use super::keys;
use super::section::{At, Section};
use super::words::{show_span, span};

/// Where the server listens and how it treats clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// How this server calls itself.
    pub name: String,
    /// Where it speaks the Redis protocol.
    pub listen: Vec<Listen>,
    /// Where it does so within TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// Where the status page, the metrics and the API are; none for nowhere.
    pub admin: Option<SocketAddr>,
    /// Where the same is within TLS; none for nowhere.
    pub tls_admin: Option<SocketAddr>,
    /// The mode of Unix sockets.
    pub socket_mode: u32,
    /// Where the sockets of members that are processes are; none for the first
    /// place that will do.
    pub run_dir: Option<PathBuf>,
    /// This many lanes for connections; none for one per core, and as many of
    /// its own for the front.
    pub threads: Option<usize>,
    /// Any client that can reach the server may use it, said in so many words.
    pub is_open_to_anyone: bool,
    /// The longest wait that a client may ask for.
    pub wait_max: Duration,
    /// The wait of a client that asks for none.
    pub wait_default: Duration,
    /// When a silent peer counts as dead.
    pub dead_peer: DeadPeer,
    /// How long holders have to finish when the server stops.
    pub drain: Duration,
    /// What the charts remember.
    pub history: History,
}

/// A place to listen at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// TCP's own probes of a silent peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadPeer {
    /// Probe after this long without a word.
    pub idle: Duration,
    /// Probe again after this long.
    pub every: Duration,
    /// It is dead after this many probes without an answer.
    pub probes: u32,
}

/// What the charts remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// The last minutes.
    pub fine: Series,
    /// The last hours.
    pub coarse: Series,
}

/// One value in each step of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// How far back it goes.
    pub span: Duration,
    /// How far its values are apart.
    pub step: Duration,
}

/// What an outsider can fill, and how far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Bytes of one command.
    pub frame_max: u64,
    /// Bytes that all connections have sent and not finished, beyond the little
    /// that each may have anyway.
    pub input_max: u64,
    /// Bytes of commands behind one that waits.
    pub pipeline_max: u64,
    /// Bytes of replies that a client has not read.
    pub output_max: u64,
    /// Keys of locks that are known.
    pub keys_max: usize,
    /// The asks that wait, anywhere.
    pub waiters_max: usize,
    /// What one holder holds.
    pub held_max: usize,
    /// Sessions.
    pub sessions_max: usize,
    /// Pools, brokers and others that are added at run time.
    pub names_max: usize,
    /// Bytes of a name or a key.
    pub name_len_max: usize,
    /// A connection has logged in by then, where there are users.
    pub login_within: Duration,
    /// Connections of one address that have not logged in.
    pub before_login_max: usize,
    /// Passwords that are checked at a time.
    pub password_checks_max: usize,
    /// Values of ranges that have holders.
    pub reservations_max: usize,
    /// Ranges.
    pub ranges_max: usize,
    /// Keys of one reservation.
    pub range_keys_max: usize,
    /// Bytes that stand beside one value.
    pub range_data_max: u64,
    /// Views of ranges.
    pub views_max: usize,
}

/// The files of TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Our certificate and those above it, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients, if they need one. The
    /// name in it is the name of the user.
    pub client_ca: Option<PathBuf>,
}

/// How much is logged, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// How much.
    pub level: LogLevel,
    /// How.
    pub format: LogFormat,
    /// Every decision is logged for so long after the start.
    pub debug_for: Option<Duration>,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Only what makes us stop.
    Error,
    /// What is worth an alert if it happens often.
    Warn,
    /// What came and went.
    Info,
    /// Every decision.
    Debug,
    /// Every input.
    Trace,
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Where the Redis protocol is spoken: R-I-D-E on the keys of a telephone.
const PORT: u16 = 7433;
const ADMIN_PORT: u16 = 7434;
const MIB: u64 = 1024 * 1024;
/// What has to be said to serve anyone from anywhere.
pub(super) const OPEN_TO_ANYONE: &str = "yes, anyone may";
const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
const FORMATS: &[&str] = &["text", "json"];

impl Default for Server {
    fn default() -> Self {
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        // Some clients take `localhost` for this one.
        let loopback_v6 = |port| SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port);
        let series = |span, step| Series {
            span: Duration::from_secs(span),
            step: Duration::from_secs(step),
        };
        Self {
            name: "rideau".into(),
            listen: vec![Listen::Tcp(loopback(PORT)), Listen::Tcp(loopback_v6(PORT))],
            tls_listen: Vec::new(),
            admin: Some(loopback(ADMIN_PORT)),
            tls_admin: None,
            socket_mode: 0o660,
            run_dir: None,
            threads: None,
            is_open_to_anyone: false,
            wait_max: Duration::from_secs(30),
            // Below the three seconds after which common clients give up.
            wait_default: Duration::from_secs(2),
            dead_peer: DeadPeer {
                idle: Duration::from_secs(10),
                every: Duration::from_secs(5),
                probes: 3,
            },
            drain: Duration::from_secs(20),
            history: History {
                fine: series(600, 1),
                coarse: series(6 * 3600, 15),
            },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            frame_max: MIB,
            input_max: 256 * MIB,
            pipeline_max: 64 * 1024,
            output_max: MIB,
            keys_max: 1_000_000,
            waiters_max: 100_000,
            held_max: 100_000,
            sessions_max: 10_000,
            names_max: 1_000,
            name_len_max: 128,
            login_within: Duration::from_secs(10),
            before_login_max: 256,
            password_checks_max: 2,
            reservations_max: 50_000_000,
            ranges_max: 1_000,
            range_keys_max: allocator::KEYS_MAX,
            range_data_max: allocator::DATA_LEN_MAX as u64,
            views_max: 256,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Text,
            debug_for: None,
        }
    }
}

impl Server {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let default = Self::default();
        let listen = section.list("listen").map(|list| {
            let places = list.iter();
            places
                .filter_map(|(text, at)| note(section, at, listen(text)))
                .collect()
        });
        let tls_listen = section.list("tls_listen").map(|list| {
            let places = list.iter();
            places
                .filter_map(|(text, at)| note(section, at, address(text)))
                .collect()
        });
        let address_or_none = |text: &str| match text {
            "none" => Ok(None),
            text => address(text).map(Some),
        };
        let admin = section.made("admin", address_or_none);
        let tls_admin = section.made("tls_admin", address_or_none);
        Self {
            name: section.text("name").unwrap_or(default.name),
            listen: listen.unwrap_or(default.listen),
            tls_listen: tls_listen.unwrap_or_default(),
            admin: admin.unwrap_or(default.admin),
            tls_admin: tls_admin.unwrap_or_default(),
            socket_mode: section
                .made("socket_mode", mode)
                .unwrap_or(default.socket_mode),
            run_dir: section.made("run_dir", full_path),
            threads: section
                .number("threads", 0..=1024)
                .filter(|threads| *threads > 0),
            is_open_to_anyone: section.made("insecure", is_open).unwrap_or(false),
            wait_max: section
                .positive_span("wait_max")
                .unwrap_or(default.wait_max),
            wait_default: section.span("wait_default").unwrap_or(default.wait_default),
            dead_peer: section
                .part("dead_peer", "`dead_peer`", keys::DEAD_PEER)
                .map_or(default.dead_peer, |part| DeadPeer::read(&part)),
            drain: section.span("drain").unwrap_or(default.drain),
            history: section
                .part("history", "`history`", keys::HISTORY)
                .map_or(default.history, |part| History::read(&part)),
        }
    }

    /// The addresses of a server that is told nothing.
    pub(super) fn usual_addresses() -> Vec<(&'static str, SocketAddr, At)> {
        let default = Self::default();
        let tcp = default.listen.iter().filter_map(|listen| match listen {
            Listen::Tcp(address) => Some(("listen", *address, 0..0)),
            Listen::Unix(_) => None,
        });
        let admin = default.admin.map(|address| ("admin", address, 0..0));
        tcp.chain(admin).collect()
    }

    /// Every address of the section, with its key and place.
    pub(super) fn addresses(section: &Section<'_>) -> Vec<(&'static str, SocketAddr, At)> {
        // First what is not given: a clash is the fault of what is.
        let mut all = Self::usual_addresses();
        all.retain(|(key, _, _)| !section.has(key));
        for (_, _, at) in &mut all {
            *at = section.at.clone();
        }
        for key in ["listen", "tls_listen", "admin", "tls_admin"] {
            for (text, at) in section.list(key).unwrap_or_default() {
                all.extend(address(&text).ok().map(|address| (key, address, at)));
            }
        }
        all
    }
}

impl DeadPeer {
    fn read(section: &Section<'_>) -> Self {
        let default = Server::default().dead_peer;
        Self {
            idle: section.positive_span("idle").unwrap_or(default.idle),
            every: section.positive_span("every").unwrap_or(default.every),
            probes: section.number("probes", 1..=100).unwrap_or(default.probes),
        }
    }
}

impl History {
    fn read(section: &Section<'_>) -> Self {
        let default = Server::default().history;
        Self {
            fine: section.made("fine", series).unwrap_or(default.fine),
            coarse: section.made("coarse", series).unwrap_or(default.coarse),
        }
    }
}

impl Limits {
    pub(super) fn read(section: &Section<'_>) -> Self {
        const MANY: usize = 1_000_000_000;
        let default = Self::default();
        let count = |key, most, default| section.number(key, 1..=most).unwrap_or(default);
        let bytes = |key, least, default| {
            let size = section.size(key, least..=1024 * MIB);
            size.unwrap_or(default)
        };
        Self {
            connections_max: count("connections_max", 10_000_000, default.connections_max),
            frame_max: bytes("frame_max", 1024, default.frame_max),
            input_max: section
                .size("input_max", 1024..=1024 * 1024 * MIB)
                .unwrap_or(default.input_max),
            pipeline_max: bytes("pipeline_max", 1024, default.pipeline_max),
            output_max: bytes("output_max", 1024, default.output_max),
            keys_max: count("keys_max", MANY, default.keys_max),
            waiters_max: count("waiters_max", MANY, default.waiters_max),
            held_max: count("held_max", MANY, default.held_max),
            sessions_max: count("sessions_max", MANY, default.sessions_max),
            names_max: count("names_max", 1_000_000, default.names_max),
            name_len_max: count("name_len_max", 4096, default.name_len_max),
            login_within: section
                .positive_span("login_within")
                .unwrap_or(default.login_within),
            before_login_max: count("before_login_max", MANY, default.before_login_max),
            password_checks_max: count("password_checks_max", 1024, default.password_checks_max),
            reservations_max: count("reservations_max", MANY, default.reservations_max),
            // One number is that of values that have lost their range.
            ranges_max: count("ranges_max", 4_095, default.ranges_max),
            range_keys_max: count(
                "range_keys_max",
                allocator::KEYS_MAX,
                default.range_keys_max,
            ),
            range_data_max: section
                .size("range_data_max", 1..=default.range_data_max)
                .unwrap_or(default.range_data_max),
            views_max: count("views_max", 4_095, default.views_max),
        }
    }
}

impl Tls {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        for key in ["cert", "key"] {
            if !section.has(key) {
                let message = format!("[tls] has no `{key}`");
                let hint = format!("write {key} = \"/path/to/file.pem\"");
                section.notes.error(section.at.clone(), message, hint);
            }
        }
        let path = |key| {
            let path = PathBuf::from(section.text(key)?);
            match key {
                "key" => section.notes.secret_file(path.clone(), section.at(key)),
                _ => section.notes.file(path.clone(), section.at(key)),
            }
            Some(path)
        };
        let client_ca = path("client_ca");
        Some(Self {
            cert: path("cert")?,
            key: path("key")?,
            client_ca,
        })
    }
}

impl Log {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let levels = [
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
            LogLevel::Trace,
        ];
        let default = Self::default();
        let level = section.word("level", LEVELS);
        let format = section.word("format", FORMATS);
        Self {
            level: level.map_or(default.level, |at| levels[at]),
            format: format.map_or(default.format, |at| [LogFormat::Text, LogFormat::Json][at]),
            debug_for: section.span_or_none("debug_for").flatten(),
        }
    }
}

impl LogLevel {
    /// The level as it is written.
    pub const fn word(self) -> &'static str {
        LEVELS[self as usize]
    }
}

impl LogFormat {
    /// The format as it is written.
    pub const fn word(self) -> &'static str {
        FORMATS[self as usize]
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", show_span(self.span), show_span(self.step))
    }
}

pub(super) type Made<T> = Result<T, (String, String)>;

/// What was made of a text, or none and its fault noted.
pub(super) fn note<T>(section: &Section<'_>, at: &At, made: Made<T>) -> Option<T> {
    made.map_err(|(message, hint)| section.notes.error(at.clone(), message, hint))
        .ok()
}

fn listen(text: &str) -> Made<Listen> {
    let Some(path) = text.strip_prefix("unix:") else {
        return address(text).map(Listen::Tcp);
    };
    if !path.starts_with('/') {
        let message = format!("the socket {path:?} has no full path");
        return Err((message, "write \"unix:/run/rideau.sock\"".into()));
    }
    Ok(Listen::Unix(path.into()))
}

pub(super) fn address(text: &str) -> Made<SocketAddr> {
    let local = text.replacen("localhost:", "127.0.0.1:", 1);
    local.parse().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("" | "*", port)) => {
                format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface")
            }
            _ => "write an address and a port, such as \"127.0.0.1:7433\" or \"[::1]:7433\"".into(),
        };
        (format!("{text:?} is no address to listen at"), hint)
    })
}

fn mode(text: &str) -> Made<u32> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
        let message = format!("{text:?} is no mode of a file");
        (message, "write three octal digits, such as \"660\"".into())
    })
}

fn full_path(text: &str) -> Made<PathBuf> {
    if !text.starts_with('/') {
        let message = format!("the folder {text:?} has no full path");
        return Err((message, "write \"/run/rideau/main\"".into()));
    }
    Ok(text.into())
}

fn is_open(text: &str) -> Made<bool> {
    match text {
        OPEN_TO_ANYONE => Ok(true),
        "no" => Ok(false),
        _ => {
            let hint = format!("if anyone may use this server, write {OPEN_TO_ANYONE:?}");
            Err((format!("`insecure` cannot be {text:?}"), hint))
        }
    }
}

/// Read `10m@1s`.
fn series(text: &str) -> Made<Series> {
    /// More values than this are no chart but a store.
    const STEPS_MAX: u128 = 100_000;
    let read = || {
        let (all, step) = text.split_once('@')?;
        let (all, step) = (span(all)?, span(step)?);
        let steps = all.as_nanos().checked_div(step.as_nanos())?;
        (1..=STEPS_MAX)
            .contains(&steps)
            .then_some(Series { span: all, step })
    };
    read().ok_or_else(|| {
        let hint =
            format!("write a span and a step, such as \"10m@1s\", of up to {STEPS_MAX} steps");
        (format!("{text:?} is no history"), hint)
    })
}
