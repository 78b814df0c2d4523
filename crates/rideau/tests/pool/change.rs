//! Pools that are changed while they work.

use std::time::Duration;

use rideau::{AskOptions, Held, Lead, PoolOptions, Reason, Retired, Reuse, queue, valve};
use tokio::time::sleep;

use crate::rig::{Act, MS, Rig, S, options, settle};
use crate::take::poll;

// S20, F5, P13: what stops while the limit falls counts.
#[tokio::test(start_paused = true)]
async fn a_lower_limit_counts_what_is_being_stopped() {
    let rig = Rig::new(4);
    let pool = rig.start(options(4, 4)).await;
    rig.on_stop(Act::After(100 * MS));
    let held = [(); 4].map(|()| pool.try_take().unwrap());
    let [one, two, rest @ ..] = held;
    Held::fail(one);
    settle().await;
    pool.reconfigure(options(2, 2)).unwrap();
    let waiting = tokio::spawn(pool.take_owned(AskOptions::default()));
    drop(two);
    settle().await;
    let members = pool.stats().members;
    assert_eq!((members.held, members.stopping), (2, 2));
    sleep(200 * MS).await;
    assert_eq!(rig.live(), 2);
    assert_eq!(pool.stats().len(), 1, "the two that are left are held");
    rig.may_live(2);
    drop(rest);
    assert!(waiting.await.unwrap().is_ok());
    settle().await;
    assert_eq!((rig.live(), rig.born()), (2, 4));
}

// S21, F6.
#[tokio::test(start_paused = true)]
async fn a_higher_floor_counts_what_is_being_started() {
    let rig = Rig::new(3);
    rig.on_start(Act::After(50 * MS));
    let pool = rig.open(PoolOptions {
        starts_max: 8,
        ..options(3, 3)
    });
    settle().await;
    for init in [1, 3, 2, 3] {
        pool.reconfigure(options(init, 3)).unwrap();
        settle().await;
        assert_eq!(pool.stats().members.size(), 3);
    }
    sleep(S).await;
    assert_eq!((rig.live(), rig.born()), (3, 3));
}

// S22, F15.
#[tokio::test(start_paused = true)]
async fn a_shorter_line_refuses_the_takes_that_came_last() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    let mut takes: Vec<_> = (0..5).map(|_| pool.take()).collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
        sleep(MS).await;
    }
    let mut short = options(1, 1);
    short.queue.max = Some(2);
    pool.reconfigure(short).unwrap();
    for take in takes.drain(2..) {
        assert_eq!(take.await.unwrap_err().refusal.reason, Reason::Full);
    }
    drop(held);
    for take in takes {
        drop(take.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_changes_its_law_and_its_order_while_people_wait() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    let mut takes: Vec<_> = (0..4).map(|_| pool.take()).collect();
    for take in &mut takes {
        assert!(poll(take).is_pending());
        sleep(MS).await;
    }
    let mut last_first = options(1, 1);
    last_first.queue.order = queue::Order::Lifo;
    pool.reconfigure(last_first).unwrap();
    drop(held);
    let last = takes.pop().unwrap().await.unwrap();
    let mut short = options(1, 1);
    short.queue = queue::Options::timeout(20 * MS);
    pool.reconfigure(short).unwrap();
    sleep(50 * MS).await;
    for take in takes {
        assert_eq!(take.await.unwrap_err().refusal.reason, Reason::Timeout);
    }
    drop(last);
    assert!(pool.try_take().is_ok());
}

// P13: from the idle cache, from hands, from the line.
#[tokio::test(start_paused = true)]
async fn a_limit_falls_and_rises_exactly() {
    let rig = Rig::new(6);
    let pool = rig.start(options(6, 6)).await;
    let held = [(); 3].map(|()| pool.try_take().unwrap());
    pool.reconfigure(options(1, 2)).unwrap();
    settle().await;
    let members = pool.stats().members;
    assert_eq!(
        (members.held, members.idle),
        (3, 0),
        "the idle ones go at once"
    );
    let [one, two, three] = held;
    drop(one);
    settle().await;
    assert_eq!(pool.stats().members.size(), 2);
    drop(two);
    assert_eq!(pool.stats().members.idle, 1);
    assert_eq!(pool.stats().retired_for(Retired::Surplus), 4);
    pool.reconfigure(options(4, 4)).unwrap();
    settle().await;
    assert_eq!((rig.live(), pool.stats().members.idle), (4, 3));
    drop(three);
}

#[tokio::test(start_paused = true)]
async fn the_first_released_is_the_first_taken_if_the_options_say_so() {
    let rig = Rig::new(3);
    let pool = rig.start(PoolOptions {
        reuse: Reuse::Fifo,
        ..options(3, 3)
    });
    let pool = pool.await;
    let mut numbers = Vec::new();
    for _ in 0..6 {
        sleep(MS).await;
        numbers.push(pool.take().await.unwrap().number);
    }
    assert_eq!(numbers[..3], numbers[3..]);
    pool.reconfigure(options(3, 3)).unwrap();
    assert_eq!(pool.take().await.unwrap().number, numbers[5]);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_calls_off_starts_and_reaches_members_being_checked() {
    let rig = Rig::new(2);
    rig.on_check(Act::After(50 * MS));
    let pool = rig.start(PoolOptions {
        check_after: Some(S),
        ..options(1, 2)
    });
    let pool = pool.await;
    sleep(2 * S).await;
    rig.on_next_starts([Act::Hang]);
    let one = tokio::spawn(pool.take_owned(AskOptions::default()));
    let other = tokio::spawn(pool.take_owned(AskOptions::default()));
    sleep(10 * MS).await;
    let members = pool.stats().members;
    assert_eq!((members.checking, members.starting), (1, 1));
    pool.replace(Duration::ZERO);
    let one = one.await.unwrap().unwrap();
    let other = other.await.unwrap().unwrap();
    assert!(one.number > 0 && other.number > 0);
    assert_eq!(Held::about(&one).generation, 1);
    assert_eq!(Held::about(&other).generation, 1);
    assert_eq!(rig.stopped(), [(0, Retired::Replaced)]);
}

fn sized(valve: valve::Options) -> PoolOptions {
    PoolOptions {
        idle_age_max: Some(200 * MS),
        valve: Some(valve),
        ..options(0, 8)
    }
}

/// Keep this many busy for a while, and say how many members there were then.
async fn load(rig: &Rig, pool: &rideau::Pool<crate::rig::Told>, takers: usize) -> usize {
    let hogs: Vec<_> = (0..takers)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                loop {
                    let held = pool.take().await.unwrap();
                    sleep(20 * MS).await;
                    drop(held);
                }
            })
        })
        .collect();
    sleep(5 * S).await;
    let live = rig.live();
    hogs.into_iter().for_each(|hog| hog.abort());
    live
}

#[tokio::test(start_paused = true)]
async fn a_valve_grows_a_pool_while_takers_wait_and_shrinks_it_when_they_do_not() {
    let rig = Rig::new(6);
    let relative = valve::Relative {
        target: Lead::ZERO,
        min: 1,
        max: 6,
    };
    let pool = rig.open(sized(valve::Options::Relative(relative)));
    sleep(S).await;
    assert!(rig.live() <= 1);
    assert_eq!(load(&rig, &pool, 20).await, 6);
    sleep(10 * S).await;
    assert!(rig.live() <= 1, "{} are left", rig.live());
    assert!(pool.take().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_members_do_not_slow_each_other_down_grows_to_the_gradients_limit() {
    let rig = Rig::new(8);
    let gradient = valve::Gradient {
        min: 1,
        max: 8,
        initial: 2,
        tolerance: 50,
    };
    let pool = rig.open(sized(valve::Options::Gradient(gradient)));
    assert!(load(&rig, &pool, 20).await > 4);
    sleep(10 * S).await;
    let left = rig.live();
    assert!(left <= 1, "{left} are left");
    // Without a valve it goes by need again, and the other way round.
    pool.reconfigure(options(2, 8)).unwrap();
    settle().await;
    assert_eq!(rig.live(), 2);
    drop(pool.try_take().unwrap());
    let open = valve::Options::Open(valve::Open { max: 1 });
    pool.reconfigure(sized(open)).unwrap();
    settle().await;
    assert_eq!(rig.live(), 1);
    assert_eq!(load(&rig, &pool, 3).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_resized_with_one_number() {
    let rig = Rig::new(4);
    let pool = rig.start(options(4, 4)).await;
    let held = [(); 4].map(|()| pool.try_take().unwrap());
    pool.resize(1).unwrap();
    assert_eq!((pool.options().init, pool.options().max), (1, 1));
    assert!(pool.resize(0).is_err(), "a pool has members");
    assert_eq!(pool.options().max, 1);
    drop(held);
    settle().await;
    assert_eq!((rig.live(), pool.stats().members.idle), (1, 1));
    pool.resize(2).unwrap();
    let held = [pool.take().await.unwrap(), pool.take().await.unwrap()];
    assert_eq!(rig.live(), 2);
    drop(held);
}
