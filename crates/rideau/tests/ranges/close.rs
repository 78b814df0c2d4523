//! The end: nothing hangs, and nothing is left.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use rideau::allocator::Ask;
use rideau::store::Fault;
use rideau::{Failed, Ranges};

use crate::rig::{Rig, anywhere, held, reserve, reserved, values, words};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn after_the_end_calls_are_refused() {
    let rig = Rig::new();
    let ranges = rig.open();
    let kept = reserved(&ranges, "sync");
    let batches = rig.platter.batches();
    ranges.close();
    assert_eq!(rig.platter.batches(), batches + 1, "the word that it ended");
    ranges.close();
    assert_eq!(rig.platter.batches(), batches + 1);
    assert_eq!(
        words(reserve(&ranges, "sync").wait()),
        "the ranges are closed"
    );
    assert!(matches!(
        reserve(&ranges, "memory").wait(),
        Err(Failed::Closed)
    ));
    assert_eq!(values(&rig.open()), [kept.value]);
}

#[test]
fn what_was_decided_before_the_end_is_safe_after_it() {
    let rig = Rig::new();
    let ranges = rig.open();
    let answers: Vec<_> = (0..100).map(|_| reserve(&ranges, "sync")).collect();
    drop(ranges);
    for answer in answers {
        answer.wait().unwrap();
    }
    assert_eq!(held(&rig.open()).len(), 100);
}

#[test]
fn an_end_under_load_lets_every_thread_go() {
    let rig = Rig::new();
    let ranges = rig.open();
    let has_begun = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(given) = reserve(&ranges, "sync").wait() {
                    has_begun.store(true, Ordering::Relaxed);
                    let released = ranges.release(given[0].value, Some(given[0].fence));
                    let _ = released.wait();
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                while !has_begun.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                ranges.close();
                // Each close returns when it is closed.
                assert!(matches!(
                    reserve(&ranges, "sync").wait(),
                    Err(Failed::Closed)
                ));
            });
        }
    });
    let next = rig.open();
    assert!(held(&next).len() <= 4);
}

#[test]
fn an_end_that_cannot_be_written_is_an_end() {
    let rig = Rig::new();
    let ranges = rig.open();
    let kept = reserved(&ranges, "sync");
    rig.platter.inject(Fault::Full);
    ranges.close();
    assert!(ranges.failed().is_some());
    drop(ranges);
    assert_eq!(values(&rig.open()), [kept.value]);
}

/// Holds the last handle, and drops it when woken: on the thread that writes.
struct Last(Mutex<Option<Ranges>>, mpsc::Sender<()>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        let ranges = self.0.lock().unwrap().take();
        drop(ranges);
        let _ = self.1.send(());
    }
}

#[test]
fn the_thread_that_writes_may_drop_the_last_handle() {
    let rig = Rig::new();
    let ranges = rig.open();
    let hold = rig.platter.hold();
    let mut answering = pin!(reserve(&ranges, "sync").into_future());
    let (sender, dropped) = mpsc::channel();
    let last = Arc::new(Last(Mutex::new(Some(ranges)), sender));
    let waker = Waker::from(last);
    assert!(
        answering
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(hold);
    dropped.recv_timeout(LONG).unwrap();
    let polled = answering
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready());
}

#[test]
fn a_guard_keeps_the_ranges_open() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let rig = Rig::new();
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    let leased = runtime.block_on(ranges.lease(&Ask::new(&prefer))).unwrap();
    drop(ranges);
    drop(leased);
    assert!(held(&rig.open()).is_empty());
}

/// In a process of its own, for others have such threads too.
#[cfg(feature = "store")]
#[test]
fn no_thread_is_left() {
    let said = crate::child::alone("threads");
    assert_eq!(said, ["50 while open", "0 after it"]);
}
