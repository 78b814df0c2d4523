//! Members that lie where they are taken without asking: they age, end and are
//! called back like all others.

use std::time::Duration;

use rideau::{Held, PoolOptions, Reason, Retired};
use tokio::time::sleep;

use crate::rig::{MS, Rig, S, options, settle};
use crate::take::poll;

fn ageing(init: usize, max: usize, age: Duration) -> PoolOptions {
    PoolOptions {
        idle_age_max: Some(age),
        ..options(init, max)
    }
}

// S17, P10: down to the floor, the oldest first, and never what is held.
#[tokio::test(start_paused = true)]
async fn idle_members_go_when_they_are_old_down_to_the_floor() {
    let rig = Rig::new(10);
    let pool = rig.start(ageing(10, 10, S)).await;
    pool.reconfigure(ageing(2, 10, S)).unwrap();
    let held = [(); 3].map(|()| pool.try_take().unwrap());
    let numbers = held.each_ref().map(|held| held.number);
    sleep(900 * MS).await;
    let [fresh, held @ ..] = held;
    let young = fresh.number;
    drop(fresh);
    sleep(200 * MS).await;
    let members = pool.stats().members;
    assert_eq!(
        (members.held, members.idle),
        (2, 1),
        "those held and the young"
    );
    assert_eq!(pool.try_take().unwrap().number, young);
    drop(held);
    sleep(3 * S).await;
    assert_eq!(pool.stats().members.idle, 2);
    let left = [(); 2].map(|()| pool.try_take().unwrap());
    assert!(left.iter().all(|held| numbers.contains(&held.number)));
    assert_eq!(pool.stats().retired_for(Retired::Idle), 8);
}

// A look at the pool while all are out must not make them ageless.
#[tokio::test(start_paused = true)]
async fn a_member_released_onto_an_empty_shelf_grows_old_there() {
    let rig = Rig::new(2);
    let pool = rig.open(ageing(0, 2, S));
    drop(pool.take().await.unwrap());
    let held = pool.take().await.unwrap();
    sleep(2 * S).await;
    assert_eq!(pool.stats().members.held, 1);
    drop(held);
    sleep(3 * S).await;
    assert_eq!((rig.live(), pool.stats().members.size()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_member_used_again_and_again_without_asking_is_young() {
    let rig = Rig::new(1);
    let pool = rig.open(ageing(0, 1, S));
    drop(pool.take().await.unwrap());
    for _ in 0..10 {
        sleep(600 * MS).await;
        assert_eq!(pool.try_take().unwrap().number, 0);
    }
    sleep(S + MS).await;
    assert_eq!(rig.live(), 0);
}

// S17, F7: ageing can be switched on.
#[tokio::test(start_paused = true)]
async fn a_change_makes_members_on_the_shelf_grow_old() {
    let rig = Rig::new(4);
    let mut set = options(4, 4);
    set.idle_age_max = None;
    let pool = rig.start(set).await;
    sleep(100 * S).await;
    assert_eq!(rig.live(), 4);
    pool.reconfigure(ageing(4, 4, 50 * MS)).unwrap();
    sleep(S).await;
    assert_eq!(rig.live(), 4, "that is the floor");
    pool.reconfigure(ageing(1, 4, 50 * MS)).unwrap();
    sleep(S).await;
    assert_eq!(rig.live(), 1);
}

fn living(life: Duration) -> PoolOptions {
    PoolOptions {
        life_max: Some(life),
        life_jitter: Duration::ZERO,
        idle_age_max: None,
        ..options(2, 2)
    }
}

// S19: by the timer, on release, never while held.
#[tokio::test(start_paused = true)]
async fn a_life_ends_on_the_shelf_or_at_the_release_but_not_in_somebodys_hands() {
    let rig = Rig::new(2);
    let pool = rig.start(living(S)).await;
    let held = pool.take().await.unwrap();
    let kept = held.number;
    sleep(2500 * MS).await;
    assert_eq!(rig.born(), 4, "the idle one was replaced twice");
    assert!(rig.stopped().iter().all(|(number, _)| *number != kept));
    drop(held);
    settle().await;
    assert_eq!(rig.born(), 5);
    assert!(rig.stopped().contains(&(kept, Retired::Aged)));
    assert_eq!(pool.stats().members.idle, 2);
}

// S19: reconfigured in all three directions.
#[tokio::test(start_paused = true)]
async fn lives_change_for_members_on_the_shelf_and_for_those_held() {
    let rig = Rig::new(2);
    let pool = rig.start(living(100 * S)).await;
    let held = pool.try_take().unwrap();
    sleep(2 * S).await;
    pool.reconfigure(living(S)).unwrap();
    sleep(10 * MS).await;
    assert_eq!(rig.stopped().len(), 1);
    drop(held);
    settle().await;
    assert_eq!(rig.stopped().len(), 2);
    let mut never = living(S);
    never.life_max = None;
    pool.reconfigure(never).unwrap();
    sleep(100 * S).await;
    assert_eq!(rig.born(), 4);
    pool.reconfigure(living(50 * S)).unwrap();
    sleep(10 * MS).await;
    assert_eq!(rig.born(), 6);
}

// S19: those started together do not end together.
#[tokio::test(start_paused = true)]
async fn chance_spreads_the_ends_of_lives() {
    let rig = Rig::new(8);
    let pool = rig.start(PoolOptions {
        life_max: Some(100 * S),
        life_jitter: 50 * S,
        idle_age_max: None,
        starts_max: 8,
        ..options(8, 8)
    });
    let _pool = pool.await;
    sleep(49 * S).await;
    assert_eq!(rig.born(), 8);
    let mut seen = Vec::new();
    for _ in 0..10 {
        sleep(10 * S).await;
        seen.push(rig.born());
    }
    seen.dedup();
    assert!(seen.len() > 3, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_spread_over_its_time_and_takes_held_ones_at_their_release() {
    let rig = Rig::new(4);
    let pool = rig.start(options(4, 4)).await;
    let held = pool.try_take().unwrap();
    pool.replace(400 * MS);
    let mut replaced = Vec::new();
    for _ in 0..4 {
        sleep(100 * MS).await;
        replaced.push(rig.stopped().len());
    }
    assert!(replaced.is_sorted() && replaced[0] >= 1 && replaced[0] < 3);
    assert_eq!(replaced[3], 3);
    drop(held);
    settle().await;
    assert_eq!((rig.stopped().len(), rig.live()), (4, 4));
    let all = rig.stopped();
    assert!(all.iter().all(|(_, why)| *why == Retired::Replaced));
    let held = pool.try_take().unwrap();
    assert_eq!(Held::about(&held).generation, 1);
}

// While the pool is suspended no take gets anything, not even from the idle
// cache.
#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_while_the_pool_is_suspended() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    drop(pool.try_take().unwrap());
    let held = pool.try_take().unwrap();
    pool.suspend();
    let refused = pool.try_take().unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Suspended);
    let mut take = pool.take();
    assert!(poll(&mut take).is_pending());
    drop(held);
    settle().await;
    assert!(poll(&mut take).is_pending());
    assert_eq!(pool.stats().members.idle, 2);
    pool.resume();
    assert!(poll(&mut take).is_ready());
    assert!(pool.try_take().is_ok());
}

// Whether the take had to ask or not.
#[tokio::test(start_paused = true)]
async fn every_take_is_counted_once() {
    let rig = Rig::new(2);
    let pool = rig.start(PoolOptions {
        check_after: Some(S),
        ..options(2, 2)
    });
    let pool = pool.await;
    let mut count = 0;
    for _ in 0..40 {
        drop(pool.take().await.unwrap());
        drop(pool.try_take().unwrap());
        count += 2;
    }
    let stats = pool.stats();
    assert_eq!((stats.takes.came, stats.takes.served), (count, count));
    assert_eq!(stats.takes.waits.len(), count);
    // Idle for so long that the machine has to look at them.
    sleep(2 * S).await;
    drop(pool.try_take().unwrap());
    sleep(2 * S).await;
    drop(pool.take().await.unwrap());
    count += 2;
    let stats = pool.stats();
    assert_eq!((stats.takes.came, stats.takes.served), (count, count));
    assert_eq!(stats.takes.waits.len(), count);
    assert!(!stats.holds.is_empty());
    assert_eq!(stats.members.idle, 2);
}

#[tokio::test(start_paused = true)]
async fn a_member_lost_on_the_shelf_is_replaced_without_a_take() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    let held = pool.try_take().unwrap();
    let (out, lying) = (held.number, 1 - held.number);
    rig.lose(lying);
    settle().await;
    assert_eq!(rig.stopped(), [(lying, Retired::Lost)]);
    rig.lose(out);
    settle().await;
    drop(held);
    settle().await;
    assert_eq!(rig.stopped().len(), 2);
    assert_eq!(pool.stats().members.idle, 2);
}
