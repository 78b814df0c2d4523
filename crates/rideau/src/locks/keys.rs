//! All keys of which units are held, and some that were until a moment ago.
//!
//! A key that is known is found without a lock. One that is not is added under
//! the lock of its shard, and forgotten again by the sweeper. An entry that is found
//! under that lock is in use; one that is found without it may have been forgotten
//! meanwhile, and its word says so.
//!
//! Here are also the types that go round with the keys: keys have the lines of asks that
//! wait, a line tells an ask which units it was granted, and units that come back tell the
//! keys.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};
#[cfg(not(rideau_loom))]
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rideau_core::locks::Lines;
use rideau_core::{OptionError, Refusal, queue};

use super::entry::Entry;
use super::map::Map;
use super::rules::{KeyRule, Rules};
use super::{Lock, LocksOptions};
use crate::clock::Clock;
use crate::driver::Driver;
use crate::keyed::Key;
use crate::reply_slot::ReplySlot;
use crate::sync::{AtomicBool, Mutex, MutexGuard, lock};

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
    pub(super) me: Weak<Self>,
    pub(super) hasher: Hasher,
    pub(super) map: Map<K>,
    pub(super) shards: Box<[CachePadded<Mutex<Shard<K>>>; SHARDS]>,
    #[cfg(not(rideau_loom))]
    pub(super) start: Instant,
    pub(super) rules: Rules<K>,
    /// The clock of all queues.
    pub(super) clock: Clock,
    /// Rules change one after the other.
    pub(super) changing: Mutex<()>,
    /// The sweeper knows that there is something to do.
    pub(super) swept: AtomicBool,
    pub(super) closed: AtomicBool,
}

/// A shard of keys, with the data that one lock guards.
pub(super) struct Shard<K: Key> {
    /// No key was ever given a larger fence among those that were forgotten.
    pub(super) fence: u64,
    /// How many keys were added, ever.
    pub(super) added: u32,
    /// Where asks wait for a key, by the address of its entry. A key with a line is not
    /// forgotten.
    pub(super) lines: HashMap<usize, Arc<LineOf<K>>>,
}

/// Where asks wait for a key.
pub(super) type LineOf<K> = Driver<Machine<K>, Tell>;
pub(super) type Machine<K> = Lines<KeyCount<K>, Reply<K>>;
pub(super) type HeldUnits<K> = Taken<'static, K>;

/// Counts units in the word of a key, which is not forgotten while it has a line.
pub(super) struct KeyCount<K: Key> {
    pub(super) entry: Arc<Entry<K>>,
    pub(super) keys: Weak<Keys<K>>,
}

/// Tells the asks that wait what became of them.
pub(super) struct Tell;

/// Where an ask waits, if it does: one that just came has no cell yet and takes
/// its answer itself.
pub(super) struct Reply<K: Key>(pub(super) Option<Arc<ReplySlot<Told<K>>>>);

/// What a waiter is told.
pub(super) type Told<K> = Result<Lock<'static, K>, Refusal>;

/// Units that were taken. Dropping it gives them back.
///
/// All fields are as wide as a register, so that moving it never reads back part
/// of what was just written.
pub(super) struct Taken<'a, K: Key> {
    pub(super) source: Source<'a, K>,
    pub(super) origin: Origin<'a, K>,
    /// In its lower half; the upper one has the ordinal.
    pub(super) units: u64,
    pub(super) fence: u64,
    /// In nanoseconds.
    pub(super) waited: u64,
}

/// The entry whose word counts the units.
pub(super) enum Source<'a, K: Key> {
    Found(Arc<Entry<K>>),
    /// The key is pinned for longer.
    Pinned(&'a Arc<Entry<K>>),
}

/// The keys that are told when units come back.
pub(super) enum Origin<'a, K: Key> {
    Borrowed(&'a Keys<K>),
    Owned(Arc<Keys<K>>),
}

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

    /// How many units of a key are held.
    pub(super) fn held<Q>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.held_at(self.hasher.hash_one(key), key)
    }

    pub(super) fn held_at<Q>(&self, hash: u64, key: &Q) -> u64
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
        self.each_held(|key, held| all.push((key.clone(), held)));
        all
    }

    /// The same, one after the other.
    pub(super) fn each_held(&self, mut look: impl FnMut(&K, u64)) {
        self.map.each(|entry| {
            let held = self.held_of(entry);
            if held > 0 {
                look(entry.key(), held);
            }
        });
    }

    /// Milliseconds since the start.
    #[cfg(not(rideau_loom))]
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Loom's time does not pass.
    #[cfg(rideau_loom)]
    pub(super) fn now(&self) -> u64 {
        0
    }

    pub(super) fn set_keys_max(&self, max: usize) {
        self.rules.set_keys_max(max);
    }

    /// How many keys of a rule are known.
    pub(super) fn keys_of(&self, rule: usize) -> usize {
        self.rules.keys(rule)
    }

    pub(super) fn queue(&self) -> queue::Options {
        self.rules.slot(0).queue()
    }

    /// Do something with the lock of a key's shard.
    pub(super) fn under_lock<T>(&self, entry: &Entry<K>, then: impl FnOnce() -> T) -> T {
        let _lock = self.lock(entry.hash());
        then()
    }

    /// The lock of the shard of a hash.
    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Shard<K>> {
        self.lock_shard(shard_of(hash))
    }

    pub(super) fn lock_shard(&self, shard: usize) -> MutexGuard<'_, Shard<K>> {
        lock(&self.shards[shard])
    }
}

/// By bits that the map does not look at first.
#[inline]
pub(super) fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize & (SHARDS - 1)
}
