//! Parties that take a turn after the other, each as a task, and what is counted of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::measure::{Metric, Plan, Sample, Stall};
use crate::talk::{Server, cpu_of};

/// How many there are at once.
pub(super) const PARTIES: usize = 64;

/// One of them.
pub(super) trait Party: Send + 'static {
    /// Take something and give it back: two operations.
    fn turn(&mut self) -> impl Future<Output = ()> + Send;
}

#[derive(Default)]
struct Window {
    is_open: AtomicBool,
    is_over: AtomicBool,
    answered: Vec<AtomicU64>,
    turns: Mutex<Option<Histogram<u64>>>,
}

/// A runtime for them.
pub(super) fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("the system has sockets")
}

/// One run. The processor time is that of all that `work`.
pub(super) fn run<P: Party, Made: Future<Output = P>>(
    runtime: &Runtime,
    work: &[&Server],
    plan: &Plan,
    make: impl Fn(usize) -> Made,
) -> Result<Sample, Stall> {
    let turns = Histogram::new_with_bounds(1, 60_000_000_000, 3);
    let window = Arc::new(Window {
        answered: (0..PARTIES).map(|_| AtomicU64::new(0)).collect(),
        turns: Mutex::new(turns.ok()),
        ..Window::default()
    });
    runtime.block_on(async {
        let mut parties = JoinSet::new();
        for at in 0..PARTIES {
            let party = make(at).await;
            parties.spawn(act(party, Arc::clone(&window), at));
        }
        tokio::time::sleep(plan.warm_up).await;
        window.is_open.store(true, Relaxed);
        let before = window.answered();
        let (since, cpu) = (Instant::now(), cpu_of(work));
        tokio::time::sleep(plan.window).await;
        let (elapsed, cpu) = (since.elapsed(), cpu_of(work).saturating_sub(cpu));
        let after = window.answered();
        window.is_over.store(true, Relaxed);
        while let Some(ended) = parties.join_next().await {
            ended.expect("no party fails");
        }
        window.sample(&before, &after, elapsed, cpu)
    })
}

async fn act(mut party: impl Party, window: Arc<Window>, at: usize) {
    while !window.is_over.load(Relaxed) {
        let since = Instant::now();
        party.turn().await;
        window.answered[at].fetch_add(2, Relaxed);
        if window.is_open.load(Relaxed)
            && let Some(turns) = &mut *window.turns.lock()
        {
            turns.saturating_record(since.elapsed().as_nanos() as u64);
        }
    }
}

impl Window {
    fn answered(&self) -> Vec<u64> {
        self.answered
            .iter()
            .map(|count| count.load(Relaxed))
            .collect()
    }

    fn sample(
        &self,
        before: &[u64],
        after: &[u64],
        elapsed: Duration,
        cpu: Duration,
    ) -> Result<Sample, Stall> {
        let answered = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before);
        let answered: Vec<u64> = answered.collect();
        let all: u64 = answered.iter().sum();
        if all == 0 {
            return Err(Stall { turns_late: 0 });
        }
        let most = answered.iter().max().copied().unwrap_or(0);
        let least = answered.iter().min().copied().unwrap_or(0);
        let turns = self.turns.lock();
        let share = |share| {
            let turns = turns.as_ref();
            turns.map_or(0.0, |turns| turns.value_at_quantile(share) as f64)
        };
        Ok(vec![
            (Metric::Ops, all as f64 / elapsed.as_secs_f64()),
            (Metric::Cpu, cpu.as_nanos() as f64 / all as f64),
            (Metric::P50, share(0.5)),
            (Metric::P99, share(0.99)),
            (Metric::Fairness, most as f64 / least.max(1) as f64),
        ])
    }
}
