//! An ask whose answer comes later, under the ticket that was given at once.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::outcome::{Outcome, Part};

/// An ask under way, or its answer until somebody fetches it.
#[derive(Debug)]
pub struct Later {
    name: String,
    answer: Mutex<Option<Outcome>>,
    bell: Notify,
    task: Mutex<Option<AbortHandle>>,
}

impl Later {
    /// An ask for something with this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            answer: Mutex::new(None),
            bell: Notify::new(),
            task: Mutex::new(None),
        }
    }

    /// What was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The task that waits for the answer; it ends with the ask.
    pub fn set_task(&self, task: AbortHandle) {
        *self.task.lock() = Some(task);
    }

    /// Here it is.
    pub fn answer(&self, outcome: Outcome) {
        *self.answer.lock() = Some(outcome);
        self.bell.notify_waiters();
    }

    /// Nobody wants it any more: leave the line, and tell who awaits it.
    pub fn cancel(&self, why: &'static str) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        let mut answer = self.answer.lock();
        if answer.is_none() {
            let parts = vec![Part::Number(0), why.into()];
            *answer = Some(Outcome::new("cancelled", parts));
        }
        drop(answer);
        self.bell.notify_waiters();
    }

    /// The answer, if it is there.
    pub fn answered(&self) -> Option<Outcome> {
        self.answer.lock().clone()
    }

    /// Wait for the answer.
    pub async fn wait(&self) -> Outcome {
        loop {
            let rung = self.bell.notified();
            if let Some(answer) = self.answered() {
                return answer;
            }
            rung.await;
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}
