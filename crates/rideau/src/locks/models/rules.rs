//! Rules that change while guards and handles of before are about.

use super::*;

/// Have all keys follow the second of two rules, which allows one.
fn change(locks: &Locks<u8>) {
    let one = KeyRule {
        keys_max: 1,
        ..KeyRule::default()
    };
    let rules = [KeyRule::default(), one];
    locks.set_rules(&rules, |_| 1).unwrap();
}

/// How many keys each of both rules has.
fn keys(locks: &Locks<u8>) -> [usize; 2] {
    [0, 1].map(|rule| locks.keys_of(rule))
}

#[test]
fn a_key_that_comes_back_while_rules_change_is_forgotten() {
    let ends = explore_within(SOME, || {
        let locks = Locks::new();
        let lock = locks.acquire_owned(KEY, 1, 1);
        let other = locks.clone();
        at_once(|| drop(lock), move || change(&other));
        let known = keys(&locks);
        sweep_all(&locks);
        assert_eq!(keys(&locks), [0, 0]);
        known
    });
    assert_eq!(ends, [[0, 1]]);
}

/// The sweeper knows the new rule, and the holder that gives back does not.
#[test]
fn the_sweeper_learns_of_a_key_whose_guard_is_older_than_its_rule() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let lock = locks.acquire_owned(KEY, 1, 1);
        change(&locks);
        let other = locks.clone();
        at_once(|| drop(lock), move || other.keys.sweep());
        sweep_all(&locks);
        keys(&locks)
    });
    assert_eq!(ends, [[0, 0]]);
}

/// It takes of a key just before, while or after it gets another rule.
#[test]
fn a_key_that_is_taken_while_rules_change_is_forgotten() {
    let ends = explore_within(SOME, || {
        let locks = locks_with_idle_key();
        let other = locks.clone();
        let fence = || locks.acquire(KEY, 1).map(|lock| lock.fence());
        let (fence, ()) = at_once(fence, move || change(&other));
        sweep_all(&locks);
        assert_eq!(keys(&locks), [0, 0]);
        fence.unwrap()
    });
    assert_eq!(ends, [2]);
}

/// One looks for room while the only key comes back, by a guard that knows of
/// another rule. It may be early, but then the next has it.
#[test]
fn a_key_whose_guard_is_older_than_its_rule_makes_room() {
    let ends = explore_within(SOME, || {
        let locks = Locks::new();
        let lock = locks.acquire_owned(KEY, 1, 1);
        change(&locks);
        let other = locks.clone();
        let take = |locks: &Locks<u8>| {
            let lock = locks.try_acquire_owned(OTHER, 1, 1);
            assert!(locks.len() <= 1, "there is one too many");
            lock.is_ok()
        };
        let ((), early) = at_once(|| drop(lock), move || take(&other));
        let late = take(&locks);
        sweep_all(&locks);
        assert_eq!(keys(&locks), [0, 0]);
        (early, late)
    });
    assert_eq!(ends, [(false, true), (true, true)]);
}
