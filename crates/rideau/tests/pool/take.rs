//! Takes, and takes that are dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rideau::{AskOptions, Held, MemberId, Pool, PoolOptions, Reason, queue};
use tokio::time::{sleep, timeout};

use crate::rig::{Act, MS, Rig, S, Told, options, settle};

/// Poll once, without a task to wake.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn id(pool: &Pool<Told>) -> MemberId {
    Held::about(&pool.try_take().unwrap()).id
}

// S1, S2, S4.
#[tokio::test(start_paused = true)]
async fn as_many_are_lent_as_there_are_and_the_last_released_is_taken_first() {
    let rig = Rig::new(3);
    let pool = rig.start(options(3, 3)).await;
    assert_eq!(pool.stats().members.idle, 3);
    let [one, two, three] = [(); 3].map(|()| pool.try_take().unwrap());
    let refused = pool.try_take().unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Busy);
    let numbers = [one.number, two.number, three.number];
    assert_eq!(pool.stats().members.held, 3);
    drop(two);
    drop(one);
    drop(three);
    let taken = [(); 3].map(|()| pool.try_take().unwrap());
    let order = taken.each_ref().map(|held| held.number);
    assert_eq!(order, [numbers[2], numbers[0], numbers[1]]);
    drop(taken);
    assert_eq!((rig.born(), pool.stats().members.idle), (3, 3));
}

// S3: pooler answers "none" while the member is being started.
#[tokio::test(start_paused = true)]
async fn a_take_that_waits_at_a_pool_that_can_grow_gets_the_new_member() {
    let rig = Rig::new(1);
    rig.on_start(Act::After(20 * MS));
    let pool = rig.open(options(0, 1));
    let held = pool.take().await.unwrap();
    assert_eq!(Held::waited(&held), 20 * MS);
    assert_eq!(Held::lead(&held).as_nanos(), 20_000_000);
    assert_eq!(Held::about(&held).uses, 1);
}

// S7.
#[tokio::test(start_paused = true)]
async fn a_holder_that_just_ends_leaves_its_member_to_the_next() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let other = pool.clone();
    let task = async move {
        let held = other.take().await.unwrap();
        Held::about(&held).id
    };
    let first = tokio::spawn(task).await.unwrap();
    assert_eq!(id(&pool), first);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_that_polled_last_is_woken_however_often_it_polled() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.try_take().unwrap();
    let counts: [Arc<Count>; 3] = Default::default();
    let mut take = pool.take();
    for at in [0, 0, 1, 1, 0, 2, 2] {
        let waker = Waker::from(Arc::clone(&counts[at]));
        let polled = Pin::new(&mut take).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    drop(held);
    let woken = counts.map(|count| count.0.load(Ordering::Relaxed));
    assert_eq!(woken, [0, 0, 1]);
    assert!(matches!(poll(&mut take), Poll::Ready(Ok(_))));
}

// S10, P5, P6: a take over the limit is refused at once.
#[tokio::test(start_paused = true)]
async fn ten_wait_in_order_and_the_eleventh_is_refused() {
    let rig = Rig::new(1);
    let mut set = options(1, 1);
    set.queue.max = Some(10);
    let pool = rig.start(set).await;
    let held = pool.take().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..10 {
        let (pool, order) = (pool.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let _held = pool.take().await.unwrap();
            order.lock().unwrap().push(number);
            sleep(MS).await;
        }));
        settle().await;
    }
    let refused = pool.take().await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Full);
    assert_eq!(refused.refusal.len, 10);
    drop(held);
    for task in waiting {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), Vec::from_iter(0..10));
}

// S10, P11: whatever the manager does.
#[tokio::test(start_paused = true)]
async fn a_take_that_waited_as_long_as_it_wanted_never_gets_a_member() {
    let rig = Rig::new(1);
    rig.on_start(Act::After(S));
    let pool = rig.open(options(0, 1));
    let soon = AskOptions {
        wait_max: Some(30 * MS),
        ..AskOptions::default()
    };
    let refused = pool.take_on(soon).await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Deadline);
    assert_eq!(refused.refusal.waited, 30 * MS);
    sleep(2 * S).await;
    let stats = pool.stats();
    assert_eq!((stats.members.idle, stats.takes.served), (1, 0));
    assert_eq!(rig.born(), 1, "the start was not lost");
}

// S11, P12, F1: the member goes to the next, whenever the first leaves.
#[tokio::test(start_paused = true)]
async fn a_take_dropped_before_at_or_after_the_hand_over_costs_no_other_anything() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    for moment in ["before", "at", "after"] {
        let held = pool.take().await.unwrap();
        let mut first = pool.take();
        let mut second = pool.take();
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        let drop_first = match moment {
            "before" => {
                drop(first);
                drop(held);
                None
            }
            "at" => {
                drop(held);
                drop(first);
                None
            }
            _ => {
                drop(held);
                Some(poll(&mut first))
            }
        };
        drop(drop_first);
        let Poll::Ready(Ok(next)) = poll(&mut second) else {
            panic!("the next is served when the first is dropped {moment}");
        };
        assert_eq!(next.number, 0);
    }
    assert_eq!((rig.born(), rig.stopped().len()), (1, 0));
    let stats = pool.stats();
    let takes = &stats.takes;
    assert_eq!(stats.members.idle, 1);
    assert_eq!(takes.came, takes.served + takes.cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_loses_a_race_gives_its_place_up() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    assert!(timeout(10 * MS, pool.take()).await.is_err());
    tokio::select! {
        biased;
        _ = pool.take() => panic!("the member is held"),
        () = sleep(10 * MS) => (),
    }
    assert_eq!(pool.stats().len(), 0);
    drop(held);
    assert!(timeout(10 * MS, pool.take()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_task_that_polled_last_is_woken() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    let mut take = pool.take_owned(AskOptions::default());
    poll_fn(|context| {
        assert!(Pin::new(&mut take).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    let other = tokio::spawn(take);
    settle().await;
    drop(held);
    assert_eq!(other.await.unwrap().unwrap().number, 0);
}

#[tokio::test(start_paused = true)]
async fn an_owned_member_outlives_every_handle() {
    let rig = Rig::new(1);
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take_owned(AskOptions::default()).await.unwrap();
    let waiting = tokio::spawn(pool.take_owned(AskOptions::default()));
    settle().await;
    drop(pool);
    drop(held);
    let held = waiting.await.unwrap().unwrap();
    assert_eq!((held.number, rig.live()), (0, 1));
    drop(held);
    rig.is_bare(before).await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_member_is_not_handed_out_from_wherever_it_lies() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    // From the idle cache.
    rig.break_member(0);
    rig.break_member(1);
    assert_eq!(pool.take().await.unwrap().number, 2);
    settle().await;
    // Handed over by the holder before.
    let both = (pool.take().await.unwrap(), pool.take().await.unwrap());
    let mut take = pool.take();
    assert!(poll(&mut take).is_pending());
    let number = both.0.number;
    drop(both.0);
    rig.break_member(number);
    let next = take.await.unwrap();
    assert!(next.number > 3);
    drop((next, both.1));
    settle().await;
    let stats = pool.stats();
    assert_eq!((rig.live(), stats.members.idle), (2, 2));
    assert_eq!(stats.retired_for(rideau::Retired::Broken), 3);
    assert_eq!((stats.takes.came, stats.takes.served), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_panics_over_a_member_finds_it_broken() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    rig.on_is_broken_panic();
    drop(held);
    settle().await;
    assert_eq!(rig.stopped(), [(0, rideau::Retired::Broken)]);
    assert_eq!(pool.stats().members.idle, 1);
}

// S27.
#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_are_refused_and_change_nothing() {
    let rig = Rig::new(2);
    // F13.
    assert!(Pool::new(rig.told(), options(3, 2)).is_err());
    assert!(Pool::new(rig.told(), options(0, 0)).is_err());
    assert!(Pool::start(rig.told(), options(3, 2)).await.is_err());
    let pool = rig.start(options(1, 2)).await;
    let before = pool.options();
    let held = pool.take().await.unwrap();
    // F17: no holder of a member notices a bad change.
    for wrong in [
        PoolOptions {
            starts_max: 0,
            ..options(1, 2)
        },
        options(3, 2),
        PoolOptions {
            queue: queue::Options {
                min: 2,
                max: Some(1),
                ..queue::Options::default()
            },
            ..options(1, 2)
        },
    ] {
        assert!(pool.reconfigure(wrong).is_err());
        assert_eq!(pool.options(), before);
    }
    assert!(!Held::is_revoked(&held));
    drop(held);
    assert_eq!(pool.take().await.unwrap().number, 0);
}

// F16: what one of many costs does not grow with their number. Were each place
// looked for in the line, this would take minutes.
#[tokio::test]
async fn a_hundred_thousand_wait_and_leave_in_any_order() {
    let rig = Rig::new(1);
    let mut set = options(1, 1);
    set.queue.max = None;
    let pool = rig.start_live(set).await;
    let held = pool.take().await.unwrap();
    let many = 100_000;
    let mut takes: Vec<_> = (0..many)
        .map(|_| pool.take_owned(AskOptions::default()))
        .collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
    }
    assert_eq!(pool.stats().len(), many);
    // From the middle on, and only one stays, somewhere.
    let mut last = takes.remove(many / 3);
    takes.rotate_left(many / 2);
    let began = std::time::Instant::now();
    drop(takes);
    drop(held);
    assert!(poll(&mut last).is_ready());
    assert!(began.elapsed() < 20 * S, "{:?}", began.elapsed());
    assert_eq!(pool.stats().takes.cancelled, many as u64 - 1);
}

#[test]
fn there_is_no_pool_without_a_runtime() {
    let rig = Rig::new(1);
    let error = Pool::new(rig.told(), options(0, 1)).unwrap_err();
    assert!(
        error.to_string().contains("inside a tokio runtime"),
        "it says what to do: {error}"
    );
}

#[test]
fn plain_threads_take_and_wait_and_release() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let rig = Rig::new(2);
    let on = runtime.handle().clone();
    let pool = Pool::new_on(on, rig.told(), options(0, 2)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let held = pool.take_blocking(AskOptions::default()).unwrap();
                    let _using = rig.using(&held);
                    std::thread::yield_now();
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.takes.came, stats.takes.served), (200, 200));
    assert_eq!(stats.members.held, 0);
    drop(pool);
    drop(runtime);
    assert_eq!(rig.live(), 0);
}
