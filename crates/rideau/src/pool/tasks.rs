//! Where members are started, checked and stopped.
//!
//! What causes that, a guard that is dropped above all, only leaves word: one
//! task of the pool starts the others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::after::After;

/// Runs what has to be awaited for a member.
pub(super) struct Tasks {
    /// None under loom, which knows no runtime.
    runtime: Option<Runtime>,
}

struct Runtime {
    handle: Handle,
    /// Never longer than there are members.
    jobs: mpsc::UnboundedSender<Job>,
}

/// Something to begin.
type Job = Box<dyn FnOnce() + Send>;

impl Tasks {
    /// On this runtime.
    pub(super) fn on(handle: Handle) -> Self {
        let (jobs, posted) = mpsc::unbounded_channel();
        handle.spawn(begin_all(posted));
        let runtime = Some(Runtime { handle, jobs });
        Self { runtime }
    }

    /// On the runtime that is around us, if any.
    pub(super) fn here() -> Option<Self> {
        if cfg!(rideau_loom) {
            return Some(Self { runtime: None });
        }
        Handle::try_current().ok().map(Self::on)
    }

    /// Have something begun once the lock is released. It is dropped if the
    /// runtime is gone.
    pub(super) fn post(&self, after: &mut After, job: impl FnOnce() + Send + 'static) {
        match &self.runtime {
            None => after.call(job),
            Some(Runtime { jobs, .. }) => {
                let jobs = jobs.clone();
                after.call(move || drop(jobs.send(Box::new(job))));
            }
        }
    }

    /// Run a task. It is dropped if the runtime is gone.
    pub(super) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        match &self.runtime {
            Some(Runtime { handle, .. }) => Some(handle.spawn(task).abort_handle()),
            None => {
                // As far as it goes at once: the models' members make no task
                // wait.
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let _ = std::pin::pin!(task).poll(&mut context);
                None
            }
        }
    }
}

/// Begin what is posted, until the pool is gone.
async fn begin_all(mut posted: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = posted.recv().await {
        // The next is begun whatever becomes of this one.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
