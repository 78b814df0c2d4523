//! One broker under load: clients that keep asking, workers that offer
//! themselves, and what became of them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rideau::{Broker, BrokerOptions, BrokerStats, Histogram, Reason, Refusal, Settings, queue};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// How many offer themselves.
pub(super) const WORKERS: u32 = 10;
/// How long a worker is busy with one ask.
const WORK: Duration = Duration::from_millis(100);
/// How many asks a second the workers can serve.
pub(super) const CAPACITY: u32 = WORKERS * 1000 / WORK.as_millis() as u32;
/// How many asks a second come.
pub(super) const ASKS: u32 = 200;

/// A broker and all clients that come to it. They go when it is dropped.
pub(super) struct Trial {
    name: &'static str,
    /// No ask or offer has to bring anything: the demo is about waits.
    broker: Broker<(), ()>,
    score: Arc<Mutex<Score>>,
}

/// Outcomes that clients saw.
#[derive(Default)]
struct Score {
    /// Waits of those served since the last glance.
    recent: Histogram,
    /// Waits of those served since the judging began.
    judged: Histogram,
    /// The refusal of the last shed ask.
    refusal: Option<Refusal>,
    /// The broker's numbers when the judging began.
    before: Option<BrokerStats>,
}

/// How a broker does at one moment.
pub(super) struct Glance {
    pub(super) name: &'static str,
    pub(super) at: Instant,
    pub(super) waiting: usize,
    pub(super) oldest: Duration,
    pub(super) served: u64,
    pub(super) shed: u64,
    pub(super) waits: Histogram,
}

/// Outcomes of the asks that count.
pub(super) struct Verdict {
    pub(super) name: &'static str,
    pub(super) served: u64,
    /// The asks that were shed, by reason.
    pub(super) shed: Vec<(Reason, u64)>,
    pub(super) waits: Histogram,
    pub(super) refusal: Option<Refusal>,
    pub(super) explained: String,
}

impl Trial {
    /// Start a broker whose asks wait as the words say, its clients and its
    /// workers.
    pub(super) fn start(name: &'static str, options: &str) -> Self {
        let words = Settings::parse(options).expect("the options were written for this");
        let options = BrokerOptions {
            asks: queue::Options::parse(words).expect("the options were written for this"),
            ..BrokerOptions::default()
        };
        let broker = Broker::new(options).expect("options that were parsed hold");
        let score = Arc::new(Mutex::new(Score::default()));
        for _ in 0..WORKERS {
            tokio::spawn(work(broker.clone()));
        }
        tokio::spawn(come(broker.clone(), Arc::clone(&score)));
        Self {
            name,
            broker,
            score,
        }
    }

    /// How it does now; the waits are those since the last glance.
    pub(super) fn glance(&self) -> Glance {
        let stats = self.broker.stats();
        Glance {
            name: self.name,
            at: Instant::now(),
            waiting: stats.asks_len,
            oldest: stats.oldest_waited,
            served: stats.asks.served,
            shed: stats.asks.shed_total(),
            waits: std::mem::take(&mut lock(&self.score).recent),
        }
    }

    /// Asks before this do not count.
    pub(super) fn judge_from_now(&self) {
        let before = self.broker.stats();
        *lock(&self.score) = Score {
            before: Some(before),
            ..Score::default()
        };
    }

    /// Outcomes of the asks that count.
    pub(super) fn verdict(&self) -> Verdict {
        let (after, explained) = (self.broker.stats().asks, self.broker.explain());
        let score = lock(&self.score);
        let before = score.before.clone().map(|before| before.asks);
        let before = before.unwrap_or_default();
        let shed = |reason| after.shed_for(reason) - before.shed_for(reason);
        Verdict {
            name: self.name,
            served: after.served - before.served,
            shed: Reason::ALL
                .into_iter()
                .map(|reason| (reason, shed(reason)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            waits: score.judged.clone(),
            refusal: score.refusal,
            explained,
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.broker.close();
    }
}

/// A worker: serves one ask at a time, until the broker closes.
async fn work(broker: Broker<(), ()>) {
    while let Ok(met) = broker.offer(()).await {
        sleep(WORK).await;
        met.peer.done();
    }
}

/// Clients: one more comes at every tick, however many wait already.
async fn come(broker: Broker<(), ()>, score: Arc<Mutex<Score>>) {
    let mut ticks = interval(Duration::from_secs(1) / ASKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        tokio::spawn(ask(broker.clone(), Arc::clone(&score)));
    }
}

/// One client: asks, and stays until the worker is done.
async fn ask(broker: Broker<(), ()>, score: Arc<Mutex<Score>>) {
    match broker.ask(()).await {
        Ok(mut met) => {
            lock(&score).count(met.waited);
            met.peer.ended().await;
        }
        Err(refused) => lock(&score).refusal = Some(refused.refusal),
    }
}

impl Score {
    fn count(&mut self, waited: Duration) {
        self.recent.record(waited);
        self.judged.record(waited);
    }
}

fn lock(score: &Mutex<Score>) -> MutexGuard<'_, Score> {
    score.lock().expect("keeping score does not panic")
}
