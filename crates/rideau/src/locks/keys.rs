//! All keys of which units are held, and some that were until a moment ago.
//!
//! A key that is known is found without a lock. One that is not is added under
//! the lock of its shard, and forgotten again by the sweeper. An entry that is found
//! under that lock is in use; one that is found without it may have been forgotten
//! meanwhile, and its word says so.

mod forget;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};
#[cfg(not(rideau_loom))]
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rideau_core::locks::{Claim, Full, Grant};
use rideau_core::{OptionError, Reason, queue};

use super::entry::Entry;
use super::line::{Line, LineOf, Wait};
use super::map::Map;
use super::rules::{KeyRule, NoRoom, Rules};
use super::taken::{Kept, Origin, Pinned, Source, Taken};
use super::word::{Left, No, Reading, Taker};
use super::{Denied, Lock, LocksOptions};
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::keyed::Key;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// Enough shards to keep threads from meeting that add different keys.
#[cfg(not(rideau_loom))]
const SHARDS: usize = 64;
/// Loom cannot follow many.
#[cfg(rideau_loom)]
const SHARDS: usize = 1;

#[cfg(not(rideau_loom))]
type Hasher = foldhash::fast::RandomState;
/// Loom repeats what it saw: a key has the same place each time.
#[cfg(rideau_loom)]
type Hasher = foldhash::fast::FixedState;

pub(super) struct Keys<K: Key> {
    me: Weak<Self>,
    hasher: Hasher,
    map: Map<K>,
    shards: Box<[CachePadded<Mutex<Shard<K>>>; SHARDS]>,
    #[cfg(not(rideau_loom))]
    start: Instant,
    rules: Rules<K>,
    /// The clock of all queues.
    clock: Clock,
    /// Rules change one after the other.
    changing: Mutex<()>,
    /// The sweeper knows that there is something to do.
    swept: AtomicBool,
    closed: AtomicBool,
}

/// A shard of keys, with the data that one lock guards.
pub(super) struct Shard<K: Key> {
    /// No key was ever given a larger fence among those that were forgotten.
    fence: u64,
    /// How many keys were added, ever.
    added: u32,
    /// Where asks wait for a key, by the address of its entry. A key with a line is not
    /// forgotten.
    lines: HashMap<usize, Arc<LineOf<K>>>,
}

/// An entry of which units were taken.
pub(super) type Granted<K> = (Arc<Entry<K>>, Grant);

impl<K: Key> Keys<K> {
    pub(super) fn new(options: LocksOptions, clock: &Clock) -> Result<Arc<Self>, OptionError> {
        options.queue.validate().map_err(|no| no.within("queue"))?;
        let shard = || Shard {
            fence: options.fence,
            added: 0,
            lines: HashMap::new(),
        };
        let shards = std::array::from_fn(|_| CachePadded::new(Mutex::new(shard())));
        let rules = Rules::new(&KeyRule {
            queue: options.queue,
            ..KeyRule::default()
        });
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            hasher: Hasher::default(),
            map: Map::new(),
            shards: Box::new(shards),
            #[cfg(not(rideau_loom))]
            start: Instant::now(),
            rules,
            clock: clock.clone(),
            changing: Mutex::new(()),
            swept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Take units of a key, exactly if they fit.
    #[inline(always)]
    pub(super) fn acquire<Q>(&self, key: &Q, claim: Claim) -> Result<Granted<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        match self.acquire_at_once(hash, key, claim) {
            (Some(entry), word) => Ok((entry, word.grant(claim))),
            (None, word) => match word.full() {
                Some(held) => Err(claim.full(held).into()),
                None => self.acquire_slowly(hash, key, claim),
            },
        }
    }

    /// The same in the usual case: the entry of which units were taken, and its word. Both
    /// fit into registers, which what is made of them would not.
    #[inline(never)]
    fn acquire_at_once<Q>(
        &self,
        hash: u64,
        key: &Q,
        claim: Claim,
    ) -> (Option<Arc<Entry<K>>>, Reading)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let taken = self.map.find(hash, key, |entry| {
            match entry.word().take_at_once(claim) {
                Ok(word) => (Some(Arc::clone(entry)), word),
                // A refusal writes nothing that threads share.
                Err(word) => (None, word),
            }
        });
        taken.unwrap_or((None, Reading::UNCLEAR))
    }

    /// As [`acquire`](Self::acquire), but wait in the queue where others do.
    pub(super) fn acquire_or_wait<Q>(
        self: &Arc<Self>,
        key: &Q,
        claim: Claim,
        terms: &AskOptions,
    ) -> Wait<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Ok(entry) = self.pin(self.hasher.hash_one(key), key) else {
            return Wait::refused(Reason::Keys);
        };
        let kept = Kept::new(Arc::clone(self), entry);
        match kept.entry().word().take(claim, Taker::Any) {
            Ok(grant) => {
                let source = Source::Found(Arc::clone(kept.entry()));
                let origin = Origin::Owned(Arc::clone(self));
                Wait::answered(Lock(Taken::new(source, origin, grant)))
            }
            Err(_) => self.line_of(kept.entry()).ask(claim, terms, kept),
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_slowly<Q>(&self, hash: u64, key: &Q, claim: Claim) -> Result<Granted<K>, Denied>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let found = self.map.find(hash, key, |entry| {
            let grant = entry.word().take_with_care(claim, Taker::Any)?;
            Ok((Arc::clone(entry), grant))
        });
        match found {
            Some(Ok(granted)) => return Ok(granted),
            Some(Err(No::Full(held))) => return Err(claim.full(held).into()),
            Some(Err(_)) | None => {}
        }
        // What cannot be had of any key does not make one.
        if !claim.fits(0) {
            return Err(claim.full(self.held_at(hash, key)).into());
        }
        let entry = self.pin(hash, key).map_err(|NoRoom| Denied::Keys)?;
        let pinned = Pinned::new(self, entry);
        let grant = self.acquire_pinned(pinned.entry(), claim)?;
        Ok((Arc::clone(pinned.entry()), grant))
    }

    /// Take units of a key that is not forgotten meanwhile.
    #[inline(always)]
    pub(super) fn acquire_pinned(
        &self,
        entry: &Arc<Entry<K>>,
        claim: Claim,
    ) -> Result<Grant, Full> {
        match entry.word().take_at_once(claim) {
            Ok(word) => Ok(word.grant(claim)),
            Err(word) => match word.full() {
                Some(held) => Err(claim.full(held)),
                None => self.acquire_with_care(entry, claim),
            },
        }
    }

    /// The same where there are marks or others are faster.
    #[cold]
    #[inline(never)]
    fn acquire_with_care(&self, entry: &Arc<Entry<K>>, claim: Claim) -> Result<Grant, Full> {
        let word = entry.word();
        let taken = match word.take_with_care(claim, Taker::Any) {
            Ok(grant) => Ok(grant),
            Err(No::Full(held)) => Err(No::Full(held)),
            Err(_) => self.under_lock(entry, || word.take(claim, Taker::Lock)),
        };
        match taken {
            Ok(grant) => Ok(grant),
            Err(No::Full(held)) => Err(claim.full(held)),
            Err(No::Waited) => self.line_of(entry).try_ask(claim).map(Taken::into_grant),
            Err(No::Retired | No::Locked) => {
                unreachable!("nothing else stops a thread that has pinned and locked it")
            }
        }
    }

    /// How many units of a key are held.
    pub(super) fn held<Q>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.held_at(self.hasher.hash_one(key), key)
    }

    fn held_at<Q>(&self, hash: u64, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let settled = self.map.find(hash, key, |entry| entry.word().settled());
        settled.flatten().unwrap_or_else(|| {
            let _guard = self.map.guard();
            let _lock = self.lock(hash);
            let held = self.map.find(hash, key, |entry| entry.word().held());
            held.unwrap_or(0)
        })
    }

    /// How many units are held of a key that was found.
    pub(super) fn held_of(&self, entry: &Entry<K>) -> u64 {
        let settled = entry.word().settled();
        settled.unwrap_or_else(|| self.under_lock(entry, || entry.word().held()))
    }

    /// Make a key known, and keep it so, however many there are.
    pub(super) fn pin_key<Q>(&self, key: &Q) -> Arc<Entry<K>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.pin_anyway(self.hasher.hash_one(key), key)
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// The keys of which units are held, and how many.
    pub(super) fn all_held(&self) -> Vec<(K, u64)> {
        let mut all = Vec::new();
        self.map.each(|entry| {
            let held = self.held_of(entry);
            if held > 0 {
                all.push((entry.key().clone(), held));
            }
        });
        all
    }

    /// How many wait for a key.
    pub(super) fn waiting<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let _guard = self.map.guard();
        let shard = self.lock(hash);
        let line = |entry: &Arc<Entry<K>>| shard.lines.get(&entry.address()).cloned();
        let line = self.map.find(hash, key, line).flatten();
        drop(shard);
        line.map_or(0, |line| Line::new(line).len())
    }

    /// The line of a key that is pinned, made if there is none.
    pub(super) fn line_of(&self, entry: &Arc<Entry<K>>) -> Line<K> {
        let mut shard = self.lock(entry.hash());
        let line = shard.lines.entry(entry.address()).or_insert_with(|| {
            let options = self.rules.slot(entry.rule()).queue();
            let is_closed = self.closed.load(Ordering::Acquire);
            let (entry, keys) = (Arc::clone(entry), self.me.clone());
            Line::start(&options, is_closed, entry, keys, &self.clock)
        });
        Line::new(Arc::clone(line))
    }

    /// Milliseconds since the start.
    #[cfg(not(rideau_loom))]
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Loom's time does not pass.
    #[cfg(rideau_loom)]
    fn now(&self) -> u64 {
        0
    }

    pub(super) fn set_keys_max(&self, max: usize) {
        self.rules.set_keys_max(max);
    }

    /// How many keys of a rule are known.
    pub(super) fn keys_of(&self, rule: usize) -> usize {
        self.rules.keys(rule)
    }

    /// Change how one waits, everywhere at once.
    pub(super) fn set_queue(&self, options: &queue::Options) -> Result<(), OptionError> {
        options.validate().map_err(|no| no.within("queue"))?;
        let _alone = lock(&self.changing);
        let rules = self.rules.all();
        rules.for_each(|rule| self.rules.slot(rule).set_queue(options));
        for line in self.lines() {
            line.reconfigure(options)?;
        }
        Ok(())
    }

    pub(super) fn queue(&self) -> queue::Options {
        self.rules.slot(0).queue()
    }

    /// Refuse every ask that waits or comes to wait.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lines().iter().for_each(Line::close);
    }

    /// Units came back, and an ask waits for them or they were the last.
    #[cold]
    #[inline(never)]
    pub(super) fn came_back(&self, entry: &Arc<Entry<K>>, left: Left, is_pinned: bool) {
        if left.is_idle() && !is_pinned {
            self.list(entry);
        }
        if left.is_waited() {
            let line = self.lock(entry.hash()).lines.get(&entry.address()).cloned();
            if let Some(line) = line {
                Line::new(line).serve();
            }
        }
    }

    /// Do something with the lock of a key's shard.
    pub(super) fn under_lock<T>(&self, entry: &Entry<K>, then: impl FnOnce() -> T) -> T {
        let _lock = self.lock(entry.hash());
        then()
    }

    /// The lock of the shard of a hash.
    fn lock(&self, hash: u64) -> MutexGuard<'_, Shard<K>> {
        self.lock_shard(shard_of(hash))
    }

    pub(super) fn lock_shard(&self, shard: usize) -> MutexGuard<'_, Shard<K>> {
        lock(&self.shards[shard])
    }

    fn lines(&self) -> Vec<Line<K>> {
        let mut all = Vec::new();
        for shard in self.shards.iter() {
            let shard = lock(shard);
            all.extend(shard.lines.values().cloned().map(Line::new));
        }
        all
    }
}

/// By bits that the map does not look at first.
#[inline]
pub(super) fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize & (SHARDS - 1)
}
