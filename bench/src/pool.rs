//! Tasks take members of a pool and give them back.
//!
//! One operation is one take and its return; latency is that of the take
//! alone. Nothing draws at random, so every run does the same.
//!
//! `BENCH_CASE=64` measures that case alone, and `BENCH_SUBJECT=rideau,bb8`
//! these subjects, for a look with `perf`.

mod asyncband;
mod bb8;
mod deadpool;
mod goals;
mod mobc;
mod mutex_vec;
mod nothing;
mod ours;
mod r2d2;
mod semaphore;
mod sketch;

use std::ops::DerefMut;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};

use self::goals::Goal;
use crate::measure::{Pass, Plan, Sample, Stall, Stamps, Subject, compare, is_wanted, watch};
use crate::report::{Format, print, print_lines};

/// Members of every pool.
const MEMBERS: usize = 8;

/// Lends members.
trait Lender: Send + Sync + 'static {
    /// As tables show it; ours is [`crate::report::OURS`].
    const NAME: &'static str;

    /// Dropping it is the return.
    type Held<'a>: DerefMut<Target = Member> + Send;

    /// Must come to hold [`MEMBERS`] members, and no more.
    fn start() -> impl Future<Output = Self> + Send;

    /// Waits for a member.
    fn take(&self) -> impl Future<Output = Self::Held<'_>> + Send;
}

/// What is lent. Its holder counts, so that a take is never for nothing.
#[derive(Default)]
struct Member {
    uses: u64,
}

/// Starts members at once and finds no fault with them, for every peer in the
/// peer's own words.
struct Maker;

/// All subjects; a further one is a `mod` above and a line here. Ours waits in
/// `pool/ours.rs` for the pool: it goes first, as the table's ratios refer to it.
const CONTESTANTS: &[Contestant] = &[
    Contestant::of::<ours::Ours>(),
    Contestant::of::<deadpool::Deadpool>(),
    Contestant::of::<bb8::Bb8>(),
    Contestant::of::<mobc::Mobc>(),
    Contestant::of::<asyncband::Asyncband>(),
    Contestant {
        name: r2d2::NAME,
        lend: r2d2::lend,
        waits: true,
    },
    Contestant::of::<semaphore::Permits>(),
    Contestant {
        waits: false,
        ..Contestant::of::<mutex_vec::Locked>()
    },
    Contestant {
        waits: false,
        ..Contestant::of::<nothing::Nothing>()
    },
    Contestant::of::<sketch::Sketch>(),
];

/// What is measured of one lender.
struct Contestant {
    name: &'static str,
    lend: fn(Crowd, &Plan) -> Result<Sample, Stall>,
    /// Whether a task may come while all members are out.
    waits: bool,
}

impl Contestant {
    const fn of<L: Lender>() -> Self {
        Self {
            name: L::NAME,
            lend: lend::<L>,
            waits: true,
        }
    }
}

/// The tasks that take members.
#[derive(Clone, Copy)]
struct Crowd {
    tasks: usize,
    hold: Hold,
}

/// How long a member is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// No longer than it takes to touch it: no more are out than there are
    /// threads, which shows what the pool itself costs.
    Touch,
    /// Over one yield: where there are more tasks than members, all are out.
    Yield,
}

struct Case {
    name: &'static str,
    crowd: Crowd,
    goals: &'static [Goal],
}

const CASES: [Case; 5] = [
    case("1", 1, Hold::Touch, goals::ALONE),
    case("8", 8, Hold::Touch, goals::TOGETHER),
    case("8-hold", 8, Hold::Yield, &[]),
    case("64", 64, Hold::Yield, goals::EXHAUSTED),
    case("1000", 1000, Hold::Yield, goals::EXHAUSTED),
];

const fn case(name: &'static str, tasks: usize, hold: Hold, goals: &'static [Goal]) -> Case {
    let crowd = Crowd { tasks, hold };
    Case { name, crowd, goals }
}

impl Case {
    fn title(&self) -> String {
        let tasks = self.crowd.tasks;
        let noun = if tasks == 1 { "task" } else { "tasks" };
        let hold = match self.crowd.hold {
            Hold::Touch => "given back at once",
            Hold::Yield => "held over a yield",
        };
        format!(
            "pool {}: {tasks} {noun} on {MEMBERS} members, {hold}",
            self.name
        )
    }
}

pub(crate) fn run(plan: &Plan, format: Format) {
    // There are twice as many subjects here as elsewhere.
    let plan = Plan {
        warm_up: plan.warm_up / 2,
        window: plan.window / 2,
        ..*plan
    };
    for case in CASES
        .iter()
        .filter(|case| is_wanted("BENCH_CASE", case.name))
    {
        contest(case, &plan, format);
    }
}

fn contest(case: &Case, plan: &Plan, format: Format) {
    let crowd = case.crowd;
    let subjects: Vec<_> = CONTESTANTS
        .iter()
        .filter(|contestant| contestant.waits || crowd.tasks <= MEMBERS)
        .filter(|contestant| is_wanted("BENCH_SUBJECT", contestant.name))
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(move || (contestant.lend)(crowd, plan)),
        })
        .collect();
    let rows = compare(&subjects, plan);
    match format {
        Format::Table => {
            let verdicts = case.goals.iter().filter_map(|goal| goal.judge(&rows));
            print_lines(&case.title(), &rows, verdicts);
        }
        Format::Json => print("pool", case.name, &rows, format),
    }
}

fn lend<L: Lender>(crowd: Crowd, plan: &Plan) -> Result<Sample, Stall> {
    both_passes(crowd, plan, send_off::<L>)
}

fn both_passes(
    crowd: Crowd,
    plan: &Plan,
    send_off: fn(Crowd, &Arc<Pass>, &mut JoinSet<()>),
) -> Result<Sample, Stall> {
    let pass = |stamps| {
        watch(crowd.tasks, stamps, plan, |pass, tasks| {
            send_off(crowd, pass, tasks)
        })
    };
    let mut sample = pass(Stamps::Off)?;
    sample.extend(pass(Stamps::On)?);
    Ok(sample)
}

fn send_off<L: Lender>(crowd: Crowd, pass: &Arc<Pass>, tasks: &mut JoinSet<()>) {
    let pool = Arc::new(Handle::current().block_on(start_full::<L>()));
    for task in 0..crowd.tasks {
        let (pool, pass) = (Arc::clone(&pool), Arc::clone(pass));
        tasks.spawn(async move {
            let mut turns: u64 = 0;
            while pass.goes_on() {
                let mut held = pass.turn(task, || pool.take()).await;
                held.uses += 1;
                if crowd.hold == Hold::Yield {
                    yield_now().await;
                }
                drop(held);
                turns += 1;
                if crowd.owes_yield(turns) {
                    yield_now().await;
                }
            }
        });
    }
}

impl Crowd {
    /// Whether a task that never had to wait lets the others run. Else the
    /// first two tasks would run for ever, and fairness would be the runtime's.
    fn owes_yield(self, turns: u64) -> bool {
        self.hold == Hold::Touch && self.tasks > 1 && turns.is_multiple_of(YIELD_EVERY)
    }
}

/// As often as tokio makes a task yield that uses tokio's own primitives.
const YIELD_EVERY: u64 = 128;

/// A pool whose members have all been started: none starts while we measure.
async fn start_full<L: Lender>() -> L {
    let pool = L::start().await;
    let mut held = Vec::new();
    for _ in 0..MEMBERS {
        held.push(pool.take().await);
    }
    drop(held);
    pool
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn every_subject_moves_in_all_but_the_longest_case() {
        let plan = Plan {
            warm_up: Duration::from_millis(5),
            window: Duration::from_millis(20),
            ..Plan::QUICK
        };
        for case in &CASES[..4] {
            let tasks = case.crowd.tasks;
            for contestant in CONTESTANTS {
                if contestant.waits || tasks <= MEMBERS {
                    // A busy machine may well stand still for a short window.
                    let moves = match (contestant.lend)(case.crowd, &plan) {
                        Ok(sample) => sample.len() == 6,
                        Err(stall) => stall.turns_late > 0,
                    };
                    assert!(moves, "{} {}", case.name, contestant.name);
                }
            }
        }
    }

    #[test]
    fn the_ninth_take_waits_for_a_return() {
        check_ninth::<ours::Ours>();
        check_ninth::<deadpool::Deadpool>();
        check_ninth::<bb8::Bb8>();
        check_ninth::<mobc::Mobc>();
        check_ninth::<asyncband::Asyncband>();
        check_ninth::<semaphore::Permits>();
        check_ninth::<sketch::Sketch>();
    }

    fn check_ninth<L: Lender>() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let pool = start_full::<L>().await;
            let mut held = Vec::new();
            for _ in 0..MEMBERS {
                held.push(pool.take().await);
            }
            let mut ninth = pin!(pool.take());
            let early = std::future::poll_fn(|cx| Poll::Ready(ninth.as_mut().poll(cx))).await;
            assert!(early.is_pending(), "{}", L::NAME);
            drop(early);

            held.pop().unwrap().uses = 99;
            assert_eq!(ninth.await.uses, 99, "{}", L::NAME);
        });
    }
}
