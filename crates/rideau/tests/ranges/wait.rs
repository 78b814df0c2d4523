//! Waits for values: in turn, for a time, and given up by a drop.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau::allocator::{Ask, RangeOptions, Refused, Reservation, Span};
use rideau::{Failed, Ranges, Reserving};
use tokio::task::JoinSet;

use crate::rig::{HOUR, Rig, Woken, anywhere, check_counts, reserved, values};

/// A rig with a range of two values that are held.
fn full(class: &str) -> (Rig, Ranges, [Reservation; 2]) {
    let mut rig = Rig::new();
    let (_, options) = rig
        .options
        .ranges
        .iter()
        .find(|(name, _)| name == class)
        .unwrap();
    let few = RangeOptions {
        spans: vec![Span::parse("500000-500001").unwrap()],
        ..options.clone()
    };
    rig.options.ranges.push(("few".into(), few));
    let ranges = rig.open();
    let held = [reserved(&ranges, "few"), reserved(&ranges, "few")];
    (rig, ranges, held)
}

fn wait(ranges: &Ranges, span: Duration) -> Reserving {
    ranges.reserve_within(&Ask::new(&anywhere(ranges, "few")), span)
}

fn poll(future: &mut Reserving) -> Poll<Result<Vec<Reservation>, Failed>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Until it is ready, though not for ever.
fn soon(future: &mut Reserving) -> Result<Vec<Reservation>, Failed> {
    let begun = Instant::now();
    loop {
        if let Poll::Ready(answer) = poll(future) {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn release(ranges: &Ranges, one: Reservation) {
    ranges.release(one.value, Some(one.fence)).wait().unwrap();
}

#[test]
fn the_first_waiter_gets_what_comes_back_and_is_woken() {
    for class in ["sync", "claimed", "memory"] {
        let (_rig, ranges, held) = full(class);
        let mut first = wait(&ranges, HOUR);
        let mut second = wait(&ranges, HOUR);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending() && !first.is_decided());
        assert_eq!(ranges.waiting().0, 2);
        release(&ranges, held[1]);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let got = soon(&mut first).unwrap()[0];
        assert_eq!(got.value, held[1].value);
        assert!(got.fence > held[1].fence);
        assert!(poll(&mut second).is_pending());
        // An ask that comes just now does not overtake it.
        release(&ranges, got);
        assert!(matches!(
            ranges.reserve(&Ask::new(&anywhere(&ranges, "few"))).wait(),
            Err(Failed::Refused(Refused::Exhausted { .. }))
        ));
        assert_eq!(soon(&mut second).unwrap()[0].value, held[1].value);
        assert_eq!(ranges.waits().served, 2);
        check_counts(&ranges);
    }
}

#[test]
fn a_sync_value_is_told_only_when_it_is_safe() {
    let (rig, ranges, held) = full("sync");
    let mut first = wait(&ranges, HOUR);
    let hold = rig.platter.hold();
    drop(ranges.release(held[0].value, Some(held[0].fence)));
    assert!(poll(&mut first).is_pending() && first.is_decided());
    drop(hold);
    assert_eq!(soon(&mut first).unwrap()[0].value, held[0].value);
}

#[test]
fn a_dropped_wait_gives_its_place_up_and_what_it_was_given() {
    let (_rig, ranges, held) = full("sync");
    let first = wait(&ranges, HOUR);
    let second = wait(&ranges, HOUR);
    let mut third = wait(&ranges, HOUR);
    drop(first);
    assert_eq!(ranges.waiting().0, 2);
    // The second is given a value and does not look at it.
    release(&ranges, held[0]);
    assert!(poll(&mut third).is_pending());
    drop(second);
    assert_eq!(soon(&mut third).unwrap()[0].value, held[0].value);
    assert_eq!(ranges.waiting(), (0, None));
    assert_eq!(ranges.waits().cancelled, 1);
}

#[test]
fn a_wait_is_over_in_time_and_what_time_frees_is_given_without_a_call() {
    let (rig, ranges, _) = full("memory");
    let mut short = wait(&ranges, Duration::from_secs(5));
    let mut long = wait(&ranges, 2 * HOUR);
    rig.clocks.advance(Duration::from_secs(5));
    assert!(matches!(
        soon(&mut short),
        Err(Failed::Refused(Refused::Exhausted { .. }))
    ));
    assert!(poll(&mut long).is_pending());
    rig.clocks.advance(HOUR);
    assert!(soon(&mut long).is_ok());
}

#[test]
fn too_many_are_refused_with_numbers() {
    let (mut rig, ranges, _) = full("sync");
    drop(ranges);
    rig.options.waiters_max = 1;
    let ranges = rig.open();
    let _first = wait(&ranges, HOUR);
    match soon(&mut wait(&ranges, HOUR)) {
        Err(Failed::Refused(Refused::Crowded(refusal))) => assert_eq!(refusal.len, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranges_that_go_close_or_fail_tell_waiting_tasks() {
    let (_rig, ranges, _) = full("sync");
    let mut waits = wait(&ranges, HOUR);
    ranges.remove_range(ranges.range("few").unwrap()).unwrap();
    assert!(matches!(
        soon(&mut waits),
        Err(Failed::Refused(Refused::Draining))
    ));

    let (_rig, ranges, _) = full("sync");
    let mut waits = wait(&ranges, HOUR);
    ranges.close();
    assert!(matches!(soon(&mut waits), Err(Failed::Closed)));

    let (rig, ranges, _) = full("sync");
    let mut waits = wait(&ranges, HOUR);
    rig.platter.inject(rideau::store::Fault::Full);
    let _ = reserve_other(&ranges).wait();
    assert!(matches!(soon(&mut waits), Err(Failed::Store(_))));
}

fn reserve_other(ranges: &Ranges) -> rideau::Answer<Vec<Reservation>> {
    ranges.reserve(&Ask::new(&anywhere(ranges, "sync")))
}

#[test]
fn a_crowd_at_two_values_is_served_one_by_one() {
    const TASKS: usize = 40;
    const TURNS: usize = 25;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let (_rig, ranges, held) = full("memory");
    let taken = Arc::new(Mutex::new(BTreeSet::new()));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (ranges, taken) = (ranges.clone(), Arc::clone(&taken));
            tasks.spawn(async move {
                for turn in 0..TURNS {
                    if (task + turn) % 7 == 0 {
                        // Some give up, perhaps just when they are served.
                        let span = Duration::from_micros((task * turn) as u64);
                        let given = tokio::time::timeout(span, wait(&ranges, HOUR)).await;
                        if let Ok(given) = given {
                            let one = given.unwrap()[0];
                            ranges.release(one.value, Some(one.fence)).await.unwrap();
                        }
                        continue;
                    }
                    let one = wait(&ranges, HOUR).await.unwrap()[0];
                    assert!(taken.lock().insert(one.value), "two have it");
                    tokio::task::yield_now().await;
                    taken.lock().remove(&one.value);
                    ranges.release(one.value, Some(one.fence)).await.unwrap();
                }
            });
        }
        held.into_iter().for_each(|one| release(&ranges, one));
        let all = tokio::time::timeout(Duration::from_secs(120), tasks.join_all());
        all.await.expect("no ask waits for ever");
    });
    // A timeout may have come between a grant and its wake.
    assert_eq!(ranges.waiting().0, 0);
    assert_eq!(values(&ranges), []);
    check_counts(&ranges);
}
