//! What a step leaves to do once its lock is released.

use std::task::Waker;

/// Wakes and calls that must not happen under a lock.
#[derive(Default)]
pub(crate) struct After {
    /// Nearly every step wakes at most one, and then needs no memory for it.
    first: Option<Waker>,
    more: Vec<Waker>,
    calls: Vec<Box<dyn FnOnce() + Send>>,
}

impl After {
    pub(crate) fn wake(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.more.push(waker);
        }
    }

    pub(crate) fn call(&mut self, call: impl FnOnce() + Send + 'static) {
        self.calls.push(Box::new(call));
    }

    /// Do it, in the order in which it was asked for.
    pub(crate) fn run(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
        self.calls.into_iter().for_each(|call| call());
    }
}
