//! Watches whether a client sends or takes fast enough.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rideau_core::{self as core, MinRate, MinRateOptions};
use tokio::time::{Instant, Sleep};

/// A client that sends a body may be as slow as it likes for so long, and is then looked
/// at for as long again and again.
const SENT_WINDOW: Duration = Duration::from_secs(20);
/// The same for a client that takes an answer, without a grace.
const TAKEN_WINDOW: Duration = Duration::from_secs(60);

/// Bytes that the system may hold which could not be sent to a client yet. It takes more when
/// half of them are gone, so that a client of 500 bytes a second is seen to go on once in a
/// window.
pub(super) const UNSENT_MAX: u32 = 60_000;

/// Watches one body, from when its client is waited for first, which most are not.
pub(super) struct RateWatch {
    /// None if any rate will do.
    options: Option<MinRateOptions>,
    running: Option<Running>,
}

struct Running {
    rate: MinRate,
    start: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RateWatch {
    /// Of a client that sends.
    pub(super) fn sent(rate_min: Option<u64>) -> Self {
        Self::new(rate_min, SENT_WINDOW, SENT_WINDOW)
    }

    /// Of a client that takes.
    pub(super) fn taken(rate_min: Option<u64>) -> Self {
        Self::new(rate_min, TAKEN_WINDOW, Duration::ZERO)
    }

    fn new(rate_min: Option<u64>, window: Duration, grace: Duration) -> Self {
        Self {
            options: rate_min.map(|rate| MinRateOptions {
                rate,
                window,
                grace,
            }),
            running: None,
        }
    }

    /// This many bytes passed.
    pub(super) fn passed(&mut self, bytes: usize) {
        if let Some(running) = &mut self.running {
            let now = running.now();
            running.rate.passed(bytes as u64, now);
        }
    }

    /// The client is not waited for.
    pub(super) fn pause(&mut self) {
        if let Some(running) = &mut self.running {
            let now = running.now();
            running.rate.pause(now);
        }
    }

    /// The client is waited for; ready when it is too slow.
    pub(super) fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(options) = self.options else {
            return Poll::Pending;
        };
        let running = self.running.get_or_insert_with(|| Running {
            rate: MinRate::new(options),
            start: Instant::now(),
            timer: None,
        });
        running.poll_slow(context)
    }
}

impl Running {
    fn now(&self) -> core::Instant {
        core::Instant::START + self.start.elapsed()
    }

    fn poll_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
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
        for (mut watch, seconds) in [
            (RateWatch::sent(Some(500)), 40),
            (RateWatch::taken(Some(500)), 60),
        ] {
            let start = Instant::now();
            poll_fn(|context| watch.poll_slow(context)).await;
            assert_eq!(start.elapsed().as_secs(), seconds);
        }
        let mut watch = RateWatch::taken(None);
        let waited = poll_fn(|context| watch.poll_slow(context));
        let waited = tokio::time::timeout(Duration::from_secs(10_000), waited).await;
        assert!(waited.is_err(), "any rate will do");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_not_waited_for_is_not_given_up() {
        let mut watch = RateWatch::taken(Some(500));
        for _ in 0..10 {
            let waited = poll_fn(|context| watch.poll_slow(context));
            let waited = tokio::time::timeout(Duration::from_secs(50), waited).await;
            assert!(waited.is_err(), "it is fast enough");
            watch.passed(30_000);
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        let start = Instant::now();
        poll_fn(|context| watch.poll_slow(context)).await;
        assert!(start.elapsed() <= Duration::from_secs(120));
    }
}
