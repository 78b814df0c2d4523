//! The front of applications: where it listens, and what it bears.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use rideau_core::apps;

/// Where HTTP comes in, and what all applications share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontConfig {
    /// Where it speaks HTTP.
    pub listen: Vec<SocketAddr>,
    /// Where it does so within TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// How many processes there may be.
    pub limits: apps::Limits,
    /// Who says truly on whose behalf it asks.
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
