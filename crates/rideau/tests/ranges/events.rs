//! Events: in order, and only when what they tell is safe.

use std::time::Duration;

use rideau::allocator::{Change, Event, Fields, OnExpire, What, Which};
use rideau::store::Fault;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::timeout;

use crate::rig::{HOUR, Rig, reserve, reserved};

/// Enough for any machine, and a bug does not last for ever.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn events_come_in_order_with_their_numbers() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut events = ranges.watch();
    let one = reserve(&ranges, "sync").await.unwrap()[0];
    let (which, fence) = (Which::Value(one.value), Some(one.fence));
    ranges.refresh(which, fence, None).await.unwrap();
    let none = Fields::new();
    let change = Change {
        fence,
        ..Change::new(&none)
    };
    ranges.update(which, &change).await.unwrap();
    ranges.cancel(which, fence).await.unwrap();
    ranges.release(one.value, fence).await.unwrap();
    let wanted = [
        What::Reserved,
        What::Updated,
        What::Updated,
        What::Cancelled,
        What::Released,
    ];
    for (at, what) in wanted.into_iter().enumerate() {
        let event = timeout(LONG, events.recv()).await.unwrap().unwrap();
        assert_eq!(event.number, at as u64 + 1);
        assert_eq!((event.what, event.value), (what, one.value));
        assert_eq!((event.fence, event.range), (one.fence, Some(one.range)));
    }
    assert!(matches!(events.try_recv(), Err(TryRecvError::Empty)));
}

#[tokio::test]
async fn no_watcher_hears_of_what_is_not_safe() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut events = ranges.watch();
    let hold = rig.platter.hold();
    let answers: Vec<_> = (0..100).map(|_| reserve(&ranges, "sync")).collect();
    // Also not by way of values that are told at once.
    let _ = reserve(&ranges, "memory").into_parts();
    assert!(matches!(events.try_recv(), Err(TryRecvError::Empty)));
    drop(hold);
    for number in 1..=101 {
        let event = timeout(LONG, events.recv()).await.unwrap().unwrap();
        assert_eq!(event.number, number);
    }
    drop(answers);
}

#[tokio::test]
async fn what_failed_is_never_told_and_the_watch_ends() {
    let rig = Rig::new();
    let ranges = rig.open();
    reserved(&ranges, "sync");
    let mut events = ranges.watch();
    rig.platter.inject(Fault::Full);
    reserve(&ranges, "sync").await.unwrap_err();
    let end = timeout(LONG, events.recv()).await.unwrap();
    assert_eq!(end, Err(RecvError::Closed));
    let late = timeout(LONG, ranges.watch().recv()).await.unwrap();
    assert_eq!(late, Err(RecvError::Closed));
}

#[tokio::test]
async fn a_watch_ends_when_the_ranges_are_closed() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut events = ranges.watch();
    let one = reserve(&ranges, "sync").await.unwrap()[0];
    ranges.close();
    let event = timeout(LONG, events.recv()).await.unwrap().unwrap();
    assert_eq!(event.value, one.value);
    let end = timeout(LONG, events.recv()).await.unwrap();
    assert_eq!(end, Err(RecvError::Closed));
}

#[tokio::test]
async fn an_end_is_noticed_without_traffic() {
    for range in ["sync", "memory", "claimed"] {
        let rig = Rig::new();
        let ranges = rig.open();
        let one = reserve(&ranges, range).await.unwrap()[0];
        let mut events = ranges.watch();
        rig.clocks.advance(HOUR + Duration::from_secs(1));
        let event: Event = timeout(LONG, events.recv()).await.unwrap().unwrap();
        assert_eq!((event.what, event.value), (What::Expired, one.value));
        let stats = ranges.stats(one.range).unwrap();
        assert_eq!((stats.reserved, stats.free), (0, stats.size));
    }
}

#[tokio::test]
async fn a_watcher_that_is_to_decide_hears_of_an_end_and_can() {
    let mut rig = Rig::new();
    rig.options.ranges[0].1.on_expire = OnExpire::Notify;
    let ranges = rig.open();
    let one = reserve(&ranges, "sync").await.unwrap()[0];
    let mut events = ranges.watch();
    rig.clocks.advance(HOUR + Duration::from_secs(1));
    let event = timeout(LONG, events.recv()).await.unwrap().unwrap();
    assert_eq!((event.what, event.value), (What::Expired, one.value));
    assert_eq!(ranges.stats(one.range).unwrap().detached, 1);
    ranges.release(one.value, Some(one.fence)).await.unwrap();
    assert_eq!(ranges.stats(one.range).unwrap().detached, 0);
}

#[tokio::test]
async fn a_slow_watcher_learns_how_much_was_missed() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut events = ranges.watch();
    for _ in 0..5_000 {
        drop(reserve(&ranges, "memory").into_parts());
    }
    ranges.close();
    let Err(RecvError::Lagged(missed)) = events.recv().await else {
        panic!("four thousand are kept");
    };
    assert_eq!(events.recv().await.unwrap().number, missed + 1);
}
