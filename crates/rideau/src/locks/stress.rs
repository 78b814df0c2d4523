//! Real threads on few keys, for the memory that models do not see.
//!
//! Each key counts its copies, so that one freed too early, twice or never is
//! found out; the first two by a sanitizer at the latest.

use std::hash::Hasher;
use std::task::Waker;
use std::thread;
use std::time::Instant;

use rideau_core::Rng;

use super::*;

const THREADS: u64 = 4;
const ROUNDS: u64 = 50_000;

/// A name, and a part of what all keys share.
#[derive(Clone, Debug)]
struct Name(
    u64,
    #[expect(dead_code, reason = "its copies are counted")] Arc<()>,
);

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// There is no copy any more, soon: another thread may be about to drop some.
fn assert_all_gone(shared: &Arc<()>) {
    let start = Instant::now();
    while Arc::strong_count(shared) > 1 {
        assert!(start.elapsed() < Duration::from_secs(20), "a key leaked");
        thread::yield_now();
    }
}

/// One poll, and whatever came is dropped: a unit, a refusal, or the place.
fn poll_once(mut wait: Acquiring<Name>) {
    let mut context = Context::from_waker(Waker::noop());
    let _ = Pin::new(&mut wait).poll(&mut context);
}

/// Whatever one can do, drawn.
fn live(locks: &Locks<Name>, shared: &Arc<()>, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut handle = None;
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        let [key, other] = [(); 2].map(|()| Name(rng.below(6), Arc::clone(shared)));
        let capacity = 1 + rng.below(3);
        match rng.below(12) {
            0..4 => drop(locks.acquire(&key, capacity)),
            4 => kept.extend(locks.acquire_owned(&key, 1, capacity)),
            5 => kept.clear(),
            6 => handle = Some(locks.handle(&key)),
            7 => handle = None,
            8 => drop(locks.acquire_all([(&key, 1, capacity), (&other, 1, capacity)])),
            9 => locks.forget_idle(),
            10 => poll_once(locks.begin_acquire(&key, 1, capacity, AskOptions::default())),
            _ => {
                let handle = handle.get_or_insert_with(|| locks.handle(&key));
                if let Ok(lock) = handle.acquire(capacity) {
                    assert!(lock.ordinal() <= capacity);
                    assert_eq!(lock.key(), handle.key());
                }
            }
        }
    }
}

#[test]
fn everything_at_once_on_few_keys_leaves_nothing() {
    let shared = Arc::new(());
    let locks = Locks::new();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (locks, shared) = (&locks, &shared);
            scope.spawn(move || live(locks, shared, seed));
        }
    });
    assert_eq!(locks.all_held(), []);
    let start = Instant::now();
    while !locks.is_empty() {
        // A timer may be looking at a line just now.
        assert!(start.elapsed() < Duration::from_secs(20), "a key was kept");
        locks.forget_idle();
    }
    drop(locks);
    assert_all_gone(&shared);
}

/// Many more keys than fit: tables grow and shrink under threads that look.
#[test]
fn keys_that_come_and_go_are_found_or_made() {
    let shared = Arc::new(());
    let locks = Locks::new();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (locks, shared) = (&locks, &shared);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                let mut kept = Vec::new();
                for round in 0..ROUNDS {
                    let key = Name(rng.below(3_000), Arc::clone(shared));
                    let lock = locks.acquire_owned(&key, 1, THREADS * ROUNDS);
                    kept.push(lock.expect("there is room for all"));
                    if round % 1_000 == 999 {
                        kept.clear();
                        locks.forget_idle();
                    }
                }
            });
        }
    });
    assert_eq!(locks.all_held(), []);
    drop(locks);
    assert_all_gone(&shared);
}

/// On a runtime that runs no timers meanwhile: they would look at the line.
#[tokio::test]
async fn a_key_that_was_waited_for_ends_with_the_locks() {
    let shared = Arc::new(());
    let locks = Locks::new();
    let key = Name(1, Arc::clone(&shared));
    let lock = locks.acquire(&key, 1);
    drop(locks.begin_acquire(&key, 1, 1, AskOptions::default()));
    drop((lock, key));
    drop(locks);
    assert_all_gone(&shared);
}

/// A timer that looks at the line of a key just then does this.
#[test]
fn a_key_that_is_pinned_when_the_locks_end_ends_with_its_pin() {
    let shared = Arc::new(());
    let locks = Locks::new();
    let key = Name(1, Arc::clone(&shared));
    let pinned = locks.keys.pin_key(&key);
    drop((locks, key));
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(pinned);
    assert_all_gone(&shared);
}
