//! The end of a pool: closed, dropped, or left by its runtime.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rideau::{AskOptions, Held, Pool, PoolOptions, Reason, Retired, Take};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Act, MS, Rig, S, Told, options, settle};
use crate::take::poll;

// S24, P14.
#[tokio::test(start_paused = true)]
async fn a_graceful_close_waits_for_holders_and_for_nothing_else() {
    let before = Handle::current().metrics().num_alive_tasks();
    let rig = Rig::new(4);
    let pool = rig.start(options(4, 4)).await;
    let [one, two] = [(); 2].map(|()| pool.try_take().unwrap());
    let closing = tokio::spawn({
        let pool = pool.clone();
        async move { pool.close(100 * S).await }
    });
    settle().await;
    assert_eq!(rig.live(), 2, "the idle ones go at once");
    assert_eq!(
        pool.take().await.unwrap_err().refusal.reason,
        Reason::Closed
    );
    drop(one);
    sleep(S).await;
    assert!(!closing.is_finished());
    assert!(!Held::is_revoked(&two));
    drop(two);
    timeout(S, closing).await.unwrap().unwrap();
    assert!(rig.stopped().iter().all(|(_, why)| *why == Retired::Closed));
    assert!(rig.aborted().is_empty());
    drop(pool);
    rig.is_bare(before).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_take_is_refused_when_the_pool_closes() {
    let rig = Rig::new(1);
    rig.on_start(Act::After(S));
    let pool = rig.open(options(1, 1));
    let taking = tokio::spawn(pool.take_owned(AskOptions::default()));
    sleep(10 * MS).await;
    let begun = Instant::now();
    pool.close(100 * S).await;
    let refused = taking.await.unwrap().unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Closed);
    assert_eq!((begun.elapsed(), rig.born()), (Duration::ZERO, 0));
    // S26: what the old one had begun is no bother to a new one.
    let again = rig.start(options(1, 1)).await;
    sleep(10 * S).await;
    assert_eq!(rig.live(), 1);
    assert!(again.try_take().is_ok());
}

// S25.
#[tokio::test(start_paused = true)]
async fn an_immediate_close_aborts_what_is_held_and_tells_the_holders() {
    let before = Handle::current().metrics().num_alive_tasks();
    let rig = Rig::new(3);
    let pool = rig.start(options(3, 3)).await;
    let hold = |pool: Pool<Told>| async move {
        let held = pool.take().await.unwrap();
        Held::revoked(&held).await;
        assert!(Held::is_revoked(&held));
        held.number
    };
    let holders = [(); 2].map(|()| tokio::spawn(hold(pool.clone())));
    settle().await;
    pool.close_now().await;
    for holder in holders {
        let number = holder.await.unwrap();
        assert!(rig.aborted().contains(&number));
    }
    assert_eq!((rig.live(), rig.aborted().len()), (0, 2));
    drop(pool);
    rig.is_bare(before).await;
}

#[tokio::test(start_paused = true)]
async fn a_graceful_close_becomes_an_immediate_one_at_its_deadline() {
    let rig = Rig::new(2);
    rig.on_abort_panic();
    let pool = rig.start(options(2, 2)).await;
    let held = [(); 2].map(|()| pool.try_take().unwrap());
    let begun = Instant::now();
    let told = async {
        for held in held {
            Held::revoked(&held).await;
        }
        begun.elapsed()
    };
    let (left, told) = tokio::join!(pool.close(300 * MS), told);
    assert_eq!((left, told), (2, 300 * MS));
    pool.closed().await;
    assert_eq!(rig.aborted().len(), 2, "the panic of one abort is its own");
    assert_eq!(rig.live(), 0);
    pool.close_now().await;
    pool.closed().await;
}

// A holder that never gives its member back holds up no close.
#[tokio::test(start_paused = true)]
async fn a_close_ends_in_time_whatever_holders_do() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    let [one, two] = [(); 2].map(|()| pool.try_take().unwrap());
    assert!(!pool.is_closed());
    let begun = Instant::now();
    let closing = tokio::join!(pool.close(S), async {
        sleep(MS).await;
        drop(one);
    });
    assert_eq!((closing.0, begun.elapsed()), (1, S));
    assert!(pool.is_closed());
    assert!(Held::is_revoked(&two));
    assert_eq!(pool.close(S).await, 1, "it is closed already");
    drop(two);
    assert_eq!(pool.close(S).await, 0);
    assert_eq!(rig.live(), 0);
}

// A close waits for a check, a start or a stop that hangs no longer than it
// may.
#[tokio::test(start_paused = true)]
async fn an_immediate_close_waits_for_no_check() {
    let rig = Rig::new(2);
    rig.on_check(Act::Hang);
    rig.on_next_starts([Act::Go, Act::Hang]);
    let pool = rig.open(PoolOptions {
        check_after: Some(MS),
        ..options(1, 2)
    });
    sleep(S).await;
    let takes = [(); 2].map(|()| tokio::spawn(pool.take_owned(AskOptions::default())));
    sleep(10 * MS).await;
    let members = pool.stats().members;
    assert_eq!((members.checking, members.starting), (1, 1));
    let begun = Instant::now();
    pool.close_now().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    for take in takes {
        assert!(take.await.unwrap().is_err());
    }
    assert_eq!(rig.live(), 0);
}

// P14: everything under way at once.
#[tokio::test(start_paused = true)]
async fn a_pool_dropped_in_the_middle_of_everything_leaves_nothing_behind() {
    let before = Handle::current().metrics().num_alive_tasks();
    let rig = Rig::new(6);
    rig.on_check(Act::Hang);
    rig.on_stop(Act::Hang);
    let pool = rig.start(PoolOptions {
        check_after: Some(S),
        on_error: rideau::Fate::Check,
        ..options(4, 6)
    });
    let pool = pool.await;
    rig.on_start(Act::Hang);
    Held::fail(pool.try_take().unwrap());
    let failed = pool.with(AskOptions::default(), async |_| Err::<(), _>(()));
    assert!(failed.await.unwrap().is_err());
    let owned = pool.try_take_owned().unwrap();
    let kept = Held::detach(pool.try_take().unwrap());
    assert!(pool.try_take().is_err());
    settle().await;
    let members = pool.stats().members;
    let all = (members.held, members.checking, members.stopping);
    assert_eq!(all, (1, 1, 1));
    assert!(members.starting > 0);
    drop(pool);
    settle().await;
    assert_eq!(rig.live(), 4, "the owned member keeps the pool");
    drop(owned);
    settle().await;
    assert_eq!(rig.live(), 1, "what was detached is none of the pool's");
    drop(kept);
    rig.is_bare(before).await;
}

// S26.
#[tokio::test(start_paused = true)]
async fn a_start_that_ends_after_its_pool_is_stopped() {
    let before = Handle::current().metrics().num_alive_tasks();
    let rig = Rig::new(1);
    rig.on_start(Act::After(50 * MS));
    let pool = rig.open(options(1, 1));
    settle().await;
    drop(pool);
    rig.is_bare(before).await;
    sleep(S).await;
    assert_eq!(rig.born(), 0);
}

fn own_runtime() -> runtime::Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_time().build().unwrap()
}

#[test]
fn a_pool_outlives_its_runtime_as_far_as_it_can() {
    let rig = Rig::new(2);
    let runtime = own_runtime();
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on, rig.told(), options(2, 2)).unwrap();
    let one = pool.take_blocking(AskOptions::default()).unwrap();
    let other = pool.take_blocking(AskOptions::default()).unwrap();
    drop(runtime);
    let number = other.number;
    drop(other);
    assert_eq!(pool.try_take().unwrap().number, number);
    // It cannot be stopped, but it goes; and no take waits for ever.
    Held::fail(one);
    assert_eq!(rig.live(), 1);
    let last = pool.try_take().unwrap();
    let terms = AskOptions {
        wait_max: Some(50 * MS),
        ..AskOptions::default()
    };
    let refused = pool.take_blocking(terms).unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Deadline);
    assert!(refused.start_error.is_some());
    let closing = pool.clone();
    let closing = std::thread::spawn(move || {
        let alone = runtime::Builder::new_current_thread().build().unwrap();
        alone.block_on(closing.close(Duration::from_secs(60)));
    });
    drop(last);
    closing.join().unwrap();
    assert_eq!(rig.live(), 0);
}

#[test]
fn a_runtime_that_ends_under_everything_frees_every_slot() {
    let rig = Rig::new(4);
    let runtime = own_runtime();
    let on = runtime.handle().clone();
    rig.on_check(Act::Hang);
    rig.on_stop(Act::Hang);
    let set = PoolOptions {
        on_error: rideau::Fate::Check,
        ..options(3, 4)
    };
    let pool = Pool::new_on(on, rig.told(), set).unwrap();
    let held = [(); 3].map(|()| pool.take_blocking(AskOptions::default()).unwrap());
    rig.on_start(Act::Hang);
    let [one, two, three] = held;
    Held::fail(one);
    drop(two);
    let failed = pool.with(AskOptions::default(), async |_| Err::<(), _>(()));
    runtime.block_on(failed).unwrap().unwrap_err();
    drop(runtime);
    assert_eq!(rig.live(), 1, "what was checked and stopped is gone");
    assert_eq!(pool.stats().members.held, 1);
    drop(three);
    assert!(pool.try_take().is_ok());
}

/// A waker that brings a take of the same pool to its end, when it is woken or
/// when it is dropped.
#[derive(Default)]
struct Drops {
    take: Mutex<Option<Take<'static, Told>>>,
    woken: AtomicUsize,
}

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, SeqCst);
        drop(self.take.lock().unwrap().take());
    }
}

/// Do it on a thread of its own: a lock that is taken twice never comes back.
fn comes_back(what: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        what();
        done.send(()).unwrap();
    });
    let waited = is_done.recv_timeout(Duration::from_secs(30));
    if waited != Err(RecvTimeoutError::Timeout) {
        thread.join().unwrap();
    }
    waited.expect("it waits for a lock that it has");
}

#[test]
fn a_waker_that_drops_a_take_of_the_same_pool_locks_nothing_up() {
    let runtime = own_runtime();
    let rig = Rig::new(1);
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on, rig.told(), options(1, 1)).unwrap();
    comes_back(move || {
        let held = pool.take_owned(AskOptions::default());
        let held = runtime.block_on(held).unwrap();
        let drops = Arc::new(Drops::default());
        let waker = Waker::from(Arc::clone(&drops));
        let mut first = pool.take_owned(AskOptions::default());
        let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let mut second = pool.take_owned(AskOptions::default());
        assert!(poll(&mut second).is_pending());
        *drops.take.lock().unwrap() = Some(second);
        assert_eq!(pool.stats().len(), 2);

        drop(held);
        assert_eq!(drops.woken.load(SeqCst), 1);
        assert_eq!(pool.stats().len(), 0, "the second was dropped");
        let Poll::Ready(Ok(_held)) = poll(&mut first) else {
            panic!("the first is served");
        };

        // The last of a waker may go with the place in line that it waited for.
        let drops = Arc::new(Drops::default());
        let mut second = pool.take_owned(AskOptions::default());
        assert!(poll(&mut second).is_pending());
        *drops.take.lock().unwrap() = Some(second);
        let waker = Waker::from(drops);
        let mut third = pool.take_owned(AskOptions::default());
        let polled = Pin::new(&mut third).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(waker);
        assert_eq!(pool.stats().len(), 2);
        drop(third);
        assert_eq!(pool.stats().len(), 0);
    });
}
