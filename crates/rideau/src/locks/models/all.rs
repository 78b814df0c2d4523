//! Several keys at once: all or nothing, and no caller sees half.

use super::*;

type All<'a> = Result<Vec<Lock<'a, u8>>, FullAt>;

fn both<'a>(locks: &'a Locks<u8>, [first, second]: [&'a u8; 2], capacity: u64) -> All<'a> {
    locks.acquire_all([(first, 1, capacity), (second, 1, capacity)])
}

#[test]
fn of_two_threads_that_want_both_keys_one_gets_both() {
    let ends = explore_within(FEW, || {
        let locks = Locks::new();
        let other = locks.clone();
        let hold = |locks: &Locks<u8>, keys| {
            let all = both(locks, keys, 1);
            all.map(std::mem::forget).is_ok()
        };
        let one = || hold(&locks, [KEY, OTHER]);
        let end = at_once(one, move || hold(&other, [OTHER, KEY]));
        assert_eq!((locks.held(KEY), locks.held(OTHER)), (1, 1));
        end
    });
    assert_eq!(ends, [(false, true), (true, false)]);
}

#[test]
fn no_take_of_both_keys_is_refused_while_both_are_free() {
    let ends = explore_within(FEW, || {
        let locks = Locks::new();
        let other = locks.clone();
        let one = || both(&locks, [KEY, OTHER], 2).is_ok();
        let end = at_once(one, move || both(&other, [OTHER, KEY], 2).is_ok());
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [(true, true)]);
}

#[test]
fn a_take_of_one_key_after_the_other_never_finds_half_of_a_pair() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let _known = [KEY, OTHER].map(|key| locks.handle(key));
        let other = locks.clone();
        let singly = move || {
            [KEY, OTHER].map(|key| {
                let lock = other.acquire(key, 1);
                lock.map(std::mem::forget).is_ok()
            })
        };
        let pair = || both(&locks, [KEY, OTHER], 1).map(std::mem::forget).is_ok();
        let end = at_once(pair, singly);
        assert_eq!((locks.held(KEY), locks.held(OTHER)), (1, 1));
        end
    });
    // A caller that got the first key may find that the pair wanted it and took
    // none.
    assert_eq!(ends, [(false, [true, true]), (true, [false, false])]);
}

/// What one sees of both keys in turn, by one way to look.
fn seen(
    look: impl Fn(&Locks<u8>, &LockHandle<u8>) -> u64 + Send + Sync + 'static,
) -> Vec<[u64; 2]> {
    let look = Arc::new(look);
    explore_within(SOME, move || {
        let locks = Locks::new();
        let handles = [KEY, OTHER].map(|key| locks.handle(key));
        let other = locks.clone();
        let look = Arc::clone(&look);
        let look = move || handles.each_ref().map(|handle| look(&other, handle));
        let pair = || both(&locks, [KEY, OTHER], 2).map(std::mem::forget).is_ok();
        let (pair, seen) = at_once(pair, look);
        assert!(pair);
        seen
    })
}

const WHOLE: [[u64; 2]; 3] = [[0, 0], [0, 1], [1, 1]];

#[test]
fn a_look_at_keys_never_sees_half_of_a_pair() {
    assert_eq!(seen(|locks, handle| locks.held(handle.key())), WHOLE);
}

#[test]
fn a_look_at_handles_never_sees_half_of_a_pair() {
    assert_eq!(seen(|_, handle| handle.held()), WHOLE);
}

#[test]
fn a_refused_take_is_never_told_half_of_a_pair() {
    // It never fits, so that only the number is seen.
    let refused = |_: &Locks<u8>, handle: &LockHandle<u8>| handle.acquire(0).unwrap_err().held;
    assert_eq!(seen(refused), WHOLE);
}

/// A unit comes back, one comes to wait for it, and a pair takes it.
#[test]
fn a_pair_never_takes_unseen_by_a_thread_that_comes_to_wait() {
    let ends = explore_within(MANY, || {
        let locks = Locks::new();
        let held = locks.acquire_owned(KEY, 1, 1).unwrap();
        let pair = {
            let locks = locks.clone();
            thread::spawn(move || {
                let claims = [(KEY, 1, 2), (OTHER, 1, 1)];
                locks.acquire_all(claims).map(std::mem::forget).is_ok()
            })
        };
        let other = locks.clone();
        let wait = move || match other.acquire_now(KEY, 1, 1, AskOptions::default()) {
            Now::Answered(answer) => answer.map(std::mem::forget).is_ok(),
            Now::Waiting(wait) => {
                drop(wait);
                false
            }
        };
        let ((), got) = at_once(|| drop(held), wait);
        assert!(pair.join().unwrap());
        assert_eq!(locks.held(KEY), 1 + u64::from(got));
        got
    });
    assert_eq!(ends, [false, true]);
}

/// The line of a key stands still while a pair takes of it.
#[test]
fn a_pair_and_a_waiter_share_what_comes_back() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let held = locks.acquire_owned(KEY, 1, 1).unwrap();
        let mut wait = locks.begin_acquire(KEY, 1, 1, AskOptions::default());
        let other = locks.clone();
        let pair = move || both(&other, [KEY, OTHER], 2).map(std::mem::forget).is_ok();
        let ((), pair) = at_once(|| drop(held), pair);
        assert!(pair, "there is room for two");
        let got = waits::now(&mut wait);
        assert_eq!(locks.held(KEY), 1 + u64::from(got.is_some()));
        got.is_some()
    });
    assert_eq!(ends, [false, true]);
}
