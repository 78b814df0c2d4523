//! How often one client may ask.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_config::{LimitBy, RateLimit};
use rideau_core::{self as core, RateLimitOptions, RateLimits};

use super::client::one_of;
use crate::http1::fields::Fields;

/// Clients that are remembered; more than that share what the stalest had.
const KEYS_MAX: usize = 64 << 10;

/// A limit, and how often each client asked.
pub(super) struct RequestLimiter {
    config: RateLimit,
    start: Instant,
    /// Clients are remembered by a hash that no client can foresee, so that each takes the
    /// same room.
    hasher: RandomState,
    keys: Mutex<RateLimits<u64>>,
}

/// Whose requests are counted together.
#[derive(Hash)]
enum LimitKey<'a> {
    Client(IpAddr),
    Header(&'a [u8]),
    Cookie(&'a [u8]),
}

impl RequestLimiter {
    pub(super) fn new(config: &RateLimit) -> Self {
        Self {
            config: config.clone(),
            start: Instant::now(),
            hasher: RandomState::new(),
            keys: Mutex::new(RateLimits::new(RateLimitOptions {
                count: config.rate.count,
                per: config.rate.per,
                burst: config.burst(),
                keys_max: KEYS_MAX,
            })),
        }
    }

    /// It is what this config says.
    pub(super) fn is_of(&self, config: &RateLimit) -> bool {
        self.config == *config
    }

    /// Let a request pass.
    ///
    /// # Errors
    ///
    /// If it may not: when another may.
    pub(super) fn pass(&self, client: IpAddr, fields: Fields<'_>) -> Result<(), Duration> {
        let key = self.hasher.hash_one(self.key(client, fields));
        let mut keys = self.keys.lock();
        // Within the lock, so that time runs forwards.
        let nanos = self.start.elapsed().as_nanos();
        let now = core::Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        keys.pass(&key, now)
    }

    fn key<'a>(&self, client: IpAddr, fields: Fields<'a>) -> LimitKey<'a> {
        let key = match &self.config.by {
            LimitBy::Client => None,
            LimitBy::Header(name) => fields.get(name).map(LimitKey::Header),
            LimitBy::Cookie(name) => cookie(fields, name).map(LimitKey::Cookie),
        };
        // A client that leaves it out has no more than one that is counted by its address.
        key.unwrap_or_else(|| LimitKey::Client(one_of(client)))
    }
}

/// The value of a cookie.
fn cookie<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let pairs = fields.all("cookie");
    let mut pairs = pairs.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::fields::Span;
    use rideau_config::RequestRate;

    fn limiter(by: LimitBy) -> RequestLimiter {
        RequestLimiter::new(&RateLimit {
            rate: RequestRate {
                count: 1,
                per: Duration::from_secs(3600),
            },
            burst: Some(2),
            by,
        })
    }

    /// How many of three requests pass, with this field.
    fn passed(limiter: &RequestLimiter, client: &str, line: &str) -> usize {
        let colon = line.find(':').expect("a field");
        let span = Span::new(0, line.as_bytes(), colon).expect("it is short");
        let fields = Fields::new(line.as_bytes(), std::slice::from_ref(&span));
        let client = client.parse().expect("an address");
        (0..3)
            .filter(|_| limiter.pass(client, fields).is_ok())
            .count()
    }

    #[test]
    fn two_addresses_of_one_network_share_one_budget() {
        let limiter = limiter(LimitBy::Client);
        assert_eq!(passed(&limiter, "2001:db8::1", "a: b"), 2);
        assert_eq!(passed(&limiter, "2001:db8::2", "a: b"), 0);
        assert_eq!(passed(&limiter, "2001:db8:0:1::1", "a: b"), 2);
        assert_eq!(passed(&limiter, "192.0.2.1", "a: b"), 2);
        assert_eq!(passed(&limiter, "::ffff:192.0.2.1", "a: b"), 0);
    }

    #[test]
    fn requests_with_one_value_share_one_budget_whatever_their_address() {
        let by_header = limiter(LimitBy::Header("x-api-key".into()));
        assert_eq!(passed(&by_header, "192.0.2.1", "X-Api-Key: anna"), 2);
        assert_eq!(passed(&by_header, "192.0.2.2", "X-Api-Key: anna"), 0);
        assert_eq!(passed(&by_header, "192.0.2.1", "X-Api-Key: bert"), 2);
        let by_cookie = limiter(LimitBy::Cookie("session".into()));
        let line = |value: &str| format!("Cookie: session2=x; session={value}; b=c");
        assert_eq!(passed(&by_cookie, "192.0.2.1", &line("anna")), 2);
        assert_eq!(passed(&by_cookie, "192.0.2.2", &line("anna")), 0);
        assert_eq!(passed(&by_cookie, "192.0.2.2", &line("bert")), 2);
    }

    #[test]
    fn without_the_value_the_address_counts() {
        let limiter = limiter(LimitBy::Header("x-api-key".into()));
        assert_eq!(passed(&limiter, "192.0.2.1", "a: b"), 2);
        assert_eq!(passed(&limiter, "192.0.2.1", "a: b"), 0);
        assert_eq!(passed(&limiter, "192.0.2.2", "a: b"), 2);
    }
}
