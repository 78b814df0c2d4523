//! A word for each key, known beforehand: the roof for all subjects that count
//! exactly.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Counter;

pub(super) struct Words(Box<[Word]>);

/// On a line of its own: a neighbour's traffic is no part of the roof.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Word(AtomicU64);

pub(super) struct Unit<'a>(&'a AtomicU64);

impl Counter for Words {
    const NAME: &'static str = "cas";
    type Handle<'a> = &'a Word;
    type Held<'a> = Unit<'a>;

    fn start(keys: &[String]) -> Self {
        Self(keys.iter().map(|_| Word::default()).collect())
    }

    fn handle<'a>(&'a self, at: usize, _key: &'a str) -> &'a Word {
        &self.0[at]
    }

    fn acquire<'a, 'd: 'a>(&'a self, handle: &'a &'d Word, capacity: u64) -> Option<Unit<'a>> {
        add_below(&handle.0, capacity).then(|| Unit(&handle.0))
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        subtract(self.0);
    }
}

/// Adds one if fewer than `capacity` are held.
pub(super) fn add_below(held: &AtomicU64, capacity: u64) -> bool {
    let mut seen = held.load(Ordering::Relaxed);
    while seen < capacity {
        let added =
            held.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed);
        match added {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

pub(super) fn subtract(held: &AtomicU64) {
    held.fetch_sub(1, Ordering::Release);
}
