//! Waiting takes: priorities, tenants, tags, and what a refusal tells.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use rideau::{AskOptions, Flow, Held, Pool, PoolOptions, Priority, Reason, Tag, queue};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::rig::{MS, Rig, S, Told, options, settle};
use crate::take::poll;

/// Takers that write down when it was their turn.
struct Turns(Arc<Mutex<Vec<&'static str>>>);

impl Turns {
    fn new() -> Self {
        Self(Arc::default())
    }

    async fn take(
        &self,
        pool: &Pool<Told>,
        name: &'static str,
        terms: AskOptions,
    ) -> JoinHandle<()> {
        let (take, turns) = (pool.take_owned(terms), Arc::clone(&self.0));
        let task = tokio::spawn(async move {
            let _held = take.await.unwrap();
            turns.lock().unwrap().push(name);
            sleep(MS).await;
        });
        settle().await;
        task
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn the_urgent_go_before_the_others_and_the_background_last() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    let turns = Turns::new();
    let on = |priority| AskOptions {
        priority,
        ..AskOptions::default()
    };
    let mut tasks = Vec::new();
    for (name, priority) in [
        ("background", Priority::Background),
        ("normal", Priority::Normal),
        ("urgent", Priority::Urgent),
        ("urgent again", Priority::Urgent),
        ("normal again", Priority::Normal),
    ] {
        tasks.push(turns.take(&pool, name, on(priority)).await);
    }
    assert_eq!(pool.stats().waiting, [2, 2, 1]);
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let order = [
        "urgent",
        "urgent again",
        "normal",
        "normal again",
        "background",
    ];
    assert_eq!(turns.all(), order);
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns() {
    let rig = Rig::new(1);
    let mut set = options(1, 1);
    set.queue.fair = Some(queue::FairOptions {
        weights: vec![(Flow(3), NonZeroU32::new(2).unwrap())],
        ..queue::FairOptions::default()
    });
    let pool = rig.start(set).await;
    let held = pool.take().await.unwrap();
    let turns = Turns::new();
    let mut tasks = Vec::new();
    for (name, flow) in [
        ("anna", 1),
        ("anna", 1),
        ("anna", 1),
        ("bert", 2),
        ("carl", 3),
        ("carl", 3),
    ] {
        let terms = AskOptions {
            flow: Flow(flow),
            ..AskOptions::default()
        };
        tasks.push(turns.take(&pool, name, terms).await);
    }
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let order = ["anna", "bert", "carl", "carl", "anna", "anna"];
    assert_eq!(turns.all(), order);
}

/// The only member is held for seconds: a take that named its wait gets it, and
/// one that did not is told after the default.
#[tokio::test(start_paused = true)]
async fn a_named_wait_is_kept_and_a_default_one_is_a_limit() {
    let rig = Rig::new(1);
    let set = PoolOptions {
        queue: queue::Options::default(),
        ..options(1, 1)
    };
    let pool = rig.start(set).await;
    let held = pool.take().await.unwrap();
    let named = tokio::spawn(pool.take_owned(AskOptions {
        wait_max: Some(10 * S),
        wait_default: Some(2 * S),
        ..AskOptions::default()
    }));
    let usual = tokio::spawn(pool.take_owned(AskOptions {
        wait_default: Some(2 * S),
        ..AskOptions::default()
    }));
    sleep(3 * S).await;
    let no = usual.await.unwrap().unwrap_err();
    assert_eq!(
        (no.refusal.reason, no.refusal.waited),
        (Reason::Timeout, 2 * S)
    );
    let retry = pool.try_take().unwrap_err();
    assert!(retry.refusal.retry_after >= S, "{retry}");
    drop(held);
    drop(named.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn all_takes_of_a_tag_are_cancelled_and_no_other() {
    let rig = Rig::new(1);
    let pool = rig.start(options(1, 1)).await;
    let held = pool.take().await.unwrap();
    let tagged = |tag, priority| AskOptions {
        tag: Some(Tag(tag)),
        priority,
        ..AskOptions::default()
    };
    let mut one = pool.take_on(tagged(1, Priority::Normal));
    let mut two = pool.take_on(tagged(1, Priority::Urgent));
    let mut other = pool.take_on(tagged(2, Priority::Normal));
    let mut none = pool.take();
    for take in [&mut one, &mut two, &mut other, &mut none] {
        assert!(poll(take).is_pending());
    }
    assert_eq!(pool.cancel_tag(Tag(1)), 2);
    assert_eq!(pool.cancel_tag(Tag(1)), 0);
    for take in [one, two] {
        let refused = take.await.unwrap_err();
        assert_eq!(refused.refusal.reason, Reason::Cancelled);
    }
    drop(held);
    drop(other.await.unwrap());
    drop(none.await.unwrap());
    assert_eq!(pool.stats().takes.cancelled, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_longest_holder_and_notes_stay_with_their_holder() {
    let rig = Rig::new(2);
    let pool = rig.start(options(2, 2)).await;
    let long = pool.take().await.unwrap();
    Held::note(&long, "the nightly report");
    sleep(S).await;
    let short = pool.take().await.unwrap();
    Held::note(&short, "a request");
    sleep(S).await;
    let refused = pool.try_take().unwrap_err();
    let longest = refused.longest.as_ref().unwrap();
    assert_eq!(longest.note.as_deref(), Some("the nightly report"));
    assert_eq!(longest.held, 2 * S);
    let text = refused.to_string();
    assert!(
        text.contains("the nightly report has held member"),
        "{text}"
    );
    let notes: Vec<_> = pool
        .holders()
        .into_iter()
        .map(|holder| holder.note)
        .collect();
    assert_eq!(
        notes,
        [Some("the nightly report".into()), Some("a request".into())]
    );
    assert!(pool.explain().contains("the nightly report"));

    // Handed over, released and failed: the next holder has no note of another.
    let mut next = pool.take();
    assert!(poll(&mut next).is_pending());
    drop(long);
    let next = next.await.unwrap();
    drop(short);
    let after = pool.take().await.unwrap();
    assert!(pool.holders().iter().all(|holder| holder.note.is_none()));
    Held::note(&after, "fails");
    Held::fail(after);
    settle().await;
    let after = pool.take().await.unwrap();
    assert!(pool.holders().iter().all(|holder| holder.note.is_none()));
    drop((next, after));
    assert!(pool.holders().is_empty());
    assert!(pool.try_take().is_ok());
}

// S28: every way to end is counted where it belongs, and nowhere else.
#[tokio::test(start_paused = true)]
async fn the_numbers_add_up() {
    let rig = Rig::new(1);
    let mut set = options(1, 1);
    set.queue.max = Some(1);
    let pool = rig.start(set).await;
    let held = pool.take().await.unwrap();
    let mut waiting = pool.take();
    assert!(poll(&mut waiting).is_pending());
    assert!(pool.take().await.is_err());
    assert!(pool.try_take().is_err());
    drop(waiting);
    let soon = AskOptions {
        wait_max: Some(MS),
        ..AskOptions::default()
    };
    assert!(pool.take_on(soon).await.is_err());
    drop(held);
    pool.suspend();
    assert!(pool.try_take().is_err());
    pool.resume();
    pool.close_now().await;
    assert!(pool.try_take().is_err());
    let takes = pool.stats().takes;
    let reasons = [
        Reason::Full,
        Reason::Busy,
        Reason::Deadline,
        Reason::Suspended,
        Reason::Closed,
    ];
    for reason in Reason::ALL {
        let count = u64::from(reasons.contains(&reason));
        assert_eq!(takes.shed_for(reason), count, "{reason:?}");
    }
    assert_eq!((takes.came, takes.served, takes.cancelled), (7, 1, 1));
}
