//! The front of applications: where it listens, and what it bears.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rideau_core::apps::{self, EvictFor};

use super::access::{Hsts, HstsValue, HttpsRedirect, RateLimit, RateTable};
use super::access_log::{AccessFormat, AccessLog, HiddenPart, LogPlace};
use super::acme::{AcmeConfig, AcmeTable};
use super::compression::Compression;
use super::error_page::{ErrorPage, PageFiles};
use super::key::Key;
use super::kinds::{
    Answer, ByteRate, FullPath, List, Maybe, Number, OrNone, Positive, Size, Span, Word, Written,
    spelled,
};
use super::route::RouteConfig;
use super::section::{At, Made, Section};
use super::server::{Listen, address};
use super::static_files::{STATIC_SAMPLE, StaticFiles, StaticTables};
use super::table::section;
use super::waiting_room::{ROOM_SAMPLE, RoomTable, WaitingRoomConfig};

section! {
    /// Where HTTP comes in, and what all applications share.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct FrontConfig {
        plain {
            /// How many processes there may be.
            limits: apps::Limits = usual_limits();
            /// Its routes, which have sections of their own.
            routes: Vec<RouteConfig> = Vec::new();
        }
        /// Where HTTP is spoken; without it the apps cannot be reached. Also
        /// `"unix:/run/rideau/web.sock"`, with the mode `server.socket_mode`, and `"fd:NAME"`: the
        /// sockets that a supervisor passed with this name (`LISTEN_FDNAMES`).
        listen: Vec<FrontListen> = Vec::new(), List, Restart, sample = r#"["127.0.0.1:3000"]"#;
        /// The same within TLS; needs a `[certificate.NAME]` or `[front.acme]`.
        tls_listen: Vec<SocketAddr> = Vec::new(), List, Restart, sample = r#"["127.0.0.1:3443"]"#;
        /// `"auto"`: a request that came without TLS is sent to `https` with a 308, if its host
        /// has a certificate and TLS is spoken. `"none"`: never.
        redirect_https: HttpsRedirect = HttpsRedirect::Auto, Word, Requests;
        /// Answers within TLS tell browsers to use TLS alone from then on
        /// (`Strict-Transport-Security`): for how long, or a table.
        hsts: Option<Hsts> = None, HstsValue, Connections, usual = r#""none""#,
            sample = r#"{ max_age = "180d", subdomains = false, preload = false }"#;
        /// Certificates that are ordered from an authority that speaks ACME, such as Let's
        /// Encrypt, and renewed.
        acme: Option<AcmeConfig> = None, AcmeTable, Live;
        /// Processes of all apps together.
        max => (limits.max): usize, Number, Live, bounds = (1, PROCESSES_MAX), sample = "24",
            usual = "one for each 256 MiB of memory, and 6 at least";
        /// How many more there may be while others end, so that a replacement can start
        /// before the old one has ended.
        headroom => (limits.headroom): usize, Number, Live, bounds = (0, PROCESSES_MAX);
        /// How many start at a time.
        starts_max => (limits.starts_max): usize, Number, Live, bounds = (1, PROCESSES_MAX),
            sample = "2", usual = "one for each core";
        /// What the choice of the process to stop should keep low: `"latency"`, the time that
        /// requests wait for starts, or `"count"`, the number of starts.
        evict_for => (limits.evict_for): EvictFor, Word, Live;
        /// An app that has waited this long for room gets a process slot of the app furthest
        /// above its share; twice the time of a start if that is longer.
        starve_min => (limits.starve_min): Duration, Span, Live;
        /// Networks whose `X-Forwarded-*` is believed; from all others it is replaced. What comes
        /// by a socket in the file system is believed, too.
        trust: Vec<Network> = Vec::new(), List, Requests, sample = r#"["10.0.0.0/8", "::1"]"#;
        /// Peers in `trust`, and those of sockets in the file system, begin each connection with a
        /// PROXY header (version 1 or 2), which says for which client they speak. One that does not
        /// is told 400, and so is a header from any other peer.
        proxy_protocol: bool = false, Answer, Connections;
        /// Only clients of these networks are served; empty: all. Others are told 403 `denied`. The
        /// address is that which a peer in `trust` speaks for.
        allow: Vec<Network> = Vec::new(), List, Requests, sample = r#"["0.0.0.0/0", "::/0"]"#,
            above = "Which clients may come, and how often.";
        /// Clients of these networks are not served, whatever `allow` says.
        deny: Vec<Network> = Vec::new(), List, Requests, sample = r#"["203.0.113.0/24"]"#;
        /// Connections of one address at a time, or of one /64 of IPv6. Peers in `trust` have no
        /// such limit, for they speak for many.
        client_connections_max: Option<usize> = Some(256), OrNone<Number>, Connections,
            bounds = (1, 10_000_000);
        /// How often one client may ask, all apps together. What is over it is told 429
        /// `rate_limited`.
        rate_limit: Option<RateLimit> = None, RateTable, Requests, usual = r#""none""#,
            sample = r#"{ rate = "100/s", burst = 200, by = "client" }"#;
        /// The log of requests: the full path of a file, or `"stdout"`. SIGUSR1 opens the file
        /// anew.
        access_log: AccessLog = AccessLog::None, LogPlace, Requests,
            above = "The log of requests, and pages for the front's own answers.";
        /// The form of its lines; `"json"` says more.
        access_format: AccessFormat = AccessFormat::Combined, Word, Requests;
        /// What is left out: `"client"` (the end of the address), `"query"`, `"query:NAME"` (the
        /// value of an argument), `"header:referer"`, `"header:user-agent"`.
        access_hide: Vec<HiddenPart> = Vec::new(), List, Requests,
            sample = r#"["query:token", "header:referer"]"#;
        /// Pages for the front's own answers, by status: `503`, or `"5xx"` for all that begin so.
        /// `{status}`, `{id}` and `{retry_after}` are filled in. Apps may have others.
        error_page: Vec<ErrorPage> = Vec::new(), PageFiles, Requests, usual = "{}",
            sample = "{}";
        /// The waiting room of every app that says nothing else: browsers that would wait longer
        /// get a page that says their place in the line.
        waiting_room: Option<WaitingRoomConfig> = None, RoomTable, Requests,
            usual = r#""none""#, sample = ROOM_SAMPLE;
        /// Files that the front serves to `GET` and `HEAD` by itself, for every app that says
        /// nothing else. What there is no file for goes to the app.
        static_files: Vec<StaticFiles> = Vec::new(), StaticTables, Requests, name = "static",
            usual = r#""none""#, sample = STATIC_SAMPLE,
            above = "Files that the front serves by itself, and compression of answers.";
        /// Answers are compressed in these ways, `"zstd"` and `"gzip"`. A client gets the one that
        /// it prefers, or else the first that it takes. Empty: none are.
        compress: Vec<Compression> = Vec::new(), List, Requests,
            sample = r#"["zstd", "gzip"]"#;
        /// Shorter answers are not compressed.
        compress_min: u64 = 1 << 10, Size, Requests, bounds = (0, SIZE_MAX);
        /// `"detailed"` shows the details of a failed start: for developers.
        error_pages: ErrorPages = ErrorPages::Short, Word, Requests;
        /// Bytes of the head of a request.
        header_max: u64 = 64 << 10, Size, Connections, bounds = (1024, 16 << 20);
        /// Fields of the head.
        headers_max: usize = 100, Number, Connections, bounds = (1, 10_000);
        /// How long a client has to send the head.
        header_timeout: Duration = Duration::from_secs(10), Positive, Connections;
        /// A connection without a request for this long is closed.
        idle_timeout: Duration = Duration::from_secs(75), Positive, Connections;
        /// A file in the form of `/etc/hosts`: names of servers that it has are not looked up in
        /// any other way. It is read at each lookup.
        hosts_file: Option<PathBuf> = None, OrNone<FullPath>, Live,
            sample = r#""/etc/rideau/hosts""#;
        /// Where bodies wait for slow clients that are too long for memory; the files have no
        /// names.
        buffer_dir: Option<PathBuf> = None, Maybe<FullPath>, Live, usual = "TMPDIR, or /var/tmp",
            sample = r#""/var/cache/rideau""#;
        /// Memory for bodies of requests and answers that wait for slow clients. An address has
        /// a quarter of it at most; what does not fit goes to files.
        buffer_memory: u64 = 64 << 20, Size, Live, bounds = (0, SIZE_MAX);
        /// The same in files. A tenth of the file system stays free. Requests for which there is
        /// no room at all are refused.
        buffer_disk: u64 = 4 << 30, Size, Live, bounds = (0, SIZE_MAX);
        /// A client that sends a body more slowly is refused: over 20 s, and not in the first
        /// 20 s.
        body_rate_min: Option<u64> = Some(500), OrNone<ByteRate>, Requests, bounds = (1, SIZE_MAX);
        /// A client that takes an answer more slowly is cut off: over 60 s in which there is
        /// something to send.
        send_rate_min: Option<u64> = Some(500), OrNone<ByteRate>, Requests, bounds = (1, SIZE_MAX);
        /// How long requests have to finish when the server stops.
        shutdown_timeout: Duration = Duration::from_secs(30), Span, Live;
        /// Connections at a time.
        connections_max: usize = 10_000, Number, Live, bounds = (1, 10_000_000);
    }
}

/// A place where the front listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrontListen {
    /// It opens a socket there, or has the one that was passed for it.
    At(Listen),
    /// It has the sockets that were passed with this name.
    Passed(String),
}

/// Addresses that begin alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// How they begin.
    pub address: IpAddr,
    /// This many bits.
    pub bits: u8,
}

/// How much is told of what went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorPages {
    /// That it did, and its id.
    #[default]
    Short,
    /// All that is known, for developers.
    Detailed,
}

const PROCESSES_MAX: u64 = 100_000;
/// No machine has more.
const SIZE_MAX: u64 = 1 << 50;
/// One process for as much memory, if the file does not say how many.
const MEMORY_OF_ONE: u64 = 256 << 20;

spelled! { EvictFor { Latency "latency", Count "count" } }
spelled! { ErrorPages { Short "short", Detailed "detailed" } }

impl FrontConfig {
    /// Every address of the section, with its key and place.
    pub(super) fn addresses(section: &Section<'_>) -> Vec<(&'static str, SocketAddr, At)> {
        let mut all = Vec::new();
        for (key, name) in [
            ("listen", "front.listen"),
            ("tls_listen", "front.tls_listen"),
        ] {
            for (text, at) in section.list(key).unwrap_or_default() {
                all.extend(address(&text).map(|address| (name, address, at)));
            }
        }
        all
    }
}

impl From<SocketAddr> for FrontListen {
    fn from(address: SocketAddr) -> Self {
        Self::At(Listen::Tcp(address))
    }
}

impl fmt::Display for FrontListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(listen) => listen.fmt(f),
            Self::Passed(name) => write!(f, "fd:{name}"),
        }
    }
}

impl Written for FrontListen {
    fn make(text: &str, key: &Key) -> Made<Self> {
        let Some(name) = text.strip_prefix("fd:") else {
            return Listen::make(text, key).map(Self::At);
        };
        // These are the names that systemd takes.
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name) {
            let message = format!("{name:?} is not the name of a passed socket");
            return Err((
                message,
                "write \"fd:web\" for FileDescriptorName=web".into(),
            ));
        }
        Ok(Self::Passed(name.into()))
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl Network {
    /// Is this address one of them?
    pub fn has(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 4),
            IpAddr::V6(address) => (u128::from(address), 6),
        };
        let ((ours, kind), (theirs, its)) = (bits(self.address), bits(address));
        let rest = 128 - u32::from(self.bits);
        kind == its && (ours ^ theirs).checked_shr(rest).unwrap_or(0) == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == bits_of(self.address) {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

impl Written for Network {
    fn make(text: &str, _: &Key) -> Made<Self> {
        network(text)
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

fn usual_limits() -> apps::Limits {
    apps::Limits {
        max: usual_max(),
        starts_max: thread::available_parallelism().map_or(2, usize::from),
        ..apps::Limits::default()
    }
}

/// Read `10.0.0.0/8`, or `::1` for one address.
fn network(text: &str) -> Made<Network> {
    let none = |hint: String| Err((format!("{text:?} is not a network"), hint));
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let usual = "write it as \"10.0.0.0/8\", \"2001:db8::/32\" or \"127.0.0.1\"";
    let Ok(given) = address.parse::<IpAddr>() else {
        return none(usual.into());
    };
    let most = bits_of(given);
    let Some(bits) = bits.map_or(Some(most), |bits| bits.parse().ok()) else {
        return none(usual.into());
    };
    if bits > most {
        return none(format!("its address has {most} bits"));
    }
    let address = given.to_canonical();
    let Some(bits) = bits.checked_sub(most - bits_of(address)) else {
        return none("write IPv4 addresses without ::ffff:".into());
    };
    let first = first_of(address, bits);
    if first != address {
        return none(format!(
            "its first address is {first}: write \"{first}/{bits}\""
        ));
    }
    Ok(Network { address, bits })
}

/// The first address that begins like this one.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    let rest = u32::from(bits_of(address) - bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn usual_max() -> usize {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib << 10)
    });
    let fitting = total.map_or(0, |total| (total / MEMORY_OF_ONE) as usize);
    fitting.max(apps::Limits::default().max)
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let of = |address: &str, bits| Network {
            address: address.parse().expect("an address"),
            bits,
        };
        let has = |network: Network, address: &str| network.has(address.parse().expect("one"));
        assert!(has(of("10.0.0.0", 8), "10.255.3.4"));
        assert!(!has(of("10.0.0.0", 8), "11.0.0.1"));
        assert!(has(of("10.0.0.0", 8), "::ffff:10.1.2.3"));
        assert!(has(of("0.0.0.0", 0), "192.168.1.1"));
        assert!(!has(of("0.0.0.0", 0), "2001:db8::1"));
        assert!(has(of("2001:db8::", 32), "2001:db8:9::1"));
        assert!(has(of("127.0.0.1", 32), "127.0.0.1"));
        assert!(!has(of("127.0.0.1", 32), "127.0.0.2"));
    }
}
