//! Threads hold keys, each up to a capacity, and let go of them.
//!
//! One operation is one acquire and its release; latency is that of both. Keys
//! are strings and threads come with a `&str`, as people do. All maps hash with
//! foldhash, so that maps are compared and not hashers. Nothing draws at
//! random, so every run does the same.
//!
//! `BENCH_CASE=1-8` measures one key and eight threads alone, `refusal` and
//! `weight` those, and `BENCH_SUBJECT=rideau,cas` these subjects.

mod cas;
mod dashmap;
mod goals;
mod mutexes;
mod ours;
mod papaya;
mod refusal;
mod semaphores;
mod weight;

use std::hint::black_box;
use std::iter;

use self::goals::Goal;
use crate::measure::{
    Plan, Row, Sample, Stall, Stamps, Subject, compare, is_wanted, watch_threads,
};
use crate::report::{Format, Verdict, print, print_lines};

pub(crate) use self::weight::weigh;

/// Counts holders by key.
trait Counter: Sync {
    /// As tables show it; ours by key is [`crate::report::OURS`].
    const NAME: &'static str;

    /// What a thread names a key with: the key itself, or what it found by it
    /// beforehand.
    type Handle<'a>
    where
        Self: 'a;

    /// Dropping it is the release.
    type Held<'a>
    where
        Self: 'a;

    fn start(keys: &[String]) -> Self;

    /// The handle to `keys[at]`.
    fn handle<'a>(&'a self, at: usize, key: &'a str) -> Self::Handle<'a>;

    /// Nothing if `capacity` are held; more never are.
    fn acquire<'a, 'd: 'a>(
        &'a self,
        handle: &'a Self::Handle<'d>,
        capacity: u64,
    ) -> Option<Self::Held<'a>>;

    /// Forgets the keys that are not held, if it does not do so by itself.
    fn forget_idle(&self) {}
}

/// All subjects; a further one is a `mod` above and a line here.
const CONTESTANTS: &[Contestant] = &[
    Contestant::of::<ours::ByKey>(),
    Contestant {
        weigh: None,
        ..Contestant::of::<ours::ByHandle>()
    },
    Contestant {
        weigh: None,
        ..Contestant::of::<cas::Words>()
    },
    Contestant::of::<semaphores::Semaphores>(),
    Contestant::of::<dashmap::Entries>(),
    Contestant::of::<papaya::TwoLooks>(),
    Contestant::of::<papaya::OneLook>(),
    Contestant::of::<mutexes::Sharded>(),
    Contestant::of::<mutexes::Single>(),
];

/// What is measured of one counter.
struct Contestant {
    name: &'static str,
    count: fn(Crowd, &Plan) -> Result<Sample, Stall>,
    refuse: fn(usize, &Plan) -> Result<Sample, Stall>,
    /// If it looks keys up.
    weigh: Option<fn(weight::Keys) -> f64>,
}

impl Contestant {
    const fn of<C: Counter>() -> Self {
        Self {
            name: C::NAME,
            count: count::<C>,
            refuse: refusal::refuse::<C>,
            weigh: Some(weight::bytes::<C>),
        }
    }
}

/// How many holders come, and for what.
#[derive(Clone, Copy)]
struct Crowd {
    keys: usize,
    threads: usize,
}

struct Case {
    crowd: Crowd,
    goals: &'static [Goal],
}

const CASES: [Case; 6] = [
    case(1, 1, goals::ALONE),
    case(1, 2, goals::TOGETHER),
    case(1, 8, goals::TOGETHER),
    case(1000, 1, goals::ALONE),
    case(1000, 2, goals::TOGETHER),
    case(1000, 8, goals::TOGETHER),
];

const fn case(keys: usize, threads: usize, goals: &'static [Goal]) -> Case {
    let crowd = Crowd { keys, threads };
    Case { crowd, goals }
}

impl Case {
    /// As in "1000-8".
    fn name(&self) -> String {
        let Crowd { keys, threads } = self.crowd;
        format!("{keys}-{threads}")
    }
}

/// So much that no take is refused.
const AMPLE: u64 = 1 << 20;

pub(crate) fn run(plan: &Plan, format: Format) {
    // There are twice as many subjects here as elsewhere.
    let plan = Plan {
        warm_up: plan.warm_up / 2,
        window: plan.window / 2,
        ..*plan
    };
    for case in CASES
        .iter()
        .filter(|case| is_wanted("BENCH_CASE", &case.name()))
    {
        contest(case, &plan, format);
    }
    if is_wanted("BENCH_CASE", "refusal") {
        refusal::run(&plan, format);
    }
    if is_wanted("BENCH_CASE", "weight") {
        weight::run(&plan, format);
    }
}

fn contest(case: &Case, plan: &Plan, format: Format) {
    let subjects: Vec<_> = CONTESTANTS
        .iter()
        .filter(|contestant| is_wanted("BENCH_SUBJECT", contestant.name))
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(move || (contestant.count)(case.crowd, plan)),
        })
        .collect();
    let rows = compare(&subjects, plan);
    let verdicts = case.goals.iter().filter_map(|goal| goal.judge(&rows));
    let Crowd { keys, threads } = case.crowd;
    let [keys, threads] = [number(keys, "key"), number(threads, "thread")];
    publish(&format!("{keys}, {threads}"), &rows, verdicts, format);
}

fn publish(case: &str, rows: &[Row], verdicts: impl Iterator<Item = Verdict>, format: Format) {
    match format {
        Format::Table => print_lines(&format!("locks: {case}"), rows, verdicts),
        Format::Json => print("locks", case, rows, format),
    }
}

/// As in "1 key" and "2 keys".
fn number(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn count<C: Counter>(crowd: Crowd, plan: &Plan) -> Result<Sample, Stall> {
    let keys = keys(crowd.keys);
    both_passes(|stamps| {
        let counter = C::start(&keys);
        watch_threads(crowd.threads, stamps, plan, |pass, thread| {
            let handles: Vec<_> = walk(keys.len(), thread)
                .map(|at| counter.handle(at, &keys[at]))
                .collect();
            let mut next = 0;
            while pass.goes_on() {
                pass.burst(thread, || {
                    // Else a key's hash would be found once for all turns.
                    let handle = black_box(&handles[next]);
                    next = if next + 1 < handles.len() {
                        next + 1
                    } else {
                        0
                    };
                    drop(counter.acquire(handle, AMPLE).expect("there is room"));
                });
            }
        })
    })
}

fn both_passes(pass: impl Fn(Stamps) -> Result<Sample, Stall>) -> Result<Sample, Stall> {
    let mut sample = pass(Stamps::Off)?;
    sample.extend(pass(Stamps::On)?);
    Ok(sample)
}

fn keys(len: usize) -> Vec<String> {
    (0..len).map(|at| format!("tenant/{at:04}")).collect()
}

/// Every index below `len`, a thousand or one, in an order of the thread's own
/// that no processor foresees.
fn walk(len: usize, thread: usize) -> impl Iterator<Item = usize> {
    // With these factors the sequence comes by all residues of a thousand.
    let addends = [7, 11, 13, 17, 19, 23, 29, 31];
    let addend = addends[thread % addends.len()];
    iter::successors(Some(0), move |at| Some((at * 141 + addend) % len)).take(len)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// What a test does with every counter.
    macro_rules! check_all {
        ($check:ident) => {
            $check::<ours::ByKey>();
            $check::<ours::ByHandle>();
            $check::<cas::Words>();
            $check::<semaphores::Semaphores>();
            $check::<dashmap::Entries>();
            $check::<papaya::TwoLooks>();
            $check::<papaya::OneLook>();
            $check::<mutexes::Sharded>();
            $check::<mutexes::Single>();
        };
    }

    #[test]
    fn every_subject_moves() {
        let plan = Plan {
            warm_up: Duration::from_millis(2),
            window: Duration::from_millis(10),
            ..Plan::QUICK
        };
        for contestant in CONTESTANTS {
            let crowd = Crowd {
                keys: 1000,
                threads: 8,
            };
            for moved in [
                (contestant.count)(crowd, &plan),
                (contestant.refuse)(2, &plan),
            ] {
                // A busy machine may well stand still for a short window.
                let moves = match moved {
                    Ok(sample) => sample.len() == 5,
                    Err(stall) => stall.turns_late > 0,
                };
                assert!(moves, "{}", contestant.name);
            }
        }
    }

    #[test]
    fn a_walk_comes_by_every_key_once() {
        for len in [1, 1000] {
            for thread in 0..8 {
                let seen: BTreeSet<_> = walk(len, thread).collect();
                assert_eq!(seen.len(), len, "thread {thread}");
            }
        }
    }

    #[test]
    fn a_take_when_all_is_held_is_refused_until_a_release() {
        check_all!(check_refusal);
    }

    fn check_refusal<C: Counter>() {
        let keys = keys(2);
        let counter = C::start(&keys);
        let [full, other] = [0, 1].map(|at| counter.handle(at, &keys[at]));
        let first = counter.acquire(&full, 2);
        let second = counter.acquire(&full, 2);
        assert!(first.is_some() && second.is_some(), "{}", C::NAME);
        assert!(counter.acquire(&full, 2).is_none(), "{}", C::NAME);
        assert!(counter.acquire(&other, 2).is_some(), "{}", C::NAME);

        drop(first);
        let third = counter.acquire(&full, 2);
        counter.forget_idle();
        assert!(third.is_some(), "{}", C::NAME);
        assert!(counter.acquire(&full, 2).is_none(), "{}", C::NAME);

        drop((second, third));
        counter.forget_idle();
        assert!(counter.acquire(&full, 2).is_some(), "{}", C::NAME);
    }

    #[test]
    fn no_counter_lends_more_than_there_is() {
        check_all!(check_exactness);
    }

    fn check_exactness<C: Counter>() {
        const CAPACITY: u64 = 2;
        const TURNS: usize = 5_000;
        let keys = keys(1);
        let counter = C::start(&keys);
        let held = AtomicU64::new(0);
        let granted = AtomicU64::new(0);
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let handle = counter.handle(0, &keys[0]);
                    for turn in 0..TURNS {
                        if let Some(lock) = counter.acquire(&handle, CAPACITY) {
                            assert!(held.fetch_add(1, SeqCst) < CAPACITY, "{}", C::NAME);
                            thread::yield_now();
                            held.fetch_sub(1, SeqCst);
                            granted.fetch_add(1, SeqCst);
                            drop(lock);
                        }
                        if turn % 64 == 0 {
                            counter.forget_idle();
                        }
                    }
                });
            }
        });
        assert!(granted.load(SeqCst) > 0, "{}", C::NAME);
        let handle = counter.handle(0, &keys[0]);
        let all: Vec<_> = (0..CAPACITY)
            .map(|_| counter.acquire(&handle, CAPACITY))
            .collect();
        assert!(all.iter().all(Option::is_some), "{}", C::NAME);
    }
}
