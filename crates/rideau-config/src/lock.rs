//! Rules for locks: how many units the keys of a pattern have.

use std::time::Duration;

use rideau_core::queue;

use super::options;
use super::pattern::fits;
use super::section::Section;

/// How many units each key of a pattern has.
///
/// The first rule of the file that fits a key is the key's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRule {
    /// The keys, with `*` for any letters.
    pub pattern: String,
    /// Units in each bucket.
    pub per: u64,
    /// How many buckets.
    pub buckets: Buckets,
    /// This many keys may be known: those that no client wants are forgotten first.
    pub keys_max: usize,
    /// A key without a holder is forgotten after this, or sooner to make room.
    pub idle_forget: Duration,
    /// Where callers wait for units.
    pub queue: queue::Options,
}

/// How many buckets the keys of a rule have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buckets {
    /// Each call says so itself; one if it does not.
    Client,
    /// So many, whatever a call says.
    Fixed(u64),
}

/// Products of units and buckets stay far from overflow.
const MOST: u64 = 1_000_000_000;

impl LockRule {
    /// One unit for each key that the pattern fits, in as many buckets as the
    /// client says.
    pub fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.into(),
            per: 1,
            buckets: Buckets::Client,
            keys_max: 1_000_000,
            idle_forget: Duration::from_secs(10),
            queue: queue::Options::default(),
        }
    }

    /// Whether the rule is for this key.
    pub fn fits(&self, key: impl AsRef<[u8]>) -> bool {
        fits(&self.pattern, key)
    }

    pub(super) fn read(pattern: &str, section: &Section<'_>) -> Self {
        let default = Self::new(pattern);
        let is_client = section
            .entry("buckets")
            .is_some_and(|entry| entry.item.as_str() == Some("client"));
        let buckets = if is_client {
            None
        } else {
            section.number_or("buckets", 1..=MOST, ", or \"client\"")
        };
        let keys_max = section.number("keys_max", 1..=MOST as usize);
        Self {
            per: section.number("per", 1..=MOST).unwrap_or(default.per),
            buckets: buckets.map_or(Buckets::Client, Buckets::Fixed),
            keys_max: keys_max.unwrap_or(default.keys_max),
            idle_forget: section
                .positive_span("idle_forget")
                .unwrap_or(default.idle_forget),
            queue: options::queue(section, "queue").unwrap_or(default.queue),
            pattern: default.pattern,
        }
    }
}
