//! What an ask costs while many wait already, and what each of them weighs.
//!
//! The timed ask finds nobody and is cancelled. A subject that leaves those
//! who cancelled in its queue pays for them later, when it meets them; that is
//! not counted here. One thread does everything, so that the bytes are
//! exact: all that is allocated for one who waits, the future included.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use allocation_counter::measure;
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::Matcher;
use crate::measure::{Metric, Sample, cpu_time};

/// How many wait already.
pub(super) const LENS: [usize; 3] = [10, 10_000, 1_000_000];

/// Asks that are timed. With a million waiting this stays below 2^20, so that
/// no queue happens to grow, and copy everybody, in the middle.
const ASKS: usize = 40_000;
const WARM_UP_ASKS: usize = 4_000;

/// Asks between two chances for a subject's own task to run.
const BURST: usize = 32;

pub(super) fn run<M: Matcher>(len: usize) -> Sample {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without threads can be had");
    let matcher = runtime.block_on(async {
        let matcher = M::start();
        yield_now().await;
        matcher
    });

    // The asks themselves are boxed and counted, the list of them is not.
    let mut waiting = Vec::with_capacity(len);
    let bytes = measure(|| runtime.block_on(fill(&matcher, &mut waiting, len))).bytes_current;

    let elapsed = runtime.block_on(async {
        ask_and_cancel(&matcher, WARM_UP_ASKS).await;
        let before = cpu_time();
        ask_and_cancel(&matcher, ASKS).await;
        cpu_time() - before
    });
    vec![
        (Metric::Cpu, elapsed.as_nanos() as f64 / ASKS as f64),
        (Metric::Bytes, bytes as f64 / len as f64),
    ]
}

async fn fill<'a, M: Matcher>(matcher: &'a M, waiting: &mut Vec<Ask<'a>>, len: usize) {
    while waiting.len() < len {
        let mut ask: Ask<'_> = Box::pin(matcher.ask(0));
        begin(ask.as_mut()).await;
        waiting.push(ask);
        breathe(waiting.len()).await;
    }
    yield_now().await;
}

type Ask<'a> = Pin<Box<dyn Future<Output = u64> + 'a>>;

async fn ask_and_cancel<M: Matcher>(matcher: &M, asks: usize) {
    for at in 1..=asks {
        begin(pin!(matcher.ask(0))).await;
        breathe(at).await;
    }
}

/// Polls an ask until it waits.
async fn begin<F: Future + ?Sized>(mut ask: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(ask.as_mut().poll(context).is_pending(), "nobody offers");
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
