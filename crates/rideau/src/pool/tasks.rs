//! Where members are started, checked and stopped.

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Runs what has to be awaited for a member.
pub(super) struct Tasks {
    #[cfg_attr(rideau_loom, allow(dead_code, reason = "loom knows no runtime"))]
    runtime: Option<Handle>,
}

impl Tasks {
    /// On this runtime.
    pub(super) fn on(runtime: Handle) -> Self {
        let runtime = Some(runtime);
        Self { runtime }
    }

    /// On the runtime that is around us, if any.
    pub(super) fn here() -> Option<Self> {
        if cfg!(rideau_loom) {
            return Some(Self { runtime: None });
        }
        Handle::try_current().ok().map(Self::on)
    }

    /// Run a task. It is dropped if the runtime is gone.
    #[cfg(not(rideau_loom))]
    pub(super) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let runtime = self.runtime.as_ref()?;
        Some(runtime.spawn(task).abort_handle())
    }

    /// Run a task as far as it goes at once: the models' members make nobody
    /// wait.
    #[cfg(rideau_loom)]
    pub(super) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::pin::pin!(task).poll(&mut context);
        None
    }
}
