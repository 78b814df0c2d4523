//! Many connections that do the same pair of commands again and again.

use std::time::Duration;

use rideau::Histogram;
use rideau_resp::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hold::word;
use super::show;
use crate::wire::{Server, Wire, WireFault};

/// The pair of commands to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// LOCK and RELEASE, each its own key.
    Lock,
    /// TAKE and RELEASE.
    Take { pool: String },
    /// ASK on one half of the connections, OFFER on the other, and DONE.
    Meet { broker: String },
    /// INCR and DECR, each its own key.
    Count,
    /// BLPOP of a member and RPUSH of it.
    Lend,
    /// RPUSH on one half of the connections, BLPOP on the other.
    Queue,
}

/// How many do it, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) clients: u32,
    pub(crate) pipeline: u32,
    pub(crate) span: Duration,
}

/// The result.
pub(crate) struct Measured {
    pairs: u64,
    span: Duration,
    times: Histogram,
}

/// One connection at its work.
struct Worker {
    wire: Wire,
    work: Work,
    pipeline: u32,
    /// The prefix of its keys.
    prefix: String,
    id: u32,
}

/// No worker waits longer than this for the other half.
const WAIT_MS: &str = "200";
const WAIT_SECONDS: &str = "0.2";
/// So long may a list be before the workers that add to it pause.
const LIST_MAX: i64 = 1_000;

impl Load {
    /// How many members can be taken at a time.
    pub(crate) const fn members(&self) -> u32 {
        self.clients * self.pipeline
    }
}

impl Measured {
    /// Pairs a second.
    pub(crate) fn rate(&self) -> f64 {
        self.pairs as f64 / self.span.as_secs_f64().max(f64::EPSILON)
    }

    /// The time of a pair that this part of all is below, in microseconds.
    pub(crate) fn quantile(&self, part: f64) -> i64 {
        self.times.quantile(part).as_micros() as i64
    }
}

/// Do the work, or say why it cannot be done.
pub(crate) async fn run(
    server: &Server,
    work: &Work,
    load: &Load,
    prefix: &str,
    stop: &watch::Receiver<bool>,
) -> Result<Measured, String> {
    let mut own = Wire::connect(server, "rideau-bench").await.map_err(said)?;
    prepare(&mut own, work, load, prefix).await?;
    let mut stop = stop.clone();
    let measured = tokio::select! {
        measured = measure(server, work, load, prefix) => measured,
        Ok(_) = stop.wait_for(|is_asked| *is_asked) => Err("interrupted".into()),
    };
    // Also if a worker failed.
    clean(&mut own, work, load, prefix).await?;
    own.quit().await;
    measured
}

async fn measure(
    server: &Server,
    work: &Work,
    load: &Load,
    prefix: &str,
) -> Result<Measured, String> {
    let mut workers = Vec::new();
    // A worker that meets needs another to meet.
    let least = if work.is_halved() { 2 } else { 1 };
    for id in 0..load.clients.max(least) {
        let wire = Wire::connect(server, "rideau-bench").await.map_err(said)?;
        workers.push(Worker {
            wire,
            work: work.clone(),
            pipeline: load.pipeline,
            prefix: prefix.to_owned(),
            id,
        });
    }
    let began = Instant::now();
    let until = began + load.span;
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(worker.run(until));
    }
    let mut measured = Measured {
        pairs: 0,
        span: Duration::ZERO,
        times: Histogram::default(),
    };
    while let Some(done) = tasks.join_next().await {
        let (pairs, times) = done.map_err(|error| error.to_string())??;
        measured.pairs += pairs;
        measured.times.add(&times);
    }
    measured.span = began.elapsed();
    Ok(measured)
}

/// Fill the list of members that a Redis lends.
async fn prepare(own: &mut Wire, work: &Work, load: &Load, prefix: &str) -> Result<(), String> {
    if *work != Work::Lend {
        return Ok(());
    }
    let mut request = vec!["RPUSH".to_owned(), format!("{prefix}:list")];
    request.extend((0..load.members()).map(|at| format!("m{at}")));
    good(own.ask(&request).await).map(drop)
}

/// Leave nothing in a Redis.
async fn clean(own: &mut Wire, work: &Work, load: &Load, prefix: &str) -> Result<(), String> {
    let mut request = vec!["DEL".to_owned()];
    match work {
        Work::Count => {
            for id in 0..load.clients {
                request.extend((0..load.pipeline).map(|at| format!("{prefix}:{id}:{at}")));
            }
        }
        Work::Lend | Work::Queue => request.push(format!("{prefix}:list")),
        Work::Lock | Work::Take { .. } | Work::Meet { .. } => return Ok(()),
    }
    good(own.ask(&request).await).map(drop)
}

impl Work {
    /// One half does something else than the other.
    const fn is_halved(&self) -> bool {
        matches!(self, Self::Meet { .. } | Self::Queue)
    }
}

impl Worker {
    async fn run(mut self, until: Instant) -> Result<(u64, Histogram), String> {
        let (mut pairs, mut times) = (0, Histogram::default());
        while Instant::now() < until {
            let began = Instant::now();
            let done = self.batch().await?;
            // Of two workers that meet, one counts.
            if done > 0 && self.counts() {
                pairs += done;
                times.record(began.elapsed());
            }
        }
        self.wire.quit().await;
        Ok((pairs, times))
    }

    fn counts(&self) -> bool {
        match self.work {
            Work::Meet { .. } => self.is_even(),
            // A worker that pushes does not know whether another came.
            Work::Queue => !self.is_even(),
            _ => true,
        }
    }

    const fn is_even(&self) -> bool {
        self.id.is_multiple_of(2)
    }

    /// Do the first command of each pair, then the second. Says how many pairs
    /// that were.
    async fn batch(&mut self) -> Result<u64, String> {
        for at in 0..self.pipeline {
            let request = self.first(at);
            self.wire.put(&request);
        }
        self.wire.flush().await.map_err(said)?;
        let (mut seconds, mut done) = (0, 0);
        let mut longest = 0;
        for at in 0..self.pipeline {
            let answer = good(self.wire.answer().await)?;
            if let (Work::Queue, Value::Integer(len)) = (&self.work, &answer) {
                longest = longest.max(*len);
            }
            match self.second(at, &answer) {
                Some(request) => {
                    self.wire.put(&request);
                    seconds += 1;
                }
                // There is no second command for what a Redis just hands over.
                None if self.work == Work::Queue && answer != Value::Null => done += 1,
                None => (),
            }
        }
        self.wire.flush().await.map_err(said)?;
        for _ in 0..seconds {
            good(self.wire.answer().await)?;
        }
        if longest > LIST_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(done + seconds)
    }

    fn first(&self, at: u32) -> Vec<String> {
        let Self { id, prefix, .. } = self;
        let key = format!("{prefix}:{id}:{at}");
        let list = format!("{prefix}:list");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match &self.work {
            Work::Lock => words(&["LOCK", &key]),
            Work::Take { pool } => words(&["TAKE", pool]),
            Work::Meet { broker } => {
                let side = if self.is_even() { "ASK" } else { "OFFER" };
                words(&[side, broker, "WAIT", WAIT_MS])
            }
            Work::Count => words(&["INCR", &key]),
            Work::Lend => words(&["BLPOP", &list, WAIT_SECONDS]),
            Work::Queue if self.is_even() => words(&["RPUSH", &list, "job"]),
            Work::Queue => words(&["BLPOP", &list, WAIT_SECONDS]),
        }
    }

    fn second(&self, at: u32, answer: &Value) -> Option<Vec<String>> {
        let Self { id, prefix, .. } = self;
        let parts = show::elements(answer);
        let is_go = || word(parts, 0) == "go";
        match &self.work {
            Work::Lock | Work::Take { .. } => {
                is_go().then(|| vec!["RELEASE".into(), word(parts, 1)])
            }
            Work::Meet { .. } => is_go().then(|| vec!["DONE".into(), word(parts, 1)]),
            Work::Count => Some(vec!["DECR".into(), format!("{prefix}:{id}:{at}")]),
            Work::Lend if parts.len() == 2 => Some(vec![
                "RPUSH".into(),
                format!("{prefix}:list"),
                word(parts, 1),
            ]),
            Work::Lend | Work::Queue => None,
        }
    }
}

fn good(answer: Result<Value, WireFault>) -> Result<Value, String> {
    match answer.map_err(said)? {
        Value::Error(text) => Err(show::in_our_words(&text)),
        answer => Ok(answer),
    }
}

fn said(fault: WireFault) -> String {
    fault.to_string()
}
