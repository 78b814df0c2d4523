//! Asks that stop waiting: before the grant, at it, and after it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use rideau::{Acquiring, AskOptions, Locks};
use rideau_core::Rng;
use tokio::task::yield_now;

use crate::stage::{patient_locks, poll_once, times, until};

fn wait(locks: &Locks<String>) -> Acquiring<String> {
    locks.begin_acquire("db", 1, 1, AskOptions::default())
}

#[tokio::test]
async fn a_waiter_that_leaves_before_the_grant_costs_the_next_nothing() {
    let locks = patient_locks();
    let held = locks.acquire("db", 1).unwrap();
    let (mut first, mut second) = (wait(&locks), wait(&locks));
    assert!(poll_once(&mut first).is_pending());
    drop(first);
    assert_eq!(locks.waiting("db"), 1);
    drop(held);
    assert!(poll_once(&mut second).is_ready());
}

#[tokio::test]
async fn a_waiter_that_leaves_at_the_grant_passes_it_on() {
    let locks = patient_locks();
    let held = locks.acquire("db", 1).unwrap();
    let (mut first, mut second) = (wait(&locks), wait(&locks));
    assert!(poll_once(&mut first).is_pending());
    drop(held);
    assert_eq!((locks.held("db"), locks.waiting("db")), (1, 1));
    assert!(poll_once(&mut second).is_pending());
    drop(first);
    assert_eq!((locks.held("db"), locks.waiting("db")), (1, 0));
    let lock = second.await.unwrap();
    assert_eq!(lock.ordinal(), 1);
    drop(lock);
    assert_eq!(locks.held("db"), 0);
}

#[tokio::test]
async fn a_waiter_that_leaves_after_the_grant_passes_it_on() {
    let locks = patient_locks();
    let held = locks.acquire("db", 1).unwrap();
    let (mut first, mut second) = (wait(&locks), wait(&locks));
    drop(held);
    let answer = poll_once(&mut first);
    drop(first);
    assert!(answer.is_ready() && poll_once(&mut second).is_pending());
    drop(answer);
    assert!(poll_once(&mut second).is_ready());
}

#[test]
fn an_ask_granted_at_once_and_never_polled_gives_it_back() {
    let locks = patient_locks();
    let wait = wait(&locks);
    assert_eq!(locks.held("db"), 1);
    drop(wait);
    assert_eq!(locks.held("db"), 0);
}

#[tokio::test]
async fn a_waiter_that_leaves_opens_the_way_for_those_it_held_up() {
    let locks = patient_locks();
    let _held = locks.acquire_many("db", 2, 3).unwrap();
    let two = locks.begin_acquire("db", 2, 3, AskOptions::default());
    let mut one = locks.begin_acquire("db", 1, 3, AskOptions::default());
    assert!(poll_once(&mut one).is_pending());
    drop(two);
    assert!(poll_once(&mut one).is_ready());
}

#[tokio::test]
async fn a_task_that_is_aborted_leaves_the_line_or_gives_back() {
    let locks = patient_locks();
    for turn in 0..100 {
        let held = locks.acquire_owned("db", 1, 1).unwrap();
        let waiter = tokio::spawn({
            let locks = locks.clone();
            async move {
                let _held = locks.acquire_wait("db", 1).await.unwrap();
                std::future::pending::<()>().await;
            }
        });
        while locks.waiting("db") == 0 {
            yield_now().await;
        }
        // Before the grant, at it, and when it holds the unit.
        if turn % 3 > 0 {
            drop(held);
        }
        if turn % 3 > 1 {
            yield_now().await;
        }
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        assert_eq!(locks.held("db"), u64::from(turn % 3 == 0));
        assert_eq!(locks.waiting("db"), 0);
    }
}

/// The grant and the drop meet wherever they can.
#[test]
fn a_grant_that_meets_a_cancel_is_never_lost() {
    let locks = patient_locks();
    let mut rng = Rng::new(1);
    for turn in 0..times(2_000) {
        let held = locks.acquire_owned("db", 1, 1).unwrap();
        let (first, second) = (wait(&locks), wait(&locks));
        let (ready, spins) = (AtomicBool::new(false), rng.below(200));
        thread::scope(|scope| {
            scope.spawn(|| {
                ready.store(true, SeqCst);
                drop(first);
            });
            while !ready.load(SeqCst) {
                thread::yield_now();
            }
            (0..spins).for_each(|_| std::hint::spin_loop());
            drop(held);
        });
        let mut second = second;
        assert!(poll_once(&mut second).is_ready(), "turn {turn}");
        assert_eq!((locks.held("db"), locks.waiting("db")), (0, 0));
    }
}

/// Tries, waits and cancels of all lengths on threads of their own.
#[test]
fn no_release_is_missed_by_a_waiter_that_comes_just_then() {
    let locks = patient_locks();
    thread::scope(|scope| {
        for seed in 0..4 {
            let locks = &locks;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..times(3_000) {
                    match rng.below(4) {
                        0 => drop(locks.acquire("db", 1)),
                        1 => drop(wait(locks)),
                        _ => {
                            let terms = AskOptions::default();
                            let lock = locks.acquire_blocking("db", 1, 1, terms).unwrap();
                            assert_eq!(lock.ordinal(), 1);
                        }
                    }
                }
            });
        }
    });
    assert_eq!((locks.held("db"), locks.waiting("db")), (0, 0));
    until("an empty map", || locks.is_empty());
}
