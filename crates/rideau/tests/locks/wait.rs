//! The waiting form: order, laws, deadlines and which ask passes which.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use rideau::{Acquiring, AskOptions, Flow, Lock, Locks, LocksOptions, Now, Reason, Refusal, queue};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::stage::{MS, die, locks_with, patient, patient_locks, paused_locks, poll_once, until};

type Came = Result<Lock<'static, String>, Refusal>;

/// Come to wait for units of the key `db`.
fn wait(locks: &Locks<String>, units: u32, capacity: u64) -> Acquiring<String> {
    locks.begin_acquire("db", units, capacity, AskOptions::default())
}

fn no_longer_than(wait_max: Duration) -> AskOptions {
    AskOptions {
        wait_max: Some(wait_max),
        ..AskOptions::default()
    }
}

fn granted(wait: &mut Acquiring<String>) -> Lock<'static, String> {
    match poll_once(wait) {
        Poll::Ready(Ok(lock)) => lock,
        other => panic!("{other:?} is no grant"),
    }
}

fn waits(wait: &mut Acquiring<String>) -> bool {
    poll_once(wait).is_pending()
}

fn refused(wait: &mut Acquiring<String>) -> Refusal {
    match poll_once(wait) {
        Poll::Ready(Err(no)) => no,
        other => panic!("{other:?} is no refusal"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_what_comes_back_and_told_how_long_it_took() {
    let locks = paused_locks(patient());
    let first = locks.acquire_wait("db", 1).await.unwrap();
    assert!(first.waited().is_zero());
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_wait("db", 1).await }
    });
    sleep(30 * MS).await;
    assert_eq!((locks.waiting("db"), locks.held("db")), (1, 1));
    let fence = first.fence();
    first.release();
    let second = waiter.await.unwrap().unwrap();
    assert_eq!(second.waited(), 30 * MS);
    assert_eq!((second.ordinal(), second.fence()), (1, fence + 1));
    assert_eq!(locks.waiting("db"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_wait_and_nothing_is_left_of_it() {
    let locks = paused_locks(patient());
    let lock = locks.acquire("db", 1).unwrap();
    let start = Instant::now();
    let terms = no_longer_than(50 * MS);
    let no = locks.acquire_wait_on("db", 1, 1, terms).await.unwrap_err();
    assert_eq!((no.reason, no.waited), (Reason::Deadline, 50 * MS));
    assert_eq!(start.elapsed(), 50 * MS);
    assert_eq!((locks.waiting("db"), locks.held("db")), (0, 1));
    drop(lock);
    assert_eq!(locks.acquire("db", 1).unwrap().ordinal(), 1);
}

/// One holder after the other keeps the lock for seconds, and each ask that
/// named its wait is served.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_named_is_kept_however_long_the_holds_are() {
    let locks = paused_locks(queue::Options::default());
    let mut lock = locks.acquire_wait("db", 1).await.unwrap();
    let mut asks: Vec<_> = (0..3)
        .map(|_| locks.begin_acquire("db", 1, 1, no_longer_than(10_000 * MS)))
        .collect();
    for ask in &mut asks {
        assert!(waits(ask));
    }
    for (at, ask) in asks.into_iter().enumerate() {
        sleep(3000 * MS).await;
        lock.release();
        lock = ask.await.unwrap();
        assert_eq!(lock.waited(), (at as u32 + 1) * 3000 * MS);
    }
}

/// Five that named no wait are one more than the lock protects.
#[tokio::test(start_paused = true)]
async fn asks_that_name_no_wait_are_shed_by_age_once_too_many_wait() {
    let locks = paused_locks(queue::Options::default());
    let _lock = locks.acquire_wait("db", 1).await.unwrap();
    let mut asks: Vec<_> = (0..5).map(|_| wait(&locks, 1, 1)).collect();
    for ask in &mut asks {
        assert!(waits(ask));
    }
    sleep(60_000 * MS).await;
    let no = refused(&mut asks[0]);
    assert_eq!(no.reason, Reason::Bound);
    assert!(no.waited > 400 * MS && no.waited < 410 * MS, "{no}");
    for ask in &mut asks[1..] {
        assert!(waits(ask));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_just_before_the_deadline_counts() {
    let locks = paused_locks(patient());
    let lock = locks.acquire("db", 1).unwrap();
    let mut waiter = locks.begin_acquire("db", 1, 1, no_longer_than(50 * MS));
    sleep(49 * MS).await;
    drop(lock);
    sleep(100 * MS).await;
    assert_eq!(granted(&mut waiter).waited(), 49 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_law_of_time_sheds_asks_that_wait_too_long() {
    let locks = paused_locks(queue::Options::timeout(30 * MS));
    let _lock = locks.acquire("db", 1).unwrap();
    let no = locks.acquire_wait("db", 1).await.unwrap_err();
    assert_eq!((no.reason, no.waited), (Reason::Timeout, 30 * MS));
}

/// All come at once, and each keeps the unit for 20 ms.
#[tokio::test(start_paused = true)]
async fn controlled_delay_thins_out_a_slow_line() {
    let locks = paused_locks(queue::Options {
        shedding: queue::Shedding::CoDel {
            target: 5 * MS,
            interval: 100 * MS,
        },
        ..queue::Options::default()
    });
    let waiters: Vec<JoinHandle<Option<Reason>>> = (0..40)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let came: Came = locks.acquire_wait("db", 1).await;
                let lock = came.map_err(|no| no.reason);
                sleep(20 * MS).await;
                lock.err()
            })
        })
        .collect();
    let mut shed = Vec::new();
    for waiter in waiters {
        shed.extend(waiter.await.unwrap());
    }
    assert!(
        shed.len() > 2 && shed.len() < 35,
        "{} were shed",
        shed.len()
    );
    assert!(shed.iter().all(|reason| *reason == Reason::CoDel));
    assert_eq!((locks.waiting("db"), locks.held("db")), (0, 0));
}

#[tokio::test]
async fn asks_for_the_same_are_served_in_the_order_of_the_queue() {
    for (order, expected) in [
        (queue::Order::Fifo, [0, 1, 2]),
        (queue::Order::Lifo, [2, 1, 0]),
    ] {
        let locks = locks_with(queue::Options { order, ..patient() });
        let mut held = locks.acquire_owned("db", 1, 1).unwrap();
        let mut waiters = [(); 3].map(|()| wait(&locks, 1, 1));
        for at in expected {
            drop(held);
            assert_eq!(locks.held("db"), 1);
            held = granted(&mut waiters[at]);
        }
    }
}

#[tokio::test]
async fn a_full_queue_refuses_the_newest_or_the_oldest_ask() {
    for (overflow, goes) in [(queue::Overflow::Newest, 1), (queue::Overflow::Oldest, 0)] {
        let locks = locks_with(queue::Options {
            max: Some(1),
            overflow,
            ..patient()
        });
        let lock = locks.acquire("db", 1).unwrap();
        let mut waiters = [(); 2].map(|()| wait(&locks, 1, 1));
        assert_eq!(refused(&mut waiters[goes]).reason, Reason::Full);
        drop(lock);
        assert_eq!(granted(&mut waiters[1 - goes]).ordinal(), 1);
    }
}

#[tokio::test]
async fn flows_take_turns() {
    let locks = locks_with(queue::Options {
        fair: Some(queue::FairOptions::default()),
        ..patient()
    });
    let mut held = locks.acquire_owned("db", 1, 1).unwrap();
    let ask = |flow| {
        let terms = AskOptions {
            flow: Flow(flow),
            ..AskOptions::default()
        };
        locks.begin_acquire("db", 1, 1, terms)
    };
    let mut waiters = [1, 1, 1, 2].map(ask);
    for at in [0, 3, 1, 2] {
        drop(held);
        held = granted(&mut waiters[at]);
    }
}

#[tokio::test]
async fn an_ask_that_sees_more_passes_one_that_cannot_be_served() {
    let locks = patient_locks();
    let first = locks.acquire("db", 1).unwrap();
    let mut small = wait(&locks, 1, 1);
    let mut large = wait(&locks, 1, 2);
    assert!(waits(&mut small));
    let second = granted(&mut large);
    assert_eq!(second.ordinal(), 2);
    // Of what comes back the small one gets something only when all is back.
    drop(first);
    assert!(waits(&mut small));
    drop(second);
    assert_eq!(granted(&mut small).ordinal(), 1);
}

#[tokio::test]
async fn an_ask_that_sees_the_same_does_not_pass_one_that_wants_more() {
    let locks = patient_locks();
    let held = locks.acquire_many("db", 2, 3).unwrap();
    let mut two = wait(&locks, 2, 3);
    let mut one = wait(&locks, 1, 3);
    assert!(waits(&mut two) && waits(&mut one), "one would fit");
    assert_eq!((locks.held("db"), locks.waiting("db")), (2, 2));
    let mut larger = wait(&locks, 1, 4);
    let third = granted(&mut larger);
    assert_eq!(third.ordinal(), 3);
    drop(held);
    let two = granted(&mut two);
    assert_eq!(two.ordinal(), 3, "and one for a caller that sees more");
    assert!(waits(&mut one));
    drop(third);
    assert_eq!(granted(&mut one).ordinal(), 3);
}

#[tokio::test]
async fn several_waiters_are_served_by_one_release_as_far_as_it_goes() {
    let locks = patient_locks();
    let five = locks.acquire_many("db", 5, 5).unwrap();
    let mut waiters = [(2, 5), (2, 5), (2, 5), (1, 5)].map(|(units, of)| wait(&locks, units, of));
    assert!(waiters.iter_mut().all(waits));
    drop(five);
    let (one, two) = (granted(&mut waiters[0]), granted(&mut waiters[1]));
    assert_eq!((one.ordinal(), two.ordinal()), (2, 4));
    assert!(waits(&mut waiters[2]) && waits(&mut waiters[3]));
    drop(one);
    let (three, last) = (granted(&mut waiters[2]), granted(&mut waiters[3]));
    assert_eq!((three.ordinal(), last.ordinal()), (4, 5));
}

#[tokio::test]
async fn a_try_never_overtakes_a_waiter_that_fits() {
    let locks = patient_locks();
    let handle = locks.handle("db");
    let first = locks.acquire("db", 1).unwrap();
    let mut waiter = wait(&locks, 1, 1);
    drop(first);
    // The answer has not been looked at yet, and the unit has an owner all the
    // same.
    assert_eq!(locks.acquire("db", 1).unwrap_err().held, 1);
    assert_eq!(handle.acquire(1).unwrap_err().held, 1);
    assert!(matches!(
        locks.acquire_now("db", 1, 1, AskOptions::default()),
        Now::Waiting(_)
    ));
    let lock = granted(&mut waiter);
    assert_eq!(lock.ordinal(), 1);
    drop(lock);
    assert!(locks.acquire("db", 1).is_ok());
}

#[tokio::test]
async fn a_try_passes_a_waiter_that_does_not_fit() {
    let locks = patient_locks();
    let held = locks.acquire_many("db", 2, 3).unwrap();
    let mut two = wait(&locks, 2, 3);
    let third = locks.acquire("db", 3).unwrap();
    assert_eq!(third.ordinal(), 3);
    let fourth = locks.handle("db").acquire_owned(1, 4).unwrap();
    assert_eq!(fourth.ordinal(), 4);
    assert!(waits(&mut two));
    drop((held, third));
    assert_eq!(granted(&mut two).ordinal(), 3);
}

#[tokio::test]
async fn what_can_never_be_had_is_not_waited_for() {
    let locks = patient_locks();
    let _held = locks.acquire("db", 1).unwrap();
    for (units, capacity) in [(0, 3), (1, 0), (4, 3), (u32::MAX, u64::MAX)] {
        let no = refused(&mut wait(&locks, units, capacity));
        assert_eq!(
            (no.reason, no.retry_after),
            (Reason::Excess, Duration::ZERO)
        );
        let no = refused(&mut locks.begin_acquire("new", units, capacity, AskOptions::default()));
        assert_eq!(no.reason, Reason::Excess);
    }
    assert_eq!(locks.waiting("db"), 0);
}

#[tokio::test]
async fn an_ask_that_would_need_one_line_too_many_is_refused() {
    let locks = patient_locks();
    let lock = locks.acquire_many("db", 1_000, 1_000).unwrap();
    let mut waiters: Vec<_> = (1..=64).map(|capacity| wait(&locks, 1, capacity)).collect();
    assert!(waiters.iter_mut().all(waits));
    assert_eq!(refused(&mut wait(&locks, 1, 65)).reason, Reason::Full);
    let mut same = wait(&locks, 1, 64);
    assert!(waits(&mut same), "it has a line");
    drop(lock);
    let all: Vec<_> = waiters.iter_mut().map(granted).collect();
    assert_eq!(all.last().unwrap().ordinal(), 64);
    drop(all);
    assert_eq!(granted(&mut same).ordinal(), 64, "after the first of them");
}

#[tokio::test]
async fn closed_locks_let_no_ask_wait_and_still_grant_what_is_free() {
    let locks = patient_locks();
    let lock = locks.acquire("db", 1).unwrap();
    let mut waiter = wait(&locks, 1, 1);
    locks.close();
    assert_eq!(refused(&mut waiter).reason, Reason::Closed);
    assert_eq!(refused(&mut wait(&locks, 1, 1)).reason, Reason::Closed);
    assert_eq!(locks.held("db"), 1);
    drop(lock);
    assert_eq!(locks.acquire("db", 1).unwrap().ordinal(), 1);
    assert_eq!(locks.acquire_wait("db", 1).await.unwrap().ordinal(), 1);
    // Also of a key that was not waited for before.
    let _other = locks.acquire("disk", 1).unwrap();
    let no = locks.acquire_wait("disk", 1).await.unwrap_err();
    assert_eq!(no.reason, Reason::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_place_under_new_options() {
    let locks = paused_locks(patient());
    let mut held = locks.acquire_owned("db", 1, 1).unwrap();
    let mut waiters = [(); 3].map(|()| wait(&locks, 1, 1));
    sleep(10 * MS).await;
    let timeout = queue::Options::timeout(30 * MS);
    locks.reconfigure(&timeout).unwrap();
    assert_eq!(locks.queue(), timeout);
    for waiter in &mut waiters[..2] {
        drop(held);
        held = granted(waiter);
    }
    sleep(40 * MS).await;
    assert_eq!(refused(&mut waiters[2]).reason, Reason::Timeout);
    let wrong = queue::Options {
        min: 2,
        max: Some(1),
        ..patient()
    };
    assert!(locks.reconfigure(&wrong).is_err());
    assert_eq!(locks.queue(), timeout);
    let options = LocksOptions {
        queue: wrong,
        fence: 0,
    };
    assert!(Locks::<String>::with(options).is_err());
}

#[tokio::test]
async fn new_options_hold_for_keys_that_come_later() {
    let locks = patient_locks();
    let nobody = queue::Options {
        max: Some(0),
        ..patient()
    };
    locks.reconfigure(&nobody).unwrap();
    let _held = locks.acquire("db", 1).unwrap();
    assert_eq!(refused(&mut wait(&locks, 1, 1)).reason, Reason::Full);
}

#[tokio::test]
async fn units_are_had_at_once_or_waited_for() {
    let locks = patient_locks();
    let Now::Answered(Ok(lock)) = locks.acquire_now("db", 2, 2, AskOptions::default()) else {
        panic!("all are free");
    };
    let Now::Waiting(mut waiter) = locks.acquire_now("db", 1, 2, AskOptions::default()) else {
        panic!("none is free");
    };
    let Now::Answered(Err(no)) = locks.acquire_now("db", 3, 2, AskOptions::default()) else {
        panic!("there may never be three");
    };
    assert_eq!(no.reason, Reason::Excess);
    assert!(waits(&mut waiter));
    drop(lock);
    assert_eq!(granted(&mut waiter).ordinal(), 1);
}

/// No runtime anywhere: plain threads sleep and are woken.
#[test]
fn plain_threads_wait_without_a_runtime() {
    let locks = patient_locks();
    let first = locks.acquire("db", 2).unwrap();
    let second = locks.acquire("db", 2).unwrap();
    let ordinals = thread::scope(|scope| {
        let threads: Vec<_> = [1, 1, 2, 2, 1]
            .map(|units| {
                let locks = &locks;
                scope.spawn(move || {
                    let terms = AskOptions::default();
                    let lock = locks.acquire_blocking("db", units, 2, terms).unwrap();
                    (units.into(), lock.ordinal())
                })
            })
            .into_iter()
            .collect();
        until("five waiting asks", || locks.waiting("db") == 5);
        drop((first, second));
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.collect::<Vec<(u64, u64)>>()
    });
    assert!(ordinals.iter().all(|(units, at)| units <= at && *at <= 2));
    assert_eq!((locks.held("db"), locks.waiting("db")), (0, 0));
}

#[test]
fn a_deadline_comes_on_a_plain_thread_too() {
    let locks = patient_locks();
    let lock = locks.acquire("db", 1).unwrap();
    let terms = no_longer_than(5 * MS);
    let no = locks.acquire_blocking("db", 1, 1, terms).unwrap_err();
    assert_eq!(no.reason, Reason::Deadline);
    assert!(no.waited >= 5 * MS);
    drop(lock);
    let terms = no_longer_than(Duration::ZERO);
    assert!(locks.acquire_blocking("db", 1, 1, terms).is_ok());
}

#[tokio::test]
async fn what_was_waited_for_outlives_the_locks() {
    let locks = patient_locks();
    let lock = locks.acquire_owned("db", 1, 1).unwrap();
    let mut waiter = wait(&locks, 1, 1);
    drop(locks);
    assert!(waits(&mut waiter));
    drop(lock);
    let lock = granted(&mut waiter);
    assert_eq!((lock.key().as_str(), lock.ordinal()), ("db", 1));
}

#[tokio::test]
async fn a_holder_that_dies_serves_the_waiter() {
    let locks = patient_locks();
    for _ in 0..20 {
        let lock = locks.acquire_owned("db", 1, 1).unwrap();
        let mut waiter = wait(&locks, 1, 1);
        assert!(waits(&mut waiter));
        let holder = thread::spawn(move || {
            let _held = lock;
            die()
        });
        assert!(holder.join().is_err());
        assert_eq!(granted(&mut waiter).ordinal(), 1);
    }
    yield_now().await;
    assert_eq!(locks.held("db"), 0);
}
