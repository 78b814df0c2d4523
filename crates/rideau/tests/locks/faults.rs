//! T8 and T12: the faults of others, on plain threads. The models have each of
//! them in all interleavings; here they run as they did where they were found.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rideau::{Capacity, Locks};
use rideau_core::Rng;

use crate::stage::{die, panics, times};

/// After a storm exactly this many can be had.
fn is_whole(locks: &Locks<String>, capacity: u64) {
    assert_eq!(locks.held("db"), 0);
    let all: Vec<_> = (0..capacity)
        .map(|_| locks.acquire("db", capacity))
        .collect();
    assert!(all.iter().all(Result::is_ok));
    assert!(locks.acquire("db", capacity).is_err());
}

/// L1: a releaser's step back met another's.
#[test]
fn no_capacity_is_lost_however_many_come_and_go() {
    let locks: Locks<String> = Locks::new();
    thread::scope(|scope| {
        for seed in 0..8 {
            let locks = &locks;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..times(5_000) {
                    let buckets = 1 + rng.below(2);
                    let came = locks.acquire("db", Capacity::new(1, buckets));
                    assert!(came.is_err() || came.is_ok_and(|lock| lock.ordinal() <= buckets));
                }
            });
        }
    });
    is_whole(&locks, 2);
}

/// L2: eighteen refusals during one release gave one too many.
#[test]
fn no_number_of_refusals_during_a_release_frees_more() {
    let locks: Locks<String> = Locks::new();
    let over = AtomicBool::new(false);
    let keeper = locks.acquire("db", 1).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    assert_eq!(locks.acquire("db", 1).unwrap_err().capacity, 1);
                    thread::yield_now();
                }
            });
        }
        for _ in 0..times(20_000) {
            let second = locks.acquire("db", 2).unwrap();
            assert_eq!(second.ordinal(), 2);
            assert_eq!(locks.acquire("db", 2).unwrap_err().held, 2);
        }
        over.store(true, SeqCst);
    });
    drop(keeper);
    is_whole(&locks, 2);
}

/// L3: a release did not know of what was just added above it.
#[test]
fn a_caller_that_sees_little_does_not_get_in_while_others_grow() {
    let locks: Locks<String> = Locks::new();
    let real = AtomicU64::new(0);
    let keeper = locks.acquire("db", 1).unwrap();
    thread::scope(|scope| {
        for capacity in [2, 2, 4, 4] {
            let (locks, real) = (&locks, &real);
            scope.spawn(move || {
                for _ in 0..times(5_000) {
                    let Ok(_lock) = locks.acquire("db", capacity) else {
                        continue;
                    };
                    assert!(real.fetch_add(1, SeqCst) < 3, "three beside the keeper");
                    // One is held all the time.
                    assert!(locks.acquire("db", 1).is_err());
                    real.fetch_sub(1, SeqCst);
                }
            });
        }
    });
    drop(keeper);
    is_whole(&locks, 4);
}

/// L4: two met on a key that was new to both.
#[test]
fn the_first_use_of_a_key_by_two_at_once_is_as_any_other() {
    let locks: Locks<u64> = Locks::new();
    let rounds = times(2_000);
    let (came, went) = (Barrier::new(2), Barrier::new(2));
    let meet = |capacity: u64| {
        for key in 0..rounds {
            came.wait();
            let first = locks.acquire(&key, capacity);
            let second = locks.acquire(&key, capacity);
            went.wait();
            let held = locks.held(&key);
            assert!((1..=2).contains(&held), "{held} of {key}");
            came.wait();
            drop((first, second));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| meet(1));
        meet(2);
    });
    assert!(locks.all_held().is_empty());
}

/// L5: each holds one at most, and there is one for each.
#[test]
fn no_take_is_refused_while_there_is_room() {
    let locks: Locks<String> = Locks::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Their refusals must not be in the way of others.
        scope.spawn(|| {
            while !over.load(SeqCst) {
                assert!(locks.acquire("db", 0).is_err());
                locks.forget_idle();
                thread::yield_now();
            }
        });
        let threads = (0..3).map(|_| {
            scope.spawn(|| {
                for turn in 0..times(10_000) {
                    let lock = locks.acquire("db", 3).unwrap();
                    if turn % 64 == 0 {
                        thread::yield_now();
                    }
                    drop(lock);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let ends = threads.into_iter().map(thread::ScopedJoinHandle::join);
        let failed = ends.filter(Result::is_err).count();
        over.store(true, SeqCst);
        assert_eq!(failed, 0);
    });
    is_whole(&locks, 3);
}

/// L7: what one saw when it took does not matter when it gives back.
#[test]
fn a_release_does_not_depend_on_what_was_seen() {
    let locks: Locks<String> = Locks::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let views = [(3, 1), (1, 2), (100, 7)];
        let views = views.map(|(per, buckets)| Capacity::new(per, buckets));
        let mut held = views.map(|view| locks.acquire("db", view).ok());
        assert!(held.iter().all(Option::is_some));
        order.into_iter().for_each(|at| drop(held[at].take()));
        is_whole(&locks, 3);
    }
}

/// L8: there is nothing between the grant and the guard.
#[test]
fn a_holder_that_dies_right_after_the_grant_leaves_nothing() {
    let locks: Locks<String> = Locks::new();
    for _ in 0..times(1_000) {
        assert!(panics(|| {
            let _lock = locks.acquire("db", 1).unwrap();
            die()
        }));
    }
    is_whole(&locks, 1);
}

/// L8 and L9 on threads: others come and go meanwhile.
#[test]
fn deaths_before_during_and_after_a_release_free_one_each() {
    let locks: Locks<String> = Locks::new();
    thread::scope(|scope| {
        for seed in 0..4 {
            let locks = &locks;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..times(3_000) {
                    let when = rng.below(3);
                    panics(|| {
                        let Ok(lock) = locks.acquire("db", 2) else {
                            return;
                        };
                        assert!(lock.ordinal() <= 2);
                        if when == 0 {
                            die();
                        }
                        lock.release();
                        if when == 1 {
                            die();
                        }
                    });
                }
            });
        }
    });
    is_whole(&locks, 2);
}

/// L11 and T12, as far as one can see it from outside.
#[test]
fn a_refusal_leaves_no_trace() {
    let locks: Locks<String> = Locks::new();
    let first = locks.acquire("db", 1).unwrap();
    for _ in 0..1_000 {
        assert!(locks.acquire("db", 1).is_err());
        assert!(locks.acquire_many("new", 2, 1).is_err());
        assert!(locks.acquire_all([("new", 1, 1), ("db", 1, 1)]).is_err());
    }
    assert_eq!((locks.len(), locks.held("db")), (1, 1));
    let second = locks.acquire("db", 2).unwrap();
    assert_eq!(second.fence(), first.fence() + 1);
}
