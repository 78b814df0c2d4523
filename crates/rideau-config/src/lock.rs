//! Rules for locks: how many units the keys of a pattern have.

use std::time::Duration;

use rideau_core::queue;

use super::core_kinds::Queue;
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, Number, Positive};
use super::pattern::fits;
use super::section::Section;
use super::shown::Rows;
use super::table::section;

section! {
    /// How many units each key of a pattern has.
    ///
    /// The first rule of the file that fits a key is the key's.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct LockRule {
        plain {
            /// The keys, with `*` for any letters.
            pattern: String = "*".into();
        }
        /// Units in each bucket.
        per: u64 = 1, Number, Live, bounds = (1, MOST), sample = "50";
        /// How many buckets a key has: a number, or `"client"` if each call says it.
        buckets: Buckets = Buckets::Client, BucketCount, Live, bounds = (1, MOST);
        /// The most keys that may be held or waited for.
        keys_max: usize = 1_000_000, Number, Live, bounds = (1, MOST);
        /// A key that is not held is forgotten after this, or sooner to make room.
        idle_forget: Duration = Duration::from_secs(10), Positive, Live;
        /// Where a `LOCK` with `WAIT` waits for units.
        queue: queue::Options = queue::Options::default(), Queue, Live,
            usual = r#"{ kind = "paced" }"#, sample = r#"{ kind = "paced", wait_cap = "20s" }"#;
    }
}

/// How many buckets the keys of a rule have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buckets {
    /// Each call says so itself; one if it does not.
    Client,
    /// A fixed number, whatever a call says.
    Fixed(u64),
}

/// Products of units and buckets stay far from overflow.
const MOST: u64 = 1_000_000_000;

/// A number of buckets, or `"client"`.
struct BucketCount;

impl Kind<Buckets> for BucketCount {
    const FORM: Form = Form::Any(&[Form::Words(&["client"]), Form::Number]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Buckets> {
        if section.is_word(key.name, "client") {
            return Some(Buckets::Client);
        }
        Number::read_or(section, key, ", or \"client\"").map(Buckets::Fixed)
    }

    fn show(value: &Buckets, key: &Key, rows: &mut Rows) {
        match value {
            Buckets::Client => rows.text(key.name, "client"),
            Buckets::Fixed(buckets) => Number::show(buckets, key, rows),
        }
    }
}

impl LockRule {
    /// One unit for each key that the pattern fits, in as many buckets as the
    /// client says.
    pub fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.into(),
            ..Self::default()
        }
    }

    /// Whether the rule is for this key.
    pub fn fits(&self, key: impl AsRef<[u8]>) -> bool {
        fits(&self.pattern, key)
    }

    pub(super) fn read(pattern: &str, section: &Section<'_>) -> Self {
        let mut rule = Self::new(pattern);
        rule.read_keys(section);
        rule
    }
}
