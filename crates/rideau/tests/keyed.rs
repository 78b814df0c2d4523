//! Keyed pools: a limit for each key, and one over all.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "not every test file needs all of it")]
#[path = "stage/live.rs"]
mod live;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use live::{LiveCount, Maker};
use rideau::{
    AskOptions, Clock, Held, KeyedOptions, KeyedPool, NotTaken, PoolOptions, Reason, Retired, queue,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

type Pools = KeyedPool<&'static str, Maker>;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn options(max: usize, each: usize) -> KeyedOptions {
    KeyedOptions {
        max,
        turn: 100 * MILLI,
        each: PoolOptions {
            max: each,
            // No take is shed unless a test says so.
            queue: queue::Options::timeout(Duration::from_secs(3600)),
            ..PoolOptions::default()
        },
    }
}

fn pools(live_count: &Arc<LiveCount>, options: KeyedOptions) -> Pools {
    let live_count = Arc::clone(live_count);
    let maker = move |key: &&'static str| Maker::of(key, &live_count);
    KeyedPool::new_by(maker, options, &Clock::paused()).unwrap()
}

fn waiter(pools: &Pools, key: &'static str) -> JoinHandle<Result<Held<'static, Maker>, NotTaken>> {
    let pools = pools.clone();
    tokio::spawn(async move { pools.take(&key).await })
}

async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

fn keys(pools: &Pools) -> Vec<&'static str> {
    let mut keys = pools.keys();
    keys.sort_unstable();
    keys
}

/// Members of each key, whatever they do.
fn sizes(pools: &Pools) -> BTreeMap<&'static str, usize> {
    let stats = pools.stats().into_iter();
    stats
        .map(|(key, stats)| (key, stats.members.size()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_key_has_members_of_its_own_up_to_its_limit() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(10, 2));
    let a = [
        pools.take(&"a").await.unwrap(),
        pools.take(&"a").await.unwrap(),
    ];
    let b = pools.take(&"b").await.unwrap();
    assert!(a.iter().all(|member| member.of == "a") && b.of == "b");
    let third = waiter(&pools, "a");
    settle().await;
    assert!(!third.is_finished());
    assert_eq!(live_count.live(), 3);
    let [one, other] = a;
    let number = one.number;
    drop(one);
    assert_eq!(third.await.unwrap().unwrap().number, number);
    drop(other);
    assert_eq!(keys(&pools), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn the_member_that_is_idle_longest_of_all_makes_room() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(4, 4));
    // Taken as a, b, c, c and released as b, c, a, c.
    let a = pools.take(&"a").await.unwrap();
    let b = pools.take(&"b").await.unwrap();
    let (c, d) = (
        pools.take(&"c").await.unwrap(),
        pools.take(&"c").await.unwrap(),
    );
    for member in [b, c, a, d] {
        drop(member);
        sleep(10 * MILLI).await;
    }
    let mut held = Vec::new();
    let mut left = Vec::new();
    for key in ["w", "x", "y", "z"] {
        held.push(pools.take(&key).await.unwrap());
        settle().await;
        left.push(keys(&pools).concat());
        assert_eq!(live_count.live(), 4);
    }
    assert_eq!(left, ["acw", "acwx", "cwxy", "wxyz"]);
    assert_eq!(live_count.most(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_used_just_now_without_any_lock_is_not_the_longest_idle() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 2));
    drop(pools.take(&"a").await.unwrap());
    sleep(10 * MILLI).await;
    drop(pools.take(&"b").await.unwrap());
    sleep(10 * MILLI).await;
    drop(pools.try_take(&"a").unwrap());
    let _c = pools.take(&"c").await.unwrap();
    settle().await;
    assert_eq!(keys(&pools), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_finds_nothing_to_evict_waits_for_the_first_that_is_idle() {
    let live_count = Arc::default();
    let slow = 3600 * SECOND;
    let pools = pools(
        &live_count,
        KeyedOptions {
            turn: slow,
            ..options(2, 2)
        },
    );
    let a = pools.take(&"a").await.unwrap();
    let b = pools.take(&"b").await.unwrap();
    let waiting = waiter(&pools, "c");
    sleep(SECOND).await;
    assert!(!waiting.is_finished() && live_count.live() == 2);
    drop(b);
    assert_eq!(waiting.await.unwrap().unwrap().of, "c");
    assert_eq!(live_count.most(), 2);
    drop(a);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_left_the_line_costs_no_other_key_a_member() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(1, 1));
    let a = pools.take(&"a").await.unwrap();
    let number = a.number;
    let waiting = waiter(&pools, "b");
    settle().await;
    assert_eq!(keys(&pools), ["a", "b"]);
    waiting.abort();
    settle().await;
    assert_eq!(keys(&pools), ["a"], "no take waits for it any more");
    drop(a);
    assert_eq!(pools.take(&"a").await.unwrap().number, number);
    assert_eq!(live_count.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_not_free_before_the_evicted_member_is_really_gone() {
    let live_count = Arc::<LiveCount>::default();
    let counted = Arc::clone(&live_count);
    let slow = move |key: &&'static str| Maker {
        start: SECOND,
        stop: SECOND,
        ..Maker::of(key, &counted)
    };
    let pools: Pools = KeyedPool::new_by(slow, options(1, 1), &Clock::paused()).unwrap();
    let begun = Instant::now();
    drop(pools.take(&"a").await.unwrap());
    assert_eq!(begun.elapsed(), SECOND);
    drop(pools.take(&"b").await.unwrap());
    assert_eq!(begun.elapsed(), 3 * SECOND, "a stop, and then a start");
    assert_eq!(live_count.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_members_and_waiters_is_forgotten_and_may_come_back() {
    let live_count = Arc::default();
    let mut options = options(5, 2);
    options.each.idle_age_max = Some(SECOND);
    let pools = pools(&live_count, options);
    for key in ["a", "b", "c"] {
        drop(pools.take(&key).await.unwrap());
    }
    Held::fail(pools.take(&"b").await.unwrap());
    settle().await;
    assert_eq!(keys(&pools), ["a", "c"]);
    sleep(2 * SECOND).await;
    settle().await;
    assert!(keys(&pools).is_empty() && live_count.live() == 0);
    assert_eq!(pools.take(&"a").await.unwrap().of, "a");
    assert_eq!(keys(&pools), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_that_come_once_leave_nothing_but_what_is_idle() {
    const NAMES: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    let live_count = Arc::default();
    let pools = pools(&live_count, options(5, 1));
    for turn in 0..1_000 {
        let (at, len) = (turn % 26, 1 + turn / 26 % 20);
        let key = &NAMES[at..at + len];
        drop(pools.take(&key).await.unwrap());
    }
    settle().await;
    assert_eq!(keys(&pools).len(), 5);
    assert_eq!((live_count.live(), live_count.most()), (5, 5));
}

/// Take a key's members over and over with this many tasks.
fn hog(pools: &Pools, key: &'static str, tasks: usize) -> Vec<JoinHandle<()>> {
    let one = |_| {
        let pools = pools.clone();
        tokio::spawn(async move {
            loop {
                let held = pools.take(&key).await.unwrap();
                sleep(10 * MILLI).await;
                drop(held);
            }
        })
    };
    (0..tasks).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_always_busy_does_not_starve_the_others() {
    for max in [1, 2, 4] {
        let live_count = Arc::default();
        let pools = pools(&live_count, options(max, 8));
        let hogs = hog(&pools, "hog", 20);
        sleep(SECOND).await;
        assert_eq!(sizes(&pools)["hog"], max);
        for turn in 0..5 {
            let begun = Instant::now();
            drop(pools.take(&"late").await.unwrap());
            let waited = begun.elapsed();
            assert!(waited < SECOND, "{waited:?} in turn {turn} of {max}");
            sleep(SECOND).await;
        }
        assert!(live_count.most() <= max);
        hogs.into_iter().for_each(|hog| hog.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn more_busy_keys_than_members_take_turns() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 2));
    let names = ["a", "b", "c", "d", "e"];
    let hogs: Vec<_> = names.iter().flat_map(|key| hog(&pools, key, 3)).collect();
    sleep(60 * SECOND).await;
    let served: Vec<u64> = {
        let stats = pools.stats().into_iter();
        // What was served by pools that were forgotten meanwhile is not known:
        // none of these ever is, for a take always waits.
        stats.map(|(_, stats)| stats.takes.served).collect()
    };
    assert_eq!(served.len(), names.len());
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(*least > 500 && most < &(2 * least), "{served:?}");
    // A turn is a turn: not a start for each take.
    let takes: u64 = served.iter().sum();
    assert!(live_count.made() < takes as usize / 5, "{takes}");
    assert_eq!(live_count.most(), 2);
    hogs.into_iter().for_each(|hog| hog.abort());
}

#[tokio::test(start_paused = true)]
async fn busy_keys_end_up_with_equal_shares() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(6, 6));
    let first = hog(&pools, "a", 20);
    sleep(SECOND).await;
    let others = [hog(&pools, "b", 20), hog(&pools, "c", 20)];
    sleep(3 * SECOND).await;
    assert!(sizes(&pools).into_values().eq([2, 2, 2]));
    first.into_iter().for_each(|hog| hog.abort());
    sleep(SECOND).await;
    let sizes = sizes(&pools);
    assert_eq!(
        (sizes["b"], sizes["c"]),
        (3, 3),
        "what is idle goes to the busy"
    );
    assert_eq!(live_count.most(), 6);
    others.into_iter().flatten().for_each(|hog| hog.abort());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_never_given_back_does_not_block_the_others() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 2));
    let _for_ever = pools.take(&"a").await.unwrap();
    let hogs = hog(&pools, "b", 3);
    sleep(SECOND).await;
    for _ in 0..3 {
        drop(pools.take(&"c").await.unwrap());
        sleep(SECOND).await;
    }
    hogs.into_iter().for_each(|hog| hog.abort());
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_starts_fail_keeps_no_room_from_the_others() {
    let live_count = Arc::<LiveCount>::default();
    let counted = Arc::clone(&live_count);
    let maker = move |key: &&'static str| {
        let maker = Maker::of(key, &counted);
        maker.fails.store(*key == "down", SeqCst);
        maker
    };
    let pools: Pools = KeyedPool::new_by(maker, options(1, 1), &Clock::paused()).unwrap();
    let down = waiter(&pools, "down");
    sleep(SECOND).await;
    for _ in 0..100 {
        drop(pools.take(&"up").await.unwrap());
        sleep(10 * MILLI).await;
    }
    assert!(!down.is_finished() && live_count.most() == 1);
    down.abort();
    settle().await;
    assert_eq!(pools.take(&"up").await.unwrap().of, "up");
}

#[tokio::test(start_paused = true)]
async fn a_take_that_does_not_wait_has_more_luck_the_next_time() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(1, 1));
    drop(pools.take(&"a").await.unwrap());
    let no = pools.try_take(&"b").unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Busy);
    settle().await;
    assert_eq!(pools.try_take(&"b").unwrap().of, "b");
    assert_eq!((keys(&pools), live_count.most()), (vec!["b"], 1));
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_is_kept_as_members_become_idle() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(4, 4));
    let mut held = Vec::new();
    for key in ["a", "a", "b", "c"] {
        held.push(pools.take(&key).await.unwrap());
    }
    pools.reconfigure(options(2, 4)).unwrap();
    assert_eq!(pools.options().max, 2);
    settle().await;
    assert_eq!(live_count.live(), 4, "no holder loses its members");
    while let Some(member) = held.pop() {
        drop(member);
        settle().await;
        assert_eq!(live_count.live(), held.len().max(2));
    }
    pools.reconfigure(options(3, 4)).unwrap();
    let _more = [
        pools.take(&"d").await.unwrap(),
        pools.take(&"d").await.unwrap(),
    ];
    assert_eq!(live_count.live(), 3);
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_all_and_ends_with_the_last_member() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 1));
    let held = pools.take(&"a").await.unwrap();
    drop(pools.take(&"b").await.unwrap());
    let waiting = waiter(&pools, "a");
    settle().await;
    let closing = pools.clone();
    let closed = tokio::spawn(async move { closing.close(SECOND).await });
    let no = waiting.await.unwrap().unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Closed);
    for key in ["a", "new"] {
        let no = pools.take(&key).await.unwrap_err();
        assert_eq!(no.refusal.reason, Reason::Closed);
    }
    settle().await;
    assert!(!closed.is_finished() && live_count.live() == 1);
    Held::revoked(&held).await;
    drop(held);
    closed.await.unwrap();
    settle().await;
    assert!(live_count.live() == 0 && keys(&pools).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_closed_says_so_until_it_is_gone_and_then_comes_back() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 1));
    let held = pools.take(&"a").await.unwrap();
    let pool = Held::pool(&held);
    let closing = tokio::spawn(async move { pool.close(SECOND).await });
    settle().await;
    let no = pools.take(&"a").await.unwrap_err();
    assert_eq!(no.refusal.reason, Reason::Closed);
    drop(held);
    closing.await.unwrap();
    settle().await;
    assert_eq!(pools.take(&"a").await.unwrap().of, "a");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_member_is_counted_as_surplus() {
    let live_count = Arc::default();
    let pools = pools(&live_count, options(2, 2));
    let both = [
        pools.take(&"a").await.unwrap(),
        pools.take(&"a").await.unwrap(),
    ];
    drop(both);
    let _b = pools.take(&"b").await.unwrap();
    let stats: BTreeMap<_, _> = pools.stats().into_iter().collect();
    assert_eq!(stats["a"].retired_for(Retired::Surplus), 1);
}

#[tokio::test]
async fn options_that_start_members_ahead_of_need_are_refused() {
    let live_count = Arc::<LiveCount>::default();
    let refused = |change: fn(&mut KeyedOptions)| {
        let mut options = options(2, 2);
        change(&mut options);
        let maker = Maker::of("a", &live_count);
        let pools = KeyedPool::new(move |_: &u8| maker.clone(), options);
        pools.unwrap_err().option
    };
    assert_eq!(refused(|options| options.each.init = 1), "each.init");
    assert_eq!(
        refused(|options| options.each.idle_min = 1),
        "each.idle_min"
    );
    assert_eq!(
        refused(|options| options.each.grow_at = Some(1)),
        "each.grow_at"
    );
    assert_eq!(refused(|options| options.each.max = 0), "each.max");
    assert_eq!(refused(|options| options.max = 0), "max");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_limits_hold_exactly_under_random_load_from_many_threads() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let live_count = Arc::<LiveCount>::default();
    let of_key: BTreeMap<_, Arc<LiveCount>> = NAMES.map(|key| (key, Arc::default())).into();
    let (counted, of_keys) = (Arc::clone(&live_count), of_key.clone());
    let maker = move |key: &&'static str| Maker {
        stop: MILLI,
        start: MILLI,
        also: Some(Arc::clone(&of_keys[key])),
        ..Maker::of(key, &counted)
    };
    let mut options = options(4, 3);
    options.turn = 5 * MILLI;
    let pools: Pools = KeyedPool::new(maker, options).unwrap();
    let tasks: Vec<_> = (0..24_u64)
        .map(|seed| {
            let pools = pools.clone();
            tokio::spawn(async move {
                let mut rng = rideau_core::Rng::new(seed);
                for _ in 0..40 {
                    let key = NAMES[rng.below(6) as usize];
                    if rng.below(8) == 0 {
                        let limit = Duration::from_micros(rng.below(3_000));
                        drop(tokio::time::timeout(limit, pools.take(&key)).await);
                        continue;
                    }
                    let held = pools.take_on(&key, AskOptions::default()).await.unwrap();
                    match rng.below(10) {
                        0 => Held::fail(held),
                        1 => sleep(MILLI).await,
                        _ => yield_now().await,
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        let limit = tokio::time::timeout(60 * SECOND, task);
        limit.await.expect("nothing hangs").unwrap();
    }
    assert!(live_count.most() <= 4, "{} of at most 4", live_count.most());
    assert!(of_key.values().all(|of| of.most() <= 3));
    pools.close(SECOND).await;
    assert_eq!(live_count.live(), 0);
    assert!(live_count.made() > 20);
}
