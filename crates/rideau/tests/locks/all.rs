//! T14: several keys at once, all or none, and a part is never seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rideau::{Lock, Locks};
use rideau_core::Rng;

use crate::stage::{patient_locks, poll_once, times};

#[test]
fn all_claims_are_met_or_none() {
    let locks: Locks<String> = Locks::new();
    let got = locks.acquire_all([("a", 1, 3), ("b", 2, 5)]).unwrap();
    let numbers = |lock: &Lock<'_, String>| (lock.key().clone(), lock.units(), lock.ordinal());
    let numbers: Vec<_> = got.iter().map(numbers).collect();
    assert_eq!(numbers, [("a".into(), 1, 1), ("b".into(), 2, 2)]);
    let no = locks.acquire_all([("a", 1, 3), ("c", 1, 1), ("b", 4, 5)]);
    let no = no.unwrap_err();
    assert_eq!((no.at, no.full.held, no.full.units), (2, 2, 4));
    let said = "claim 3 of several: 2 of 5 are held, and 4 more were asked for";
    assert_eq!(no.to_string(), said);
    let held = |key| locks.held(key);
    assert_eq!((held("a"), held("b"), held("c")), (1, 2, 0));
    assert_eq!(locks.len(), 2, "a refusal makes no key known");
    drop(got);
    assert!(locks.all_held().is_empty());
}

#[test]
fn claims_of_one_key_count_together() {
    let locks: Locks<String> = Locks::new();
    let no = locks.acquire_all([("a", 2, 3), ("a", 2, 3)]).unwrap_err();
    assert_eq!((no.at, no.full.held), (1, 2));
    assert_eq!(locks.held("a"), 0);
    let got = locks.acquire_all([("a", 2, 3), ("a", 2, 4)]).unwrap();
    assert_eq!((got[0].ordinal(), got[1].ordinal()), (2, 4));
    assert!(got[0].fence() < got[1].fence());
    drop(got);
    locks.forget_idle();
    assert!(locks.is_empty());
}

#[test]
fn no_claim_at_all_is_met() {
    let locks: Locks<String> = Locks::new();
    let none: [(&str, u32, u64); 0] = [];
    assert!(locks.acquire_all(none).unwrap().is_empty());
    assert!(locks.acquire_all([("a", 0, 3)]).is_err());
    assert!(locks.acquire_all([("a", 1, 0)]).is_err());
    assert!(locks.is_empty());
}

#[test]
fn takes_of_the_same_keys_in_any_order_never_stop_each_other() {
    let locks: Locks<u64> = Locks::new();
    let grants = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (locks, grants) = (&locks, &grants);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..times(2_000) {
                    let keys = [rng.below(6), rng.below(6), rng.below(6)];
                    let got = locks.acquire_all(keys.iter().map(|key| (key, 1, 3)));
                    grants.fetch_add(got.is_ok().into(), SeqCst);
                    let ordinals = got.iter().flatten().map(Lock::ordinal);
                    assert!(ordinals.into_iter().all(|ordinal| ordinal <= 3));
                }
            });
        }
    });
    assert!(grants.into_inner() > 100);
    assert!(locks.all_held().is_empty());
}

/// Take two keys at once while another looks at the first until it is taken,
/// and then at the second.
fn look_at_both(first: impl Fn() -> u64 + Sync, second: impl Fn() -> u64 + Sync, take: impl Fn()) {
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            ready.store(true, SeqCst);
            let mut looks = 0_u64;
            while first() == 0 {
                looks += 1;
                if looks.is_multiple_of(1024) {
                    thread::yield_now();
                }
            }
            let seen = second();
            done.store(true, SeqCst);
            seen
        });
        while !ready.load(SeqCst) {
            thread::yield_now();
        }
        take();
        while !done.load(SeqCst) {
            thread::yield_now();
        }
        assert_eq!(looker.join().unwrap(), 1, "a part was seen");
    });
}

#[test]
fn a_part_of_what_is_taken_together_is_never_seen() {
    for _ in 0..times(3_000) {
        let locks: Locks<u64> = Locks::new();
        let (a, b) = (locks.handle(&1), locks.handle(&2));
        let take = || std::mem::forget(locks.acquire_all([(&1, 1, 1), (&2, 1, 1)]).unwrap());
        look_at_both(|| a.held(), || b.held(), take);
    }
}

#[test]
fn no_refusal_tells_of_a_part_of_what_is_taken_together() {
    for _ in 0..times(3_000) {
        let locks: Locks<u64> = Locks::new();
        let _handles = (locks.handle(&1), locks.handle(&2));
        let seen = |key: u64| locks.acquire(&key, 0).unwrap_err().held;
        let take = || std::mem::forget(locks.acquire_all([(&1, 1, 1), (&2, 1, 1)]).unwrap());
        look_at_both(|| seen(1), || seen(2), take);
    }
}

#[tokio::test]
async fn a_take_of_several_keys_does_not_overtake_a_waiter_for_one() {
    let locks = patient_locks();
    let first = locks.acquire("a", 1).unwrap();
    let mut waiter = locks.begin_acquire("a", 1, 1, rideau::AskOptions::default());
    assert!(poll_once(&mut waiter).is_pending());
    first.release();
    let no = locks.acquire_all([("b", 1, 1), ("a", 1, 1)]).unwrap_err();
    assert_eq!((no.at, no.full.held), (1, 1));
    assert_eq!(locks.held("b"), 0);
    let lock = waiter.await.unwrap();
    // A take that sees more is not held up by one that cannot be served.
    let mut waiter = locks.begin_acquire("a", 1, 1, rideau::AskOptions::default());
    assert!(poll_once(&mut waiter).is_pending());
    let got = locks.acquire_all([("b", 1, 1), ("a", 1, 2)]).unwrap();
    assert_eq!(got[1].ordinal(), 2);
    drop(lock);
    assert!(poll_once(&mut waiter).is_pending(), "one is held yet");
    drop(got);
    assert_eq!(waiter.await.unwrap().ordinal(), 1);
}

#[test]
fn several_keys_and_waits_for_each_of_them_go_together() {
    let locks = patient_locks();
    let grants = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (locks, grants) = (&locks, &grants);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..times(500) {
                    let keys = ["a", "b", "c"];
                    let key = keys[rng.below(3) as usize];
                    if seed % 2 == 0 {
                        let terms = rideau::AskOptions::default();
                        let lock = locks.acquire_blocking(key, 1, 2, terms).unwrap();
                        assert!(lock.ordinal() <= 2);
                    } else {
                        let claims = keys.map(|key| (key, 1, 2));
                        let got = locks.acquire_all(claims);
                        grants.fetch_add(got.is_ok().into(), SeqCst);
                        let ordinals = got.iter().flatten().map(Lock::ordinal);
                        assert!(ordinals.into_iter().all(|ordinal| ordinal <= 2));
                    }
                }
            });
        }
    });
    assert!(grants.into_inner() > 0);
    assert!(locks.all_held().is_empty());
    assert_eq!(
        locks.waiting("a") + locks.waiting("b") + locks.waiting("c"),
        0
    );
}
