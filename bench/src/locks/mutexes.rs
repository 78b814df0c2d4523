//! Maps behind mutexes, from which a key is removed when it is not held: one of
//! the standard library's, and 64 of parking_lot's.
//!
//! A key is hashed once for its acquire and its release, and copied only when
//! its first holder comes.

use std::hash::BuildHasher;
use std::iter;
use std::sync;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot as fast;

use super::Counter;

/// What a mutex guards.
#[derive(Default)]
struct Counts(HashTable<Count>);

struct Count {
    key: Box<str>,
    hash: u64,
    held: u64,
}

impl Counts {
    fn add(&mut self, hash: u64, key: &str, capacity: u64) -> bool {
        match self
            .0
            .entry(hash, |count| *count.key == *key, |count| count.hash)
        {
            Entry::Occupied(mut count) if count.get().held < capacity => {
                count.get_mut().held += 1;
                true
            }
            Entry::Vacant(place) if capacity > 0 => {
                let key = key.into();
                place.insert(Count { key, hash, held: 1 });
                true
            }
            _ => false,
        }
    }

    fn subtract(&mut self, hash: u64, key: &str) {
        let found = self.0.find_entry(hash, |count| *count.key == *key);
        let mut found = found.unwrap_or_else(|_| panic!("{key} is held"));
        found.get_mut().held -= 1;
        if found.get().held == 0 {
            found.remove();
        }
    }
}

pub(super) struct Sharded {
    hasher: RandomState,
    shards: Box<[Shard]>,
}

const SHARDS: usize = 64;

#[derive(Default)]
#[repr(align(64))]
pub(super) struct Shard(fast::Mutex<Counts>);

impl Sharded {
    fn shard(&self, hash: u64) -> &Shard {
        // The table finds its way by the lowest bits and the seven highest.
        &self.shards[(hash >> 48) as usize % SHARDS]
    }
}

pub(super) struct ShardUnit<'a> {
    shard: &'a Shard,
    hash: u64,
    key: &'a str,
}

impl Counter for Sharded {
    const NAME: &'static str = "64-mutex-maps";
    type Handle<'a> = &'a str;
    type Held<'a> = ShardUnit<'a>;

    fn start(_keys: &[String]) -> Self {
        Self {
            hasher: RandomState::default(),
            shards: iter::repeat_with(Shard::default).take(SHARDS).collect(),
        }
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<ShardUnit<'a>> {
        let hash = self.hasher.hash_one(*key);
        let shard = self.shard(hash);
        let added = shard.0.lock().add(hash, key, capacity);
        added.then(|| ShardUnit { shard, hash, key })
    }
}

impl Drop for ShardUnit<'_> {
    fn drop(&mut self) {
        self.shard.0.lock().subtract(self.hash, self.key);
    }
}

#[derive(Default)]
pub(super) struct Single {
    hasher: RandomState,
    counts: sync::Mutex<Counts>,
}

pub(super) struct SingleUnit<'a> {
    from: &'a Single,
    hash: u64,
    key: &'a str,
}

impl Single {
    fn lock(&self) -> sync::MutexGuard<'_, Counts> {
        self.counts.lock().expect("counting does not panic")
    }
}

impl Counter for Single {
    const NAME: &'static str = "mutex-map";
    type Handle<'a> = &'a str;
    type Held<'a> = SingleUnit<'a>;

    fn start(_keys: &[String]) -> Self {
        Self::default()
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<SingleUnit<'a>> {
        let hash = self.hasher.hash_one(*key);
        let added = self.lock().add(hash, key, capacity);
        added.then(|| SingleUnit {
            from: self,
            hash,
            key,
        })
    }
}

impl Drop for SingleUnit<'_> {
    fn drop(&mut self) {
        self.from.lock().subtract(self.hash, self.key);
    }
}
