//! The last asks that were refused, and why, so that clients can ask about them later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rideau::{Reason, Refusal};

/// This many are remembered.
const MOST: usize = 4096;

/// The last refusals.
#[derive(Default)]
pub(crate) struct RefusalLog {
    serial: AtomicU64,
    last: Mutex<VecDeque<Dropped>>,
}

/// An ask that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    /// Its number.
    pub serial: u64,
    /// When.
    pub at: SystemTime,
    /// The kind of thing that refused: pool, broker and so on.
    pub kind: &'static str,
    /// The name of the place.
    pub name: String,
    /// The law or the limit.
    pub reason: Reason,
    /// After how long.
    pub waited: Duration,
    /// How many waited.
    pub len: usize,
    /// In words.
    pub why: String,
    /// How the place explained itself at that moment.
    pub explained: String,
}

impl RefusalLog {
    /// Remember a refusal. Says under which name.
    pub(crate) fn add(
        &self,
        kind: &'static str,
        name: &str,
        refusal: &Refusal,
        why: &str,
        explained: impl FnOnce() -> String,
    ) -> String {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        // Explaining costs more than saying no: under overload only one in a
        // while is explained in full.
        let explained = if serial.is_multiple_of(64) || serial < 64 {
            explained()
        } else {
            String::new()
        };
        let mut last = self.last.lock();
        if last.len() == MOST {
            last.pop_front();
        }
        last.push_back(Dropped {
            serial,
            at: SystemTime::now(),
            kind,
            name: name.into(),
            reason: refusal.reason,
            waited: refusal.waited,
            len: refusal.len,
            why: why.into(),
            explained,
        });
        format!("d-{serial:x}")
    }

    /// The no of this name, if it is still remembered.
    pub(crate) fn find(&self, id: &str) -> Option<Dropped> {
        let serial = u64::from_str_radix(id.strip_prefix("d-")?, 16).ok()?;
        let last = self.last.lock();
        last.iter()
            .find(|dropped| dropped.serial == serial)
            .cloned()
    }

    /// The last refusals, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<Dropped> {
        self.last.lock().iter().rev().take(count).cloned().collect()
    }

    /// How many there were in all.
    pub(crate) fn total(&self) -> u64 {
        self.serial.load(Ordering::Relaxed)
    }
}
