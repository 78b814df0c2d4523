//! Adds keys, and forgets those that are idle: now and then, or to make room.
//!
//! Each rule has a list of idle keys. A key is put there by the thread that gives its
//! last unit back or pins it no longer, unless it is there already. A thread that looks
//! through a list takes off the keys that are held or pinned again.
//!
//! The sweeper looks through all lists. Where keys come faster than it forgets them, a
//! thread that adds one looks at a few idle ones itself, so that there are never many more
//! than came within the time for which one is known.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;

use rideau_core::OptionError;

use super::entry::Entry;
use super::keys::{Keys, LineOf, Shard};
use super::line::Line;
use super::rules::{Crowd, KeyRule, Listed, NoRoom};
#[cfg(not(rideau_loom))]
use super::sweeper;
use crate::key::Key;
use crate::sync::{MutexGuard, Ordering, lock};

/// This many listed keys are looked at before other threads may list theirs.
const CHUNK: usize = 64;
/// As long as fewer keys are listed, the sweeper alone looks at them.
const FEW: usize = 1024;
/// A thread that adds a key to many looks at this many idle ones.
const LOOKS: usize = 4;
/// After this many keys of a shard the memory of replaced tables is freed.
const ADDED: u32 = 64;

/// Entries that a sweep has removed. They are dropped without a lock, because dropping keys
/// runs their code.
struct Forgotten<K: Key> {
    entries: Vec<Arc<Entry<K>>>,
    lines: Vec<Arc<LineOf<K>>>,
}

impl<K: Key> Keys<K> {
    /// Make a key known, if there may be one more. The entry is pinned.
    pub(super) fn pin<Q>(&self, hash: u64, key: &Q) -> Result<Arc<Entry<K>>, NoRoom>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        loop {
            let guard = self.map.guard();
            let shard = self.lock(hash);
            if let Some(entry) = self.pin_known(hash, key) {
                return Ok(entry);
            }
            let key = key.to_owned();
            let rule = self.rules.of(&key);
            let Err(crowd) = self.rules.enter(rule) else {
                return Ok(self.add(shard, hash, rule, key));
            };
            drop((shard, guard));
            if !self.make_room(crowd) {
                return Err(NoRoom);
            }
        }
    }

    /// Make a key known, however many there are. The entry is pinned.
    pub(super) fn pin_anyway<Q>(&self, hash: u64, key: &Q) -> Arc<Entry<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.pin(hash, key).unwrap_or_else(|NoRoom| {
            let _guard = self.map.guard();
            let shard = self.lock(hash);
            self.pin_known(hash, key).unwrap_or_else(|| {
                let key = key.to_owned();
                let rule = self.rules.of(&key);
                self.rules.enter_anyway(rule);
                self.add(shard, hash, rule, key)
            })
        })
    }

    /// With the lock of the shard.
    fn pin_known<Q>(&self, hash: u64, key: &Q) -> Option<Arc<Entry<K>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.map.find(hash, key, |entry| {
            entry.pin();
            Arc::clone(entry)
        })
    }

    /// Add a key that is not known and was counted.
    fn add(
        &self,
        mut shard: MutexGuard<'_, Shard<K>>,
        hash: u64,
        rule: u32,
        key: K,
    ) -> Arc<Entry<K>> {
        let entry = Arc::new(Entry::new(key, hash, rule, shard.fence));
        self.map.add(Arc::clone(&entry));
        self.rules.note_peak();
        shard.added = shard.added.wrapping_add(1);
        let is_time = shard.added.is_multiple_of(ADDED);
        drop(shard);
        if lock(&self.rules.slot(rule).idle).len() > FEW {
            self.look_at_some(rule);
        }
        if is_time {
            self.map.flush();
        }
        entry
    }

    /// Forget some keys of a rule that the sweeper would forget when it comes.
    #[cold]
    fn look_at_some(&self, rule: u32) {
        let (slot, now) = (self.rules.slot(rule), self.now());
        let is_over = |listed: &mut Listed<K>, word| slot.is_over(listed, word, now);
        self.look_through(rule, LOOKS, usize::MAX, is_over);
    }

    /// No unit of a key is held any more, or it is not pinned.
    #[cold]
    pub(super) fn list(&self, entry: &Arc<Entry<K>>) {
        if entry.mark_listed() {
            self.rules.list(Listed::new(Arc::clone(entry)));
            self.call_sweeper();
        }
    }

    fn call_sweeper(&self) {
        if !self.swept.swap(true, Ordering::SeqCst) {
            #[cfg(not(rideau_loom))]
            sweeper::add(self.me.clone());
        }
    }

    /// The sweeper knows, or thinks so.
    #[cfg(all(test, rideau_loom))]
    pub(super) fn is_swept(&self) -> bool {
        self.swept.load(Ordering::SeqCst)
    }

    /// Forget now all keys that are idle.
    pub(super) fn forget_idle(&self) {
        for rule in self.rules.all() {
            self.look_through(rule, usize::MAX, usize::MAX, |_, _| true);
        }
        self.map.flush();
    }

    /// Forget what was idle at two sweeps, and for as long as its rule says. False if
    /// there is nothing left to forget or to free. For the sweeper alone: the caller has
    /// to come again if it is told to.
    #[cfg(any(test, not(rideau_loom)))]
    pub(super) fn sweep(&self) -> bool {
        self.swept.swap(false, Ordering::SeqCst);
        let now = self.now();
        let mut gone = 0;
        for rule in self.rules.all() {
            let slot = self.rules.slot(rule);
            if slot.due.load(Ordering::Relaxed) <= now {
                let is_over = |listed: &mut Listed<K>, word| slot.is_over(listed, word, now);
                gone += self.look_through(rule, usize::MAX, usize::MAX, is_over);
                slot.was_swept(now);
            }
        }
        // And again next time, if a thread is in a search now.
        self.map.flush();
        let mut rules = self.rules.all();
        let more = gone > 0 || rules.any(|rule| self.rules.slot(rule).has_idle());
        more && !self.swept.swap(true, Ordering::SeqCst)
    }

    /// Forget keys that are not wanted, sooner than they would be. False if there
    /// are none.
    #[cold]
    fn make_room(&self, crowd: Crowd) -> bool {
        let mut rules = match crowd {
            Crowd::Of(rule) => rule..rule + 1,
            Crowd::All => self.rules.all(),
        };
        rules.any(|rule| self.look_through(rule, usize::MAX, 1, |_, _| true) > 0)
    }

    /// Look at listed keys of a rule, and forget those that are idle and that `is_over` says
    /// so of, with their word: until `looks` were looked at or `enough` are forgotten. Says
    /// how many are.
    fn look_through(
        &self,
        rule: u32,
        looks: usize,
        enough: usize,
        mut is_over: impl FnMut(&mut Listed<K>, u64) -> bool,
    ) -> usize {
        let list = &self.rules.slot(rule).idle;
        let mut left = lock(list).len().min(looks);
        let mut forgotten = 0;
        while left > 0 && forgotten < enough {
            // In this order: it ends when there is no lock any more.
            let mut gone = Forgotten::none();
            let _guard = self.map.guard();
            let mut list = lock(list);
            let chunk = left.min(CHUNK);
            for _ in 0..chunk {
                if forgotten + gone.entries.len() >= enough {
                    break;
                }
                if let Some(listed) = list.pop_front() {
                    list.extend(self.look_at(listed, &mut gone, &mut is_over));
                }
            }
            left -= chunk;
            forgotten += gone.entries.len();
            give_memory_back(&mut list);
            drop(list);
            if let Some(retired) = gone.entries.last()
                && self.rules.has_shrunk()
            {
                self.under_lock(retired, || self.map.shrink(retired));
            }
        }
        forgotten
    }

    /// Look at one key that was listed. It is returned if it stays listed.
    fn look_at(
        &self,
        mut listed: Listed<K>,
        gone: &mut Forgotten<K>,
        mut is_over: impl FnMut(&mut Listed<K>, u64) -> bool,
    ) -> Option<Listed<K>> {
        let entry = Arc::clone(&listed.entry);
        let mut shard = self.lock(entry.hash());
        let Some(idle) = entry.idle() else {
            entry.mark_unlisted();
            // A release in between has seen that it was listed.
            let is_listed = entry.idle().is_some() && entry.mark_listed();
            return is_listed.then_some(listed);
        };
        let mut is_over = is_over(&mut listed, idle);
        if let Some(line) = shard.lines.get(&entry.address()) {
            // A timer may be looking at it.
            if Arc::strong_count(line) == 1 {
                gone.lines.extend(shard.lines.remove(&entry.address()));
            } else {
                is_over = false;
            }
        }
        if !is_over || !entry.word().retire(idle) {
            return Some(listed);
        }
        shard.fence = shard.fence.max(entry.word().fence());
        self.map.remove(&entry);
        self.rules.leave(entry.rule());
        gone.entries.push(entry);
        None
    }

    /// Give all keys rules: those that are known, and those that come. An ask
    /// that waits keeps its place, under the rule its key has now.
    pub(super) fn set_rules(
        &self,
        rules: &[KeyRule],
        rule_of: impl Fn(&K) -> usize + Send + Sync + 'static,
    ) -> Result<(), OptionError> {
        let _alone = lock(&self.changing);
        self.rules.set(rules, rule_of)?;
        // After this, each key that was given an old rule is in the map.
        self.shards.iter().for_each(|shard| drop(lock(shard)));
        let mut lines = Vec::new();
        self.map.each(|entry| {
            let shard = self.lock(entry.hash());
            // Under the lock, only what was forgotten is not settled.
            if entry.word().settled().is_none() {
                return;
            }
            let rule = self.rules.of(entry.key());
            if rule != entry.rule() {
                self.rules.move_to(entry, rule);
            }
            let line = shard.lines.get(&entry.address()).cloned();
            lines.extend(line.map(|line| (Line::new(line), rule)));
        });
        self.rules.list_anew();
        for (line, rule) in lines {
            line.reconfigure(&self.rules.slot(rule).queue())?;
        }
        Ok(())
    }
}

#[cfg(not(rideau_loom))]
impl<K: Key> sweeper::Sweep for Keys<K> {
    fn sweep(&self) -> bool {
        self.sweep()
    }
}

impl<K: Key> Forgotten<K> {
    fn none() -> Self {
        Self {
            entries: Vec::new(),
            lines: Vec::new(),
        }
    }
}

/// A list that was long need not stay so.
fn give_memory_back<T>(list: &mut VecDeque<T>) {
    if list.capacity() > CHUNK && list.len() * 4 < list.capacity() {
        list.shrink_to(list.len() * 2);
    }
}
