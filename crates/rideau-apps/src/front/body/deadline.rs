//! How long a process may still take for the rest of an answer.
//!
//! Only the time counts in which the front waits for the process: a client that
//! takes its time uses up none of it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The rest of the time that a process has for an answer.
pub(in crate::front) struct Allowance {
    left: Duration,
    /// Since when it is waited for.
    since: Option<Instant>,
    /// Most answers are there before one is needed.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Allowance {
    pub(in crate::front) fn new(left: Duration) -> Self {
        Self {
            left,
            since: None,
            timer: None,
        }
    }

    /// The process said something; says whether it took too long by now.
    pub(in crate::front) fn stop(&mut self) -> bool {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        self.left.is_zero()
    }

    /// The process says nothing; ready when it has taken too long.
    pub(in crate::front) fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = match self.since {
            Some(since) => since + self.left,
            None => *self.since.insert(Instant::now()) + self.left,
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_time_counts_in_which_the_process_is_waited_for() {
        let began = Instant::now();
        let mut allowance = Allowance::new(Duration::from_secs(10));
        for _ in 0..3 {
            let waited = poll_fn(|context| allowance.poll_wait(context));
            let said = tokio::time::timeout(Duration::from_secs(3), waited).await;
            assert!(said.is_err(), "it has more than three seconds left");
            assert!(!allowance.stop());
            // The client is slow.
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        poll_fn(|context| allowance.poll_wait(context)).await;
        assert_eq!(began.elapsed().as_secs(), 3 * 63 + 1);
        assert!(allowance.stop());
    }
}
