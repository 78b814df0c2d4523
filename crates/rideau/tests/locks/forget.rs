//! Keys are known while they are needed and no longer, and their fences only
//! grow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::thread;

use rideau::{AskOptions, Locks, LocksOptions, Reason, queue};

use crate::stage::{MS, patient_locks, poll_once, times, until};

#[test]
fn keys_that_are_not_held_are_forgotten_without_a_call() {
    let locks: Locks<u64> = Locks::new();
    let kept = locks.acquire(&0, 1).unwrap();
    for key in 1..5_000 {
        drop(locks.acquire(&key, 1).unwrap());
    }
    until("a map of one key", || locks.len() == 1);
    assert_eq!(locks.all_held(), [(0, 1)]);
    drop(kept);
    until("an empty map", || locks.is_empty());
}

#[test]
fn all_idle_keys_can_be_forgotten_at_once() {
    let locks: Locks<u64> = Locks::new();
    let held: Vec<_> = (0..100)
        .map(|key| locks.acquire(&key, 1).unwrap())
        .collect();
    locks.forget_idle();
    assert_eq!(locks.len(), 100);
    drop(held);
    locks.forget_idle();
    assert_eq!((locks.len(), locks.is_empty()), (0, true));
}

#[test]
fn a_handle_keeps_its_key_known() {
    let locks: Locks<String> = Locks::new();
    let handle = locks.handle("db");
    let second = handle.clone();
    assert_eq!((locks.len(), handle.held()), (1, 0));
    drop(handle.acquire(3).unwrap());
    locks.forget_idle();
    assert_eq!(locks.len(), 1);
    drop(handle);
    locks.forget_idle();
    assert_eq!(locks.len(), 1);
    let lock = second.acquire_owned(2, 3).unwrap();
    assert_eq!((lock.ordinal(), locks.held("db")), (2, 2));
    assert_eq!(second.acquire_many(2, 3).unwrap_err().held, 2);
    drop(second);
    locks.forget_idle();
    assert_eq!(locks.len(), 1, "a unit is held");
    drop(lock);
    until("an empty map", || locks.is_empty());
}

#[test]
fn a_lock_outlives_the_locks_and_every_handle() {
    let locks: Locks<String> = Locks::new();
    let handle = locks.handle("db");
    let lock = handle.acquire_owned(1, 1).unwrap();
    drop((locks, handle));
    assert_eq!((lock.key().as_str(), lock.ordinal()), ("db", 1));
    drop(lock);
}

/// A handle that goes while the sweeper is at its key is not missed.
#[test]
fn keys_whose_handles_come_and_go_are_forgotten() {
    let locks: Locks<u64> = Locks::new();
    for round in 0..times(5) {
        thread::scope(|scope| {
            for thread in 0..4 {
                let locks = &locks;
                scope.spawn(move || {
                    for key in 0..5_000 {
                        drop(locks.handle(&(key * 4 + thread)));
                    }
                });
            }
        });
        until("an empty map", || locks.is_empty());
        assert!(locks.all_held().is_empty(), "round {round}");
    }
}

/// A refused wait may keep its answer for long, and so its line.
#[test]
fn a_key_is_forgotten_after_the_last_of_its_waits() {
    let locks = patient_locks();
    let lock = locks.acquire("db", 1).unwrap();
    let terms = AskOptions {
        wait_max: Some(MS),
        ..AskOptions::default()
    };
    let refused = locks.begin_acquire("db", 1, 1, terms);
    until("the end of a wait", || locks.waiting("db") == 0);
    drop(lock);
    // When the other key is gone, the sweeper has been here too.
    drop(locks.acquire("other", 1).unwrap());
    until("a map of one key", || locks.len() == 1);
    drop(refused);
    until("an empty map", || locks.is_empty());
}

#[test]
fn a_key_that_was_waited_for_is_forgotten() {
    let locks = patient_locks();
    let lock = locks.acquire("db", 1).unwrap();
    let mut wait = locks.begin_acquire("db", 1, 1, AskOptions::default());
    assert!(poll_once(&mut wait).is_pending());
    locks.forget_idle();
    assert_eq!((locks.len(), locks.waiting("db")), (1, 1));
    lock.release();
    let Poll::Ready(Ok(lock)) = poll_once(&mut wait) else {
        panic!("a unit came back");
    };
    drop(wait);
    locks.forget_idle();
    assert_eq!(locks.len(), 1);
    drop(lock);
    until("an empty map", || locks.is_empty());
    // A new wait is in a new line.
    let lock = locks.acquire("db", 1).unwrap();
    let wait = locks.begin_acquire("db", 1, 1, AskOptions::default());
    assert_eq!(locks.waiting("db"), 1);
    drop((lock, wait));
    until("an empty map", || locks.is_empty());
}

/// A wait for a key that cannot be had does not leave the key behind.
#[test]
fn a_wait_that_is_refused_at_once_leaves_no_key() {
    let locks = patient_locks();
    let wait = locks.begin_acquire("db", 4, 3, AskOptions::default());
    locks.close();
    let mut wait = wait;
    let Poll::Ready(Err(no)) = poll_once(&mut wait) else {
        panic!("more were asked for than there may be");
    };
    assert_eq!(no.reason, Reason::Excess);
    drop(wait);
    until("an empty map", || locks.is_empty());
}

/// A call that forgets keys must not make the sweeper forget to come.
#[test]
fn keys_are_forgotten_after_others_forgot_some() {
    let locks: Locks<u64> = Locks::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                locks.forget_idle();
            }
        });
        let threads = (0..3).map(|thread| {
            let locks = &locks;
            scope.spawn(move || {
                for turn in 0..times(100_000) {
                    drop(locks.acquire(&(turn % 3 + thread), 9).unwrap());
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        over.store(true, SeqCst);
    });
    for key in 0..1_000 {
        drop(locks.acquire(&key, 1).unwrap());
    }
    until("an empty map", || locks.is_empty());
}

#[test]
fn the_fences_of_a_key_grow_though_it_is_forgotten() {
    let locks: Locks<u64> = Locks::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..50 {
        for key in 0..200 {
            let lock = locks.acquire(&key, 2).unwrap();
            let before = last.insert(key, lock.fence()).unwrap_or(0);
            assert!(lock.fence() > before, "key {key} in round {round}");
        }
        locks.forget_idle();
        assert!(locks.is_empty());
    }
    for key in 0..200 {
        drop(locks.acquire(&key, 2).unwrap());
    }
    until("an empty map", || locks.is_empty());
    let lock = locks.acquire(&7, 2).unwrap();
    assert!(lock.fence() > last[&7]);
}

#[test]
fn fences_begin_above_the_given_one() {
    for fence in [
        0,
        1,
        1_000,
        (1 << 33) - 2,
        (1 << 34) - 2,
        (1 << 35) - 2,
        1_700_000_000_000_000_000,
    ] {
        let options = LocksOptions {
            queue: queue::Options::default(),
            fence,
        };
        let locks: Locks<String> = Locks::with(options).unwrap();
        let fences = (0..5).map(|_| locks.acquire("db", 1).unwrap().fence());
        assert_eq!(
            fences.collect::<Vec<_>>(),
            (fence + 1..=fence + 5).collect::<Vec<_>>()
        );
        locks.forget_idle();
        assert_eq!(locks.acquire("db", 1).unwrap().fence(), fence + 6);
        assert!(locks.acquire("disk", 1).unwrap().fence() > fence);
    }
}

/// The number needs more room than the word has, and all threads pass there.
#[test]
fn fences_grow_for_all_threads_where_their_word_is_full() {
    for edge in [1 << 33, 1 << 34, 3 << 33, 1 << 35] {
        let options = LocksOptions {
            queue: queue::Options::default(),
            fence: edge - 2_000,
        };
        let locks: Locks<String> = Locks::with(options).unwrap();
        let mut all: Vec<u64> = thread::scope(|scope| {
            let take = || {
                let fences = (0..1_000).map(|_| locks.acquire("db", 9).unwrap().fence());
                let fences: Vec<u64> = fences.collect();
                assert!(fences.is_sorted_by(|one, two| one < two));
                fences
            };
            let threads = [(); 4].map(|()| scope.spawn(take));
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        all.sort_unstable();
        assert_eq!(all, (edge - 1_999..=edge + 2_000).collect::<Vec<_>>());
    }
}
