//! The sessions that others published, and the numbers at their edges: one
//! caller after the other.

use std::thread;

use rideau::{Capacity, Full, Lock, Locks};

use crate::stage::die;

fn fill(locks: &Locks<String>, count: u64, capacity: u64) -> Vec<Lock<'_, String>> {
    let granted = (0..count).map(|_| locks.acquire("db", capacity).unwrap());
    granted.collect()
}

/// T1: thirteen steps, of which the first two set things up.
#[test]
fn the_published_session_has_the_same_answers() {
    let locks: Locks<String> = Locks::new();
    let (one, two) = (Capacity::new(3, 1), Capacity::new(3, 2));
    let mut held = Vec::new();
    for ordinal in 1..=3 {
        held.push(locks.acquire("db", one).unwrap());
        assert_eq!(held.last().unwrap().ordinal(), ordinal);
    }
    let full = |held| Full {
        held,
        units: 1,
        capacity: 3,
    };
    assert_eq!(locks.acquire("db", one).unwrap_err(), full(3), "step 6");
    held.push(locks.acquire("db", two).unwrap());
    assert_eq!(held[3].ordinal(), 4, "step 7");
    assert_eq!(locks.acquire("db", one).unwrap_err(), full(4), "step 8");
    held.remove(0).release();
    assert_eq!(locks.held("db"), 3, "step 9");
    assert_eq!(locks.acquire("db", one).unwrap_err(), full(3), "step 10");
    held.remove(2).release();
    assert_eq!(locks.held("db"), 2, "step 11");
    held.push(locks.acquire("db", one).unwrap());
    assert_eq!(held[2].ordinal(), 3, "step 12");
    assert_eq!(locks.acquire("db", one).unwrap_err(), full(3), "step 13");
}

/// T2: they come in the order B A C E D, on threads of their own.
#[test]
fn of_five_callers_only_the_one_that_sees_too_few_is_refused() {
    let locks: Locks<String> = Locks::new();
    let callers = [("B", 3), ("A", 3), ("C", 6), ("E", 3), ("D", 6)];
    let mut held = Vec::new();
    for (name, capacity) in callers {
        let came = thread::scope(|scope| {
            let caller = scope.spawn(|| locks.acquire("db", capacity));
            caller.join().unwrap()
        });
        match came {
            Ok(lock) => held.push((name, lock.ordinal(), lock)),
            Err(no) => assert_eq!((name, no.held, no.capacity), ("E", 3, 3)),
        }
    }
    let granted: Vec<_> = held.iter().map(|(name, at, _)| (*name, *at)).collect();
    assert_eq!(granted, [("B", 1), ("A", 2), ("C", 3), ("D", 4)]);
    assert_eq!(locks.held("db"), 4);
    drop(held);
    assert_eq!(locks.held("db"), 0);
}

/// T3.
#[test]
fn of_a_halved_capacity_the_sixth_release_frees_one() {
    let locks: Locks<String> = Locks::new();
    let mut held = fill(&locks, 10, 10);
    for releases in 1..=5_u64 {
        held.pop().unwrap().release();
        assert_eq!(locks.surplus("db", 5), 5 - releases);
        let no = locks.acquire("db", 5).unwrap_err();
        assert_eq!(no.held, 10 - releases);
    }
    held.pop().unwrap().release();
    assert_eq!(locks.acquire("db", 5).unwrap().ordinal(), 5);
}

/// T3, with deaths.
#[test]
fn of_a_halved_capacity_the_sixth_death_frees_one() {
    let locks: Locks<String> = Locks::new();
    let mut held = Vec::new();
    held.extend((0..10).map(|_| locks.acquire_owned("db", 1, 10).unwrap()));
    for deaths in 1..=6_u64 {
        let lock = held.pop().unwrap();
        let holder = thread::spawn(move || {
            let _held = lock;
            die()
        });
        assert!(holder.join().is_err());
        assert_eq!(locks.held("db"), 10 - deaths);
        assert_eq!(locks.acquire("db", 5).is_ok(), deaths == 6);
    }
}

/// T4.
#[test]
fn of_a_doubled_capacity_only_callers_that_see_it_get_more() {
    let locks: Locks<String> = Locks::new();
    let mut held = fill(&locks, 5, 5);
    assert!(locks.acquire("db", Capacity::new(5, 1)).is_err());
    held.push(locks.acquire("db", Capacity::new(5, 2)).unwrap());
    assert_eq!(held[5].ordinal(), 6);
    held.remove(0).release();
    assert!(locks.acquire("db", Capacity::new(5, 1)).is_err());
    let sixth = locks.acquire("db", Capacity::new(5, 2)).unwrap();
    assert_eq!(sixth.ordinal(), 6);
}

/// T5, and L9: one end, whatever follows it.
#[test]
fn a_holder_that_releases_and_then_dies_frees_one() {
    let locks: Locks<String> = Locks::new();
    let other = locks.acquire("db", 2).unwrap();
    let holder = thread::spawn({
        let locks = locks.clone();
        move || {
            let lock = locks.acquire("db", 2).unwrap();
            lock.release();
            die()
        }
    });
    assert!(holder.join().is_err());
    assert_eq!(locks.held("db"), 1);
    assert!(locks.acquire("db", 1).is_err());
    drop(other);
}

/// T6: for several products and many keys.
#[test]
fn every_key_has_exactly_the_product_of_units() {
    let locks: Locks<(u32, u64)> = Locks::new();
    let cases = [(2, 2), (2, 99), (199, 2), (13, 17), (1, 1)];
    for (per, buckets) in cases {
        let capacity = Capacity::new(per, buckets);
        for key in (0..8).map(|key| (key, per)) {
            let grants = (1..=per * buckets).map(|ordinal| {
                let lock = locks.acquire(&key, capacity).unwrap();
                assert_eq!(lock.ordinal(), ordinal);
                lock
            });
            let held: Vec<_> = grants.collect();
            assert!(locks.acquire(&key, capacity).is_err());
            drop(held);
            assert_eq!(locks.acquire(&key, capacity).unwrap().ordinal(), 1);
        }
    }
    assert!(locks.all_held().is_empty());
}

/// T10, and L12: no back-end left does not mean that anything goes.
#[test]
fn of_nothing_nothing_is_ever_granted() {
    let locks: Locks<String> = Locks::new();
    for capacity in [Capacity::new(1, 0), Capacity::new(0, 7), Capacity::from(0)] {
        for _ in 0..5 {
            let no = locks.acquire("db", capacity).unwrap_err();
            assert_eq!((no.held, no.capacity), (0, 0));
            assert_eq!(no.to_string(), "1 was asked for, and the capacity is 0");
        }
    }
    assert!(locks.is_empty(), "a refusal makes no key known");
    let held = locks.acquire("db", 1).unwrap();
    assert_eq!(locks.acquire("db", 0).unwrap_err().held, 1);
    drop(held);
}

/// T11.
#[test]
fn a_product_too_large_to_count_is_as_much_as_can_be_counted() {
    let locks: Locks<String> = Locks::new();
    let capacities = [
        Capacity::new(u64::MAX, u64::MAX),
        Capacity::new(1 << 63, 2),
        Capacity::from(u64::MAX),
    ];
    for (capacity, ordinal) in capacities.into_iter().zip(1..) {
        // An overflow to nothing would refuse it, and one to little the third.
        std::mem::forget(locks.acquire("db", capacity).unwrap());
        assert_eq!(locks.held("db"), ordinal);
    }
    assert_eq!(locks.surplus("db", Capacity::new(u64::MAX, 9)), 0);
    assert_eq!(locks.surplus("db", 1), 2);
}

#[test]
fn a_take_of_no_units_is_refused() {
    let locks: Locks<String> = Locks::new();
    let no = locks.acquire_many("db", 0, 3).unwrap_err();
    assert_eq!(no.to_string(), "no units were asked for");
    assert!(locks.is_empty());
    let held = locks.acquire_many("db", 3, 3).unwrap();
    assert_eq!(locks.acquire_many("db", 0, 9).unwrap_err().held, 3);
    assert!(locks.handle("db").acquire_many(0, 9).is_err());
    drop(held);
}

#[test]
fn more_units_than_can_be_counted_are_refused_and_as_many_are_not() {
    let locks: Locks<String> = Locks::new();
    let no = locks.acquire_many("db", u32::MAX, u64::MAX).unwrap_err();
    assert_eq!((no.held, no.units), (0, u32::MAX));
    // What the no says there may be is what can be had.
    let most = u32::try_from(no.capacity).unwrap();
    assert!(locks.acquire_many("db", most + 1, u64::MAX).is_err());
    let all = locks.acquire_many("db", most, u64::MAX).unwrap();
    assert_eq!((all.units(), all.ordinal()), (most, most.into()));
    assert!(locks.acquire("db", u64::MAX).is_err());
    assert_eq!(locks.held("db"), most.into());
    drop(all);
    assert_eq!(locks.held("db"), 0);
    assert_eq!(locks.acquire("db", u64::MAX).unwrap().ordinal(), 1);
}

#[test]
fn several_units_are_had_at_once_or_not_at_all() {
    let locks: Locks<String> = Locks::new();
    let four = locks.acquire_many("db", 4, 10).unwrap();
    let five = locks.acquire_many("db", 5, 10).unwrap();
    assert_eq!((four.ordinal(), five.ordinal()), (4, 9));
    assert_eq!(locks.acquire_many("db", 2, 10).unwrap_err().held, 9);
    assert_eq!(locks.held("db"), 9);
    drop(four);
    assert_eq!(locks.held("db"), 5);
    let rest = locks.acquire_many("db", 5, 10).unwrap();
    assert_eq!(rest.ordinal(), 10);
}

#[test]
fn a_lock_says_what_it_is() {
    let locks: Locks<String> = Locks::new();
    let lock = locks.acquire_many("db", 2, 3).unwrap();
    assert_eq!((lock.key().as_str(), lock.units()), ("db", 2));
    assert!(lock.waited().is_zero());
    let said = format!("{lock:?} {locks:?}");
    assert!(said.contains("db") && said.contains("units: 2"), "{said}");
}
