//! Keys have rules: how many of them there may be, how long they are known, and
//! where one waits for them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rideau::{AskOptions, Denied, KeyRule, Lock, Locks, Reason, queue};

use crate::stage::{poll_once, until};

/// Keys by their first letter: `a…` have the first rule, all others the second.
fn by_letter(rules: &[KeyRule; 2]) -> Locks<String> {
    let locks: Locks<String> = Locks::new();
    locks.set_rules(rules, |key| letter(key)).unwrap();
    locks
}

fn letter(key: &str) -> usize {
    usize::from(!key.starts_with('a'))
}

fn at_most(keys_max: usize) -> KeyRule {
    KeyRule {
        keys_max,
        idle_forget: Duration::from_secs(3600),
        ..KeyRule::default()
    }
}

fn take(locks: &Locks<String>, key: &str) -> Result<Lock<'static, String>, Denied> {
    locks.try_acquire_owned(key, 1, 10)
}

#[test]
fn a_key_more_than_its_rule_allows_cannot_be_had() {
    let locks = by_letter(&[at_most(2), at_most(3)]);
    let held = [take(&locks, "a1").unwrap(), take(&locks, "a2").unwrap()];
    assert_eq!(take(&locks, "a3").unwrap_err(), Denied::Keys);
    let again = take(&locks, "a2").unwrap();
    assert_eq!(again.ordinal(), 2, "a key that is known is no further key");
    let others: Vec<_> = ["b1", "b2", "b3"].map(|key| take(&locks, key)).into();
    assert!(others.iter().all(Result::is_ok), "they have another rule");
    assert_eq!(take(&locks, "b4").unwrap_err(), Denied::Keys);
    assert_eq!((locks.keys_of(0), locks.keys_of(1), locks.len()), (2, 3, 5));
    drop((held, again));
    assert!(take(&locks, "a3").is_ok());
}

#[test]
fn keys_that_are_not_wanted_make_room_for_others_at_once() {
    let locks = by_letter(&[at_most(4), at_most(100)]);
    let kept: Vec<_> = (0..90).map(|n| take(&locks, &format!("b{n}"))).collect();
    for round in 0..1_000 {
        drop(take(&locks, &format!("a{round}")).unwrap());
        assert!(locks.keys_of(0) <= 4, "in round {round}");
    }
    assert_eq!(locks.keys_of(1), 90, "those of other rules stay");
    drop(kept);
}

#[test]
fn all_rules_together_have_a_limit() {
    let locks = by_letter(&[at_most(100), at_most(100)]);
    locks.set_keys_max(3);
    let held = ["a1", "a2", "b1"].map(|key| take(&locks, key).unwrap());
    assert_eq!(take(&locks, "b2").unwrap_err(), Denied::Keys);
    let full = locks.acquire("b2", 10).unwrap_err();
    assert_eq!((full.held, full.capacity), (0, 10));
    let [first, ..] = held;
    drop(first);
    assert!(
        take(&locks, "b2").is_ok(),
        "a1 makes room, whatever its rule"
    );
    assert_eq!(locks.keys_of(0), 1);
    locks.set_keys_max(usize::MAX);
    assert!(take(&locks, "b3").is_ok());
}

#[tokio::test]
async fn a_wait_for_a_key_too_many_is_refused_with_the_reason() {
    let locks = by_letter(&[at_most(1), at_most(1)]);
    let held = take(&locks, "a1").unwrap();
    let no = locks.begin_acquire("a2", 1, 1, AskOptions::default()).await;
    assert_eq!(no.unwrap_err().reason, Reason::Keys);
    let mut waiting = locks.begin_acquire("a1", 1, 1, AskOptions::default());
    assert!(poll_once(&mut waiting).is_pending());
    drop(held);
    let held = waiting.await.unwrap();
    assert_eq!(take(&locks, "a2").unwrap_err(), Denied::Keys);
    drop(held);
    // The sweeper may be looking at a1 just now.
    for _ in 0..1_000 {
        if take(&locks, "a2").is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no ask waits for a1 any more");
}

#[test]
fn a_key_is_known_for_as_long_as_its_rule_says() {
    let brief = KeyRule {
        idle_forget: Duration::from_millis(200),
        ..KeyRule::default()
    };
    let locks = by_letter(&[brief, at_most(100)]);
    drop((take(&locks, "a1"), take(&locks, "b1")));
    until("a1 is forgotten", || locks.keys_of(0) == 0);
    assert_eq!(locks.keys_of(1), 1, "b1 is known for an hour");
    locks.forget_idle();
    assert_eq!(locks.len(), 0, "unless a rule says otherwise");
}

#[test]
fn a_key_that_is_used_again_is_not_forgotten_in_between() {
    let keep = KeyRule {
        idle_forget: Duration::from_secs(3600),
        ..KeyRule::default()
    };
    let plain = KeyRule::default();
    let locks = by_letter(&[keep, plain]);
    drop((take(&locks, "a1"), take(&locks, "b1")));
    until("b1 is forgotten", || locks.keys_of(1) == 0);
    assert_eq!(locks.keys_of(0), 1);
}

#[test]
fn changed_rules_hold_for_keys_that_are_known_and_take_nothing_from_holders() {
    let locks = by_letter(&[at_most(10), at_most(10)]);
    let held = ["a1", "a2", "b1"].map(|key| take(&locks, key).unwrap());
    // All are of one rule now, and there are more than it allows.
    let one = [at_most(2)];
    locks.set_rules(&one, |_| 0).unwrap();
    assert_eq!((locks.keys_of(0), locks.keys_of(1)), (3, 0));
    assert_eq!(take(&locks, "a3").unwrap_err(), Denied::Keys);
    assert_eq!(take(&locks, "a1").unwrap().ordinal(), 2);
    let [a1, a2, _b1] = held;
    drop((a1, a2));
    assert!(take(&locks, "a3").is_ok());
    locks
        .set_rules(&[at_most(1), at_most(1)], |key| letter(key))
        .unwrap();
    assert_eq!(locks.keys_of(1), 1, "b1 is one of the others again");
}

/// Each change gives the key another rule, and the holder of the key knows of
/// none.
#[test]
fn a_key_that_was_held_while_rules_changed_makes_room() {
    let rules = [at_most(9), at_most(9), at_most(1)];
    let locks = by_letter(&[at_most(9), at_most(9)]);
    let guard = take(&locks, "a1").unwrap();
    let handle = locks.handle("a1");
    for rule in 1..rules.len() {
        locks.set_rules(&rules, move |_| rule).unwrap();
    }
    assert_eq!((locks.keys_of(0), locks.keys_of(2)), (0, 1));
    // A take that looked in vain has taken the marks away.
    assert_eq!(take(&locks, "a2").unwrap_err(), Denied::Keys);
    drop(handle);
    assert_eq!(take(&locks, "a2").unwrap_err(), Denied::Keys);
    drop(guard);
    let next = take(&locks, "a2").unwrap();
    assert_eq!((locks.keys_of(2), locks.len()), (1, 1));
    drop(next);
    drop(take(&locks, "a3").unwrap());
}

#[test]
fn a_key_whose_handle_is_older_than_its_rule_makes_room() {
    let locks = by_letter(&[at_most(9), at_most(9)]);
    let handle = locks.handle("a1");
    locks.set_rules(&[at_most(9), at_most(1)], |_| 1).unwrap();
    drop(handle.acquire(1).unwrap());
    assert_eq!(take(&locks, "a2").unwrap_err(), Denied::Keys);
    drop(handle);
    assert!(take(&locks, "a2").is_ok());
}

/// For an hour first, and then for no longer than a moment.
#[test]
fn a_key_that_was_held_while_rules_changed_is_forgotten_by_the_new_one() {
    let locks = by_letter(&[at_most(9), at_most(9)]);
    let held = ["a1", "b1"].map(|key| take(&locks, key).unwrap());
    let rules = [at_most(9), at_most(9), KeyRule::default()];
    let rule_of = |key: &String| 2 - 2 * letter(key);
    locks.set_rules(&rules, rule_of).unwrap();
    drop(held);
    until("a1 is forgotten", || locks.keys_of(2) == 0);
    assert_eq!((locks.keys_of(0), locks.len()), (1, 1), "b1 is kept");
}

#[test]
fn many_rules_have_a_limit_each() {
    let rules = vec![at_most(1); 200];
    let locks: Locks<String> = Locks::new();
    let number = |key: &String| key[1..].parse().unwrap();
    locks.set_rules(&rules, number).unwrap();
    let key = |letter: char, rule: usize| format!("{letter}{rule}");
    let held: Vec<_> = (0..200).map(|rule| take(&locks, &key('a', rule))).collect();
    assert!(held.iter().all(Result::is_ok));
    for rule in 0..200 {
        let no = take(&locks, &key('b', rule)).unwrap_err();
        assert_eq!(no, Denied::Keys, "of rule {rule}");
    }
    // The keys of every other rule are given back, and make room there alone.
    let mut held: Vec<_> = held.into_iter().map(Result::ok).collect();
    held.iter_mut().step_by(2).for_each(|lock| *lock = None);
    for rule in 0..200 {
        let next = take(&locks, &key('b', rule));
        assert_eq!(next.is_ok(), rule % 2 == 0, "of rule {rule}");
        assert_eq!(locks.keys_of(rule), 1);
    }
}

#[test]
fn a_change_that_breaks_a_rule_changes_nothing() {
    let locks = by_letter(&[at_most(1), at_most(1)]);
    let mut bad = at_most(9);
    bad.queue.shedding = queue::Shedding::CoDel {
        target: Duration::ZERO,
        interval: Duration::ZERO,
    };
    let no = locks.set_rules(&[at_most(9), bad], |key| letter(key));
    assert!(no.is_err());
    let _held = take(&locks, "a1").unwrap();
    assert!(take(&locks, "a2").is_err());
}

#[tokio::test]
async fn each_rule_has_its_own_way_to_wait() {
    let room = |max| KeyRule {
        queue: queue::Options {
            shedding: queue::Shedding::Never,
            max: Some(max),
            ..queue::Options::default()
        },
        ..KeyRule::default()
    };
    let locks = by_letter(&[room(1), room(2)]);
    let held = ["a", "b"].map(|key| take(&locks, key).unwrap());
    let ask = |key| locks.begin_acquire(key, 1, 1, AskOptions::default());
    let mut waits = [ask("a"), ask("b"), ask("b")];
    for key in ["a", "b"] {
        let Poll::Ready(Err(no)) = poll_once(&mut ask(key)) else {
            panic!("there is no more room to wait for {key}");
        };
        assert_eq!(no.reason, Reason::Full);
    }
    locks
        .set_rules(&[room(2), room(2)], |key| letter(key))
        .unwrap();
    let mut fourth = ask("a");
    assert!(poll_once(&mut fourth).is_pending());
    drop(held);
    for wait in &mut waits {
        drop(wait.await.unwrap());
    }
}

#[test]
fn there_are_never_more_keys_than_may_be_with_many_threads() {
    let locks = by_letter(&[at_most(8), at_most(8)]);
    let (most, had) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (locks, most, had) = (&locks, &most, &had);
            scope.spawn(move || {
                for round in 0..4_000 {
                    let key = format!("a{}", (round * 7 + thread * 3) % 40);
                    if let Ok(lock) = take(locks, &key) {
                        had.fetch_add(1, SeqCst);
                        most.fetch_max(locks.keys_of(0), SeqCst);
                        drop(lock);
                    }
                }
            });
        }
    });
    assert!(most.load(SeqCst) <= 8, "{most:?}");
    assert!(had.load(SeqCst) > 4_000, "{had:?}");
    locks.forget_idle();
    until("all are forgotten", || locks.is_empty());
    assert_eq!(locks.keys_of(0), 0, "what was counted in is counted out");
}

#[test]
fn handles_are_counted_and_not_refused() {
    let locks = by_letter(&[at_most(1), at_most(1)]);
    let handles = ["a1", "a2"].map(|key| locks.handle(key));
    assert_eq!(locks.keys_of(0), 2);
    assert!(take(&locks, "a3").is_err());
    drop(handles);
    assert!(take(&locks, "a3").is_ok());
}
