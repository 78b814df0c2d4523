//! Asks that wait, and callers that come, go and close beside them.

use std::future::poll_fn;

use loom::future::block_on;

use super::*;

/// The answer, if it is there.
pub(super) fn now(wait: &mut Acquiring<u8>) -> Option<Result<Lock<'static, u8>, Refusal>> {
    block_on(poll_fn(|context| {
        let answer = Pin::new(&mut *wait).poll(context);
        Poll::Ready(match answer {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    }))
}

fn wait(locks: &Locks<u8>, capacity: u64) -> Acquiring<u8> {
    locks.begin_acquire(KEY, 1, capacity, AskOptions::default())
}

/// Locks of which one unit is held.
fn held() -> (Locks<u8>, Lock<'static, u8>) {
    let locks = Locks::new();
    let lock = locks.acquire_owned(KEY, 1, 1).unwrap();
    (locks, lock)
}

#[test]
fn an_ask_that_comes_to_wait_is_never_missed_by_a_release() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let other = locks.clone();
        let ask = move || {
            let mut wait = wait(&other, 1);
            let at_once = now(&mut wait);
            let had_to_wait = at_once.is_none();
            let lock = at_once.unwrap_or_else(|| block_on(wait)).unwrap();
            assert_eq!((lock.ordinal(), lock.fence()), (1, 2));
            had_to_wait
        };
        let ((), end) = at_once(|| drop(held), ask);
        settled(&locks, 1);
        end
    });
    assert_eq!(ends, [false, true]);
}

#[test]
fn a_cancelled_ask_never_takes_the_unit_with_it() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let [first, mut second] = [1, 1].map(|capacity| wait(&locks, capacity));
        at_once(|| drop(held), move || drop(first));
        assert_eq!(locks.held(KEY), 1);
        let got = now(&mut second).is_some();
        drop(second);
        settled(&locks, 1);
        got
    });
    assert_eq!(ends, [true]);
}

#[test]
fn the_last_cancelled_ask_leaves_the_key_open() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let only = wait(&locks, 1);
        at_once(|| drop(held), move || drop(only));
        let end = (locks.held(KEY), locks.waiting(KEY));
        settled(&locks, 1);
        end
    });
    assert_eq!(ends, [(0, 0)]);
}

#[test]
fn a_try_never_passes_a_waiter_that_fits() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let mut waiting = wait(&locks, 1);
        let other = locks.clone();
        let ((), tried) = at_once(|| drop(held), move || held_by(&other.acquire(KEY, 1)));
        let got = now(&mut waiting).is_some();
        drop(waiting);
        settled(&locks, 1);
        (tried, got)
    });
    assert_eq!(ends, [(false, true)]);
}

/// One tries while another comes to wait for the same unit.
#[test]
fn a_try_and_an_ask_that_comes_to_wait_never_both_hold() {
    let ends = explore_within(ALL, || {
        let locks = locks_with_idle_key();
        let other = locks.clone();
        let tries = || locks.acquire_owned(KEY, 1, 1);
        let asks = move || {
            let mut wait = wait(&other, 1);
            (now(&mut wait), wait)
        };
        let (tried, (answered, mut wait)) = at_once(tries, asks);
        assert_eq!(locks.held(KEY), 1);
        let end = (tried.is_ok(), answered.is_some());
        drop(tried);
        if answered.is_none() {
            assert!(now(&mut wait).is_some(), "it was not told");
        }
        drop((answered, wait));
        settled(&locks, 1);
        end
    });
    assert_eq!(ends, [(false, true), (true, false)]);
}

#[test]
fn no_ask_waits_for_ever_where_all_is_closed() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let other = locks.clone();
        let ask = move || block_on(wait(&other, 1)).map(|_| ()).unwrap_err().reason;
        let ((), reason) = at_once(|| locks.close(), ask);
        drop(held);
        settled(&locks, 1);
        reason.to_string()
    });
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[test]
fn a_waiter_keeps_its_line_while_others_forget() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let other = locks.clone();
        let ask = move || {
            let mut wait = wait(&other, 1);
            drop(held);
            let got = now(&mut wait);
            got.is_some()
        };
        let ((), got) = at_once(|| locks.forget_idle(), ask);
        settled(&locks, 1);
        got
    });
    assert_eq!(ends, [true]);
}

#[test]
fn the_sweeper_learns_of_a_key_that_is_not_waited_for_any_more() {
    let ends = explore_within(ALL, || {
        let (locks, held) = held();
        let waiting = wait(&locks, 1);
        locks.close();
        drop(held);
        // It was told no, and goes only now.
        let other = locks.clone();
        at_once(|| drop(waiting), move || other.keys.sweep());
        sweep_all(&locks)
    });
    assert_eq!(ends, [0]);
}

/// The second sees more, and two come back one after the other.
#[test]
fn two_waiters_get_what_two_give_back() {
    let ends = explore_within(ALL, || {
        let locks = Locks::new();
        let [first, second] = [2, 2].map(|capacity| locks.acquire_owned(KEY, 1, capacity));
        let mut waits = [1, 2].map(|capacity| wait(&locks, capacity));
        at_once(|| drop(first), move || drop(second));
        let got = waits.each_mut().map(|wait| now(wait));
        let end = got.each_ref().map(|got| got.is_some());
        assert_eq!(locks.held(KEY), got.iter().flatten().count() as u64);
        drop((got, waits));
        settled(&locks, 2);
        end
    });
    assert_eq!(ends, [[false, true], [true, true]]);
}
