//! Many tasks on real threads, with everything that can go wrong going wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rideau::{AskOptions, Backoff, Fate, Held, Pool, PoolOptions, Priority};
use tokio::time::{sleep, timeout};

use crate::rig::{Act, Rig, Told, options};

const TASKS: u64 = 64;
const TURNS: u64 = 60;
/// Nothing here takes nearly as long, unless it hangs.
const HANGS: Duration = Duration::from_secs(120);
const US: Duration = Duration::from_micros(1);

/// Chance that follows from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn small() -> PoolOptions {
    PoolOptions {
        uses_max: Some(40),
        check_after: Some(200 * US),
        on_error: Fate::Check,
        start_timeout: Duration::from_secs(20),
        backoff: Backoff {
            first: 10 * US,
            max: 100 * US,
            failures: 3,
        },
        ..options(2, 4)
    }
}

async fn hold(rig: &Rig, pool: &Pool<Told>, chance: &mut Chance) {
    let priority = Priority::ALL[chance.below(3) as usize];
    let terms = AskOptions {
        priority,
        ..AskOptions::default()
    };
    let (end, span) = (chance.below(20), chance.below(300) as u32 * US);
    let patience = 1 + chance.below(500) as u32;
    let take = pool.take_on(terms);
    if end == 0 {
        drop(timeout(patience * US, take).await);
        return;
    }
    let held = take.await.unwrap();
    let using = rig.using(&held);
    match end {
        1..=4 => sleep(span).await,
        5..=8 => tokio::task::yield_now().await,
        _ => (),
    }
    drop(using);
    match end {
        9 => Held::fail(held),
        10 => drop(Held::detach(held)),
        11 => panic!("while it holds"),
        12 => Held::note(&held, "somebody"),
        _ => drop(held),
    }
}

async fn use_it(rig: &Rig, pool: &Pool<Told>, chance: &mut Chance) {
    let (end, span) = (chance.below(4), chance.below(200) as u32 * US);
    let body = async |member: &mut crate::rig::Member| {
        let _using = rig.using(member);
        sleep(span).await;
        if end == 0 { Err(()) } else { Ok(()) }
    };
    let with = pool.with(AskOptions::default(), body);
    let _ = timeout(Duration::from_micros(100), with).await;
}

/// Changes the pool until it is told to stop.
async fn meddle(rig: Arc<Rig>, pool: Pool<Told>, mut chance: Chance, left: Arc<AtomicU64>) {
    while left.load(SeqCst) > 0 {
        let mut set = small();
        match chance.below(8) {
            0 => set.max = 3,
            1 => pool.replace(100 * US),
            2 => {
                pool.suspend();
                tokio::task::yield_now().await;
                pool.resume();
            }
            3 => set.init = 4,
            4 => drop(
                pool.each_idle(async |_| tokio::task::yield_now().await)
                    .await,
            ),
            5 => rig.on_next_starts([Act::Fail, Act::Panic, Act::After(100 * US)]),
            6 => drop((pool.stats(), pool.holders(), pool.explain())),
            _ => set.check_after = Some(Duration::ZERO),
        }
        pool.reconfigure(set).unwrap();
        sleep(300 * US).await;
    }
    pool.reconfigure(small()).unwrap();
}

async fn run(seed: u64) {
    println!("seed {seed}");
    // Those that are detached live on for an instant, beside their successor.
    let rig = Arc::new(Rig::new(4 + TASKS as usize));
    let pool = rig.start_live(small()).await;
    let left = Arc::new(AtomicU64::new(TASKS));
    let chance = |number: u64| Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (number + 1));
    let meddler = meddle(
        Arc::clone(&rig),
        pool.clone(),
        chance(TASKS),
        Arc::clone(&left),
    );
    let meddler = tokio::spawn(meddler);
    let tasks = (0..TASKS).map(|number| {
        let (rig, pool, left) = (Arc::clone(&rig), pool.clone(), Arc::clone(&left));
        let mut chance = chance(number);
        tokio::spawn(async move {
            for _ in 0..TURNS {
                let (rig, pool) = (Arc::clone(&rig), pool.clone());
                let mut own = Chance(chance.below(u64::MAX) | 1);
                let turn = tokio::spawn(async move {
                    match own.below(4) {
                        0 => use_it(&rig, &pool, &mut own).await,
                        _ => hold(&rig, &pool, &mut own).await,
                    }
                });
                // Its panic was meant.
                drop(turn.await);
            }
            left.fetch_sub(1, SeqCst);
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
        meddler.await.unwrap();
    };
    let hung = timeout(HANGS, all).await.is_err();
    assert!(!hung, "{}", pool.explain());
    let members = pool.stats().members;
    assert_eq!(members.held, 0, "{members:?}");
    assert_eq!(pool.stats().len(), 0);
    assert!(pool.holders().is_empty());
    let takes = pool.stats().takes;
    assert_eq!(
        takes.came,
        takes.served + takes.cancelled + takes.shed_total()
    );
    let all = async {
        let held = futures_of(&pool).await;
        assert_eq!(rig.live(), 4);
        drop(held);
        pool.close(HANGS).await;
    };
    assert!(timeout(HANGS, all).await.is_ok(), "{}", pool.explain());
    // What was aborted goes when its thread finds the time.
    let left = || (rig.live(), rig.watches(), rig.aborts());
    let all = async {
        while left() != (0, 0, 0) {
            sleep(100 * US).await;
        }
    };
    assert!(timeout(HANGS, all).await.is_ok(), "{:?}", left());
}

/// The most there may be, at once.
async fn futures_of(pool: &Pool<Told>) -> Vec<Held<'_, Told>> {
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.take().await.unwrap());
    }
    assert!(pool.try_take().is_err());
    held
}

#[test]
fn many_tasks_on_few_members_hang_nowhere_and_lose_nothing() {
    std::panic::set_hook(Box::new(|panic| {
        let meant = ["while it holds", "as it was told"];
        let text = panic.to_string();
        if !meant.iter().any(|meant| text.contains(meant)) {
            eprintln!("{text}");
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let seeds = match std::env::var_os("RIDEAU_SOAK") {
        None => 1..4,
        Some(_) => 1..100,
    };
    for seed in seeds {
        runtime.block_on(run(seed));
    }
}
