//! How members end: failed, lost, aged, checked and found wanting, stopped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rideau::{AskOptions, Held, PoolOptions, Retired};
use tokio::time::{Instant, sleep};

use crate::rig::{Act, MS, Rig, S, options, settle};
use crate::take::poll;

// S5, P8, P9: the numbers stay, the members are new.
#[tokio::test(start_paused = true)]
async fn members_that_are_lost_or_failed_are_replaced_one_by_one() {
    let rig = Rig::new(3);
    let pool = rig.start(options(3, 3)).await;
    let held = [(); 3].map(|()| pool.try_take().unwrap());
    (0..3).for_each(|number| rig.lose(number));
    settle().await;
    assert_eq!(rig.born(), 3, "a holder keeps its member");
    drop(held);
    settle().await;
    assert_eq!((rig.born(), pool.stats().members.idle), (6, 3));

    (3..6).for_each(|number| rig.lose(number));
    settle().await;
    assert_eq!((rig.born(), pool.stats().members.idle), (9, 3));

    let held = [(); 3].map(|()| pool.try_take().unwrap());
    held.into_iter().for_each(Held::fail);
    settle().await;
    assert_eq!((rig.born(), pool.stats().members.idle), (12, 3));
    let stats = pool.stats();
    assert_eq!(stats.retired_for(Retired::Lost), 6);
    assert_eq!(stats.retired_for(Retired::Failed), 3);
    let mut stopped: Vec<u64> = rig
        .stopped()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    stopped.sort_unstable();
    assert_eq!(stopped, Vec::from_iter(0..9));
    assert_eq!((rig.watches(), rig.aborts()), (3, 3), "of those alive");
}

// S6, F2: only a panic while it is held counts.
#[tokio::test(start_paused = true)]
async fn a_panic_that_began_before_the_take_harms_no_member() {
    struct TakesLate<'a>(&'a dyn Fn());
    impl Drop for TakesLate<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let take = || drop(pool.try_take().unwrap());
    let panics = || {
        let _late = TakesLate(&take);
        panic!("before");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    settle().await;
    assert_eq!(pool.try_take().unwrap().number, 0);
}

#[tokio::test(start_paused = true)]
async fn a_detached_member_is_the_holders_and_its_slot_is_free() {
    let rig = Rig::new(2);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    Held::note(&held, "leaves");
    let kept = Held::detach(held);
    settle().await;
    // One is started for the floor.
    let next = pool.take().await.unwrap();
    assert_eq!((kept.number, next.number), (0, 1));
    assert_eq!(pool.holders()[0].note, None);
    assert_eq!(
        (rig.watches(), rig.aborts()),
        (1, 1),
        "none for what is gone"
    );
    assert_eq!(pool.stats().detached, 1);
    drop((kept, next));
    assert!(rig.stopped().is_empty());
}

// S16, F10, P1.
#[tokio::test(start_paused = true)]
async fn a_stop_that_hangs_keeps_its_slot_until_its_limit() {
    let rig = Rig::new(1);
    rig.on_stop(Act::Hang);
    let pool = rig.start(PoolOptions {
        stop_timeout: 200 * MS,
        ..options(1, 1)
    });
    let pool = pool.await;
    Held::fail(pool.take().await.unwrap());
    let held = pool.take().await.unwrap();
    assert_eq!(Held::waited(&held), 200 * MS);
    assert_eq!((held.number, rig.live()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_watch_panics_is_replaced() {
    let rig = Rig::new(1);
    rig.on_lost_panic();
    let pool = rig.start(options(1, 1)).await;
    rig.lose(0);
    settle().await;
    assert_eq!((rig.born(), pool.stats().members.idle), (2, 1));
    assert_eq!(pool.stats().retired_for(Retired::Lost), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_panics_frees_its_slot() {
    let rig = Rig::new(1);
    rig.on_stop(Act::Panic);
    let pool = rig.start(options(1, 1)).await;
    Held::fail(pool.take().await.unwrap());
    let held = pool.take().await.unwrap();
    assert_eq!((held.number, Held::waited(&held)), (1, Duration::ZERO));
    assert_eq!((rig.watches(), rig.aborts()), (1, 1));
}

// S16: slots count until the member is gone.
#[tokio::test(start_paused = true)]
async fn a_slow_stop_holds_up_only_its_own_slot() {
    let rig = Rig::new(2);
    rig.on_stop(Act::After(100 * MS));
    let pool = rig.start(options(2, 2)).await;
    Held::fail(pool.take().await.unwrap());
    let begun = Instant::now();
    let held = pool.take().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let other = pool.take().await.unwrap();
    assert_eq!(begun.elapsed(), 100 * MS);
    drop((held, other));
}

fn checked() -> PoolOptions {
    PoolOptions {
        check_after: Some(S),
        idle_age_max: None,
        ..options(2, 2)
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_idle_for_long_is_checked_before_it_is_lent() {
    let rig = Rig::new(2);
    rig.on_check(Act::After(20 * MS));
    let pool = rig.start(checked()).await;
    sleep(S).await;
    drop(pool.take().await.unwrap());
    assert_eq!(rig.checked(), 0);
    sleep(2 * S).await;
    // A take that does not wait gets it as it is.
    drop(pool.try_take().unwrap());
    sleep(2 * S).await;
    let held = pool.take().await.unwrap();
    assert_eq!((rig.checked(), Held::waited(&held)), (1, 20 * MS));
}

// A check that failed leaves its taker with the next member, not with nothing.
#[tokio::test(start_paused = true)]
async fn after_a_failed_check_the_next_member_is_looked_at() {
    for act in [Act::Fail, Act::Panic, Act::Hang] {
        let rig = Rig::new(2);
        rig.on_check(act);
        let pool = rig.start(PoolOptions {
            start_timeout: 100 * MS,
            ..checked()
        });
        let pool = pool.await;
        sleep(2 * S).await;
        let held = pool.take().await.unwrap();
        assert!(held.number >= 2, "both were found wanting or new: {act:?}");
        settle().await;
        drop(held);
        let stats = pool.stats();
        assert_eq!(rig.live(), stats.members.live());
        assert_eq!(
            rig.watches(),
            rig.live(),
            "no watch of what is gone: {act:?}"
        );
        assert_eq!(rig.aborts(), rig.live());
    }
}

// F12 and fastpool's fault: the check goes on without its taker.
#[tokio::test(start_paused = true)]
async fn a_check_whose_taker_left_is_worth_something_to_the_next() {
    let rig = Rig::new(2);
    rig.on_check(Act::After(20 * MS));
    let pool = rig.start(PoolOptions {
        init: 1,
        max: 1,
        ..checked()
    });
    let pool = pool.await;
    sleep(2 * S).await;
    let mut take = pool.take();
    assert!(poll(&mut take).is_pending());
    settle().await;
    drop(take);
    sleep(30 * MS).await;
    let held = pool.take().await.unwrap();
    assert_eq!(Held::waited(&held), Duration::ZERO);
    assert_eq!((held.number, rig.checked()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_member_lost_while_it_is_checked_goes_though_the_check_went_well() {
    let rig = Rig::new(2);
    rig.on_check(Act::After(20 * MS));
    let pool = rig.start(checked()).await;
    sleep(2 * S).await;
    let taking = tokio::spawn(pool.take_owned(AskOptions::default()));
    sleep(10 * MS).await;
    rig.lose(0);
    rig.lose(1);
    let held = taking.await.unwrap().unwrap();
    assert!(held.number >= 2);
    let lost = rig.stopped();
    assert!(
        lost.iter().all(|(_, why)| *why == Retired::Lost),
        "{lost:?}"
    );
}

// S19, P9: its uses are counted in the idle cache as in the line.
#[tokio::test(start_paused = true)]
async fn a_member_goes_after_as_many_uses_as_it_may_have() {
    let rig = Rig::new(1);
    let pool = rig.start(PoolOptions {
        uses_max: Some(3),
        ..options(1, 1)
    });
    let pool = pool.await;
    let mut numbers = Vec::new();
    for _ in 0..7 {
        let held = pool.take().await.unwrap();
        numbers.push((held.number, Held::about(&held).uses));
    }
    let all = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1)];
    assert_eq!(numbers, all);
    assert_eq!(pool.stats().retired_for(Retired::Used), 2);
}

// S29, F12.
#[tokio::test(start_paused = true)]
async fn what_is_done_with_idle_members_delays_no_take_and_a_panic_replaces_one() {
    let rig = Rig::new(3);
    let pool = rig.start(options(3, 3)).await;
    let mut seen = Vec::new();
    let visit = pool.each_idle(async |member| {
        seen.push(member.number);
        sleep(300 * MS).await;
        assert_ne!(member.number, 1);
    });
    let take = async {
        sleep(100 * MS).await;
        let held = pool.take().await.unwrap();
        assert_eq!(Held::waited(&held), Duration::ZERO);
        sleep(10 * MS).await;
        drop(held);
    };
    let (done, ()) = tokio::join!(visit, take);
    assert_eq!((done, seen.len()), (2, 3));
    settle().await;
    assert_eq!(rig.stopped(), [(1, Retired::Failed)]);
    assert_eq!(pool.stats().members.idle, 3);
}
