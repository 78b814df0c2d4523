//! Counters with more than one label.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::state::end::EndReason;
use crate::state::ticket::TicketKind;

/// Things taken back because of their holder's end or by an operator, by what
/// they were and why.
#[derive(Default)]
pub(crate) struct Reclaims([[AtomicU64; EndReason::ALL.len()]; KINDS.len()]);

/// The kinds of leases that can be taken back.
const KINDS: [&str; 6] = ["pool", "lock", "broker", "regulator", "range", "app"];

/// Things released on another connection than they were taken on, by the user and the
/// client library that released them.
#[derive(Default)]
pub(crate) struct ForeignReleases(Mutex<BTreeMap<(Arc<str>, &'static str), u64>>);

/// Client libraries that have a name of their own among the numbers. Clients say
/// what they like, and what there is to be counted must not be up to them.
const LIBRARIES: [&str; 14] = [
    "redis-py",
    "node-redis",
    "ioredis",
    "go-redis",
    "rueidis",
    "jedis",
    "lettuce",
    "redisson",
    "redis-rs",
    "redis-rb",
    "SE.Redis",
    "phpredis",
    "predis",
    "hiredis",
];

impl Reclaims {
    /// One more.
    pub(crate) fn add(&self, kind: TicketKind, why: EndReason) {
        if let Some(at) = KINDS.iter().position(|word| *word == kind.word()) {
            self.0[at][why as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were for this reason.
    pub(crate) fn of(&self, why: EndReason) -> u64 {
        let counts = self.0.iter();
        counts
            .map(|kind| kind[why as usize].load(Ordering::Relaxed))
            .sum()
    }

    /// How many there were of each kind for this reason.
    pub(crate) fn by_kind(&self, why: EndReason) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = KINDS.iter().zip(&self.0);
        counts.map(move |(kind, counts)| (*kind, counts[why as usize].load(Ordering::Relaxed)))
    }
}

impl ForeignReleases {
    /// One more.
    pub(crate) fn add(&self, user: &str, library: &str) {
        // Some put more than their name there: `redis-py(redis-om_v1)`.
        let name = library.split('(').next().unwrap_or_default();
        let known = LIBRARIES
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(name));
        let library = match known {
            Some(library) => library,
            None if library.is_empty() => "none",
            None => "other",
        };
        *self.0.lock().entry((user.into(), library)).or_default() += 1;
    }

    /// How many there were.
    pub(crate) fn total(&self) -> u64 {
        self.0.lock().values().sum()
    }

    /// How many there were, by user and library.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, &'static str, u64)> {
        let all = self.0.lock();
        let rows = all.iter();
        rows.map(|((user, library), count)| (Arc::clone(user), *library, *count))
            .collect()
    }
}
