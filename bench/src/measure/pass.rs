//! One stretch of time in which parties take turns and are counted.
//!
//! A party is a task or a thread in a loop. Its turns are counted on a cache line of its
//! own, and stamps go into a histogram of the thread it happens to run on, so
//! that counting adds no traffic between cores.

use std::cell::RefCell;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use thread_local::ThreadLocal;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::{Metric, Plan, Sample, Stall, cpu_time};

/// Threads of the runtime in every pass.
const THREADS: usize = 2;

/// Whether the turns of a pass are stamped.
///
/// Two clock readings cost as much as a fast operation, so throughput and
/// latency are measured apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamps {
    Off,
    On,
}

/// What the parties of a pass share.
pub(crate) struct Pass {
    phase: AtomicU8,
    stamps: Stamps,
    turns: Box<[Turns]>,
    latency: ThreadLocal<RefCell<Histogram<u64>>>,
}

const WARM_UP: u8 = 0;
const WINDOW: u8 = 1;
const STOP: u8 = 2;

/// Only its own party writes it.
#[derive(Default)]
#[repr(align(128))]
struct Turns(AtomicU64);

impl Pass {
    fn new(parties: usize, stamps: Stamps) -> Self {
        Self {
            phase: AtomicU8::new(WARM_UP),
            stamps,
            turns: iter::repeat_with(Turns::default).take(parties).collect(),
            latency: ThreadLocal::new(),
        }
    }

    /// Whether a party should begin another turn.
    pub(crate) fn goes_on(&self) -> bool {
        self.phase.load(Relaxed) != STOP
    }

    /// Counts one operation of `party`, and stamps it if this pass does.
    pub(crate) async fn turn<F: Future>(
        &self,
        party: usize,
        operation: impl FnOnce() -> F,
    ) -> F::Output {
        let since = self.begin();
        let answer = operation().await;
        self.end(party, since);
        answer
    }

    /// The same for a party that is a thread.
    pub(crate) fn turn_blocking<T>(&self, party: usize, operation: impl FnOnce() -> T) -> T {
        let since = self.begin();
        let answer = operation();
        self.end(party, since);
        answer
    }

    /// The same for a burst of operations that are too short to be counted one
    /// by one. Only the first of them is stamped, so that the parties meet as
    /// often as they do without a clock.
    pub(crate) fn burst(&self, party: usize, mut operation: impl FnMut()) {
        if let Some(since) = self.begin() {
            operation();
            self.stamp(since);
        } else {
            operation();
        }
        for _ in 1..BURST {
            operation();
        }
        self.count(party, BURST);
    }

    fn begin(&self) -> Option<Instant> {
        (self.stamps == Stamps::On).then(Instant::now)
    }

    fn end(&self, party: usize, since: Option<Instant>) {
        if let Some(since) = since {
            self.stamp(since);
        }
        self.count(party, 1);
    }

    fn count(&self, party: usize, more: u64) {
        let turns = &self.turns[party].0;
        turns.store(turns.load(Relaxed) + more, Relaxed);
    }

    fn stamp(&self, since: Instant) {
        let nanos = since.elapsed().as_nanos() as u64;
        if self.phase.load(Relaxed) == WINDOW {
            let latency = self.latency.get_or(|| RefCell::new(histogram()));
            latency.borrow_mut().saturating_record(nanos);
        }
    }

    fn turns(&self) -> Vec<u64> {
        self.turns
            .iter()
            .map(|turns| turns.0.load(Relaxed))
            .collect()
    }

    fn percentiles(self) -> Sample {
        let mut all = histogram();
        for latency in self.latency {
            all += latency.into_inner();
        }
        [
            (Metric::P50, 0.5),
            (Metric::P99, 0.99),
            (Metric::P999, 0.999),
        ]
        .map(|(metric, share)| (metric, all.value_at_quantile(share) as f64))
        .into()
    }
}

/// Operations in a burst.
const BURST: u64 = 64;

/// Runs one pass on a runtime of its own.
///
/// `send_off` spawns every task; `parties` of them take turns. At the end those
/// in a loop see [`Pass::goes_on`] turn false, and those that wait for a party
/// that will not come any more are aborted.
///
/// # Panics
///
/// If a task does.
pub(crate) fn watch(
    parties: usize,
    stamps: Stamps,
    plan: &Plan,
    send_off: impl FnOnce(&Arc<Pass>, &mut JoinSet<()>),
) -> Result<Sample, Stall> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_time()
        .build()
        .expect("two threads can be started");
    let pass = Arc::new(Pass::new(parties, stamps));
    let mut tasks = JoinSet::new();
    {
        let _entered = runtime.enter();
        send_off(&pass, &mut tasks);
    }

    thread::sleep(plan.warm_up);
    let counted = count(&pass, plan.window);
    pass.phase.store(STOP, Relaxed);

    tasks.abort_all();
    runtime.block_on(async {
        while let Some(end) = tasks.join_next().await {
            assert!(!end.is_err_and(|end| end.is_panic()), "a party panicked");
        }
    });
    drop(runtime);

    let (mut sample, turns) = counted?;
    Ok(match stamps {
        Stamps::Off => {
            sample.push((Metric::Fairness, fairness(&turns)));
            sample
        }
        Stamps::On => {
            let pass = Arc::into_inner(pass).expect("every task has ended");
            pass.percentiles()
        }
    })
}

/// Runs one pass on plain threads, each in a loop while [`Pass::goes_on`].
///
/// Which of them runs is the kernel's affair, so how fair that was is not told.
///
/// # Panics
///
/// If a thread does.
pub(crate) fn watch_threads(
    threads: usize,
    stamps: Stamps,
    plan: &Plan,
    take_turns: impl Fn(&Pass, usize) + Sync,
) -> Result<Sample, Stall> {
    let pass = Pass::new(threads, stamps);
    let counted = thread::scope(|scope| {
        for thread in 0..threads {
            let (pass, take_turns) = (&pass, &take_turns);
            scope.spawn(move || take_turns(pass, thread));
        }
        thread::sleep(plan.warm_up);
        let counted = count(&pass, plan.window);
        pass.phase.store(STOP, Relaxed);
        counted
    });
    let (sample, _) = counted?;
    Ok(match stamps {
        Stamps::Off => sample,
        Stamps::On => pass.percentiles(),
    })
}

/// Opens the window, and counts each party's turns and processor time until it closes.
fn count(pass: &Pass, window: Duration) -> Result<(Sample, Vec<u64>), Stall> {
    pass.phase.store(WINDOW, Relaxed);
    let (since, cpu_before, turns_before) = (Instant::now(), cpu_time(), pass.turns());
    thread::sleep(window);
    let (elapsed, cpu, turns_after) = (since.elapsed(), cpu_time() - cpu_before, pass.turns());

    let before_and_after = turns_before.iter().zip(&turns_after);
    let turns: Vec<u64> = before_and_after
        .map(|(before, after)| after - before)
        .collect();
    let operations: u64 = turns.iter().sum();
    if operations == 0 {
        thread::sleep(Duration::from_secs(1));
        let turns_late = pass.turns().iter().sum::<u64>() - turns_after.iter().sum::<u64>();
        return Err(Stall { turns_late });
    }
    let sample = vec![
        (Metric::Ops, operations as f64 / elapsed.as_secs_f64()),
        (Metric::Cpu, cpu.as_nanos() as f64 / operations as f64),
    ];
    Ok((sample, turns))
}

fn fairness(turns: &[u64]) -> f64 {
    let luckiest = turns.iter().max().expect("a pass has parties");
    let unluckiest = turns.iter().min().expect("a pass has parties");
    *luckiest as f64 / (*unluckiest).max(1) as f64
}

/// From a nanosecond to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}
