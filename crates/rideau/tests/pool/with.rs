//! Uses that end by themselves, with an error, by a panic, or not at all.

use std::future::pending;
use std::sync::Arc;

use rideau::{AskOptions, Fate, Held, Pool, PoolOptions, Retired};
use tokio::time::{sleep, timeout};

use crate::rig::{Act, MS, Rig, Told, options, settle};

/// What became of the first member after a use that went wrong.
async fn fate_of(rig: &Rig, pool: &Pool<Told>) -> Fate {
    settle().await;
    let held = pool.take().await.unwrap();
    match (held.number, rig.checked()) {
        (0, 0) => Fate::Reuse,
        (0, _) => Fate::Check,
        _ => Fate::Replace,
    }
}

fn fated(on_cancel: Fate, on_error: Fate) -> PoolOptions {
    PoolOptions {
        on_cancel,
        on_error,
        ..options(1, 1)
    }
}

const FATES: [Fate; 3] = [Fate::Reuse, Fate::Check, Fate::Replace];

// S8.
#[tokio::test(start_paused = true)]
async fn a_cancelled_body_ends_as_the_options_say() {
    for fate in FATES {
        let rig = Rig::new(1);
        let pool = rig.start(fated(fate, Fate::Reuse)).await;
        let body = async |_: &mut _| pending::<Result<(), ()>>().await;
        let use_it = pool.with(AskOptions::default(), body);
        assert!(timeout(10 * MS, use_it).await.is_err());
        assert_eq!(fate_of(&rig, &pool).await, fate);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_answers_an_error_ends_as_the_options_say() {
    for fate in FATES {
        let rig = Rig::new(1);
        let pool = rig.start(fated(Fate::Replace, fate)).await;
        let failed = pool.with(AskOptions::default(), async |_| Err::<(), _>("no"));
        assert_eq!(failed.await.unwrap(), Err("no"));
        assert_eq!(fate_of(&rig, &pool).await, fate);
    }
}

// S6.
#[tokio::test(start_paused = true)]
async fn a_body_that_panics_costs_the_member_whatever_the_options_say() {
    let rig = Rig::new(1);
    let pool = rig.start(fated(Fate::Reuse, Fate::Reuse)).await;
    let other = pool.clone();
    let task = tokio::spawn(async move {
        let body = async |_: &mut _| -> Result<(), ()> { panic!("in the body") };
        other.with(AskOptions::default(), body).await
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(fate_of(&rig, &pool).await, Fate::Replace);
    assert_eq!(rig.stopped(), [(0, Retired::Failed)]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_well_leaves_its_member_to_the_next() {
    let rig = Rig::new(1);
    let pool = rig.start(fated(Fate::Replace, Fate::Replace)).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let done = pool.with(AskOptions::default(), async |member| {
            sleep(MS).await;
            seen.push(member.number);
            Ok::<_, ()>(member.number)
        });
        assert_eq!(done.await.unwrap(), Ok(0));
    }
    assert_eq!(seen, [0, 0, 0]);
}

// It has to compile: a body that borrows, in a task that may move.
#[tokio::test(start_paused = true)]
async fn a_body_that_borrows_runs_in_a_task_of_its_own() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    let words = Arc::new(vec!["one".to_owned(), "two".to_owned()]);
    let tasks: Vec<_> = (0..4)
        .map(|at| {
            let (pool, words) = (pool.clone(), Arc::clone(&words));
            tokio::spawn(async move {
                let word = &words[at % 2];
                let mut uses = Vec::new();
                let used = pool.with(AskOptions::default(), async |member| {
                    sleep(MS).await;
                    uses.push(member.number);
                    Ok::<_, ()>(word.len())
                });
                (used.await.unwrap().unwrap(), uses.len())
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), (3, 1));
    }
    assert_eq!(pool.stats().members.idle, 2);
}

#[tokio::test(start_paused = true)]
async fn a_use_dropped_while_it_waits_costs_no_member() {
    let rig = Rig::new(1);
    let pool = rig.start(fated(Fate::Replace, Fate::Replace)).await;
    let held = pool.take().await.unwrap();
    let use_it = pool.with(AskOptions::default(), async |_| Ok::<_, ()>(()));
    assert!(timeout(MS, use_it).await.is_err());
    drop(held);
    assert_eq!(fate_of(&rig, &pool).await, Fate::Reuse);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_doubted_is_not_lent_until_it_was_checked() {
    let rig = Rig::new(1);
    rig.on_check(Act::After(50 * MS));
    let pool = rig.start(fated(Fate::Check, Fate::Check)).await;
    let failed = pool.with(AskOptions::default(), async |_| Err::<(), _>(()));
    assert!(failed.await.unwrap().is_err());
    assert!(pool.try_take().is_err());
    let held = pool.take().await.unwrap();
    assert_eq!((Held::waited(&held), held.number), (50 * MS, 0));
}
