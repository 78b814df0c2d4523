//! The server itself: where it listens, what it bears, how it logs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::allocator;

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{
    Answer, Kind, List, Maybe, Number, OrNone, Path, Positive, Size, Span, Table, Text, Word,
    Words, Written, spelled, text_kinds,
};
use super::section::{At, Made, Section};
use super::shown::Rows;
use super::table::section;
use super::words::{show_span, span};

section! {
    /// Where the server listens and how it treats clients.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Server {
        /// The name of this server.
        name: String = "rideau".into(), Text, Live, sample = r#""${RIDEAU_NAME:-rideau}""#;
        /// Where the Redis protocol is spoken; also `"unix:/run/rideau.sock"`.
        listen: Vec<Listen> = usual_listen(), List, Restart;
        /// The same within TLS; needs `[tls]`.
        tls_listen: Vec<SocketAddr> = Vec::new(), List, Restart, sample = r#"["127.0.0.1:7443"]"#;
        /// Dashboard, `/metrics` and API; `"none"`: nowhere.
        admin: Option<SocketAddr> = Some(loopback(ADMIN_PORT)), OrNone<Text>, Restart;
        /// The same within TLS; needs `[tls]`.
        tls_admin: Option<SocketAddr> = None, OrNone<Text>, Restart,
            sample = r#""127.0.0.1:7444""#;
        /// The mode of Unix sockets: who may use them.
        socket_mode: u32 = 0o660, Mode, Restart;
        /// Sockets of processes that are members.
        run_dir: Option<PathBuf> = None, Maybe<Folder>, Restart, sample = r#""/run/rideau/main""#,
            usual = "the first of /run/rideau/NAME, $XDG_RUNTIME_DIR/rideau/NAME and \
                     /tmp/rideau-UID/NAME that the server may write to";
        /// Threads that serve connections; 0: one per core, and one per core for the front.
        threads: Option<usize> = None, Threads, Restart, bounds = (0, 1024);
        /// `"yes, anyone may"`: listen outside without users.
        is_open_to_anyone: bool = false, Openness, Live, name = "insecure";
        /// The longest `WAIT` that a client may ask for.
        wait_max: Duration = Duration::from_secs(30), Positive, Live;
        /// The `WAIT` of an ask that names none.
        // Below the three seconds after which common clients give up.
        wait_default: Duration = Duration::from_secs(2), Span, Live;
        /// A silent peer is probed after `idle`, again after `every`, and dead after `probes`.
        dead_peer: DeadPeer = DeadPeer::default(), Table, Connections;
        /// How long holders have to finish when the server stops.
        drain: Duration = Duration::from_secs(20), Span, Live;
        /// How long and how finely charts remember: a span and a step.
        history: History = History::default(), Table, Restart;
    }
}

/// A place to listen at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

section! {
    /// TCP's own probes of a silent peer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DeadPeer {
        /// Probe after this long without a byte.
        idle: Duration = Duration::from_secs(10), Positive, Connections;
        /// Probe again after this long.
        every: Duration = Duration::from_secs(5), Positive, Connections;
        /// It is dead after this many probes without an answer.
        probes: u32 = 3, Number, Connections, bounds = (1, 100);
    }
}

section! {
    /// How long the charts remember.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct History {
        /// The last minutes.
        fine: Series = Series::of(600, 1), Text, Restart;
        /// The last hours.
        coarse: Series = Series::of(6 * 3600, 15), Text, Restart;
    }
}

/// One value in each step of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// How far back it goes.
    pub span: Duration,
    /// How far its values are apart.
    pub step: Duration,
}

section! {
    /// Limits of what clients can use up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Limits {
        /// Connections at a time.
        connections_max: usize = 10_000, Number, Live, bounds = (1, 10_000_000);
        /// One command.
        frame_max: u64 = MIB, Size, Live, bounds = (KIB, 1024 * MIB);
        /// Incomplete commands of all connections; 16KiB of each are free.
        input_max: u64 = 256 * MIB, Size, Live, bounds = (KIB, 1024 * 1024 * MIB);
        /// Commands behind one that waits.
        pipeline_max: u64 = 64 * KIB, Size, Live, bounds = (KIB, 1024 * MIB);
        /// Replies that a client has not read, and the rows of one.
        output_max: u64 = MIB, Size, Live, bounds = (KIB, 1024 * MIB);
        /// Keys of locks.
        keys_max: usize = 1_000_000, Number, Live, bounds = (1, MANY);
        /// Asks that wait, anywhere.
        waiters_max: usize = 100_000, Number, Live, bounds = (1, MANY);
        /// Leases and asks of one holder.
        held_max: usize = 100_000, Number, Live, bounds = (1, MANY);
        /// Sessions.
        sessions_max: usize = 10_000, Number, Live, bounds = (1, MANY);
        /// Pools, brokers and others added at run time.
        names_max: usize = 1_000, Number, Live, bounds = (1, 1_000_000);
        /// Bytes of a name or a key, also of those that clients choose.
        name_len_max: usize = 128, Number, Live, bounds = (1, 4096);
        /// Where there are users, a connection has this long to log in.
        login_within: Duration = Duration::from_secs(10), Positive, Live;
        /// Connections of one address that have not logged in.
        before_login_max: usize = 256, Number, Live, bounds = (1, MANY);
        /// Passwords checked at a time; each takes 19 MiB.
        password_checks_max: usize = 2, Number, Live, bounds = (1, 1024);
        /// Values of ranges that have holders.
        reservations_max: usize = 50_000_000, Number, Restart, bounds = (1, MANY);
        /// Ranges.
        // One number is that of values that have lost their range.
        ranges_max: usize = 1_000, Number, Live, bounds = (1, 4_095);
        /// Keys of one reservation.
        range_keys_max: usize = allocator::KEYS_MAX, Number, Live,
            bounds = (1, allocator::KEYS_MAX as u64);
        /// The data of one value.
        range_data_max: u64 = allocator::DATA_LEN_MAX as u64, Size, Live,
            bounds = (1, allocator::DATA_LEN_MAX as u64);
        /// Views of ranges.
        views_max: usize = 256, Number, Live, bounds = (1, 4_095);
    }
}

section! {
    /// The files of TLS.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Tls {
        /// The server's certificate and those above it, PEM.
        cert: PathBuf = PathBuf::new(), File, Connections, usual = "required",
            sample = r#""/etc/rideau/tls/server.pem""#;
        /// Its key, PEM.
        key: PathBuf = PathBuf::new(), SecretFile, Connections, usual = "required",
            sample = r#""/etc/rideau/tls/server.key""#;
        /// Clients need a certificate signed by it, and its name is the name of the user.
        client_ca: Option<PathBuf> = None, Maybe<File>, Connections,
            sample = r#""/etc/rideau/tls/clients.pem""#;
    }
}

section! {
    /// How much is logged, and how.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Log {
        /// How much is logged.
        level: LogLevel = LogLevel::Info, Word, Live;
        /// The form of a line: for people, or for programs.
        format: LogFormat = LogFormat::Text, Word, Restart;
        /// `"10s"`: every decision is logged for this long after the start.
        debug_for: Option<Duration> = None, OrNone<Positive>, Restart;
        /// Lines have the time. Supervisors such as systemd write it themselves.
        has_times: bool = true, Answer, Restart, name = "times";
    }
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Only what makes us stop.
    Error,
    /// Events that deserve an alert if they happen often.
    Warn,
    /// Things that started and ended.
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
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const MANY: u64 = 1_000_000_000;
/// The value that allows every client without users.
pub(super) const OPEN_TO_ANYONE: &str = "yes, anyone may";

spelled! { LogLevel {
    Error "error", Warn "warn", Info "info", Debug "debug", Trace "trace",
} }
spelled! { LogFormat { Text "text", Json "json" } }

/// A file that has to be there.
pub(super) struct File;
/// The same, and no other user should read it.
pub(super) struct SecretFile;
/// How many threads; zero for the usual number.
struct Threads;
text_kinds! {
    /// A folder with its full path.
    pub(super) Folder: PathBuf, Form::Path, |text, key| match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err((
            format!("the folder {text:?} has no full path"),
            format!("write {}", key.sample),
        )),
    }, |path| path.display().to_string();

    /// The mode of a file, in octal digits.
    Mode: u32, Form::Text, |text, _| {
        let mode = u32::from_str_radix(text, 8).ok();
        mode.filter(|mode| *mode <= 0o777).ok_or_else(|| {
            let message = format!("{text:?} is not the mode of a file");
            (message, "write three octal digits, such as \"660\"".into())
        })
    }, |mode| format!("{mode:03o}");

    /// The value that allows every client without users.
    Openness: bool, Form::Words(&["no", OPEN_TO_ANYONE]), |text, _| match text {
        OPEN_TO_ANYONE => Ok(true),
        "no" => Ok(false),
        _ => {
            let hint = format!("if anyone may use this server, write {OPEN_TO_ANYONE:?}");
            Err((format!("`insecure` cannot be {text:?}"), hint))
        }
    }, |is_open| if *is_open { OPEN_TO_ANYONE } else { "no" }.into();
}

impl Server {
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
                all.extend(address(&text).map(|address| (key, address, at)));
            }
        }
        all
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
        let mut tls = Self::default();
        tls.read_keys(section);
        let is_whole = section.text("cert").is_some() && section.text("key").is_some();
        is_whole.then_some(tls)
    }
}

impl LogLevel {
    /// The level as it is written.
    pub fn word(self) -> &'static str {
        self.as_word()
    }
}

impl LogFormat {
    /// The format as it is written.
    pub fn word(self) -> &'static str {
        self.as_word()
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

impl Kind<PathBuf> for File {
    const FORM: Form = Form::Path;

    fn read(section: &Section<'_>, key: &Key) -> Option<PathBuf> {
        let path = Path::read(section, key)?;
        section.notes.file(path.clone(), section.at(key.name));
        Some(path)
    }

    fn show(value: &PathBuf, key: &Key, rows: &mut Rows) {
        Path::show(value, key, rows);
    }
}

impl Kind<PathBuf> for SecretFile {
    const FORM: Form = Form::Path;

    fn read(section: &Section<'_>, key: &Key) -> Option<PathBuf> {
        let path = Path::read(section, key)?;
        section
            .notes
            .secret_file(path.clone(), section.at(key.name));
        Some(path)
    }

    fn show(value: &PathBuf, key: &Key, rows: &mut Rows) {
        Path::show(value, key, rows);
    }
}

impl Kind<Option<usize>> for Threads {
    const FORM: Form = Form::Number;

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<usize>> {
        let threads = Number::read(section, key)?;
        Some(Some(threads).filter(|threads| *threads > 0))
    }

    fn show(value: &Option<usize>, key: &Key, rows: &mut Rows) {
        Number::show(&value.unwrap_or(0), key, rows);
    }
}

impl Written for Listen {
    fn make(text: &str, key: &Key) -> Made<Self> {
        let Some(path) = text.strip_prefix("unix:") else {
            return SocketAddr::make(text, key).map(Self::Tcp);
        };
        if !path.starts_with('/') {
            let message = format!("the socket {path:?} has no full path");
            return Err((message, "write \"unix:/run/rideau.sock\"".into()));
        }
        Ok(Self::Unix(path.into()))
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl Series {
    const fn of(span: u64, step: u64) -> Self {
        Self {
            span: Duration::from_secs(span),
            step: Duration::from_secs(step),
        }
    }
}

impl Written for Series {
    fn make(text: &str, _: &Key) -> Made<Self> {
        series(text)
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn usual_listen() -> Vec<Listen> {
    // Some clients take `localhost` for the second one.
    let second = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), PORT);
    vec![Listen::Tcp(loopback(PORT)), Listen::Tcp(second)]
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
        (format!("{text:?} is not a history"), hint)
    })
}

/// The address that a text is, if it is one.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    SocketAddr::make(text, &Key::BARE).ok()
}
