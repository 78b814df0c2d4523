//! An ask whose answer comes later, under the ticket that was given at once.
//!
//! The future that waits for the answer is here, and a task of its own polls it. So the
//! caller that ends the ask drops the future itself: when that is done, the ask is out
//! of its queue, and not only soon.

use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::state::answer::Outcome;
use crate::state::push::PushQueue;

/// The rights that a command needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The name of the command.
    pub name: &'static str,
    /// The right; nothing if no login is needed.
    pub right: &'static str,
    /// It is only for users, also where none is configured.
    pub is_control: bool,
}

/// An ask under way, or its answer.
pub(crate) struct Later {
    name: String,
    /// The rights that its command needs.
    pub needs: Needs,
    /// Where it is told that asked.
    outbox: Arc<PushQueue>,
    /// The wait, until it is answered or cancelled.
    wait: Mutex<Option<LaterWait>>,
    answer: Mutex<Option<Outcome>>,
    ended: Notify,
    task: Mutex<Option<AbortHandle>>,
}

/// A wait for an answer, and where to report it.
pub(crate) struct LaterWait {
    /// Waits, and tells.
    pub future: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Takes the ask out of its queue, unless it has been answered there. None where it
    /// makes no difference: then what was granted just now is given back.
    pub withdraw: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Later {
    /// An ask of this command for something with this name.
    pub(crate) fn new(name: &str, needs: Needs, outbox: Arc<PushQueue>) -> Self {
        Self {
            name: name.into(),
            needs,
            outbox,
            wait: Mutex::new(None),
            answer: Mutex::new(None),
            ended: Notify::new(),
            task: Mutex::new(None),
        }
    }

    /// The name of the pool, key, broker or other thing.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the answer is told.
    pub(crate) fn outbox(&self) -> &Arc<PushQueue> {
        &self.outbox
    }

    /// Wait for the answer in the background.
    pub(crate) fn begin(self: &Arc<Self>, wait: LaterWait) {
        *self.wait.lock() = Some(wait);
        let waits = Arc::downgrade(self);
        let task = tokio::spawn(future::poll_fn(move |context| match waits.upgrade() {
            Some(later) => later.poll(context),
            None => Poll::Ready(()),
        }));
        *self.task.lock() = Some(task.abort_handle());
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut wait = self.wait.lock();
        let Some(LaterWait { future, .. }) = &mut *wait else {
            return Poll::Ready(());
        };
        let polled = future.as_mut().poll(context);
        let done = match polled {
            Poll::Ready(()) => wait.take(),
            Poll::Pending => None,
        };
        drop(wait);
        drop(done);
        polled
    }

    /// Answer no, and wait no longer, unless it is answered. Says whether it was not.
    pub(crate) fn refuse(&self, outcome: Outcome) -> bool {
        let is_waiting = self.leave();
        if is_waiting {
            self.answer(outcome);
        }
        is_waiting
    }

    /// Here it is.
    pub(crate) fn answer(&self, outcome: Outcome) {
        *self.answer.lock() = Some(outcome);
        self.ended.notify_waiters();
    }

    /// It is not wanted any more: leave the queue, and tell the clients that await it.
    pub(crate) fn cancel(&self, why: &'static str) {
        self.leave();
        self.tell_cancelled(why);
    }

    /// The same, if it still waits. Says whether it did: from then on it will not be
    /// answered in any other way.
    pub(crate) fn cancel_waiting(&self, why: &'static str) -> bool {
        let mut wait = self.wait.lock();
        let is_waiting = match &*wait {
            Some(LaterWait { withdraw, .. }) => withdraw.as_ref().is_none_or(|withdraw| withdraw()),
            None => false,
        };
        if !is_waiting {
            return false;
        }
        let left = wait.take();
        drop(wait);
        drop(left);
        self.end_task();
        self.tell_cancelled(why);
        true
    }

    /// Leave the queue. Says whether it was in one.
    fn leave(&self) -> bool {
        let left = self.wait.lock().take();
        self.end_task();
        left.is_some()
    }

    fn end_task(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    fn tell_cancelled(&self, why: &'static str) {
        let mut answer = self.answer.lock();
        if answer.is_none() {
            let no = Outcome::ended("cancelled", Duration::ZERO, why.into(), "cancelled");
            *answer = Some(no);
        }
        drop(answer);
        self.ended.notify_waiters();
    }

    /// The answer, if it is there.
    pub(crate) fn answered(&self) -> Option<Outcome> {
        self.answer.lock().clone()
    }

    /// Wait for the answer.
    pub(crate) async fn wait(&self) -> Outcome {
        loop {
            let rung = self.ended.notified();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Says when it is dropped.
    struct Place(Arc<AtomicBool>);

    impl Drop for Place {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// An ask that waits for ever in a place, from which it can be withdrawn or not.
    fn begun(can_withdraw: Option<bool>) -> (Arc<Later>, Arc<AtomicBool>) {
        let later = Arc::new(Later::new(
            "desk",
            Needs::default(),
            Arc::new(PushQueue::new(1000)),
        ));
        let has_left = Arc::new(AtomicBool::new(false));
        let place = Place(Arc::clone(&has_left));
        let future = Box::pin(async move {
            let _place = place;
            future::pending().await
        });
        let withdraw = can_withdraw.map(|can| Box::new(move || can) as Box<_>);
        later.begin(LaterWait { future, withdraw });
        (later, has_left)
    }

    #[tokio::test]
    async fn an_ask_has_left_its_line_when_it_is_cancelled() {
        type End = fn(&Later) -> bool;
        let ends: [End; 3] = [
            |later| later.cancel_waiting("cancelled"),
            |later| later.refuse(Outcome::new("denied", Vec::new())),
            |later| {
                later.cancel("gone");
                true
            },
        ];
        for end in ends {
            let (later, has_left) = begun(Some(true));
            tokio::task::yield_now().await;
            assert!(!has_left.load(Ordering::Relaxed));
            // Nothing else runs in between.
            assert!(end(&later));
            assert!(has_left.load(Ordering::Relaxed), "it is still in its line");
            assert!(later.answered().is_some());
        }
    }

    #[tokio::test]
    async fn an_ask_that_was_answered_just_now_is_not_cancelled() {
        let (later, has_left) = begun(Some(false));
        assert!(!later.cancel_waiting("cancelled"));
        assert!(!has_left.load(Ordering::Relaxed));
        assert_eq!(later.answered(), None, "its answer is under way");
        let (later, has_left) = begun(None);
        assert!(later.cancel_waiting("cancelled"));
        assert!(has_left.load(Ordering::Relaxed));
        assert!(!later.cancel_waiting("cancelled"), "once is enough");
    }
}
