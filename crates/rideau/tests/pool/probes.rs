//! The five tries at which pools of others fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rideau::{AskOptions, Held, Pool, Retired};
use tokio::runtime;
use tokio::time::sleep;

use crate::rig::{Act, MS, Rig, S, options, settle};

/// Others go on lending as many as before.
#[tokio::test(start_paused = true)]
async fn a_pool_shrunk_while_all_are_held_never_lends_more_again() {
    let rig = Rig::new(8);
    let pool = rig.start(options(1, 8)).await;
    let mut all = Vec::new();
    for _ in 0..8 {
        all.push(pool.take().await.unwrap());
    }
    pool.reconfigure(options(1, 2)).unwrap();
    let out = Arc::new(AtomicUsize::new(8));
    let takers: Vec<_> = (0..20)
        .map(|_| {
            let (pool, out) = (pool.clone(), Arc::clone(&out));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let held = pool.take().await.unwrap();
                    let now = out.fetch_add(1, SeqCst) + 1;
                    assert!(now <= 2, "{now} are out");
                    sleep(MS).await;
                    out.fetch_sub(1, SeqCst);
                    drop(held);
                }
            })
        })
        .collect();
    for held in all {
        sleep(MS).await;
        out.fetch_sub(1, SeqCst);
        drop(held);
    }
    for taker in takers {
        taker.await.unwrap();
    }
    assert_eq!((rig.live(), pool.stats().members.idle), (2, 2));
    assert_eq!(rig.born(), 8);
}

/// S6. Others lend it to the next.
#[tokio::test(start_paused = true)]
async fn the_member_of_a_holder_that_panics_is_not_lent_again() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let other = pool.clone();
    let task = tokio::spawn(async move {
        let held = other.take().await.unwrap();
        sleep(MS).await;
        assert_eq!(held.number, 1, "it is the first");
    });
    assert!(task.await.unwrap_err().is_panic());
    let held = pool.take().await.unwrap();
    assert_eq!(held.number, 1);
    assert_eq!(rig.stopped(), [(0, Retired::Failed)]);
}

/// Others wait for the start they began.
#[tokio::test(start_paused = true)]
async fn a_returned_member_beats_a_running_start() {
    let rig = Rig::new(2);
    let pool = rig.start(options(1, 2)).await;
    rig.on_start(Act::After(500 * MS));
    let held = pool.take().await.unwrap();
    let taking = tokio::spawn(pool.take_owned(AskOptions::default()));
    sleep(20 * MS).await;
    assert_eq!(pool.stats().members.starting, 1);
    drop(held);
    let held = taking.await.unwrap().unwrap();
    assert_eq!((Held::waited(&held), held.number), (20 * MS, 0));
    sleep(S).await;
    assert_eq!(pool.stats().members.idle, 1, "the start was not in vain");
}

/// Others let a task that takes again at once overtake those that wait.
#[tokio::test(start_paused = true)]
async fn hogs_do_not_starve_latecomers_nor_each_other() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    let turns: Arc<[AtomicUsize; 40]> = Arc::new([const { AtomicUsize::new(0) }; 40]);
    let hogs: Vec<_> = (0..40)
        .map(|hog| {
            let (pool, turns) = (pool.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                loop {
                    let held = pool.take().await.unwrap();
                    sleep(MS).await;
                    drop(held);
                    turns[hog].fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    sleep(200 * MS).await;
    let latecomers: Vec<_> = (0..20)
        .map(|_| tokio::spawn(pool.take_owned(AskOptions::default())))
        .collect();
    for latecomer in latecomers {
        let held = latecomer.await.unwrap().unwrap();
        let waited = Held::waited(&held);
        assert!(waited <= 45 * MS, "{waited:?}");
    }
    sleep(2 * S).await;
    hogs.into_iter().for_each(|hog| hog.abort());
    let turns = turns.each_ref().map(|turns| turns.load(SeqCst));
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*least > 40 && most <= &(2 * least), "{turns:?}");
}

/// Some others panic, for they start a task to take a member back.
#[test]
fn a_member_can_be_dropped_on_any_thread_and_after_its_runtime() {
    let runtime = runtime::Builder::new_current_thread();
    let build = |mut builder: runtime::Builder| builder.enable_time().build().unwrap();
    let runtime = build(runtime);
    let rig = Rig::new(3);
    let pool = runtime.block_on(rig.start_live(options(3, 3)));
    // All are held, so that a take gets the one that was given back, whichever
    // threads' members it looks at first.
    let [one, two, three] = [(); 3].map(|()| {
        let taken = pool.take_owned(AskOptions::default());
        runtime.block_on(taken).unwrap()
    });
    let number = one.number;
    thread::spawn(move || drop(one)).join().unwrap();
    let again = runtime.block_on(pool.take_owned(AskOptions::default()));
    let one = again.unwrap();
    assert_eq!(one.number, number);
    drop(runtime);
    let number = two.number;
    thread::spawn(move || drop(two)).join().unwrap();
    assert_eq!(pool.try_take().unwrap().number, number);
    drop((one, three));
    thread::spawn(move || {
        let held = pool.take_blocking(AskOptions::default()).unwrap();
        Held::fail(held);
        assert_eq!(pool.stats().members.idle, 2);
    })
    .join()
    .unwrap();
    // The timer may have looked at the pool just then, and ends it a moment later.
    let start = Instant::now();
    while rig.live() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "they are gone");
        thread::yield_now();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_by_another_runtime_serves_a_take_that_waits_here() {
    let rig = Rig::new(1);
    let pool: Pool<_> = rig.start(options(1, 1)).await;
    let held = pool.take_owned(AskOptions::default()).await.unwrap();
    let waiting = tokio::spawn(pool.take_owned(AskOptions::default()));
    settle().await;
    thread::spawn(move || {
        let other = runtime::Builder::new_current_thread().build().unwrap();
        other.block_on(async move { drop(held) });
    })
    .join()
    .unwrap();
    let held = waiting.await.unwrap().unwrap();
    assert_eq!(held.number, 0);
}
