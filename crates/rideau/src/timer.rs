//! Wakes the timer task when a deadline moves closer.

use std::future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::thread;

use rideau_core::Instant;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::Clock;

/// Wakes the timer task between deadlines.
#[derive(Debug)]
pub(crate) struct TimerWake(Notify);

impl TimerWake {
    pub(crate) fn new() -> Self {
        Self(Notify::new())
    }

    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    /// Until it is rung.
    pub(crate) async fn rung(&self) {
        self.0.notified().await;
    }
}

/// Ready from an instant on. It needs no timer of the runtime around us.
#[derive(Debug)]
pub(crate) struct Alarm {
    sleep: Option<JoinHandle<()>>,
    has_rung: bool,
}

impl Alarm {
    /// At this instant of the clock; never, if it cannot come.
    pub(crate) fn at(clock: &Clock, due: Instant) -> Self {
        // Loom knows no timers.
        let due = due.finite().filter(|_| !cfg!(rideau_loom));
        let sleep = due.map(|due| {
            let runtime = clock.runtime().unwrap_or_else(|| timers());
            let due = clock.to_tokio(due);
            runtime.spawn(async move { tokio::time::sleep_until(due).await })
        });
        let has_rung = false;
        Self { sleep, has_rung }
    }

    pub(crate) fn poll_rung(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.has_rung {
            let Some(sleep) = &mut self.sleep else {
                return Poll::Pending;
            };
            // A runtime that ended rings early: nothing can be waited for there.
            std::task::ready!(Pin::new(sleep).poll(context)).ok();
            self.has_rung = true;
        }
        Poll::Ready(())
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(sleep) = &self.sleep {
            sleep.abort();
        }
    }
}

/// Where timer tasks live that go by the system's clock.
pub(crate) fn timers() -> &'static runtime::Handle {
    LazyLock::force(&TIMERS)
}

/// One thread of our own, which runs them. The runtime that a machine is made in may have
/// no timer, may not be driven while a thread blocks, and may end before the machine does.
static TIMERS: LazyLock<runtime::Handle> = LazyLock::new(|| {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime with a timer alone needs nothing");
    let timers = runtime.handle().clone();
    thread::Builder::new()
        .name("rideau-timer".into())
        .spawn(move || runtime.block_on(future::pending::<()>()))
        .expect("a process can start one more thread");
    timers
});
