//! Atomic counts in a map that is read without locks, and keeps every key it
//! has seen: a thread that found a count may be about to raise it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use foldhash::fast::RandomState;
use papaya::{HashMap, ResizeMode};

use super::Counter;
use super::cas::{add_below, subtract};

/// By default a map that has grown is left half copied until more keys come,
/// and every look-up then pays for two; where keys stay, papaya advises this.
fn map<V>() -> HashMap<String, V, RandomState> {
    HashMap::builder()
        .hasher(RandomState::default())
        .resize_mode(ResizeMode::Blocking)
        .build()
}

/// Finds the count to acquire, and again to release.
pub(super) struct TwoLooks(Counts);

type Counts = HashMap<String, AtomicU64, RandomState>;

pub(super) struct Unit<'a> {
    counts: &'a Counts,
    key: &'a str,
}

impl Counter for TwoLooks {
    const NAME: &'static str = "papaya-2";
    type Handle<'a> = &'a str;
    type Held<'a> = Unit<'a>;

    fn start(_keys: &[String]) -> Self {
        Self(map())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<Unit<'a>> {
        let counts = self.0.pin();
        let added = match counts.get(*key) {
            Some(held) => add_below(held, capacity),
            None => add_below(
                counts.get_or_insert_with((*key).to_owned(), AtomicU64::default),
                capacity,
            ),
        };
        added.then(|| Unit {
            counts: &self.0,
            key,
        })
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        let counts = self.counts.pin();
        subtract(counts.get(self.key).expect("every key is kept"));
    }
}

/// Finds the count once, and keeps a reference to it.
pub(super) struct OneLook(HashMap<String, Arc<AtomicU64>, RandomState>);

pub(super) struct SharedUnit(Arc<AtomicU64>);

impl Counter for OneLook {
    const NAME: &'static str = "papaya-arc";
    type Handle<'a> = &'a str;
    type Held<'a> = SharedUnit;

    fn start(_keys: &[String]) -> Self {
        Self(map())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<SharedUnit> {
        let counts = self.0.pin();
        let held = match counts.get(*key) {
            Some(held) => held,
            None => counts.get_or_insert_with((*key).to_owned(), Arc::default),
        };
        // A refused take needs no reference.
        add_below(held, capacity).then(|| SharedUnit(Arc::clone(held)))
    }
}

impl Drop for SharedUnit {
    fn drop(&mut self) {
        subtract(&self.0);
    }
}
