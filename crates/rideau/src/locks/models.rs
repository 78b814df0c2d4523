//! What holds in every interleaving of threads that share keyed locks.
//!
//! Loom follows every step of a word, a list and a lock. Of the map it sees that keys
//! are there or not; how papaya does that is not ours to explore.

mod all;
#[path = "../../tests/loom/explore.rs"]
mod explore;
mod faults;
mod rules;
mod waits;

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::{AtomicU32, Ordering};
use explore::{at_once, explore_within};
use word::{No, Taker, Word};

/// Where a model is large, this many preemptions are tried; a soak tries all.
const FEW: usize = 2;
/// The same where a race needs more, or a model has room for more.
const SOME: usize = 3;
const MANY: usize = 4;
/// More than any model uses.
const ALL: usize = 100;

const KEY: &u8 = &1;
const OTHER: &u8 = &2;

/// Holders, as they count themselves: between their grant and their release.
#[derive(Clone)]
struct Holders(Arc<std::sync::atomic::AtomicU64>);

impl Holders {
    fn none() -> Self {
        Self(Arc::default())
    }

    /// One more holds, and no more do than may.
    fn come(&self, max: u64) {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(before < max, "more are held than there may be");
    }

    fn go(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Nothing is held, so nothing is left and all can be had.
fn settled(locks: &Locks<u8>, max: u64) {
    assert_eq!(locks.all_held(), []);
    let all: Vec<_> = (0..max).map(|_| locks.acquire(KEY, max)).collect();
    assert!(all.iter().all(Result::is_ok), "units were lost");
    drop(all);
    locks.forget_idle();
    assert!(locks.is_empty(), "a key was kept");
}

/// A key that is known though it is not held.
fn locks_with_idle_key() -> Locks<u8> {
    let locks = Locks::new();
    drop(locks.acquire(KEY, 1));
    assert_eq!(locks.len(), 1);
    locks
}

fn held_by(lock: &Result<Lock<'_, u8>, Full>) -> bool {
    lock.is_ok()
}

/// The fence, or how many were held.
fn told(lock: &Result<Lock<'_, u8>, Full>) -> Result<u64, u64> {
    match lock {
        Ok(lock) => Ok(lock.fence()),
        Err(full) => Err(full.held),
    }
}

#[test]
fn one_of_two_gets_the_only_unit() {
    let ends = explore_within(ALL, || {
        let locks = locks_with_idle_key();
        let other = locks.clone();
        let end = at_once(
            || locks.acquire_owned(KEY, 1, 1),
            move || other.acquire_owned(KEY, 1, 1),
        );
        assert_eq!(locks.held(KEY), 1);
        let ends = (told(&end.0), told(&end.1));
        drop(end);
        settled(&locks, 2);
        ends
    });
    assert_eq!(ends, [(Ok(2), Err(1)), (Err(1), Ok(2))]);
}

#[test]
fn a_take_that_sees_more_passes_one_that_sees_less_and_none_gets_in_beyond() {
    let ends = explore_within(ALL, || {
        let word = Arc::new(Word::new(0));
        let take = |capacity| {
            let word = Arc::clone(&word);
            move || word.take(claim(1, capacity), Taker::Any)
        };
        let large = thread::spawn(take(2));
        let (small, middle) = at_once(take(1), take(2));
        let all = [small, middle, large.join().unwrap()];
        let fences: Vec<u64> = all.iter().flatten().map(|grant| grant.fence).collect();
        let held = fences.len() as u64;
        assert_eq!(word.held(), held);
        assert!((2..=3).contains(&(fences.iter().sum::<u64>())) || held == 1);
        all.map(|answer| answer.map_or(0, |grant| grant.ordinal))
    });
    // In the order small, middle, large: the small one is in only as the first.
    let all = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0]];
    assert_eq!(ends, all);
}

#[test]
fn a_take_sees_what_was_written_before_the_release() {
    let ends = explore_within(ALL, || {
        let word = Arc::new((Word::new(0), AtomicU32::new(0)));
        word.0.take(claim(1, 1), Taker::Any).unwrap();
        let other = Arc::clone(&word);
        let release = move || {
            other.1.store(1, Ordering::Relaxed);
            other.0.give_back(1);
        };
        let take = || {
            let taken = word.0.take(claim(1, 1), Taker::Any);
            taken.map(|_| word.1.load(Ordering::Relaxed)).ok()
        };
        at_once(take, release).0
    });
    assert_eq!(ends, [None, Some(1)]);
}

#[test]
fn a_word_is_retired_or_taken_and_never_both() {
    let ends = explore_within(ALL, || {
        let word = Arc::new(Word::new(0));
        let other = Arc::clone(&word);
        let retire = move || other.idle().is_some_and(|idle| other.retire(idle));
        let twice = || {
            let first = word.take(claim(1, 1), Taker::Any);
            if first.is_ok() {
                word.give_back(1);
            }
            [first, word.take(claim(1, 1), Taker::Any)].map(|taken| taken.err())
        };
        let (taken, retired) = at_once(twice, retire);
        (taken.map(|no| no == Some(No::Retired)), retired)
    });
    let all = [
        ([false, false], false),
        ([false, true], true),
        ([true, true], true),
    ];
    assert_eq!(ends, all);
}

/// Fences cross the edge of their circle while others take and give back.
#[test]
fn fences_never_repeat_at_the_edge_of_their_circle() {
    let edge = 1 << 34;
    let ends = explore_within(SOME, move || {
        let locks = Locks::with(LocksOptions {
            fence: edge - 2,
            ..LocksOptions::default()
        });
        let locks = locks.unwrap();
        let handle = locks.handle(KEY);
        let other = handle.clone();
        let twice = move |handle: &LockHandle<u8>| {
            [(); 2].map(|()| handle.acquire_owned(1, 9).unwrap().fence() + 2 - edge)
        };
        let (one, two) = at_once(|| twice(&handle), move || twice(&other));
        let mut fences = [one, two].concat();
        fences.sort_unstable();
        assert_eq!(fences, [1, 2, 3, 4]);
        assert!(one[0] < one[1] && two[0] < two[1]);
        one
    });
    assert_eq!(ends, [[1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4]]);
}

#[test]
fn a_key_forgotten_meanwhile_is_made_again_with_larger_fences() {
    let ends = explore_within(ALL, || {
        let locks = locks_with_idle_key();
        let other = locks.clone();
        let take = || {
            let first = locks.acquire(KEY, 1).unwrap().fence();
            let second = locks.acquire(KEY, 1).unwrap().fence();
            [first, second]
        };
        let (fences, ()) = at_once(take, move || other.forget_idle());
        assert!(locks.acquire(KEY, 1).unwrap().fence() > fences[1]);
        settled(&locks, 1);
        fences
    });
    assert_eq!(ends, [[2, 3]]);
}

/// The whole life of a key at once: known and idle, it is forgotten, found,
/// made again, held by one and refused to another.
#[test]
fn a_key_made_again_has_no_second_holder() {
    let ends = explore_within(SOME, || {
        let locks = locks_with_idle_key();
        let holders = Holders::none();
        let hold = |locks: Locks<u8>, holders: Holders| {
            move || {
                let taken = locks.acquire(KEY, 1);
                let told = told(&taken);
                if told.is_ok() {
                    holders.come(1);
                    assert_eq!(locks.held(KEY), 1);
                    holders.go();
                }
                told
            }
        };
        let sweep = locks.clone();
        let sweep = thread::spawn(move || sweep.forget_idle());
        let (one, two) = at_once(
            hold(locks.clone(), holders.clone()),
            hold(locks.clone(), holders),
        );
        sweep.join().unwrap();
        settled(&locks, 2);
        (one, two)
    });
    let all = [
        (Ok(2), Ok(3)),
        (Ok(2), Err(1)),
        (Ok(3), Ok(2)),
        (Err(1), Ok(2)),
    ];
    assert_eq!(ends, all);
}

#[test]
fn a_key_is_not_forgotten_while_a_unit_is_held() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let lock = locks.acquire_owned(KEY, 1, 2).unwrap();
        let other = locks.clone();
        let forget = move || {
            other.forget_idle();
            other.len()
        };
        let release = || {
            let second = locks.acquire(KEY, 2).unwrap().ordinal();
            drop(lock);
            second
        };
        let (second, len) = at_once(release, forget);
        assert_eq!(second, 2);
        settled(&locks, 2);
        len
    });
    assert_eq!(ends, [0, 1]);
}

#[test]
fn a_key_is_not_forgotten_while_a_handle_is_kept() {
    let ends = explore_within(ALL, || {
        let locks = locks_with_idle_key();
        let other = locks.clone();
        let look_up = || {
            let handle = locks.handle(KEY);
            let first = handle.acquire(1).unwrap().fence();
            (handle, first)
        };
        let ((handle, fence), ()) = at_once(look_up, move || other.forget_idle());
        locks.forget_idle();
        assert_eq!(locks.len(), 1);
        let lock = locks.acquire(KEY, 1).unwrap();
        assert_eq!((handle.held(), lock.fence()), (1, fence + 1));
        drop(lock);
        drop(handle);
        settled(&locks, 1);
        fence
    });
    assert_eq!(ends, [2]);
}

/// What the sweeper does as long as it knows that there is something to do.
fn sweep_all(locks: &Locks<u8>) -> usize {
    while locks.keys.is_swept() {
        locks.keys.sweep();
    }
    locks.len()
}

#[test]
fn the_sweeper_learns_of_a_key_whose_handle_goes() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let handle = locks.handle(KEY);
        let other = locks.clone();
        at_once(|| drop(handle), move || other.keys.sweep());
        sweep_all(&locks)
    });
    assert_eq!(ends, [0]);
}

#[test]
fn the_sweeper_learns_of_a_key_whose_last_unit_comes_back() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let lock = locks.acquire_owned(KEY, 1, 1);
        let other = locks.clone();
        at_once(|| drop(lock), move || other.keys.sweep());
        sweep_all(&locks)
    });
    assert_eq!(ends, [0]);
}

#[test]
fn the_sweeper_learns_of_a_key_that_was_looked_up_slowly() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let other = locks.clone();
        let forget = move || {
            other.keys.sweep();
            other.forget_idle();
        };
        at_once(|| drop(locks.acquire(KEY, 1)), forget);
        sweep_all(&locks)
    });
    assert_eq!(ends, [0]);
}

/// Two keys that are not there yet, and a table that is.
#[test]
fn keys_do_not_meet() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let other = locks.clone();
        let one = || held_by(&locks.acquire(KEY, 1));
        let (one, two) = at_once(one, move || {
            let held = held_by(&other.acquire(OTHER, 1));
            other.forget_idle();
            held
        });
        settled(&locks, 1);
        (one, two)
    });
    assert_eq!(ends, [(true, true)]);
}

/// A take that comes with a key too many is refused unless the other has left
/// its own, and then that one makes room.
#[test]
fn there_is_never_a_key_too_many_and_an_unused_one_makes_room() {
    let ends = explore_within(SOME, || {
        let locks = Locks::new();
        locks.set_keys_max(1);
        let other = locks.clone();
        let take = |locks: &Locks<u8>, key: &u8| {
            let lock = locks.try_acquire_owned(key, 1, 1);
            assert!(locks.len() <= 1, "there is one too many");
            lock.is_ok()
        };
        let (one, two) = at_once(|| take(&locks, KEY), move || take(&other, OTHER));
        assert_eq!(sweep_all(&locks), 0);
        settled(&locks, 1);
        (one, two)
    });
    assert!(!ends.contains(&(false, false)), "{ends:?}");
    assert!(ends.contains(&(true, true)), "{ends:?}");
}
