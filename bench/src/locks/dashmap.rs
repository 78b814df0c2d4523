//! Counts in a concurrent map, removed when there is no holder.

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;

use super::Counter;

pub(super) struct Entries(Counts);

type Counts = DashMap<String, u64, RandomState>;

pub(super) struct Unit<'a> {
    counts: &'a Counts,
    key: &'a str,
}

impl Counter for Entries {
    const NAME: &'static str = "dashmap-entry";
    type Handle<'a> = &'a str;
    type Held<'a> = Unit<'a>;

    fn start(_keys: &[String]) -> Self {
        Self(Counts::default())
    }

    fn handle<'a>(&'a self, _at: usize, key: &'a str) -> &'a str {
        key
    }

    fn acquire<'a, 'd: 'a>(&'a self, key: &'a &'d str, capacity: u64) -> Option<Unit<'a>> {
        let counts = &self.0;
        add(counts, key, capacity).then(|| Unit { counts, key })
    }
}

fn add(counts: &Counts, key: &str, capacity: u64) -> bool {
    // An entry wants the key itself, which would be copied in vain if it is known.
    if let Some(mut held) = counts.get_mut(key) {
        return add_below(&mut held, capacity);
    }
    match counts.entry(key.to_owned()) {
        Entry::Occupied(mut held) => add_below(held.get_mut(), capacity),
        Entry::Vacant(place) if capacity > 0 => {
            place.insert(1);
            true
        }
        Entry::Vacant(_) => false,
    }
}

fn add_below(held: &mut u64, capacity: u64) -> bool {
    let fits = *held < capacity;
    *held += u64::from(fits);
    fits
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        self.counts.remove_if_mut(self.key, |_, held| {
            *held -= 1;
            *held == 0
        });
    }
}
