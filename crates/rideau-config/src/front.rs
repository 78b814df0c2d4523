//! The front of applications: where it listens, and what it bears.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use rideau_core::apps::{self, EvictFor};

use super::section::{At, Section};
use super::server::{Made, address, note};

/// Where HTTP comes in, and what all applications share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontConfig {
    /// Where it speaks HTTP.
    pub listen: Vec<SocketAddr>,
    /// Where it does so within TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// How many processes there may be.
    pub limits: apps::Limits,
    /// The networks whose clients say truly on whose behalf they ask.
    pub trust: Vec<Network>,
    /// How much is told of what went wrong.
    pub error_pages: ErrorPages,
    /// Bytes of the head of a request.
    pub header_max: u64,
    /// Fields of it.
    pub headers_max: usize,
    /// A head has come by then.
    pub header_timeout: Duration,
    /// A connection that asks for nothing is closed.
    pub idle_timeout: Duration,
    /// How long requests have to finish when the server stops.
    pub shutdown_timeout: Duration,
    /// Connections at a time.
    pub connections_max: usize,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// How they begin.
    pub address: IpAddr,
    /// In as many bits.
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

const EVICT_FOR: &[&str] = &["latency", "count"];
const ERROR_PAGES: &[&str] = &["short", "detailed"];
/// One process for as much memory, if the file does not say how many.
const MEMORY_OF_ONE: u64 = 256 << 20;

impl Default for FrontConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            tls_listen: Vec::new(),
            limits: apps::Limits {
                max: usual_max(),
                starts_max: thread::available_parallelism().map_or(2, usize::from),
                ..apps::Limits::default()
            },
            trust: Vec::new(),
            error_pages: ErrorPages::Short,
            header_max: 64 << 10,
            headers_max: 100,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            shutdown_timeout: Duration::from_secs(30),
            connections_max: 10_000,
        }
    }
}

impl FrontConfig {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let default = Self::default();
        let trust = section.list("trust").unwrap_or_default();
        let trust = trust.iter();
        let pages = [ErrorPages::Short, ErrorPages::Detailed];
        let pages = section.word("error_pages", ERROR_PAGES).map(|at| pages[at]);
        let positive = |key, default| section.positive_span(key).unwrap_or(default);
        Self {
            listen: addresses(section, "listen"),
            tls_listen: addresses(section, "tls_listen"),
            limits: limits(section, default.limits),
            trust: trust
                .filter_map(|(text, at)| note(section, at, network(text)))
                .collect(),
            error_pages: pages.unwrap_or(default.error_pages),
            header_max: section
                .size("header_max", 1024..=16 << 20)
                .unwrap_or(default.header_max),
            headers_max: section
                .number("headers_max", 1..=10_000)
                .unwrap_or(default.headers_max),
            header_timeout: positive("header_timeout", default.header_timeout),
            idle_timeout: positive("idle_timeout", default.idle_timeout),
            shutdown_timeout: section
                .span("shutdown_timeout")
                .unwrap_or(default.shutdown_timeout),
            connections_max: section
                .number("connections_max", 1..=10_000_000)
                .unwrap_or(default.connections_max),
        }
    }

    /// Every address of the section, with its key and place.
    pub(super) fn addresses(section: &Section<'_>) -> Vec<(&'static str, SocketAddr, At)> {
        let mut all = Vec::new();
        for (key, name) in [
            ("listen", "front.listen"),
            ("tls_listen", "front.tls_listen"),
        ] {
            for (text, at) in section.list(key).unwrap_or_default() {
                all.extend(address(&text).ok().map(|address| (name, address, at)));
            }
        }
        all
    }

    /// What evictions spare, as it is written.
    pub(super) const fn evict_word(&self) -> &'static str {
        EVICT_FOR[self.limits.evict_for as usize]
    }

    /// How much is told, as it is written.
    pub(super) const fn pages_word(&self) -> &'static str {
        ERROR_PAGES[self.error_pages as usize]
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

fn addresses(section: &Section<'_>, key: &str) -> Vec<SocketAddr> {
    let list = section.list(key).unwrap_or_default();
    let places = list.iter();
    places
        .filter_map(|(text, at)| note(section, at, address(text)))
        .collect()
}

fn limits(section: &Section<'_>, default: apps::Limits) -> apps::Limits {
    const PROCESSES_MAX: usize = 100_000;
    let count = |key, least, default| {
        let number = section.number(key, least..=PROCESSES_MAX);
        number.unwrap_or(default)
    };
    let evict_for = section.word("evict_for", EVICT_FOR);
    apps::Limits {
        max: count("max", 1, default.max),
        headroom: count("headroom", 0, default.headroom),
        starts_max: count("starts_max", 1, default.starts_max),
        evict_for: evict_for.map_or(default.evict_for, |at| {
            [EvictFor::Latency, EvictFor::Count][at]
        }),
        starve_min: section.span("starve_min").unwrap_or(default.starve_min),
    }
}

/// Read `10.0.0.0/8`, or `::1` for one address.
fn network(text: &str) -> Made<Network> {
    let none = |hint: String| Err((format!("{text:?} is no network"), hint));
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
