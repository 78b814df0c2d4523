//! Watches whether a client sends fast enough.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rideau_core::{self as core, MinRate, MinRateOptions};
use tokio::time::{Instant, Sleep};

/// A client that sends a body may be as slow as it likes for so long, and is then looked
/// at for as long again and again.
const SENT_WINDOW: Duration = Duration::from_secs(20);

/// Watches one body.
pub(super) struct RateWatch {
    rate: MinRate,
    start: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RateWatch {
    /// Of a client that sends.
    pub(super) fn sent(rate: u64) -> Self {
        Self::new(MinRateOptions {
            rate,
            window: SENT_WINDOW,
            grace: SENT_WINDOW,
        })
    }

    fn new(options: MinRateOptions) -> Self {
        Self {
            rate: MinRate::new(options),
            start: Instant::now(),
            timer: None,
        }
    }

    fn now(&self) -> core::Instant {
        core::Instant::START + self.start.elapsed()
    }

    /// So many bytes passed.
    pub(super) fn passed(&mut self, bytes: usize) {
        let now = self.now();
        self.rate.passed(bytes as u64, now);
    }

    /// The client is not waited for.
    pub(super) fn pause(&mut self) {
        let now = self.now();
        self.rate.pause(now);
    }

    /// The client is waited for; ready when it is too slow.
    pub(super) fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.now();
            let Ok(look) = self.rate.wait(now) else {
                return Poll::Ready(());
            };
            let until = self.start + look.since(core::Instant::START);
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            // One that runs out too early is set again only then.
            if timer.deadline() > until || timer.is_elapsed() {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(context));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_is_given_up_when_its_time_is_over() {
        let mut watch = RateWatch::sent(500);
        let start = Instant::now();
        poll_fn(|context| watch.poll_slow(context)).await;
        assert_eq!(start.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_not_waited_for_is_not_given_up() {
        let mut watch = RateWatch::sent(500);
        for _ in 0..10 {
            let waited = poll_fn(|context| watch.poll_slow(context));
            let waited = tokio::time::timeout(Duration::from_secs(10), waited).await;
            assert!(waited.is_err(), "it is fast enough");
            watch.passed(10_000);
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        let start = Instant::now();
        poll_fn(|context| watch.poll_slow(context)).await;
        assert!(start.elapsed() <= Duration::from_secs(120));
    }
}
