//! What an ask costs while many wait already, and what each of them weighs.
//!
//! The timed ask finds no offer and is cancelled. A subject that leaves
//! cancelled asks in its queue pays for them later, when it meets them; that is
//! not counted here. One thread does everything.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::Matcher;
use crate::measure::{Metric, Sample, cpu_time, resident_bytes, weigh_apart};

/// How many wait already.
pub(super) const LENS: [usize; 3] = [10, 10_000, 1_000_000];

/// Asks that are timed. With a million waiting this stays below 2^20, so that
/// no queue happens to grow, and copy all asks, in the middle.
const ASKS: usize = 40_000;
const WARM_UP_ASKS: usize = 4_000;

/// Asks between two chances for a subject's own task to run.
const BURST: usize = 32;

/// How many must wait before pages of memory show the size of one.
const WEIGHED_MIN: usize = 1_000_000;

type Ask<'a> = Pin<Box<dyn Future<Output = u64> + 'a>>;

pub(super) fn run<M: Matcher>(len: usize) -> Sample {
    let (runtime, matcher) = start::<M>();
    let mut waiting = places(len);
    let elapsed = runtime.block_on(async {
        fill(&matcher, &mut waiting).await;
        ask_and_cancel(&matcher, WARM_UP_ASKS).await;
        let before = cpu_time();
        ask_and_cancel(&matcher, ASKS).await;
        cpu_time() - before
    });
    let mut sample = vec![(Metric::Cpu, elapsed.as_nanos() as f64 / ASKS as f64)];
    if len >= WEIGHED_MIN {
        sample.push((
            Metric::Bytes,
            weigh_apart("broker", M::NAME, &len.to_string()),
        ));
    }
    sample
}

/// Resident bytes for each of `len` that wait, their futures included.
///
/// Right only in a process that has not used and freed memory before.
pub(super) fn weigh<M: Matcher>(len: usize) -> f64 {
    let (runtime, matcher) = start::<M>();
    let mut waiting = places(len);
    let before = resident_bytes();
    runtime.block_on(fill(&matcher, &mut waiting));
    (resident_bytes() - before) as f64 / len as f64
}

fn start<M: Matcher>() -> (Runtime, M) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without threads can be had");
    let matcher = runtime.block_on(async {
        let matcher = M::start();
        yield_now().await;
        matcher
    });
    (runtime, matcher)
}

/// Written to already, so that the list itself is not weighed.
fn places<'a>(len: usize) -> Vec<Option<Ask<'a>>> {
    (0..len).map(|_| None).collect()
}

async fn fill<'a, M: Matcher>(matcher: &'a M, waiting: &mut [Option<Ask<'a>>]) {
    for (at, place) in waiting.iter_mut().enumerate() {
        let ask = place.insert(Box::pin(matcher.ask_for_long(0)));
        begin(ask.as_mut()).await;
        breathe(at).await;
    }
    yield_now().await;
}

async fn ask_and_cancel<M: Matcher>(matcher: &M, asks: usize) {
    for at in 1..=asks {
        begin(pin!(matcher.ask(0))).await;
        breathe(at).await;
    }
}

/// Polls an ask until it waits.
async fn begin<F: Future + ?Sized>(mut ask: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(ask.as_mut().poll(context).is_pending(), "there is no offer");
        Poll::Ready(())
    })
    .await;
}

/// Lets others run after every burst, before tokio's budget for one task is
/// spent and turns asks away.
async fn breathe(asks: usize) {
    if asks.is_multiple_of(BURST) {
        yield_now().await;
    }
}
