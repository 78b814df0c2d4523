//! Wakes the timer task when a deadline moves closer.

use std::sync::{Arc, Weak};
use std::thread;

use rideau_core::Machine;
use tokio::runtime;
use tokio::sync::Notify;

use crate::driver::{Driver, Shell};

/// What the timer task sleeps on between deadlines.
#[derive(Debug)]
pub(crate) struct Bell(Notify);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(Notify::new())
    }

    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    /// Start the timer task: on the runtime we are in, or on a thread of its
    /// own if there is none.
    pub(crate) fn keep_deadlines<M, S>(driver: &Arc<Driver<M, S>>, bell: &Arc<Self>)
    where
        M: Machine<Effect: Send> + Send + 'static,
        S: Shell<M>,
    {
        // Loom knows no timers: its models set no deadlines.
        if cfg!(rideau_loom) {
            return;
        }
        let keep = keep_deadlines(Arc::downgrade(driver), Arc::clone(bell));
        if let Ok(runtime) = runtime::Handle::try_current() {
            runtime.spawn(keep);
            return;
        }
        let run = || {
            let runtime = runtime::Builder::new_current_thread().enable_time().build();
            runtime
                .expect("a runtime with a timer alone needs nothing")
                .block_on(keep);
        };
        let started = thread::Builder::new()
            .name("rideau-timer".into())
            .spawn(run);
        started.expect("a process can start one more thread");
    }
}

/// Advance the machine at each deadline until the driver is dropped.
///
/// Between deadlines only the bell is held, so that the driver can go.
async fn keep_deadlines<M, S>(driver: Weak<Driver<M, S>>, bell: Arc<Bell>)
where
    M: Machine<Effect: Send> + Send + 'static,
    S: Shell<M>,
{
    while let Some(alive) = driver.upgrade() {
        let due = alive.advance().map(|due| alive.clock().to_tokio(due));
        drop(alive);
        match due {
            None => bell.0.notified().await,
            // Late or rung for: either way it is time to look.
            Some(due) => drop(tokio::time::timeout_at(due, bell.0.notified()).await),
        }
    }
}
