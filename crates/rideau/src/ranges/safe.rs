//! How far the log is safe, and who waits for it to be.

use std::future;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use parking_lot::{Condvar, Mutex};

use super::rest;
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
    waiting: Vec<Waiter>,
    ferries: Vec<Ferry>,
    /// The number of the next ferry.
    serial: u64,
}

#[derive(Debug)]
struct Waiter {
    position: u64,
    waker: Waker,
    /// Where it last ran, and will again if its runtime has one thread.
    thread: ThreadId,
}

/// Wakes the others of its thread.
#[derive(Debug)]
struct Ferry {
    serial: u64,
    thread: ThreadId,
    /// None if it was woken and has not come.
    waker: Option<Waker>,
    /// Those whom it has to wake.
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
            inner.waiting.push(Waiter {
                position,
                waker: waker.clone(),
                thread: thread::current().id(),
            });
        }
        reached
    }

    /// Wait until everything up to here is safe.
    pub(super) fn wait(&self, position: u64) -> Result<(), Arc<StoreError>> {
        rest::settle();
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
        let due = inner.waiting.extract_if(.., |one| one.position <= position);
        let due: Vec<Waiter> = due.collect();
        let wakers = inner.leave_to_ferries(due);
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wake those who wait on the thread that this runs on. A runtime is told of
    /// every waker that comes from another thread with a call to the system; of
    /// this one alone it is cheaper.
    pub(super) async fn ferry(self: Arc<Self>) {
        let gone = Gone(&self, self.inner.lock().next_serial());
        future::poll_fn(|task| {
            let due = self.inner.lock().moor(gone.1, task.waker());
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
        waiting.into_iter().for_each(|one| one.waker.wake());
    }
}

/// The ferry of this number has ended, perhaps with its runtime: nobody is left
/// behind.
struct Gone<'a>(&'a Safe, u64);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        let gone = inner.ferries.extract_if(.., |ferry| ferry.serial == self.1);
        let due: Vec<Waker> = gone.flat_map(|ferry| ferry.due).collect();
        drop(inner);
        due.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A ferry is here and can be called. Says whom it has to wake.
    fn moor(&mut self, serial: u64, waker: &Waker) -> Vec<Waker> {
        let thread = thread::current().id();
        let known = self.ferries.iter_mut().find(|one| one.serial == serial);
        let Some(ferry) = known else {
            self.ferries.push(Ferry {
                serial,
                thread,
                waker: Some(waker.clone()),
                due: Vec::new(),
            });
            return Vec::new();
        };
        ferry.thread = thread;
        ferry.waker.get_or_insert_with(|| waker.clone());
        mem::take(&mut ferry.due)
    }

    /// Whom to wake now: ferries in place of several, where there are any. One
    /// that was woken and has not come yet takes these along.
    fn leave_to_ferries(&mut self, mut due: Vec<Waiter>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for ferry in &mut self.ferries {
            let is_here = |one: &Waiter| one.thread == ferry.thread;
            let count = due.iter().filter(|one| is_here(one)).count();
            if count < 2 && ferry.due.is_empty() {
                continue;
            }
            let here = due.extract_if(.., |one| is_here(one));
            ferry.due.extend(here.map(|one| one.waker));
            wakers.extend(ferry.waker.take());
        }
        wakers.extend(due.into_iter().map(|one| one.waker));
        wakers
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
    fn a_ferry_wakes_only_those_of_its_thread() {
        let safe = Arc::new(Safe::default());
        let mut ferry = pin!(Arc::clone(&safe).ferry());
        let mut task = Context::from_waker(Waker::noop());
        let _ = ferry.as_mut().poll(&mut task);
        let here = three_wait(&safe);
        let there = thread::scope(|scope| scope.spawn(|| three_wait(&safe)).join().unwrap());
        safe.move_to(3);
        assert_eq!((here.times(), there.times()), (0, 3));
        let _ = ferry.as_mut().poll(&mut task);
        assert_eq!((here.times(), there.times()), (3, 3));
    }

    #[test]
    fn one_alone_needs_no_ferry() {
        let safe = Arc::new(Safe::default());
        let mut ferry = pin!(Arc::clone(&safe).ferry());
        let _ = ferry.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let count = three_wait(&safe);
        safe.move_to(1);
        assert_eq!(count.times(), 1);
    }

    #[test]
    fn a_ferry_that_is_slow_or_gone_leaves_nobody_behind() {
        let safe = Arc::new(Safe::default());
        let mut ferry = Box::pin(Arc::clone(&safe).ferry());
        let _ = ferry.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let count = three_wait(&safe);
        safe.move_to(2);
        // It has not run since, and takes this one along.
        safe.move_to(3);
        assert_eq!(count.times(), 0);
        drop(ferry);
        assert_eq!(count.times(), 3);
        let count = two_wait_from(&safe, 4);
        safe.move_to(9);
        assert_eq!(count.times(), 2);
    }

    fn two_wait_from(safe: &Safe, first: u64) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        for position in [first, first + 1] {
            assert!(safe.poll(position, &waker).is_none());
        }
        count
    }
}
