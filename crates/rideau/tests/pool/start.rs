//! Starts: slow, failing, hanging and panicking ones.

use std::error::Error;

use rideau::{
    AskOptions, Backoff, Circuit, Clock, Held, Pool, PoolOptions, Reason, Retired, StartError,
    StartFault, valve,
};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Act, MS, Rig, S, options, settle};
use crate::take::poll;

fn impatient() -> PoolOptions {
    PoolOptions {
        backoff: Backoff {
            first: 10 * MS,
            max: 40 * MS,
            failures: 3,
        },
        ..options(0, 2)
    }
}

// S12, F3: the limit is kept to the millisecond.
#[tokio::test(start_paused = true)]
async fn a_start_over_its_limit_fails_and_one_below_it_does_not() {
    let rig = Rig::new(1);
    let limit = |limit| PoolOptions {
        start_timeout: limit,
        ..options(0, 1)
    };
    rig.on_next_starts([Act::After(15 * MS)]);
    let pool = rig.open(limit(10 * MS));
    let begun = Instant::now();
    let held = pool.take().await.unwrap();
    assert!(begun.elapsed() > 10 * MS, "the first start was in vain");
    assert_eq!((held.number, pool.stats().starts_failed), (0, 1));
    drop(held);
    drop(pool);
    settle().await;
    assert_eq!(rig.live(), 0);

    rig.on_next_starts([Act::After(50 * MS)]);
    let pool = rig.open(limit(900 * MS));
    let held = pool.take().await.unwrap();
    assert_eq!(Held::waited(&held), 50 * MS);
}

// S12, F4: what is made too late is never lent.
#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_is_given_up_and_the_next_one_serves() {
    let rig = Rig::new(1);
    rig.on_next_starts([Act::Hang]);
    let pool = rig.open(PoolOptions {
        start_timeout: S,
        ..options(1, 1)
    });
    let held = pool.take().await.unwrap();
    assert!(Held::waited(&held) >= S);
    assert_eq!((rig.live(), rig.born()), (1, 1));
}

// S13, F9.
#[tokio::test(start_paused = true)]
async fn a_waiting_take_is_served_soon_after_starting_works_again() {
    let rig = Rig::new(2);
    rig.on_start(Act::Fail);
    let pool = rig.open(impatient());
    let taking = tokio::spawn(pool.take_owned(AskOptions {
        wait_max: Some(3 * S),
        ..AskOptions::default()
    }));
    sleep(200 * MS).await;
    assert!(matches!(pool.stats().circuit, Circuit::Open { .. }));
    rig.on_start(Act::Go);
    let held = taking.await.unwrap().unwrap();
    let waited = Held::waited(&held);
    assert!(200 * MS <= waited && waited <= 241 * MS, "{waited:?}");
    assert_eq!(pool.stats().circuit, Circuit::Closed);
}

// S14, P7: no take is needed for it.
#[tokio::test(start_paused = true)]
async fn a_pool_refills_by_itself_after_an_outage() {
    let rig = Rig::new(3);
    let pool = rig.start(PoolOptions {
        init: 3,
        max: 3,
        ..impatient()
    });
    let pool = pool.await;
    rig.on_start(Act::Fail);
    (0..3).for_each(|number| rig.lose(number));
    sleep(500 * MS).await;
    assert_eq!((rig.live(), pool.stats().members.size()), (0, 0));
    rig.on_start(Act::Go);
    sleep(100 * MS).await;
    assert_eq!((rig.live(), pool.stats().members.idle), (3, 3));
    assert_eq!(pool.stats().retired_for(Retired::Lost), 3);
}

// S15, F8.
#[tokio::test(start_paused = true)]
async fn members_start_side_by_side_up_to_a_limit() {
    let rig = Rig::new(8);
    rig.on_start(Act::After(200 * MS));
    let begun = Instant::now();
    let pool = rig.start(options(4, 8)).await;
    assert_eq!(begun.elapsed(), 200 * MS);
    assert_eq!(rig.starts_max(), 4);
    let takes: Vec<_> = (0..8)
        .map(|_| tokio::spawn(pool.take_owned(AskOptions::default())))
        .collect();
    for take in takes {
        let held = take.await.unwrap().unwrap();
        // Kept until all have theirs.
        tokio::spawn(async move {
            sleep(S).await;
            drop(held);
        });
    }
    assert_eq!(begun.elapsed(), 400 * MS);
    assert_eq!(rig.starts_max(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_panics_or_is_lost_at_once_costs_one_try() {
    let rig = Rig::new(1);
    rig.on_next_starts([Act::Panic, Act::Fail]);
    let pool = rig.open(impatient());
    let held = pool.take().await.unwrap();
    assert_eq!(held.number, 0);
    let stats = pool.stats();
    assert_eq!((stats.starts_failed, stats.members.held), (2, 1));
}

// A time-out, a panic and the end of the runtime are told apart.
#[tokio::test(start_paused = true)]
async fn a_start_that_comes_to_no_end_says_why() {
    for (act, expected) in [
        (Act::Hang, StartFault::TimedOut(S)),
        (Act::Panic, StartFault::Panicked("as it was told".into())),
    ] {
        let rig = Rig::new(1);
        rig.on_start(act);
        let pool = rig.open(PoolOptions {
            start_timeout: S,
            ..impatient()
        });
        let refused = pool.take_on(AskOptions::within(60 * S)).await.unwrap_err();
        let error = refused.start_error.as_ref().unwrap();
        assert_eq!(error.downcast_ref(), Some(&expected));
        assert!(refused.to_string().contains(&expected.to_string()));
    }
}

#[test]
fn a_start_whose_runtime_has_ended_says_so() {
    let rig = Rig::new(1);
    rig.on_start(Act::Hang);
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_time().build().unwrap();
    let on = runtime.handle().clone();
    let pool = Pool::new_on(
        on,
        rig.told(),
        PoolOptions {
            fail_fast: true,
            ..impatient()
        },
    );
    let pool = pool.unwrap();
    drop(runtime);
    let refused = pool.take_blocking(AskOptions::default()).unwrap_err();
    let error = refused.start_error.as_ref().unwrap();
    assert_eq!(error.downcast_ref(), Some(&StartFault::RuntimeEnded));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_pool_and_the_line_of_the_holder() {
    let rig = Rig::new(1);
    let pool = Pool::named("db", rig.told(), options(0, 1)).unwrap();
    assert_eq!(pool.name(), Some("db"));
    let line = line!() + 1;
    let held = pool.take().await.unwrap();
    let refused = pool.try_take().unwrap_err();
    assert_eq!(refused.pool.as_deref(), Some("db"));
    let at = refused.longest.as_ref().unwrap().taken_at.unwrap();
    assert_eq!((at.file(), at.line()), (file!(), line));
    let text = refused.to_string();
    assert!(text.starts_with("pool `db`: "), "{text}");
    assert!(
        text.contains(&format!("start.rs:{line} has held member 1")),
        "{text}"
    );
    drop(held);

    // The line is that of the taker, also where a group or a task takes.
    let group = rideau::Group::new(rideau::GroupMethod::Random);
    group.join("db", &pool);
    let line = line!() + 1;
    let held = group.take().await.unwrap();
    let holders = pool.holders();
    assert_eq!(holders[0].taken_at.unwrap().line(), line);
    drop(held);
    let line = line!() + 1;
    let with = pool.with(AskOptions::default(), async |_| Ok::<_, ()>(pool.holders()));
    let holders = with.await.unwrap().unwrap();
    assert_eq!(holders[0].taken_at.unwrap().line(), line);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_why_members_cannot_be_started() {
    let rig = Rig::new(1);
    rig.on_start(Act::Fail);
    let pool = rig.open(impatient());
    let terms = AskOptions {
        wait_max: Some(100 * MS),
        ..AskOptions::default()
    };
    let refused = pool.take_on(terms).await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Deadline);
    let why = refused.start_error.as_ref().unwrap().to_string();
    assert_eq!(why, "the server is away");
    assert_eq!(refused.to_string().matches(&why).count(), 1);
    assert!(refused.source().is_none(), "its words are among ours");
    assert!(pool.explain().contains("the server is away"));

    rig.on_start(Act::Go);
    let held = pool.take().await.unwrap();
    let refused = pool.try_take().unwrap_err();
    assert!(refused.start_error.is_none(), "that is over");
    drop(held);
}

// A start that is not wanted any more did not fail.
#[tokio::test(start_paused = true)]
async fn a_start_that_was_called_off_is_nobodys_error() {
    let rig = Rig::new(2);
    let pool = rig.start(options(1, 2)).await;
    let held = pool.take().await.unwrap();
    rig.on_start(Act::Hang);
    assert!(pool.try_take().is_err());
    assert_eq!(pool.stats().members.starting, 1);
    rig.on_start(Act::Go);
    pool.reconfigure(options(1, 1)).unwrap();
    settle().await;
    let stats = pool.stats();
    assert_eq!((stats.members.size(), stats.starts_failed), (1, 0));
    let refused = pool.try_take().unwrap_err();
    assert!(refused.start_error.is_none(), "{refused}");
    assert!(!pool.explain().contains("failed"), "{}", pool.explain());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_does_not_want_to_wait_for_a_dead_server_is_told_at_once() {
    let rig = Rig::new(1);
    rig.on_start(Act::Fail);
    let pool = rig.open(PoolOptions {
        fail_fast: true,
        ..impatient()
    });
    let refused = pool.take().await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Starting);
    assert!(refused.start_error.is_some());
    let again = pool.take();
    let begun = Instant::now();
    assert_eq!(again.await.unwrap_err().refusal.reason, Reason::Starting);
    assert!(begun.elapsed().is_zero());
    rig.on_start(Act::Go);
    for _ in 0..100 {
        if pool.take().await.is_ok() {
            return;
        }
        sleep(10 * MS).await;
    }
    panic!("the pool never noticed that the server is back");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_start_says_so() {
    let rig = Rig::new(2);
    rig.on_next_starts([Act::After(5 * MS), Act::FailAfter(20 * MS)]);
    let failed = Pool::start_by(rig.told(), options(2, 2), &Clock::paused()).await;
    let Err(StartError::Start(error)) = failed else {
        panic!("the second start failed");
    };
    assert_eq!(error.to_string(), "the server is away");
    settle().await;
    assert_eq!(rig.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_a_valve_keeps_small_starts_with_as_many() {
    let rig = Rig::new(2);
    rig.on_start(Act::After(5 * MS));
    let valve = valve::Options::Open(valve::Open { max: 2 });
    let regulated = PoolOptions {
        valve: Some(valve),
        ..options(4, 8)
    };
    let pool = timeout(S, rig.start(regulated)).await;
    assert_eq!(pool.unwrap().stats().members.idle, 2);
}

// P12: no take waits for it any more, but it was begun.
#[tokio::test(start_paused = true)]
async fn a_cancelled_take_does_not_cancel_its_start() {
    let rig = Rig::new(1);
    rig.on_start(Act::After(50 * MS));
    let pool = rig.open(options(0, 1));
    let mut take = pool.take();
    assert!(poll(&mut take).is_pending());
    settle().await;
    drop(take);
    sleep(60 * MS).await;
    assert_eq!((rig.born(), pool.stats().members.idle), (1, 1));
    assert_eq!(pool.try_take().unwrap().number, 0);
}

// S18.
#[tokio::test(start_paused = true)]
async fn a_pool_grows_ahead_of_need() {
    let rig = Rig::new(5);
    let pool = rig.start(PoolOptions {
        grow_at: Some(1),
        ..options(2, 5)
    });
    let pool = pool.await;
    let held = pool.take().await.unwrap();
    settle().await;
    let members = pool.stats().members;
    assert_eq!((members.held, members.idle), (1, 3));
    drop(held);

    pool.reconfigure(PoolOptions {
        idle_min: 2,
        ..options(1, 5)
    })
    .unwrap();
    let held = [(); 4].map(|()| pool.try_take().unwrap());
    settle().await;
    let members = pool.stats().members;
    assert_eq!((members.held, members.idle), (4, 1), "as far as max allows");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_refused_try_starts_a_member_for_the_next_one() {
    let rig = Rig::new(1);
    let pool = rig.open(options(0, 1));
    assert!(pool.try_take().is_err());
    settle().await;
    assert!(pool.try_take().is_ok());
}

// F16: what each start costs does not grow with what is there already.
#[tokio::test(start_paused = true)]
async fn ten_thousand_members_start_and_are_all_lent() {
    let rig = Rig::new(10_000);
    let options = PoolOptions {
        starts_max: 1_000,
        ..options(10_000, 10_000)
    };
    let pool = rig.start(options).await;
    assert_eq!(pool.stats().members.idle, 10_000);
    let all: Vec<_> = (0..10_000).map(|_| pool.try_take().unwrap()).collect();
    assert!(pool.try_take().is_err());
    drop(all);
    assert_eq!(pool.stats().members.idle, 10_000);
}
