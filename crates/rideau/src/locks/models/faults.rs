//! What went wrong in a counting lock of many buckets, and must not go wrong
//! with one word: each is a story that was met there.

use super::*;

/// A key that these units are held of, by a handle.
fn held_key(units: u32) -> (Locks<u8>, LockHandle<u8>, Option<Lock<'static, u8>>) {
    let locks = Locks::new();
    let handle = locks.handle(KEY);
    let held = handle.acquire_owned(units, u64::from(units)).ok();
    (locks, handle, held)
}

fn ordinal(lock: &Result<Lock<'_, u8>, Full>) -> u64 {
    lock.as_ref().map_or(0, Lock::ordinal)
}

/// Two for each of two back-ends, then of three, then of two again: three of
/// four are held when two more holders come, fill, grow, fill, shrink and fill.
#[test]
fn a_limit_that_grows_and_shrinks_lets_no_holder_in_beyond() {
    let ends = explore_within(ALL, || {
        let (locks, handle, first) = held_key(3);
        let other = handle.clone();
        let live = |handle: LockHandle<u8>| {
            let two = handle.acquire_owned(1, Capacity::new(2, 2));
            let three = handle.acquire_owned(1, Capacity::new(2, 3));
            let before = [ordinal(&two), ordinal(&three)];
            assert!(before[0] == 0 || before[0] == 4);
            assert!(before[1] <= 6);
            drop(two);
            let again = handle.acquire_owned(1, Capacity::new(2, 2));
            assert!([0, 4].contains(&ordinal(&again)));
            (before, three.into_iter().chain(again).collect::<Vec<_>>())
        };
        let (one, two) = at_once(|| live(handle), move || live(other));
        assert_eq!(locks.held(KEY), 3 + (one.1.len() + two.1.len()) as u64);
        let ends = (one.0, two.0);
        drop((first, one, two));
        settled(&locks, 6);
        ends
    });
    // Four are filled by one of them only, and both fit into six.
    let all = [
        ([0, 5], [4, 5]),
        ([0, 5], [4, 6]),
        ([0, 6], [4, 5]),
        ([4, 5], [0, 5]),
        ([4, 5], [0, 6]),
        ([4, 6], [0, 5]),
    ];
    assert_eq!(ends, all);
}

/// L1: two gave back, one took in between, and a phantom stayed.
#[test]
fn two_releases_and_a_take_leave_no_phantom() {
    let ends = explore_within(ALL, || {
        let (locks, handle, first) = held_key(1);
        let second = handle.acquire_owned(1, 2).unwrap();
        let release = thread::spawn(move || drop(second));
        let take = {
            let handle = handle.clone();
            move || handle.acquire_owned(1, 2)
        };
        let ((), taken) = at_once(|| drop(first), take);
        release.join().unwrap();
        assert_eq!(locks.held(KEY), u64::from(taken.is_ok()));
        let end = ordinal(&taken);
        drop((taken, handle));
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [0, 1, 2]);
}

/// L2: a release gave up after a number of refusals beside it, and took off too
/// much.
#[test]
fn refusals_beside_a_release_never_let_two_in() {
    let ends = explore_within(ALL, || {
        let (locks, handle, held) = held_key(2);
        let other = handle.clone();
        let ask = move || [(); 3].map(|()| other.acquire_owned(2, 2));
        let ((), asked) = at_once(|| drop(held), ask);
        assert!(asked.iter().flatten().count() <= 1);
        let end = asked.each_ref().map(Result::is_ok);
        assert_eq!(handle.held(), 2 * u64::from(end.contains(&true)));
        drop((asked, handle));
        settled(&locks, 2);
        end
    });
    let all = [
        [false, false, false],
        [false, false, true],
        [false, true, false],
        [true, false, false],
    ];
    assert_eq!(ends, all);
}

/// L3: a release did not see the bucket that was made meanwhile, and made room
/// in the first, for a caller that sees only that.
#[test]
fn a_take_that_sees_one_bucket_never_gets_in_while_the_second_is_used() {
    let ends = explore_within(SOME, || {
        let (locks, handle, first) = held_key(1);
        let [large, small] = [handle.clone(), handle];
        let release = thread::spawn(move || drop(first));
        let large = move || large.acquire_owned(1, 2);
        let (small, large) = at_once(move || small.acquire_owned(1, 1), large);
        release.join().unwrap();
        assert!(ordinal(&small) <= 1 && large.is_ok());
        let end = (ordinal(&small), ordinal(&large));
        drop((small, large));
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [(0, 1), (0, 2), (1, 2)]);
}

/// L4: of two callers that met on a fresh key one crashed, and its unit was
/// lost.
#[test]
fn takes_that_meet_on_a_fresh_key_lose_nothing() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let other = locks.clone();
        let keep = || locks.acquire_owned(KEY, 1, 2);
        // It releases at once, in the same window.
        let (kept, short) = at_once(keep, move || ordinal(&other.acquire(KEY, 2)));
        assert_eq!(locks.held(KEY), 1);
        let end = (ordinal(&kept), short);
        drop(kept);
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [(1, 1), (1, 2), (2, 1)]);
}

/// L5: one was refused though at no moment all units were held.
#[test]
fn no_take_is_refused_while_a_unit_is_free() {
    let ends = explore_within(SOME, || {
        let (locks, handle, first) = held_key(1);
        // It is refused rightly, and that must not show.
        let small = {
            let handle = handle.clone();
            thread::spawn(move || handle.acquire_owned(1, 1).is_ok())
        };
        // Two of three are held at most, whatever moves.
        let other = handle.clone();
        let turn = move || [(); 2].map(|()| other.acquire(3).is_ok());
        let (end, others) = at_once(|| handle.acquire(3).is_ok(), turn);
        assert!(!small.join().unwrap());
        drop((first, handle));
        settled(&locks, 3);
        (end, others)
    });
    assert_eq!(ends, [(true, [true, true])]);
}

/// L6: any caller could release.
#[test]
fn no_owner_releases_what_another_holds() {
    let ends = explore_within(ALL, || {
        let (locks, handle, held) = held_key(1);
        let other = locks.clone();
        let foreign = move || {
            let mut owner = other.owner();
            let released = owner.release(KEY).is_ok();
            (released, owner.acquire(KEY, 1).is_ok())
        };
        let (mine, foreign) = at_once(|| handle.acquire(1).is_ok(), foreign);
        assert_eq!(locks.held(KEY), 1);
        drop((held, handle));
        settled(&locks, 1);
        (mine, foreign)
    });
    assert_eq!(ends, [(false, (false, false))]);
}

/// L7: a holder that released with another limit than it had acquired with left
/// a mark behind.
#[test]
fn units_of_any_limit_come_back_whole() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let handle = locks.handle(KEY);
        let other = handle.clone();
        let large = || ordinal(&handle.acquire_many(2, Capacity::new(3, 1)));
        let small = move || ordinal(&other.acquire(Capacity::new(2, 1)));
        let end = at_once(large, small);
        drop(handle);
        settled(&locks, 3);
        end
    });
    assert_eq!(ends, [(2, 0), (2, 1), (3, 1)]);
}

/// L8: killed after it was counted, and before it was noted which holder it
/// belonged to.
#[test]
fn an_ask_that_dies_before_it_is_told_never_keeps_a_unit() {
    let ends = explore_within(SOME, || {
        let locks = Locks::new();
        let other = locks.clone();
        // It has its unit or its place, and ends before it looks.
        let die = move || drop(other.begin_acquire(KEY, 1, 1, AskOptions::default()));
        let (mine, ()) = at_once(|| held_by(&locks.acquire(KEY, 1)), die);
        assert_eq!((locks.held(KEY), locks.waiting(KEY)), (0, 0));
        settled(&locks, 1);
        mine
    });
    assert_eq!(ends, [false, true]);
}

/// L9: killed after it had released and before that was noted, so that it was
/// released once more.
#[test]
fn an_owner_that_dies_after_a_release_never_releases_twice() {
    let ends = explore_within(ALL, || {
        let (locks, handle, first) = held_key(1);
        let mut owner = locks.owner();
        owner.acquire(KEY, 2).unwrap();
        let die = move || {
            owner.release(KEY).unwrap();
            drop(owner);
        };
        let (taken, ()) = at_once(|| handle.acquire_owned(1, 2), die);
        assert_eq!(locks.held(KEY), 1 + u64::from(taken.is_ok()));
        let end = ordinal(&taken);
        drop((first, taken, handle));
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [0, 2]);
}
