//! The clock that users have: the processor's counter, the thread that reads it
//! for takes from the idle cache, and the thread that keeps deadlines.
//!
//! A test here says that something comes about, and never when.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "not every test file needs all of it")]
#[path = "stage/live.rs"]
mod live;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use live::Maker;
use rideau::{
    About, AskOptions, Broker, BrokerOptions, Clock, KeyedOptions, KeyedPool, Locks, Manager, Pool,
    PoolOptions, Reason, Regulator, RegulatorOptions, valve,
};
use tokio::runtime;

const MS: Duration = Duration::from_millis(1);
/// Nothing here takes nearly as long, unless it never happens.
const HANGS: Duration = Duration::from_secs(60);

/// Waits for a moment only.
fn brief() -> AskOptions {
    AskOptions {
        wait_max: Some(2 * MS),
        ..AskOptions::default()
    }
}

fn one_member() -> PoolOptions {
    PoolOptions {
        max: 1,
        ..PoolOptions::default()
    }
}

fn workers() -> runtime::Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_time().build().unwrap()
}

#[test]
fn a_wait_at_a_broker_ends_at_its_time() {
    let broker: Broker<(), ()> = Broker::new(BrokerOptions::default()).unwrap();
    let no = broker.ask_blocking((), brief()).unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
}

#[test]
fn a_wait_for_a_lease_ends_at_its_time() {
    let shut = valve::Options::Open(valve::Open { max: 0 });
    let regulator = Regulator::new(RegulatorOptions::new(shut)).unwrap();
    let no = regulator.ask_blocking(brief()).unwrap_err();
    assert_eq!(no.reason, Reason::Deadline);
}

#[test]
fn a_wait_for_a_lock_ends_at_its_time() {
    let locks: Locks<String> = Locks::new();
    let _held = locks.acquire("db", 1).unwrap();
    let no = locks.acquire_blocking("db", 1, 1, brief()).unwrap_err();
    assert_eq!(no.reason, Reason::Deadline);
}

#[test]
fn a_wait_for_a_member_ends_at_its_time() {
    let runtime = workers();
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on.clone(), Maker::default(), one_member()).unwrap();
    let _held = pool.take_blocking(AskOptions::default()).unwrap();
    let no = pool.take_blocking(brief()).unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);

    let options = KeyedOptions {
        max: 1,
        each: one_member(),
        ..KeyedOptions::default()
    };
    let pools = KeyedPool::new_on(on, |_: &u8| Maker::default(), options).unwrap();
    let _held = pools.take_blocking(&1, AskOptions::default()).unwrap();
    let no = pools.take_blocking(&2, brief()).unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
}

// The timer thread needs no runtime: here no thread drives it, and it could
// keep no time if one did.
#[test]
fn deadlines_are_kept_whatever_the_runtime_around_can_do() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let broker: Broker<(), ()> = Broker::new(BrokerOptions::default()).unwrap();
    let no = broker.ask_blocking((), brief()).unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn deadlines_and_the_shelf_have_a_thread_each() {
    let runtime = workers();
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on, Maker::default(), one_member()).unwrap();
    let limit = Instant::now() + HANGS;
    while !["rideau-timer", "rideau-clock"]
        .iter()
        .all(|name| runs(name))
    {
        assert!(Instant::now() < limit, "one of them does not start");
        drop(pool.take_blocking(AskOptions::default()).unwrap());
    }
}

/// A thread of this process has that name.
#[cfg(target_os = "linux")]
fn runs(name: &str) -> bool {
    use std::fs;

    let threads = fs::read_dir("/proc/self/task").unwrap();
    let mut names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    // One that has ended meanwhile has none.
    names.any(|found| found.is_ok_and(|found| found.trim_end() == name))
}

#[tokio::test(start_paused = true)]
async fn a_paused_runtime_does_not_pause_asks_that_go_by_the_system() {
    let before = tokio::time::Instant::now();
    let broker: Broker<(), ()> = Broker::new(BrokerOptions::default()).unwrap();
    let no = broker.ask_on((), brief()).await.unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
    assert!(no.refusal.waited >= 2 * MS);
    assert!(before.elapsed().is_zero(), "no timer runs on this runtime");
}

#[test]
fn handles_can_share_a_clock() {
    let clock = Clock::system();
    let broker: Broker<(), ()> = Broker::new_by(BrokerOptions::default(), &clock).unwrap();
    let other: Broker<(), ()> = Broker::new_by(BrokerOptions::default(), &clock).unwrap();
    for broker in [broker, other] {
        let no = broker.ask_blocking((), brief()).unwrap_err();
        assert_eq!(no.refusal.reason, Reason::Deadline);
    }
}

/// Lends numbers, and counts how often one was checked.
struct Checked(Arc<AtomicU64>);

impl Manager for Checked {
    type Member = ();
    type Error = Infallible;

    async fn start(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn check(&self, _: &mut (), _: &About) -> Result<(), Infallible> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }
}

// Both are told by a recent reading: when a member was laid in the idle cache, and
// how long it lay there.
#[test]
fn a_member_that_lay_on_the_shelf_is_checked_after_its_time() {
    let runtime = workers();
    let checks = Arc::new(AtomicU64::new(0));
    let options = PoolOptions {
        check_after: Some(20 * MS),
        ..one_member()
    };
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on, Checked(Arc::clone(&checks)), options).unwrap();
    let limit = Instant::now() + HANGS;
    while checks.load(SeqCst) < 2 {
        assert!(Instant::now() < limit, "a member seems to be never idle");
        // Many takes in a row keep the thread awake that reads the clock.
        for _ in 0..100 {
            drop(pool.take_blocking(AskOptions::default()).unwrap());
        }
        // No thread takes it for a while.
        thread::sleep(30 * MS);
    }
}
