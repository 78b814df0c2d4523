//! Real threads and papaya's real map, which models do not see.
//!
//! Each key counts its copies, so that one that is never freed is found out.

use std::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
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

/// This many copies are left at most, soon: another thread may be about to drop some.
fn assert_left(shared: &Arc<()>, max: usize, forget: impl Fn()) {
    let start = Instant::now();
    while Arc::strong_count(shared) - 1 > max {
        let left = Arc::strong_count(shared) - 1;
        let is_soon = start.elapsed() < Duration::from_secs(20);
        assert!(is_soon, "{left} keys leaked");
        forget();
        thread::yield_now();
    }
}

fn assert_all_gone(shared: &Arc<()>) {
    assert_left(shared, 0, || ());
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

/// Locks of which many keys were held, and one is.
fn locks_with_many_idle(shared: &Arc<()>) -> (Locks<Name>, Lock<'static, Name>) {
    const KEYS: u64 = 20_000;
    let locks = Locks::new();
    let key = |key| Name(key, Arc::clone(shared));
    let held = (0..KEYS).map(|at| locks.acquire_owned(&key(at), 1, 1).expect("it is free"));
    let mut held: Vec<_> = held.collect();
    assert_eq!(Arc::strong_count(shared) as u64, KEYS + 1);
    let last = held.pop().expect("there are many");
    drop(held);
    (locks, last)
}

/// And what is held is found when the table has become small.
#[test]
fn the_sweeper_frees_every_key_while_the_locks_stay() {
    let shared = Arc::new(());
    let (locks, held) = locks_with_many_idle(&shared);
    assert_left(&shared, 1, || ());
    assert_eq!((locks.len(), locks.held(held.key())), (1, 1));
    drop(held);
    assert_all_gone(&shared);
}

#[test]
fn keys_that_are_forgotten_at_once_are_freed_at_once() {
    let shared = Arc::new(());
    let (locks, held) = locks_with_many_idle(&shared);
    locks.forget_idle();
    assert_left(&shared, 1, || locks.forget_idle());
    assert_eq!((locks.len(), locks.held(held.key())), (1, 1));
    drop(held);
    assert_left(&shared, 0, || locks.forget_idle());
}

/// A thread may keep as many as there are others in a search, and no more however many it
/// has forgotten.
#[test]
fn threads_that_make_room_for_keys_keep_few_of_the_others() {
    let shared = Arc::new(());
    let locks = Locks::new();
    locks.set_keys_max(10);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (locks, shared) = (&locks, &shared);
            scope.spawn(move || {
                for round in 0..ROUNDS / 10 {
                    let key = Name(round * THREADS + thread, Arc::clone(shared));
                    drop(locks.acquire(&key, 1));
                }
            });
        }
    });
    // Its own batches have 32, and those of other threads as many.
    assert_left(&shared, 32 * (THREADS as usize + 1), || locks.forget_idle());
    drop(locks);
    assert_all_gone(&shared);
}

/// Keys come faster than the sweeper forgets them.
#[test]
fn keys_that_come_and_go_for_long_do_not_pile_up() {
    const KEYS: u64 = 1_000_000;
    let locks: Locks<u64> = Locks::new();
    let mut most = 0;
    for key in 0..KEYS {
        drop(locks.acquire(&key, 1));
        most = most.max(locks.len());
    }
    assert!((most as u64) < KEYS / 2, "{most} were known");
}

/// Threads take the only unit of few keys while others remove every key that is free: no
/// two hold it at a time, and all of them can have it in the end.
#[test]
fn no_unit_is_lost_or_granted_twice_while_its_key_is_removed() {
    const KEYS: usize = 3;
    let locks: Locks<usize> = Locks::new();
    let holders: [AtomicUsize; KEYS] = Default::default();
    let (granted, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (locks, holders, granted, over) = (&locks, &holders, &granted, &over);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                let mut fences = [0; KEYS];
                for _ in 0..ROUNDS {
                    let key = rng.below(KEYS as u64) as usize;
                    let Ok(lock) = locks.acquire(&key, 1) else {
                        continue;
                    };
                    assert_eq!(holders[key].fetch_add(1, SeqCst), 0, "two hold it");
                    assert!(lock.fence() > fences[key], "a fence came again");
                    fences[key] = lock.fence();
                    holders[key].fetch_sub(1, SeqCst);
                    granted.fetch_add(1, SeqCst);
                }
                over.fetch_add(1, SeqCst);
            });
        }
        scope.spawn(|| {
            while over.load(SeqCst) < THREADS as usize {
                locks.forget_idle();
            }
        });
    });
    assert!(granted.load(SeqCst) > KEYS);
    assert_eq!(locks.all_held(), []);
    for key in 0..KEYS {
        assert!(locks.acquire(&key, 1).is_ok(), "a unit was lost");
    }
}
