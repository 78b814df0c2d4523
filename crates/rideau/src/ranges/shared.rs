//! What callers and the thread that writes have in common.

use std::sync::Arc;
use std::thread::{self, JoinHandle, ThreadId};

use parking_lot::{Condvar, Mutex};
use rideau_core::allocator::{Allocator, Effects, Event};
use tokio::sync::broadcast::WeakSender;

use super::Failed;
use super::clocks::Continued;
use super::safe::Safe;
use crate::store::{Loaded, StoreError};

/// The last of its owners ends the thread.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) loaded: Loaded,
    thread: ThreadId,
    committer: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Shared {
    pub(super) inner: Mutex<Inner>,
    /// Something was logged, or the end has come.
    pub(super) logged: Condvar,
    pub(super) safe: Arc<Safe>,
    pub(super) clock: Continued,
    /// The thread has the only strong one, so that events end with it.
    pub(super) events: WeakSender<Event>,
}

pub(super) struct Inner {
    pub(super) machine: Allocator,
    pub(super) effects: Effects,
    pub(super) failed: Option<Arc<StoreError>>,
    pub(super) is_closing: bool,
    /// That nothing more comes is written down.
    pub(super) has_stopped: bool,
    pub(super) sleep: Sleep,
    /// As many answers wait for what is logged and not taken.
    pub(super) waiting: u64,
}

/// What the thread does while nothing is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleep {
    Awake,
    /// It looks at the clock now and then.
    Light,
    /// Nothing can come due.
    Deep,
    /// It waits until so many wait for it.
    Gathers {
        target: u64,
    },
}

impl Shared {
    pub(super) fn new(
        machine: Allocator,
        effects: Effects,
        clock: Continued,
        events: WeakSender<Event>,
    ) -> Self {
        Self {
            inner: Mutex::new(Inner {
                machine,
                effects,
                failed: None,
                is_closing: false,
                has_stopped: false,
                sleep: Sleep::Awake,
                waiting: 0,
            }),
            logged: Condvar::new(),
            safe: Arc::default(),
            clock,
            events,
        }
    }

    /// Wake the thread if it has something to do, or something may come due.
    pub(super) fn wake(&self, inner: &mut Inner) {
        let is_needed = match inner.sleep {
            Sleep::Awake => false,
            Sleep::Light => inner.has_news() || inner.is_closing,
            Sleep::Deep => true,
            Sleep::Gathers { target } => inner.waiting >= target || inner.is_closing,
        };
        if is_needed {
            inner.sleep = Sleep::Awake;
            self.logged.notify_one();
        }
    }

    /// Nothing more will be safe.
    pub(super) fn fail(&self, error: StoreError) {
        let error = Arc::new(error);
        self.inner.lock().failed = Some(Arc::clone(&error));
        self.safe.fail(error);
    }
}

impl Inner {
    pub(super) fn why_not(&self) -> Option<Failed> {
        match &self.failed {
            Some(error) => Some(Failed::Store(Arc::clone(error))),
            None => self.is_closing.then_some(Failed::Closed),
        }
    }

    /// Is there something to be written or told?
    pub(super) fn has_news(&self) -> bool {
        let events = self.effects.events.as_ref();
        !self.effects.log.is_empty() || events.is_some_and(|events| !events.is_empty())
    }
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, loaded: Loaded, committer: JoinHandle<()>) -> Self {
        Self {
            shared,
            loaded,
            thread: committer.thread().id(),
            committer: Mutex::new(Some(committer)),
        }
    }

    pub(super) fn close(&self) {
        let mut inner = self.shared.inner.lock();
        inner.is_closing = true;
        self.shared.wake(&mut inner);
        drop(inner);
        // Whom it wakes may drop the last handle. It cannot wait for itself,
        // and ends after this turn.
        if thread::current().id() == self.thread {
            return;
        }
        // Whoever else closes waits here for the same.
        let mut committer = self.committer.lock();
        if let Some(committer) = committer.take() {
            // It says itself what went wrong.
            let _ = committer.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
