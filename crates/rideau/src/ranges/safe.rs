//! How far the log is safe, and who waits for it to be.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::{Condvar, Mutex};

use crate::store::StoreError;

/// Up to where the log would survive, for all who have to know.
#[derive(Debug, Default)]
pub(super) struct Safe {
    inner: Mutex<Inner>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    position: u64,
    failed: Option<Arc<StoreError>>,
    waiting: Vec<(u64, Waker)>,
}

impl Safe {
    /// Is everything up to here safe? An error if it never will be.
    pub(super) fn reached(&self, position: u64) -> Option<Result<(), Arc<StoreError>>> {
        self.inner.lock().reached(position)
    }

    /// How far it is safe.
    pub(super) fn position(&self) -> u64 {
        self.inner.lock().position
    }

    /// As [`reached`](Self::reached); wakes the waker when the answer changes.
    pub(super) fn poll(&self, position: u64, waker: &Waker) -> Option<Result<(), Arc<StoreError>>> {
        let mut inner = self.inner.lock();
        let reached = inner.reached(position);
        if reached.is_none() {
            inner.waiting.push((position, waker.clone()));
        }
        reached
    }

    /// Wait until everything up to here is safe.
    pub(super) fn wait(&self, position: u64) -> Result<(), Arc<StoreError>> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(reached) = inner.reached(position) {
                return reached;
            }
            self.moved.wait(&mut inner);
        }
    }

    pub(super) fn move_to(&self, position: u64) {
        let mut inner = self.inner.lock();
        inner.position = position;
        let due = inner.waiting.extract_if(.., |(at, _)| *at <= position);
        let wakers: Vec<Waker> = due.map(|(_, waker)| waker).collect();
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Nothing more will be safe.
    pub(super) fn fail(&self, error: Arc<StoreError>) {
        let mut inner = self.inner.lock();
        inner.failed.get_or_insert(error);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.moved.notify_all();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Inner {
    fn reached(&self, position: u64) -> Option<Result<(), Arc<StoreError>>> {
        if self.position >= position {
            return Some(Ok(()));
        }
        self.failed.clone().map(Err)
    }
}
