//! Decides about clients that have not logged in: how many of one address there
//! may be, how long a failed login waits for its answer, and what is told of it.
//!
//! It has no clock, no lock and no log: `now` comes with every input. Every table
//! has a fixed size, so that no client can fill the memory with addresses.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// This many failures of one address are answered at once.
const FREE: u32 = 3;
/// The one after that waits so long, and each other twice as long as the one before.
const DELAY_FIRST: Duration = Duration::from_millis(250);
/// No answer waits longer.
const DELAY_MAX: Duration = Duration::from_secs(4);
/// An address that has not failed for so long begins anew.
const FORGET: Duration = Duration::from_secs(300);
/// Repeated failures within this time become one event.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// This many addresses are remembered.
const ADDRESSES_MAX: usize = 4096;
/// This many pairs of a user and a right are remembered.
const DENIALS_MAX: usize = 4096;

/// Where a connection comes from, as far as limits go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// An address. Of the sixth version it is the network: a host has all of it.
    Address(IpAddr),
    /// A user of this machine, over a Unix socket.
    User(u32),
    /// It is not known.
    Unknown,
}

impl Origin {
    /// The origin of an address: connections with the same origin count together.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(six) if !six.is_loopback() => {
                let [a, b, c, d, ..] = six.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(six)) if !six.is_loopback() => write!(f, "{six}/64"),
            Self::Address(address) => address.fmt(f),
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::Unknown => f.write_str("an unknown address"),
        }
    }
}

/// Failed logins that are told in one sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// Where they came from.
    pub origin: Origin,
    /// How many.
    pub count: u32,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, origin) = (self.count, self.origin);
        match count {
            1 => write!(f, "1 failed login from {origin}"),
            _ => write!(
                f,
                "{count} failed logins from {origin} within {}s",
                PERIOD.as_secs()
            ),
        }
    }
}

/// The failed logins of each address.
///
/// The first of a period is told at once. The others of the period are told
/// together at its end, or when the address is forgotten to make room.
#[derive(Default)]
pub(crate) struct FailedLogins(HashMap<Origin, Failures>);

/// The failed logins of one address.
struct Failures {
    count: u32,
    last: Instant,
    told: Instant,
    untold: u32,
}

impl FailedLogins {
    /// A login failed. Says how long its answer waits.
    pub(crate) fn fail(&mut self, origin: Origin, now: Instant, told: &mut Vec<Told>) -> Duration {
        self.advance(now, told);
        if let Some(failures) = self.0.get_mut(&origin) {
            failures.last = now;
            failures.count = failures.count.saturating_add(1);
            if now.saturating_duration_since(failures.told) >= PERIOD {
                // Had there been others, they were told just now.
                failures.told = now;
                told.push(Told { origin, count: 1 });
            } else {
                failures.untold = failures.untold.saturating_add(1);
            }
            return delay(failures.count);
        }
        if self.0.len() >= ADDRESSES_MAX {
            self.forget_oldest(told);
        }
        told.push(Told { origin, count: 1 });
        let first = Failures {
            count: 1,
            last: now,
            told: now,
            untold: 0,
        };
        self.0.insert(origin, first);
        delay(1)
    }

    /// Tell what has not been told for a period, and forget what is over.
    pub(crate) fn advance(&mut self, now: Instant, told: &mut Vec<Told>) {
        self.0.retain(|origin, failures| {
            let is_due = now.saturating_duration_since(failures.told) >= PERIOD;
            if is_due && failures.untold > 0 {
                told.push(failures.tell(*origin));
                failures.told = now;
            }
            let silent = now.saturating_duration_since(failures.last);
            failures.untold > 0 || silent < FORGET
        });
    }

    fn forget_oldest(&mut self, told: &mut Vec<Told>) {
        let oldest = self.0.iter().min_by_key(|(_, failures)| failures.last);
        let Some(origin) = oldest.map(|(origin, _)| *origin) else {
            return;
        };
        let forgotten = self.0.remove(&origin);
        if let Some(mut failures) = forgotten.filter(|failures| failures.untold > 0) {
            told.push(failures.tell(origin));
        }
    }
}

impl Failures {
    fn tell(&mut self, origin: Origin) -> Told {
        let count = std::mem::take(&mut self.untold);
        Told { origin, count }
    }
}

/// How long the answer to the failure of this number waits.
fn delay(count: u32) -> Duration {
    let Some(doubled) = count.checked_sub(FREE + 1) else {
        return Duration::ZERO;
    };
    let factor = 1_u32.checked_shl(doubled).unwrap_or(u32::MAX);
    DELAY_FIRST.saturating_mul(factor).min(DELAY_MAX)
}

/// How many connections of each address have not logged in.
#[derive(Default)]
pub(crate) struct BeforeLogin(HashMap<Origin, usize>);

impl BeforeLogin {
    /// One comes. Returns false if the limit is reached.
    pub(crate) fn enter(&mut self, origin: Origin, most: usize) -> bool {
        let count = self.0.get(&origin).copied().unwrap_or(0);
        if count >= most {
            return false;
        }
        self.0.insert(origin, count + 1);
        true
    }

    /// One has logged in, or is gone.
    pub(crate) fn leave(&mut self, origin: Origin) {
        match self.0.get_mut(&origin) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.0.remove(&origin)),
        }
    }

    /// The number of the address that has most.
    pub(crate) fn most(&self) -> usize {
        self.0.values().copied().max().unwrap_or(0)
    }
}

/// Recent denials of users, so that each is reported once in a period.
pub(crate) struct Denials<K>(HashMap<K, Instant>);

impl<K> Default for Denials<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Denials<K> {
    /// Is this to be told?
    pub(crate) fn is_new(&mut self, key: K, now: Instant) -> bool {
        let is_recent = |told: &Instant| now.saturating_duration_since(*told) < PERIOD;
        if self.0.get(&key).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= DENIALS_MAX {
            self.0.retain(|_, told| is_recent(told));
        }
        if self.0.len() >= DENIALS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, told)| **told);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn origin(number: u32) -> Origin {
        Origin::Address(Ipv4Addr::from(number).into())
    }

    /// What is told after these failures, each that many seconds after the start.
    fn told(failures: &mut FailedLogins, start: Instant, at: &[u64]) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        for second in at {
            let mut told = Vec::new();
            failures.fail(origin(1), start + Duration::from_secs(*second), &mut told);
            all.extend(told.iter().map(|told| (*second, told.count)));
        }
        all
    }

    #[test]
    fn the_first_failures_are_answered_at_once_and_the_others_later_and_later() {
        let (mut failures, start) = (FailedLogins::default(), Instant::now());
        let mut fail = |origin, at| failures.fail(origin, start + at, &mut Vec::new());
        let delays: Vec<u128> = (0..10)
            .map(|_| fail(origin(1), Duration::ZERO).as_millis())
            .collect();
        assert_eq!(delays, [0, 0, 0, 250, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(fail(origin(2), Duration::ZERO), Duration::ZERO, "another");
        assert_eq!(fail(origin(1), FORGET / 2), DELAY_MAX);
        let later = FORGET / 2 + FORGET;
        assert_eq!(fail(origin(1), later), Duration::ZERO, "it was forgotten");
        assert_eq!(delay(u32::MAX), DELAY_MAX);
    }

    #[test]
    fn failures_are_told_once_in_a_period() {
        let (mut failures, start) = (FailedLogins::default(), Instant::now());
        let seconds: Vec<u64> = (0..130).collect();
        let told = told(&mut failures, start, &seconds);
        assert_eq!(told, [(0, 1), (60, 59), (120, 60)]);
        let mut rest = Vec::new();
        failures.advance(start + Duration::from_secs(179), &mut rest);
        assert_eq!(rest, []);
        failures.advance(start + Duration::from_secs(180), &mut rest);
        let sentence = "10 failed logins from 0.0.0.1 within 60s";
        assert_eq!(rest[0].to_string(), sentence);
        rest.clear();
        failures.advance(start + Duration::from_secs(600), &mut rest);
        assert_eq!((rest.len(), failures.0.len()), (0, 0), "all is forgotten");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let (mut failures, start) = (FailedLogins::default(), Instant::now());
        let mut told = Vec::new();
        let many = ADDRESSES_MAX as u32 + 10;
        failures.fail(origin(0), start, &mut told);
        for number in 0..many {
            let now = start + Duration::from_millis(number.into());
            failures.fail(origin(number), now, &mut told);
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        // All were told at once, and the second of the first when it was forgotten.
        assert_eq!(told.len() as u32, many + 1);
        let first = told.iter().filter(|told| told.origin == origin(0));
        assert_eq!(first.map(|told| told.count).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn one_address_has_no_more_than_its_connections() {
        let mut all = BeforeLogin::default();
        assert!(all.enter(origin(1), 2) && all.enter(origin(1), 2));
        assert!(!all.enter(origin(1), 2));
        assert!(all.enter(origin(2), 2), "another has its own");
        assert_eq!(all.most(), 2);
        all.leave(origin(1));
        assert!(all.enter(origin(1), 2));
        for _ in 0..2 {
            all.leave(origin(1));
        }
        all.leave(origin(2));
        assert!(all.0.is_empty());
    }

    #[test]
    fn a_denial_is_told_once_in_a_period() {
        let (mut denials, start) = (Denials::default(), Instant::now());
        assert!(denials.is_new(("anna", "config"), start));
        assert!(!denials.is_new(("anna", "config"), start + PERIOD / 2));
        assert!(denials.is_new(("anna", "pool"), start + PERIOD / 2));
        assert!(denials.is_new(("anna", "config"), start + PERIOD));
        let mut many = Denials::default();
        for number in 0..2 * DENIALS_MAX {
            assert!(many.is_new(number, start));
        }
        assert_eq!(many.0.len(), DENIALS_MAX);
    }

    #[test]
    fn an_address_of_the_sixth_version_counts_as_its_network() {
        let of = |text: &str| Origin::of(text.parse().unwrap()).to_string();
        assert_eq!(of("10.0.0.7"), "10.0.0.7");
        assert_eq!(of("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(of("::1"), "::1");
    }
}
