//! The registry: pools by name that come and go.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "not every test file needs all of it")]
#[path = "stage/live.rs"]
mod live;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use live::{LiveCount, Maker};
use rideau::{AddError, AskOptions, Clock, Held, NoSuchPool, Pool, PoolOptions, Reason, Registry};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn of(init: usize, max: usize) -> PoolOptions {
    PoolOptions {
        init,
        max,
        ..PoolOptions::default()
    }
}

fn add(
    registry: &Registry<Maker>,
    name: &str,
    maker: Maker,
    options: PoolOptions,
) -> Result<Pool<Maker>, AddError> {
    registry.add_by(name, maker, options, &Clock::paused())
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_name_stands_for_one_pool_and_an_unknown_one_is_an_error_value() {
    let live_count = Arc::<LiveCount>::default();
    let registry = Registry::new();
    let maker = || Maker::of("a", &live_count);
    let pool = registry.add("a", maker(), of(1, 1)).unwrap();
    settle().await;
    let again = registry.add("a", maker(), of(1, 1)).unwrap_err();
    assert_eq!(again, AddError::Taken("a".into()));
    let again = registry.add_pool("a", &pool).unwrap_err();
    assert_eq!(
        again.to_string(),
        "there is a pool named `a` already; remove it first, or choose another name"
    );
    settle().await;
    assert_eq!(live_count.made(), 1, "a name that is taken starts nothing");
    let invalid = registry.add("b", maker(), of(0, 0)).unwrap_err();
    assert!(matches!(invalid, AddError::Option(_)));

    registry.add_pool("b", &pool).unwrap();
    assert_eq!(registry.names(), ["a", "b"]);
    assert_eq!(registry.stats()[1].1.max, 1);
    assert!(registry.get("c").is_none());
    let unknown = NoSuchPool("c".into());
    assert_eq!(registry.remove_now("c").err(), Some(unknown.clone()));
    assert_eq!(registry.suspend("c"), Err(unknown.clone()));
    assert_eq!(registry.replace("c", SECOND), Err(unknown));
}

#[tokio::test(start_paused = true)]
async fn s24_a_graceful_removal_ends_with_the_last_member_that_comes_back() {
    let live_count = Arc::<LiveCount>::default();
    let registry = Registry::new();
    let pool = add(&registry, "a", Maker::of("a", &live_count), of(3, 3)).unwrap();
    settle().await;
    let (one, other) = (pool.take().await.unwrap(), pool.take().await.unwrap());
    let waits = tokio::spawn(registry.remove("a", 60 * SECOND).unwrap());
    settle().await;
    assert_eq!(live_count.live(), 2, "what is idle is stopped at once");
    assert!(pool.take().await.is_err() && registry.get("a").is_none());
    assert!(!Held::is_revoked(&one) && !waits.is_finished());
    drop(one);
    settle().await;
    assert!(live_count.live() == 1 && !waits.is_finished());
    drop(other);
    waits.await.unwrap();
    assert_eq!(live_count.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_removal_refuses_waiting_takes_at_once_and_revokes_at_its_deadline() {
    let live_count = Arc::<LiveCount>::default();
    let maker = Maker::of("a", &live_count);
    let aborts = Arc::clone(&maker.aborts);
    let registry = Registry::new();
    let pool = add(&registry, "a", maker, of(1, 1)).unwrap();
    let held = pool.take().await.unwrap();
    let waiting = tokio::spawn(pool.take_owned(AskOptions::default()));
    settle().await;
    let removal = Instant::now();
    // No task has to wait for it.
    drop(registry.remove("a", SECOND).unwrap());
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Closed);
    assert_eq!(removal.elapsed(), Duration::ZERO);
    assert_eq!(aborts.load(SeqCst), 0);
    Held::revoked(&held).await;
    assert_eq!(removal.elapsed(), SECOND);
    assert_eq!(aborts.load(SeqCst), 1);
    drop(held);
    registry.close(SECOND).await;
    assert_eq!(live_count.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn s25_an_immediate_removal_aborts_and_tells_and_leaves_nothing() {
    let live_count = Arc::<LiveCount>::default();
    let maker = Maker::of("a", &live_count);
    let aborts = Arc::clone(&maker.aborts);
    let registry = Registry::new();
    let pool = add(&registry, "a", maker, of(2, 2)).unwrap();
    let held = pool.take_owned(AskOptions::default()).await.unwrap();
    drop(pool);
    let removed = registry.remove_now("a").unwrap();
    assert!(Held::is_revoked(&held));
    assert_eq!(aborts.load(SeqCst), 1);
    let holder = tokio::spawn(async move {
        Held::revoked(&held).await;
        drop(held);
    });
    removed.await;
    holder.await.unwrap();
    assert_eq!(live_count.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_not_awaited_still_stops_members_in_good_order() {
    let live_count = Arc::<LiveCount>::default();
    let maker = Maker {
        stop: SECOND,
        ..Maker::of("a", &live_count)
    };
    let registry = Registry::new();
    add(&registry, "a", maker, of(2, 2)).unwrap();
    settle().await;
    drop(registry.remove("a", SECOND).unwrap());
    sleep(SECOND / 2).await;
    assert_eq!(live_count.live(), 2, "the stops take their time");
    sleep(SECOND).await;
    assert_eq!(live_count.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn s26_a_name_is_free_while_its_old_pool_closes_and_late_starts_are_destroyed() {
    let (old, new) = (Arc::<LiveCount>::default(), Arc::<LiveCount>::default());
    let slow = Maker {
        start: 10 * SECOND,
        ..Maker::of("old", &old)
    };
    let registry = Registry::new();
    let before = add(&registry, "a", slow, of(1, 2)).unwrap();
    settle().await;
    assert_eq!(old.live(), 1, "a start is under way");
    let removed = registry.remove("a", SECOND).unwrap();
    let maker = Maker::of("new", &new);
    let after = add(&registry, "a", maker, of(1, 2)).unwrap();
    removed.await;
    sleep(20 * SECOND).await;
    assert_eq!(old.live(), 0, "what came late was destroyed");
    assert!(before.try_take().is_err());
    assert_eq!(after.take().await.unwrap().of, "new");
    assert_eq!(registry.get("a").unwrap().try_take().unwrap().of, "new");
    assert_eq!(new.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn pools_are_suspended_resumed_and_replaced_by_name() {
    let live_count = Arc::<LiveCount>::default();
    let registry = Registry::new();
    let pool = add(&registry, "a", Maker::of("a", &live_count), of(1, 1)).unwrap();
    let first = pool.take().await.unwrap().number;
    registry.suspend("a").unwrap();
    let no = pool.try_take().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Suspended);
    registry.resume("a").unwrap();
    assert_eq!(pool.take().await.unwrap().number, first);
    registry.replace("a", Duration::ZERO).unwrap();
    assert_ne!(pool.take().await.unwrap().number, first);
    registry.close(SECOND).await;
    assert!(registry.names().is_empty() && live_count.live() == 0);
}
