//! Wakes the timer task when a deadline moves closer.

use std::future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use rideau_core::Machine;
use tokio::runtime;
use tokio::sync::Notify;

use crate::driver::{Driver, Shell};

/// Deadlines are looked at again this long after a panic.
const PAUSE: Duration = Duration::from_millis(100);

/// What the timer task sleeps on between deadlines.
#[derive(Debug)]
pub(crate) struct TimerWake(Notify);

impl TimerWake {
    pub(crate) fn new() -> Self {
        Self(Notify::new())
    }

    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    /// Start the timer task.
    pub(crate) fn keep_deadlines<M, S>(driver: &Arc<Driver<M, S>>, timer: &Arc<Self>)
    where
        M: Machine<Effect: Send> + Send + 'static,
        S: Shell<M>,
    {
        // Loom knows no timers: its models set no deadlines.
        if cfg!(rideau_loom) {
            return;
        }
        let keep = keep_deadlines(Arc::downgrade(driver), Arc::clone(timer));
        let runtime = driver.clock().runtime();
        let runtime = runtime.unwrap_or_else(|| LazyLock::force(&TIMERS));
        drop(runtime.spawn(keep));
    }
}

/// Where timer tasks live that go by the system's clock: on one thread of our
/// own. The runtime that a machine is made in may have no timer, may not be
/// driven while a thread blocks, and may end before the machine does.
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

/// Advance the machine at each deadline until the driver is dropped.
///
/// Between deadlines only the timer is held, so that the driver can go.
async fn keep_deadlines<M, S>(driver: Weak<Driver<M, S>>, timer: Arc<TimerWake>)
where
    M: Machine<Effect: Send> + Send + 'static,
    S: Shell<M>,
{
    while let Some(alive) = driver.upgrade() {
        // Others wait for the deadlines behind one that panics.
        let advance = || alive.advance().map(|due| alive.clock().to_tokio(due));
        let due = catch_unwind(AssertUnwindSafe(advance));
        drop(alive);
        let Ok(due) = due else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        match due {
            None => timer.0.notified().await,
            // Late or rung for: either way it is time to look.
            Some(due) => drop(tokio::time::timeout_at(due, timer.0.notified()).await),
        }
    }
}
