//! What holds for which keys: where asks wait for them, how many of them are
//! known at most, and for how long when they are not held.
//!
//! Every key has a rule, found when the key is added and again when rules
//! change. Keys are counted as they are added and forgotten, under the lock of
//! their shard, so that a take of a key that is known counts nothing. What is
//! only counted is no step that a model has to follow.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rideau_core::{OptionError, queue};

use super::entry::Entry;
use crate::idle_cache::Slots;
use crate::key::Key;
use crate::sync::{Mutex, lock};

/// The rule for some keys.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyRule {
    /// Where asks that want to wait do so. Each key has a queue of its own for
    /// asks that see the same capacity and want the same number of units.
    pub queue: queue::Options,
    /// At most this many of them are known. Those that are not held or waited
    /// for are forgotten first; if all are wanted, no further one can be had.
    pub keys_max: usize,
    /// One that is not held is known for so long still, and forgotten soon
    /// after.
    pub idle_forget: Duration,
}

/// The limit of keys is reached, and all of them are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

/// Which keys there are too many of.
#[derive(Clone, Copy)]
pub(super) enum Crowd {
    /// All together.
    All,
    /// The keys of a rule.
    Of(u32),
}

type RuleOf<K> = Arc<dyn Fn(&K) -> usize + Send + Sync>;

/// All rules, and how many keys each has.
pub(super) struct Rules<K> {
    slots: Slots<Slot<K>>,
    /// How many slots have been in use.
    len: AtomicU32,
    rule_of: RwLock<Option<RuleOf<K>>>,
    keys: Quota,
    /// The most keys that were known since the table of the map was made smaller.
    peak: AtomicU64,
}

/// One rule as it is now. A slot is never given up, for a thread may be about to
/// list one of its keys.
pub(super) struct Slot<K> {
    /// Every key of which no unit is held and that is not pinned, and some others.
    pub(super) idle: Mutex<VecDeque<Listed<K>>>,
    /// When the sweeper looks for them next, in milliseconds since the start.
    pub(super) due: AtomicU64,
    /// In milliseconds.
    idle_forget: AtomicU64,
    keys: Quota,
    queue: Mutex<queue::Options>,
}

struct Quota {
    len: AtomicU64,
    max: AtomicU64,
}

/// A key in the idle list of its rule.
pub(super) struct Listed<K> {
    pub(super) entry: Arc<Entry<K>>,
    /// The word when it was last seen idle, and since when it is idle.
    seen: u64,
    since: u64,
}

/// A key is known for this long after its last use, in milliseconds, however many come: one
/// that is used again and again is not forgotten in between.
const KNOWN_MIN: u64 = if cfg!(rideau_loom) { 0 } else { 50 };

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            queue: queue::Options::default(),
            keys_max: usize::MAX,
            idle_forget: Duration::ZERO,
        }
    }
}

impl Quota {
    fn new() -> Self {
        Self {
            len: AtomicU64::new(0),
            max: AtomicU64::new(u64::MAX),
        }
    }

    fn set_max(&self, max: usize) {
        self.max.store(max as u64, Ordering::Relaxed);
    }

    fn enter(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let enter = |len: u64| (len < max).then_some(len + 1);
        self.len
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok()
    }

    fn leave(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<K> Slot<K> {
    fn new() -> Self {
        Self {
            idle: Mutex::new(VecDeque::new()),
            due: AtomicU64::new(0),
            idle_forget: AtomicU64::new(0),
            keys: Quota::new(),
            queue: Mutex::new(queue::Options::default()),
        }
    }

    fn set(&self, rule: &KeyRule) {
        let forget = u64::try_from(rule.idle_forget.as_millis()).unwrap_or(u64::MAX);
        self.idle_forget.store(forget, Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
        self.keys.set_max(rule.keys_max);
        self.set_queue(&rule.queue);
    }

    pub(super) fn set_queue(&self, options: &queue::Options) {
        options.clone_into(&mut lock(&self.queue));
    }

    pub(super) fn queue(&self) -> queue::Options {
        lock(&self.queue).clone()
    }

    /// The sweeper was here. It comes often enough to be late by half of what
    /// a key is kept, at most.
    #[cfg(any(test, not(rideau_loom)))]
    pub(super) fn was_swept(&self, now: u64) {
        const SELDOM: u64 = 10_000;
        let wait = (self.idle_forget.load(Ordering::Relaxed) / 4).min(SELDOM);
        self.due.store(now + wait, Ordering::Relaxed);
    }

    /// No unit of a listed key is held, as its word says. True if that has been so for as
    /// long as a key is kept, and was so at the look before.
    pub(super) fn is_over(&self, listed: &mut Listed<K>, word: u64, now: u64) -> bool {
        if listed.seen != word {
            (listed.seen, listed.since) = (word, now);
            return false;
        }
        let forget = self.idle_forget.load(Ordering::Relaxed);
        now.saturating_sub(listed.since) >= forget.max(KNOWN_MIN)
    }

    /// Some keys are listed.
    #[cfg(any(test, not(rideau_loom)))]
    pub(super) fn has_idle(&self) -> bool {
        !lock(&self.idle).is_empty()
    }
}

impl<K> Listed<K> {
    pub(super) fn new(entry: Arc<Entry<K>>) -> Self {
        Self {
            entry,
            seen: u64::MAX,
            since: 0,
        }
    }
}

impl<K> Rules<K> {
    /// One rule for all keys.
    pub(super) fn new(rule: &KeyRule) -> Self {
        let rules = Self {
            slots: Slots::new(Slot::new, 1),
            len: AtomicU32::new(1),
            rule_of: RwLock::new(None),
            keys: Quota::new(),
            peak: AtomicU64::new(0),
        };
        rules.slot(0).set(rule);
        rules
    }

    #[inline]
    pub(super) fn slot(&self, rule: u32) -> &Slot<K> {
        self.slots.get(rule)
    }

    /// Every rule that has been in use.
    pub(super) fn all(&self) -> Range<u32> {
        0..self.len.load(Ordering::Acquire)
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.keys.len.load(Ordering::Relaxed) as usize
    }

    /// A key was added.
    pub(super) fn note_peak(&self) {
        let len = self.keys.len.load(Ordering::Relaxed);
        if len > self.peak.load(Ordering::Relaxed) {
            self.peak.store(len, Ordering::Relaxed);
        }
    }

    /// There are an eighth of the keys that there were, and those were many. Says so once.
    pub(super) fn has_shrunk(&self) -> bool {
        const MANY: u64 = 1024;
        let len = self.keys.len.load(Ordering::Relaxed);
        let peak = self.peak.load(Ordering::Relaxed);
        let has_shrunk = peak > MANY && len <= peak / 8;
        if has_shrunk {
            self.peak.store(len, Ordering::Relaxed);
        }
        has_shrunk
    }

    /// Put a key on the list of its rule.
    pub(super) fn list(&self, listed: Listed<K>) {
        loop {
            let rule = listed.entry.rule();
            let mut list = lock(&self.slot(rule).idle);
            // If the rule was changed meanwhile, the thread that did may have been here.
            if listed.entry.rule() == rule {
                return list.push_back(listed);
            }
        }
    }

    /// Put the keys whose rules have changed on their new lists.
    pub(super) fn list_anew(&self) {
        for rule in self.all() {
            let mut list = lock(&self.slot(rule).idle);
            let all = list.drain(..);
            let (stay, go): (VecDeque<_>, VecDeque<_>) =
                all.partition(|listed| listed.entry.rule() == rule);
            *list = stay;
            drop(list);
            go.into_iter().for_each(|listed| self.list(listed));
        }
    }

    pub(super) fn set_keys_max(&self, max: usize) {
        self.keys.set_max(max);
    }

    /// How many keys of a rule are known.
    pub(super) fn keys(&self, rule: usize) -> usize {
        let known = u32::try_from(rule).ok();
        let known = known.filter(|rule| *rule < self.len.load(Ordering::Acquire));
        known.map_or(0, |rule| {
            self.slot(rule).keys.len.load(Ordering::Relaxed) as usize
        })
    }

    /// Count one more key, if there may be one.
    pub(super) fn enter(&self, rule: u32) -> Result<(), Crowd> {
        let slot = self.slot(rule);
        if !slot.keys.enter() {
            return Err(Crowd::Of(rule));
        }
        if !self.keys.enter() {
            slot.keys.leave();
            return Err(Crowd::All);
        }
        Ok(())
    }

    /// Count one more key, though there may be too many.
    pub(super) fn enter_anyway(&self, rule: u32) {
        self.slot(rule).keys.len.fetch_add(1, Ordering::Relaxed);
        self.keys.len.fetch_add(1, Ordering::Relaxed);
    }

    /// A key is known no longer.
    pub(super) fn leave(&self, rule: u32) {
        self.slot(rule).keys.leave();
        self.keys.leave();
    }

    /// Have the key counted for another rule. The caller has the lock of its
    /// shard.
    pub(super) fn move_to(&self, entry: &Entry<K>, rule: u32) {
        self.slot(entry.rule()).keys.leave();
        entry.set_rule(rule);
        self.slot(rule).keys.len.fetch_add(1, Ordering::Relaxed);
    }
}

impl<K: Key> Rules<K> {
    /// The rule of a key: the last one, if a number is said that none has. The
    /// caller has the lock of the key's shard.
    pub(super) fn of(&self, key: &K) -> u32 {
        let len = self.len.load(Ordering::Acquire);
        if len == 1 {
            return 0;
        }
        let rule_of = self.rule_of.read().unwrap_or_else(|no| no.into_inner());
        let rule = rule_of.as_ref().map_or(0, |rule_of| rule_of(key));
        u32::try_from(rule).unwrap_or(u32::MAX).min(len - 1)
    }

    /// Replace all rules; keys that are known still have their old ones. One
    /// change at a time.
    pub(super) fn set(
        &self,
        rules: &[KeyRule],
        rule_of: impl Fn(&K) -> usize + Send + Sync + 'static,
    ) -> Result<(), OptionError> {
        for rule in rules {
            rule.queue.validate().map_err(|no| no.within("queue"))?;
        }
        let len = rules.len() as u32;
        self.slots.grow_to(len);
        for (at, rule) in (0..).zip(rules) {
            self.slot(at).set(rule);
        }
        let mut now = self.rule_of.write().unwrap_or_else(|no| no.into_inner());
        *now = Some(Arc::new(rule_of));
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }
}
