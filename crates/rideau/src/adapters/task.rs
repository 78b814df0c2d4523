//! A task that serves a connection, and whose end others can wait for.

use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A task that goes on without this value, and is ended only by itself or by
/// [`end`](Self::end).
#[derive(Clone, Debug)]
pub(super) struct Task {
    handle: AbortHandle,
    // Nothing is ever sent: the sender lives in the task and goes with it.
    alive: watch::Receiver<()>,
}

impl Task {
    /// Spawn `work` on the runtime around the caller.
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (sender, alive) = watch::channel(());
        let task = tokio::spawn(async move {
            work.await;
            // After the work and all it owned, such as a socket, also when the
            // task is ended from outside.
            drop(sender);
        });
        Self {
            handle: task.abort_handle(),
            alive,
        }
    }

    /// End it where it stands, and drop what it owns.
    pub(super) fn end(&self) {
        self.handle.abort();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.alive.has_changed().is_err()
    }

    /// Resolves when it has ended, whatever ended it.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut alive = self.alive.clone();
        async move {
            let gone = alive.changed().await;
            debug_assert!(gone.is_err(), "nothing is ever sent");
        }
    }
}
