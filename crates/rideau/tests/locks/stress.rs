//! T9: many threads and tasks, with all that can go wrong going wrong.
//!
//! What is held is counted a second time, beside the locks: after a grant and
//! before its end, so that the second count is never above the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rideau::{AskOptions, Lock, Locks};
use rideau_core::Rng;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::stage::{HANGS, MS, die, is_soak, locks_with, panics, patient, until};

const THREADS: u64 = 16;
/// The largest capacity that a thread sees.
const MOST: u64 = 3;

fn span() -> Duration {
    Duration::from_secs(if is_soak() { 10 } else { 1 })
}

/// The second count.
struct SecondCount {
    held: Vec<AtomicU64>,
    over: AtomicU64,
    grants: AtomicU64,
    refusals: AtomicU64,
    deaths: AtomicU64,
}

/// A lock that is counted a second time.
struct Counted<'a> {
    second: &'a SecondCount,
    at: usize,
    lock: Lock<'a, String>,
}

impl SecondCount {
    fn new(keys: usize) -> Self {
        Self {
            held: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            over: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
        }
    }

    fn count<'a>(&'a self, at: usize, capacity: u64, lock: Lock<'a, String>) -> Counted<'a> {
        let units = u64::from(lock.units());
        let held = self.held[at].fetch_add(units, SeqCst) + units;
        let is_over = held > MOST || lock.ordinal() > capacity || lock.ordinal() < units;
        self.over.fetch_add(is_over.into(), SeqCst);
        self.grants.fetch_add(1, SeqCst);
        Counted {
            second: self,
            at,
            lock,
        }
    }

    /// Everything came back, and nothing was ever too much.
    fn check(&self, locks: &Locks<String>, keys: &[String]) {
        assert_eq!(self.over.load(SeqCst), 0, "over-allocations");
        assert!(self.held.iter().all(|held| held.load(SeqCst) == 0));
        for key in keys {
            assert_eq!(
                (locks.held(key.as_str()), locks.waiting(key.as_str())),
                (0, 0)
            );
        }
        assert!(locks.all_held().is_empty());
        let grants = self.grants.load(SeqCst);
        println!("{grants} grants, {} deaths", self.deaths.load(SeqCst));
        assert!(grants > 100, "{grants} grants");
        until("an empty map", || locks.is_empty());
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let units = u64::from(self.lock.units());
        self.second.held[self.at].fetch_sub(units, SeqCst);
    }
}

fn names(keys: usize) -> Vec<String> {
    (0..keys).map(|key| format!("key {key}")).collect()
}

fn hold(locks: &Locks<String>, keys: &[String], second: &SecondCount, rng: &mut Rng) {
    let at = rng.below(keys.len() as u64) as usize;
    let capacity = 1 + rng.below(MOST);
    let units = 1 + rng.below(8) as u32 / 7;
    let Ok(lock) = locks.acquire_many(keys[at].as_str(), units, capacity) else {
        second.refusals.fetch_add(1, SeqCst);
        // Let the threads go on that hold something.
        thread::yield_now();
        return;
    };
    let held = second.count(at, capacity, lock);
    match rng.below(50) {
        0 => {
            second.deaths.fetch_add(1, SeqCst);
            die()
        }
        1..3 => thread::yield_now(),
        _ => (),
    }
    drop(held);
}

fn run(keys: usize) {
    let (locks, keys, second) = (locks_with(patient()), names(keys), SecondCount::new(keys));
    let start = Instant::now();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (locks, keys, second) = (&locks, &keys, &second);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while start.elapsed() < span() {
                    for _ in 0..100 {
                        // Its panic was meant.
                        panics(|| hold(locks, keys, second, &mut rng));
                    }
                }
            });
        }
    });
    assert!(second.deaths.load(SeqCst) > 0);
    assert!(keys.len() > 1 || second.refusals.load(SeqCst) > 0);
    second.check(&locks, &keys);
}

#[test]
fn many_threads_on_one_key_never_hold_more_than_there_may_be() {
    run(1);
}

#[test]
fn many_threads_on_a_thousand_keys_never_hold_more_than_there_may_be() {
    run(1_000);
}

/// What a task does that may be aborted at any time.
async fn visit(
    locks: Locks<String>,
    keys: Arc<Vec<String>>,
    second: Arc<SecondCount>,
    mut rng: Rng,
) {
    let at = rng.below(keys.len() as u64) as usize;
    let capacity = 1 + rng.below(MOST);
    let units = 1 + rng.below(capacity.min(2)) as u32;
    let wait_max = (rng.below(4) == 0).then_some(MS);
    let terms = AskOptions {
        wait_max,
        ..AskOptions::default()
    };
    let key = keys[at].as_str();
    let mut wait = locks.begin_acquire(key, units, capacity, terms);
    if rng.below(10) == 0 {
        yield_now().await;
        drop(wait);
        return;
    }
    let came = match rng.below(10) {
        0 => match timeout(MS / 10, &mut wait).await {
            Ok(came) => came,
            Err(_) => return,
        },
        1 => Ok(match locks.acquire_owned(key, units, capacity) {
            Ok(lock) => lock,
            Err(_) => return,
        }),
        _ => wait.await,
    };
    let Ok(lock) = came else {
        assert!(wait_max.is_some(), "no other ask is shed");
        return;
    };
    let held = second.count(at, capacity, lock);
    if rng.below(4) > 0 {
        yield_now().await;
    }
    if rng.below(50) == 0 {
        second.deaths.fetch_add(1, SeqCst);
        die();
    }
    drop(held);
}

/// Sends visitors until time is up, and aborts one in eight.
async fn send(locks: Locks<String>, keys: Arc<Vec<String>>, second: Arc<SecondCount>, seed: u64) {
    let mut rng = Rng::new(seed);
    let start = Instant::now();
    while start.elapsed() < span() {
        let own = Rng::new(rng.draw());
        let visitor = visit(locks.clone(), Arc::clone(&keys), Arc::clone(&second), own);
        let visitor = tokio::spawn(visitor);
        if rng.below(8) == 0 {
            for _ in 0..rng.below(4) {
                yield_now().await;
            }
            visitor.abort();
        }
        // Its panic was meant, and so was its end.
        drop(visitor.await);
    }
}

async fn run_tasks(keys: usize) {
    let (locks, second) = (locks_with(patient()), Arc::new(SecondCount::new(keys)));
    let keys = Arc::new(names(keys));
    let senders = (0..THREADS).map(|seed| {
        let (keys, second) = (Arc::clone(&keys), Arc::clone(&second));
        tokio::spawn(send(locks.clone(), keys, second, seed))
    });
    let senders: Vec<_> = senders.collect();
    for sender in senders {
        let end = timeout(span() + HANGS, sender).await;
        end.expect("no ask waits for ever").unwrap();
    }
    assert!(second.deaths.load(SeqCst) > 0);
    tokio::task::spawn_blocking(move || second.check(&locks, &keys))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_that_wait_for_one_key_and_are_aborted_lose_nothing() {
    run_tasks(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_that_wait_for_few_keys_and_are_aborted_lose_nothing() {
    run_tasks(5).await;
}
