//! Wakes the timer task when a deadline moves closer.

use std::future;
use std::sync::LazyLock;
use std::thread;

use tokio::runtime;
use tokio::sync::Notify;

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
