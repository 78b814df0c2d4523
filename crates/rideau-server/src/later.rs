//! An ask whose answer comes later, under the ticket that was given at once.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::outbox::Outbox;
use crate::outcome::{Outcome, Part};

/// An ask under way, or its answer until somebody fetches it.
#[derive(Debug)]
pub struct Later {
    name: String,
    /// Where its command is among all.
    pub command: usize,
    /// Where it is told that asked, and whether it is.
    outbox: Arc<Outbox>,
    is_pushed: bool,
    state: Mutex<State>,
    bell: Notify,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct State {
    /// What it comes to is known, and nobody else may decide.
    is_decided: bool,
    answer: Option<Outcome>,
}

impl Later {
    /// An ask of this command for something with this name.
    pub fn new(name: &str, command: usize, outbox: Arc<Outbox>, is_pushed: bool) -> Self {
        Self {
            name: name.into(),
            command,
            outbox,
            is_pushed,
            state: Mutex::default(),
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

    /// The client is told what becomes of it, and need not fetch it.
    pub fn is_pushed(&self) -> bool {
        self.is_pushed
    }

    /// Where that is told.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Decide what it comes to. Only the first may.
    pub fn decide(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_decided, true)
    }

    /// Answer no, and wait no longer, unless it is decided. Says whether it was not.
    pub fn refuse(&self, outcome: Outcome) -> bool {
        if !self.decide() {
            return false;
        }
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.answer(outcome);
        true
    }

    /// Here it is.
    pub fn answer(&self, outcome: Outcome) {
        self.state.lock().answer = Some(outcome);
        self.bell.notify_waiters();
    }

    /// Nobody wants it any more: leave the line, and tell who awaits it.
    pub fn cancel(&self, why: &'static str) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        let mut state = self.state.lock();
        if state.answer.is_none() {
            let parts = vec![Part::Number(0), why.into()];
            state.answer = Some(Outcome::new("cancelled", parts));
        }
        drop(state);
        self.bell.notify_waiters();
    }

    /// The answer, if it is there.
    pub fn answered(&self) -> Option<Outcome> {
        self.state.lock().answer.clone()
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
