//! A transaction of etcd for each reservation, and another for each release: what a program
//! does that keeps a pool of values in etcd without us.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rideau::store::etcd::{EtcdClient, EtcdOptions, KeyRange, KeyStamp, Txn, TxnOp};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::DATA;
use crate::measure::{Metric, Plan, Sample, Stall};
use crate::talk::{Server, cpu_of};

/// Transactions in flight.
const PARTIES: usize = 64;

/// A client of etcd.
pub(super) struct EtcdTxn {
    client: EtcdClient,
    runtime: Runtime,
}

#[derive(Default)]
struct Window {
    is_open: AtomicBool,
    is_over: AtomicBool,
    answered: Vec<AtomicU64>,
    turns: Mutex<Option<Histogram<u64>>>,
}

impl EtcdTxn {
    pub(super) fn connect(etcd: &Server) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("the system has sockets");
        let url = format!("http://{}", etcd.address);
        let client = runtime.block_on(EtcdClient::connect(EtcdOptions::plain([url])));
        let client = client
            .expect("etcd answers")
            .with_timeout(Duration::from_secs(30));
        Self { client, runtime }
    }

    /// One run.
    pub(super) fn run(&self, etcd: &Server, plan: &Plan) -> Result<Sample, Stall> {
        let turns = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let window = Arc::new(Window {
            answered: (0..PARTIES).map(|_| AtomicU64::new(0)).collect(),
            turns: Mutex::new(turns.ok()),
            ..Window::default()
        });
        self.runtime.block_on(async {
            let mut parties = JoinSet::new();
            for at in 0..PARTIES {
                parties.spawn(act(self.client.clone(), Arc::clone(&window), at));
            }
            tokio::time::sleep(plan.warm_up).await;
            window.is_open.store(true, Relaxed);
            let before = window.answered();
            let (since, cpu) = (Instant::now(), cpu_of(&[etcd]));
            tokio::time::sleep(plan.window).await;
            let (elapsed, cpu) = (since.elapsed(), cpu_of(&[etcd]).saturating_sub(cpu));
            let after = window.answered();
            window.is_over.store(true, Relaxed);
            while parties.join_next().await.is_some() {}
            window.sample(&before, &after, elapsed, cpu)
        })
    }
}

/// Reserve and release, one after the other.
async fn act(client: EtcdClient, window: Arc<Window>, at: usize) {
    let mut serial = 0_u64;
    while !window.is_over.load(Relaxed) {
        serial += 1;
        let key = format!("/bench/{at:02}/{:04}", serial % 10_000);
        let since = Instant::now();
        let put = TxnOp::put(key.clone(), DATA);
        let take = Txn::new().when(key.clone(), KeyStamp::Version, 0).then(put);
        let reply = client.txn(take).await.expect("etcd answers");
        assert!(reply.holds, "no value is taken twice");
        let give = TxnOp::Delete(KeyRange::key(key));
        client
            .txn(Txn::new().then(give))
            .await
            .expect("etcd answers");
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
