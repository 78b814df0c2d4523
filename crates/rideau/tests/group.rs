//! Groups: a member from any of several pools.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "not every test file needs all of it")]
#[path = "stage/live.rs"]
mod live;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use live::{Live, LiveCount, Maker};
use rideau::{
    AskOptions, Clock, Group, GroupMethod, Held, NotTaken, Pool, PoolOptions, Reason, queue,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
const METHODS: [GroupMethod; 2] = [GroupMethod::Random, GroupMethod::BestOfTwo];

fn of(init: usize, max: usize) -> PoolOptions {
    PoolOptions {
        init,
        max,
        // No take is shed unless a test says so.
        queue: queue::Options::timeout(Duration::from_secs(3600)),
        ..PoolOptions::default()
    }
}

async fn pool(name: &'static str, size: usize) -> Pool<Maker> {
    let maker = Maker::of(name, &Arc::default());
    started(maker, of(size, size)).await
}

async fn started(maker: Maker, options: PoolOptions) -> Pool<Maker> {
    let pool = Pool::start_by(maker, options, &Clock::paused()).await;
    pool.unwrap()
}

async fn group(method: GroupMethod, names: &[&'static str], size: usize) -> Group<Maker> {
    let group = Group::new_by(method, &Clock::paused());
    for name in names {
        assert!(group.join(name, &pool(name, size).await).is_none());
    }
    group
}

fn waiter(
    group: &Group<Maker>,
    terms: AskOptions,
) -> JoinHandle<Result<Held<'static, Maker>, NotTaken>> {
    let group = group.clone();
    tokio::spawn(async move { group.take_on(terms).await })
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

fn waits(pools: &[(String, Pool<Maker>)]) -> usize {
    pools.iter().map(|(_, pool)| pool.stats().len()).sum()
}

#[tokio::test(start_paused = true)]
async fn s23_a_group_of_three_pools_of_four_lends_exactly_twelve() {
    for method in METHODS {
        let group = group(method, &["a", "b", "c"], 4).await;
        let mut held = Vec::new();
        for turn in 0..12 {
            held.push(match turn % 2 {
                0 => group.try_take().unwrap(),
                _ => group.take().await.unwrap(),
            });
        }
        assert_eq!(group.try_take().unwrap_err().refusal.reason, Reason::Busy);
        let mut of = BTreeMap::<&str, usize>::new();
        for live in &held {
            *of.entry(live.of).or_default() += 1;
        }
        assert!(of.into_values().eq([4, 4, 4]));
        drop(held.pop());
        drop(group.try_take().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn chance_asks_all_pools_alike() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let mut of = BTreeMap::<&str, usize>::new();
    for _ in 0..1_000 {
        *of.entry(group.take().await.unwrap().of).or_default() += 1;
    }
    assert!(
        of.values().all(|count| (350..650).contains(count)),
        "{of:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_better_of_two_is_the_idle_one() {
    let group = group(GroupMethod::BestOfTwo, &["a", "b"], 2).await;
    let pools = group.pools();
    let busy = [
        pools[0].1.take().await.unwrap(),
        pools[0].1.take().await.unwrap(),
    ];
    for _ in 0..100 {
        assert_eq!(group.take().await.unwrap().of, "b");
    }
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn s23_a_take_is_served_by_the_first_pool_that_can_and_leaves_the_others() {
    for method in METHODS {
        let group = group(method, &["a", "b", "c"], 1).await;
        let pools = group.pools();
        let mut held = BTreeMap::new();
        for _ in 0..3 {
            let member = group.take().await.unwrap();
            held.insert(member.of, member);
        }
        let waiting = waiter(&group, AskOptions::default());
        settle().await;
        assert_eq!(waits(&pools), 3, "it waits in all");
        drop(held.remove("b"));
        let served = waiting.await.unwrap().unwrap();
        assert_eq!(served.of, "b");
        assert_eq!(waits(&pools), 0, "and gave the other places up");
        // The others were not harmed.
        held.clear();
        assert_eq!(pools[0].1.try_take().unwrap().number, 0);
        assert_eq!(pools[2].1.try_take().unwrap().number, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_members_that_come_at_once_serve_two_takers() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let held = [group.take().await.unwrap(), group.take().await.unwrap()];
    let waiting = [
        waiter(&group, AskOptions::default()),
        waiter(&group, AskOptions::default()),
    ];
    settle().await;
    // Both pools grant their member to the first take, which wants only one.
    drop(held);
    let mut of = Vec::new();
    let mut members = Vec::new();
    for waiting in waiting {
        let member = waiting.await.unwrap().unwrap();
        of.push(member.of);
        members.push(member);
    }
    of.sort_unstable();
    assert_eq!(of, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_gives_every_place_up() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let pools = group.pools();
    let held = [group.take().await.unwrap(), group.take().await.unwrap()];
    let waiting = waiter(&group, AskOptions::default());
    settle().await;
    assert_eq!(waits(&pools), 2);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(waits(&pools), 0);
    drop(held);
    let _all = [group.try_take().unwrap(), group.try_take().unwrap()];
}

// F14: the closed pool is still in the group, so every take finds it and is refused there.
#[tokio::test(start_paused = true)]
async fn s23_a_closed_pool_is_passed_over_and_takes_go_elsewhere() {
    for method in METHODS {
        let group = group(method, &["a", "b"], 2).await;
        let pools = group.pools();
        let held = pools[1].1.take_owned(AskOptions::default()).await.unwrap();
        let other = pools[1].1.take_owned(AskOptions::default()).await.unwrap();
        let gone = [group.take().await.unwrap(), group.take().await.unwrap()];
        let waiting = waiter(&group, AskOptions::default());
        settle().await;
        // A take waits in it while it goes, with members out.
        let closing = pools[0].1.clone();
        let closed = tokio::spawn(async move { closing.close_now().await });
        settle().await;
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap().of, "b");
        for _ in 0..20 {
            assert_eq!(group.take().await.unwrap().of, "b");
            assert_eq!(group.try_take().unwrap().of, "b");
        }
        drop((gone, other));
        closed.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_pool_is_passed_over_while_others_can_serve() {
    let maker = Maker::of("down", &Arc::<LiveCount>::default());
    maker.fails.store(true, SeqCst);
    let fails = Arc::clone(&maker.fails);
    let down = Pool::new_by(maker, of(0, 4), &Clock::paused()).unwrap();
    for method in METHODS {
        let group = group(method, &["up"], 1).await;
        group.join("down", &down);
        for _ in 0..50 {
            assert_eq!(group.take().await.unwrap().of, "up");
        }
        // All are busy: it waits in both, and the pool that recovers first
        // serves it.
        let held = group.take().await.unwrap();
        let waiting = waiter(&group, AskOptions::default());
        sleep(SECOND).await;
        assert!(!waiting.is_finished());
        if method == GroupMethod::BestOfTwo {
            fails.store(false, SeqCst);
            assert_eq!(waiting.await.unwrap().unwrap().of, "down");
            continue;
        }
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap().of, "up");
    }
}

#[tokio::test(start_paused = true)]
async fn members_of_a_failing_pool_are_asked_for_last() {
    let maker = Maker::of("down", &Arc::<LiveCount>::default());
    let fails = Arc::clone(&maker.fails);
    let down = started(maker, of(1, 2)).await;
    fails.store(true, SeqCst);
    let held = down.take_owned(AskOptions::default()).await.unwrap();
    let second = tokio::spawn(down.take_owned(AskOptions::default()));
    sleep(5 * SECOND).await;
    second.abort();
    drop(held);
    settle().await;
    let group = group(GroupMethod::Random, &["up"], 1).await;
    group.join("down", &down);
    for _ in 0..50 {
        assert_eq!(group.take().await.unwrap().of, "up");
        assert_eq!(group.try_take().unwrap().of, "up");
    }
    let _up = group.take().await.unwrap();
    assert_eq!(group.take().await.unwrap().of, "down");
    assert_eq!(group.try_take().unwrap().of, "down");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_pool_serves_no_take_until_it_is_resumed() {
    let group = group(GroupMethod::BestOfTwo, &["a", "b"], 1).await;
    let pools = group.pools();
    pools[0].1.suspend();
    for _ in 0..50 {
        assert_eq!(group.take().await.unwrap().of, "b");
    }
    let held = group.take().await.unwrap();
    assert_eq!(group.try_take().unwrap_err().refusal.reason, Reason::Busy);
    let waiting = waiter(&group, AskOptions::default());
    settle().await;
    pools[0].1.resume();
    assert_eq!(waiting.await.unwrap().unwrap().of, "a");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_joins_serves_takes_that_wait_and_one_that_leaves_does_not() {
    let group = group(GroupMethod::Random, &["a"], 1).await;
    let held = group.take().await.unwrap();
    let waiting = waiter(&group, AskOptions::default());
    settle().await;
    let a = group.pools()[0].1.clone();
    let late = pool("late", 1).await;
    let taken = late.take().await.unwrap();
    group.join("late", &late);
    settle().await;
    assert_eq!((a.stats().len(), late.stats().len()), (1, 1));
    group.leave("a").unwrap();
    settle().await;
    assert_eq!((a.stats().len(), late.stats().len()), (0, 1));
    drop(held);
    settle().await;
    assert!(!waiting.is_finished());
    drop(taken);
    assert_eq!(waiting.await.unwrap().unwrap().of, "late");
}

#[tokio::test(start_paused = true)]
async fn a_late_pool_does_not_prolong_the_wait() {
    let group = group(GroupMethod::Random, &["a"], 1).await;
    let _held = group.take().await.unwrap();
    let begun = Instant::now();
    let terms = AskOptions {
        wait_max: Some(10 * SECOND),
        ..AskOptions::default()
    };
    let waiting = waiter(&group, terms);
    sleep(6 * SECOND).await;
    let late = pool("late", 1).await;
    let _taken = late.take().await.unwrap();
    group.join("late", &late);
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
    assert_eq!(no.refusal.waited, begun.elapsed());
    assert!(begun.elapsed() < 11 * SECOND);
    assert!(no.longest.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_group_without_pools_says_so_to_new_and_waiting_takes() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let _held = [group.take().await.unwrap(), group.take().await.unwrap()];
    let waiting = waiter(&group, AskOptions::default());
    settle().await;
    group.leave("a").unwrap();
    settle().await;
    assert!(!waiting.is_finished());
    group.leave("b").unwrap();
    assert!(group.leave("b").is_none());
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Nowhere);
    assert_eq!(
        group.take().await.unwrap_err().refusal.reason,
        Reason::Nowhere
    );
    let no = group.try_take().unwrap_err();
    assert!(no.to_string().starts_with("the group has no pool"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_take_is_answered_when_all_pools_close() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let pools = group.pools();
    let held = [group.take().await.unwrap(), group.take().await.unwrap()];
    let waiting = waiter(&group, AskOptions::default());
    settle().await;
    for (_, pool) in pools {
        tokio::spawn(async move { pool.close_now().await });
    }
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Closed);
    drop(held);
    let new = pool("new", 1).await;
    group.join("new", &new);
    assert_eq!(group.pools().len(), 1, "closed pools leave by the way");
    assert_eq!(group.take().await.unwrap().of, "new");
}

#[tokio::test(start_paused = true)]
async fn a_take_is_refused_only_when_every_pool_has_refused_it() {
    let narrow = started(
        Maker::of("narrow", &Arc::default()),
        PoolOptions {
            queue: queue::Options {
                max: Some(0),
                ..queue::Options::default()
            },
            ..of(1, 1)
        },
    );
    let narrow = narrow.await;
    let group = group(GroupMethod::Random, &["wide"], 1).await;
    group.join("narrow", &narrow);
    let held = [group.take().await.unwrap(), group.take().await.unwrap()];
    let terms = AskOptions {
        wait_max: Some(SECOND),
        ..AskOptions::default()
    };
    let waiting = waiter(&group, terms);
    settle().await;
    assert!(!waiting.is_finished(), "one pool is full, the other is not");
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Deadline);
    assert_eq!(no.refusal.waited, SECOND);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_member_knows_its_pool() {
    let group = group(GroupMethod::Random, &["a", "b"], 1).await;
    let held = group.take().await.unwrap();
    let of = held.of;
    let pool = Held::pool(&held);
    Held::fail(held);
    let retired: u64 = pool.stats().retired.iter().sum();
    assert_eq!(retired, 1);
    let live: &Live = &pool.take().await.unwrap();
    assert_eq!((live.of, live.number), (of, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_takers_on_few_pools_are_all_served_and_caps_hold() {
    let live_count = Arc::<LiveCount>::default();
    for method in METHODS {
        let group = Group::new(method);
        for name in ["a", "b", "c"] {
            let pool = Pool::new(Maker::of(name, &live_count), of(0, 2)).unwrap();
            group.join(name, &pool);
        }
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let group = group.clone();
                tokio::spawn(async move {
                    for turn in 0..100 {
                        let held = group.take().await.unwrap();
                        if (number + turn) % 7 == 0 {
                            yield_now().await;
                        }
                        drop(held);
                    }
                })
            })
            .collect();
        for task in tasks {
            let limit = tokio::time::timeout(60 * SECOND, task);
            limit.await.expect("nothing hangs").unwrap();
        }
        assert_eq!(waits(&group.pools()), 0);
        for (_, pool) in group.pools() {
            pool.close_now().await;
        }
        assert!(live_count.most() <= 6 && live_count.live() == 0);
    }
}
