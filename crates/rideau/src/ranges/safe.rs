//! How far the log is safe, and who waits for it to be.

use std::future;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

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
    /// Who wakes the others where they run, if anybody does.
    ferry: Option<Waker>,
    /// Those whom the ferry has to wake.
    due: Vec<Waker>,
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
        let wakers = inner.leave_to_ferry(wakers);
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wake those who wait from within the runtime that this runs in. A runtime
    /// is told of every waker that comes from another thread with a call to the
    /// system; of this one alone it is cheaper.
    pub(super) async fn ferry(self: Arc<Self>) {
        let gone = Gone(&self);
        future::poll_fn(|task| {
            let due = {
                let mut inner = self.inner.lock();
                inner.ferry = Some(task.waker().clone());
                mem::take(&mut inner.due)
            };
            due.into_iter().for_each(Waker::wake);
            Poll::<()>::Pending
        })
        .await;
        drop(gone);
    }

    /// Nothing more will be safe.
    pub(super) fn fail(&self, error: Arc<StoreError>) {
        let mut inner = self.inner.lock();
        inner.failed.get_or_insert(error);
        let waiting = mem::take(&mut inner.waiting);
        drop(inner);
        self.moved.notify_all();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// The ferry has ended, perhaps with its runtime: nobody is left behind.
struct Gone<'a>(&'a Safe);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        inner.ferry = None;
        let due = mem::take(&mut inner.due);
        drop(inner);
        due.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    /// Whom to wake now: the ferry in place of several, if there is one.
    fn leave_to_ferry(&mut self, wakers: Vec<Waker>) -> Vec<Waker> {
        match self.ferry.take_if(|_| wakers.len() > 1) {
            Some(ferry) => {
                self.due.extend(wakers);
                vec![ferry]
            }
            None => wakers,
        }
    }

    fn reached(&self, position: u64) -> Option<Result<(), Arc<StoreError>>> {
        if self.position >= position {
            return Some(Ok(()));
        }
        self.failed.clone().map(Err)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn three_wait(safe: &Safe) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        for position in [1, 2, 3] {
            assert!(safe.poll(position, &waker).is_none());
        }
        count
    }

    #[test]
    fn a_ferry_is_woken_once_and_wakes_all_who_are_due() {
        let safe = Arc::new(Safe::default());
        let rung = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&rung));
        let mut ferry = pin!(Arc::clone(&safe).ferry());
        let _ = ferry.as_mut().poll(&mut Context::from_waker(&waker));
        let count = three_wait(&safe);
        safe.move_to(2);
        assert_eq!((rung.times(), count.times()), (1, 0));
        let _ = ferry.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!((rung.times(), count.times()), (1, 2));
    }

    #[test]
    fn a_ferry_that_is_slow_or_gone_leaves_nobody_behind() {
        let safe = Arc::new(Safe::default());
        let mut ferry = Box::pin(Arc::clone(&safe).ferry());
        let _ = ferry.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let count = three_wait(&safe);
        safe.move_to(2);
        // It has not run since, so this one is woken as ever.
        safe.move_to(3);
        assert_eq!(count.times(), 1);
        drop(ferry);
        assert_eq!(count.times(), 3);
        let count = three_wait_from(&safe, 4);
        safe.move_to(9);
        assert_eq!(count.times(), 2);
    }

    fn three_wait_from(safe: &Safe, first: u64) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        for position in [first, first + 1] {
            assert!(safe.poll(position, &waker).is_none());
        }
        count
    }
}
