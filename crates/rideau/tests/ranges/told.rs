//! When an answer is told.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::thread;

use rideau::Failed;
use rideau::allocator::{
    Ask, Change, Fields, Key, RangeOptions, Refused, Released, Span, Standing, Start, Which,
};
use tokio::task::JoinSet;

use crate::rig::{
    HOUR, Rig, Woken, anywhere, check_counts, held, poll_once, reserve, reserved, values,
};

#[test]
fn a_sync_value_is_told_only_when_its_batch_is_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    let before = reserved(&ranges, "sync").value;
    let batches = rig.platter.batches();
    let hold = rig.platter.hold();
    let (decision, until) = reserve(&ranges, "sync").into_parts();
    let value = decision.unwrap()[0].value;
    assert!(!until.is_reached().unwrap());
    assert_eq!(rig.platter.batches(), batches);
    drop(hold);
    until.wait().unwrap();
    assert!(until.is_reached().unwrap());
    assert_eq!(rig.platter.batches(), batches + 1);
    assert_eq!(values(&ranges), [before, value]);
}

#[test]
fn every_change_of_a_sync_value_is_told_only_when_it_is_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    let reservation = reserved(&ranges, "sync");
    let (which, fence) = (Which::Value(reservation.value), Some(reservation.fence));
    let none = Fields::new();
    let change = Change {
        fence,
        ..Change::new(&none)
    };
    let hold = rig.platter.hold();
    let untils = [
        ranges.write(which, &change).into_parts().1,
        ranges.update(which, &change).into_parts().1,
        ranges.refresh(which, fence, Some(HOUR)).into_parts().1,
        ranges.lookup(which).into_parts().1,
        ranges.claim(77, &Change::new(&none)).into_parts().1,
        ranges.cancel(which, fence).into_parts().1,
        ranges.release(reservation.value, None).into_parts().1,
        // That it is not held is news too.
        ranges.lookup(which).into_parts().1,
    ];
    for (at, until) in untils.iter().enumerate() {
        assert!(!until.is_reached().unwrap(), "call {at}");
    }
    drop(hold);
    untils.iter().for_each(|until| until.wait().unwrap());
    assert_eq!(values(&ranges), [77]);
    check_counts(&ranges);
}

#[test]
fn what_was_asked_for_while_a_batch_is_written_shares_the_next() {
    let rig = Rig::new();
    let ranges = rig.open();
    reserved(&ranges, "sync");
    let before = rig.platter.batches();
    let hold = rig.platter.hold();
    let answers: Vec<_> = (0..1_000).map(|_| reserve(&ranges, "sync")).collect();
    drop(hold);
    let mut given: Vec<u128> = Vec::new();
    for answer in answers {
        given.push(answer.wait().unwrap()[0].value);
    }
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 1_000);
    // The thread took what was there when it woke, and then all the rest.
    let batches = rig.platter.batches() - before;
    assert!(batches <= 2, "{batches}");
}

#[test]
fn a_memory_value_is_told_at_once() {
    let rig = Rig::new();
    let ranges = rig.open();
    // Fences are set aside first, which has to be safe.
    let hold = rig.platter.hold();
    let (_, first) = reserve(&ranges, "memory").into_parts();
    let (_, second) = reserve(&ranges, "memory").into_parts();
    assert!(!first.is_reached().unwrap());
    assert!(!second.is_reached().unwrap(), "it has a fence of the same");
    drop(hold);
    first.wait().unwrap();
    // Each partition does so by itself.
    for _ in 0..crate::partitions().count() {
        reserved(&ranges, "memory");
    }
    let batches = rig.platter.batches();
    let _hold = rig.platter.hold();
    for _ in 0..100 {
        let (decision, until) = reserve(&ranges, "memory").into_parts();
        assert!(until.is_reached().unwrap());
        let given = decision.unwrap()[0];
        let refreshed = ranges.refresh(Which::Value(given.value), Some(given.fence), None);
        refreshed.wait().unwrap();
        let released = ranges.release(given.value, Some(given.fence)).wait();
        assert_eq!(released.unwrap(), Released::Now);
    }
    assert_eq!(rig.platter.batches(), batches, "nothing was written");
}

#[test]
fn a_claimed_value_is_told_at_once_when_its_block_is_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    // Each partition has a block of its own.
    for _ in 0..crate::partitions().count() {
        reserved(&ranges, "claimed");
    }
    let hold = rig.platter.hold();
    for _ in 0..100 {
        let (decision, until) = reserve(&ranges, "claimed").into_parts();
        decision.unwrap();
        assert!(until.is_reached().unwrap());
    }
    drop(hold);
    check_counts(&ranges);
}

#[test]
fn a_refusal_that_tells_of_others_is_told_when_that_is_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    let hold = rig.platter.hold();
    let (decision, _) = reserve(&ranges, "sync").into_parts();
    let value = decision.unwrap()[0].value;
    let (refused, until) = ranges.release(value, Some(u64::MAX)).into_parts();
    assert!(matches!(
        refused,
        Err(Failed::Refused(Refused::Conflict { .. }))
    ));
    assert!(!until.is_reached().unwrap());
    // What is wrong with an ask is known at once.
    let wrong = ranges.reserve(&Ask::new(&[]));
    assert!(matches!(
        wrong.wait(),
        Err(Failed::Refused(Refused::NoPlace))
    ));
    drop(hold);
    until.wait().unwrap();
}

#[test]
fn plain_threads_wait_for_their_answers() {
    let rig = Rig::new();
    let ranges = rig.open();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let given = reserved(&ranges, "sync");
                    let released = ranges.release(given.value, Some(given.fence)).wait();
                    assert_eq!(released.unwrap(), Released::Now);
                }
            });
        }
    });
    assert!(held(&ranges).is_empty());
    check_counts(&ranges);
}

#[tokio::test]
async fn tasks_await_their_answers() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut tasks = JoinSet::new();
    for _ in 0..500 {
        let ranges = ranges.clone();
        tasks.spawn(async move { reserve(&ranges, "sync").await.unwrap()[0].value });
    }
    let mut given = tasks.join_all().await;
    given.sort_unstable();
    assert_eq!(given, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_task_that_polls_often_is_woken_once() {
    let rig = Rig::new();
    let ranges = rig.open();
    let hold = rig.platter.hold();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut answering = pin!(reserve(&ranges, "sync").into_future());
    for _ in 0..10 {
        let polled = answering.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    drop(hold);
    ranges.close();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let polled = answering.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Ok(_))));
}

#[test]
fn a_dropped_lease_gives_its_value_back_before_it_was_told() {
    let rig = Rig::new();
    let ranges = rig.open();
    let hold = rig.platter.hold();
    let prefer = anywhere(&ranges, "sync");
    let ask = Ask::new(&prefer);
    assert!(poll_once(ranges.lease(&ask)).is_pending());
    assert_eq!(ranges.stands(0), Standing::Free);
    drop(hold);
    ranges.close();
    assert!(held(&rig.open()).is_empty(), "that is written down too");
}

#[tokio::test]
async fn a_dropped_guard_gives_its_value_back() {
    let rig = Rig::new();
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    let ask = Ask::new(&prefer);
    let mut leased = ranges.lease(&ask).await.unwrap();
    let before = leased.reservation().until;
    rig.clocks.advance(HOUR / 2);
    leased.renew(HOUR).await.unwrap();
    assert!(leased.reservation().until > before);
    let value = leased.reservation().value;
    assert_eq!(ranges.stands(value), Standing::Reserved);
    drop(leased);
    assert_eq!(ranges.stands(value), Standing::Free);

    let kept = ranges.lease(&ask).await.unwrap().keep();
    assert_eq!(ranges.stands(kept.value), Standing::Reserved);
}

#[tokio::test]
async fn a_guard_that_lost_its_value_takes_it_from_no_holder() {
    let rig = Rig::new();
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    let mut leased = ranges.lease(&Ask::new(&prefer)).await.unwrap();
    rig.clocks.advance(HOUR * 2);
    let mut next = reserve(&ranges, "sync").await.unwrap()[0];
    // Partitions take turns.
    for _ in 1..crate::partitions().count() {
        next = reserve(&ranges, "sync").await.unwrap()[0];
    }
    assert_eq!(next.value, leased.reservation().value);
    assert!(next.fence > leased.reservation().fence);
    assert!(leased.renew(HOUR).await.is_err());
    drop(leased);
    assert_eq!(ranges.stands(next.value), Standing::Reserved);
}

#[test]
fn a_second_ask_with_a_unique_key_waits_for_the_first_answer() {
    let rig = Rig::new();
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    let keys = [Key {
        bytes: b"mac:02",
        unique: true,
    }];
    let ask = Ask {
        keys: &keys,
        ..Ask::new(&prefer)
    };
    let hold = rig.platter.hold();
    let (first, _) = ranges.reserve(&ask).into_parts();
    let (again, until) = ranges.reserve(&ask).into_parts();
    let again = again.unwrap()[0];
    assert!(again.is_known && again.value == first.unwrap()[0].value);
    assert!(!until.is_reached().unwrap());
    drop(hold);
    until.wait().unwrap();
}

#[test]
fn a_range_that_begins_in_quarantine_does_so_when_that_is_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    ranges.logged().wait().unwrap();
    let quarantined = RangeOptions {
        start: Start::Quarantine,
        ..RangeOptions::new(vec![Span::parse("600000-600009").unwrap()])
    };
    let hold = rig.platter.hold();
    ranges.set_range("new", quarantined.clone()).unwrap();
    let until = ranges.logged();
    assert!(!until.is_reached().unwrap());
    drop(hold);
    until.wait().unwrap();
    drop(ranges);
    // It counts from when it was said.
    rig.clocks.advance(quarantined.quarantine / 2);
    let mut rig = rig;
    let free = RangeOptions {
        start: Start::Free,
        ..quarantined.clone()
    };
    rig.options.ranges.push(("new".into(), free));
    let ranges = rig.open();
    assert_eq!(ranges.stands(600_003), Standing::Quarantined);
    // Over a restart the clock may lose a little, and never gains.
    rig.clocks.advance(quarantined.quarantine * 2 / 3);
    assert_eq!(ranges.stands(600_003), Standing::Free);
}
