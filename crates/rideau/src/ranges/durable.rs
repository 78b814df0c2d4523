//! Which turn of the thread that writes was the last that is safe, and which tasks wait
//! for a later one.
//!
//! The thread that writes the log moves on with one store and one call for each
//! thread that has a notifier: to find out which tasks are due is up to the notifier, on
//! the thread of the tasks that wait. So an ask meanwhile hardly ever finds the
//! lock taken.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use parking_lot::{Condvar, Mutex};

use super::Failed;
use super::idle_hook;
use super::ownership::RestsOn;
use crate::store::StoreError;

/// The last turn whose batches would survive, for all that have to know.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// It moves under the lock, and is read without.
    turn: AtomicU64,
    inner: Mutex<Inner>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    failed: Option<Arc<StoreError>>,
    /// Tasks on threads without a notifier.
    line: Line,
    notifiers: Vec<CommitNotifier>,
    /// The number of the next notifier.
    serial: u64,
}

/// The tasks that wait, in no order.
#[derive(Debug)]
struct Line {
    waiting: Vec<Waiter>,
    /// The first turn that one of them waits for.
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    turn: u64,
    waker: Waker,
}

/// Wakes the others of its thread.
#[derive(Debug)]
struct CommitNotifier {
    serial: u64,
    /// Where it last ran. The tasks that wait there will run there too.
    thread: ThreadId,
    /// None if it was woken and has not come.
    waker: Option<Waker>,
    line: Line,
}

impl Durable {
    /// Is this turn safe, with all before it? An error if it never will be.
    pub(super) fn reached(&self, turn: u64, on: &RestsOn) -> Option<Result<(), Failed>> {
        if let Some(reached) = self.reached_at_once(turn, on) {
            return Some(reached);
        }
        self.reached_in(&self.inner.lock(), turn, on)
    }

    /// The last that is safe.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// As [`reached`](Self::reached); wakes the waker when the answer changes.
    pub(super) fn poll(
        &self,
        turn: u64,
        on: &RestsOn,
        waker: &Waker,
    ) -> Option<Result<(), Failed>> {
        if let Some(reached) = self.reached_at_once(turn, on) {
            return Some(reached);
        }
        let mut inner = self.inner.lock();
        let reached = self.reached_in(&inner, turn, on);
        if reached.is_none() {
            let waker = waker.clone();
            inner.line_here().push(Waiter { turn, waker });
        }
        reached
    }

    /// Wait until this turn is safe, with all before it.
    pub(super) fn wait(&self, turn: u64, on: &RestsOn) -> Result<(), Failed> {
        idle_hook::settle();
        let mut inner = self.inner.lock();
        loop {
            if let Some(reached) = self.reached_in(&inner, turn, on) {
                return reached;
            }
            self.moved.wait(&mut inner);
        }
    }

    pub(super) fn move_to(&self, turn: u64) {
        let mut inner = self.inner.lock();
        self.turn.store(turn, Ordering::Release);
        let wakers = inner.call(turn);
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wake the tasks that wait on the thread that this runs on. A runtime is told
    /// of every waker that comes from another thread with a call to the system; of
    /// this one alone it is cheaper.
    pub(super) async fn commit_notifier(self: Arc<Self>) {
        let gone = Gone(&self, self.inner.lock().next_serial());
        future::poll_fn(|task| {
            let mut inner = self.inner.lock();
            let line = inner.register(gone.1, task.waker());
            let due = line.take_due(self.turn());
            drop(inner);
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
        let wakers: Vec<Waker> = inner
            .lines()
            .flat_map(|line| line.take_due(u64::MAX))
            .collect();
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Some of what tasks wait for will not be safe: all of them look again.
    pub(super) fn look_again(&self) {
        let mut inner = self.inner.lock();
        // They stay where they are: most of them wait on.
        let waiting = inner.lines().flat_map(|line| &line.waiting);
        let wakers: Vec<Waker> = waiting.map(|one| one.waker.clone()).collect();
        drop(inner);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// It will be safe again, for the tasks that have not been told otherwise.
    pub(super) fn recover(&self) {
        self.inner.lock().failed = None;
    }

    fn reached_in(&self, inner: &Inner, turn: u64, on: &RestsOn) -> Option<Result<(), Failed>> {
        let reached = self.reached_at_once(turn, on);
        reached.or_else(|| inner.failed.clone().map(|error| Err(Failed::Store(error))))
    }

    /// The same, as far as it can be told without the lock.
    fn reached_at_once(&self, turn: u64, on: &RestsOn) -> Option<Result<(), Failed>> {
        if let Some(lost) = on.lost() {
            return Some(Err(lost));
        }
        (self.turn() >= turn).then_some(Ok(()))
    }
}

/// The notifier of this number has ended, perhaps with its runtime: no waiter is left
/// behind.
struct Gone<'a>(&'a Durable, u64);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        let gone = inner
            .notifiers
            .extract_if(.., |notifier| notifier.serial == self.1);
        let left: Vec<Waiter> = gone.flat_map(|notifier| notifier.line.waiting).collect();
        left.into_iter().for_each(|one| inner.line.push(one));
        let due = inner.line.take_due(self.0.turn());
        drop(inner);
        due.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut Line> {
        let notifiers = self.notifiers.iter_mut().map(|notifier| &mut notifier.line);
        notifiers.chain([&mut self.line])
    }

    /// Where one of this thread waits.
    fn line_here(&mut self) -> &mut Line {
        let thread = thread::current().id();
        let notifier = self.notifiers.iter_mut().find(|one| one.thread == thread);
        notifier.map_or(&mut self.line, |notifier| &mut notifier.line)
    }

    /// A notifier is here and can be called. Says which tasks may have to be woken.
    fn register(&mut self, serial: u64, waker: &Waker) -> &mut Line {
        let thread = thread::current().id();
        let known = self.notifiers.iter().position(|one| one.serial == serial);
        let at = known.unwrap_or_else(|| {
            self.notifiers.push(CommitNotifier {
                serial,
                thread,
                waker: None,
                line: Line::default(),
            });
            self.notifiers.len() - 1
        });
        let notifier = &mut self.notifiers[at];
        notifier.thread = thread;
        if !notifier
            .waker
            .as_ref()
            .is_some_and(|own| own.will_wake(waker))
        {
            notifier.waker = Some(waker.clone());
        }
        &mut notifier.line
    }

    /// What to wake now that it is safe so far: notifiers in place of several. One
    /// that was woken and has not come yet will see it.
    fn call(&mut self, turn: u64) -> Vec<Waker> {
        let mut wakers = self.line.take_due(turn);
        for notifier in &mut self.notifiers {
            if notifier.line.next > turn {
                continue;
            }
            match notifier.line.waiting.len() {
                1 => wakers.extend(notifier.line.take_due(turn)),
                _ => wakers.extend(notifier.waker.take()),
            }
        }
        wakers
    }
}

impl Default for Line {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            next: u64::MAX,
        }
    }
}

impl Line {
    fn push(&mut self, one: Waiter) {
        self.next = self.next.min(one.turn);
        self.waiting.push(one);
    }

    /// The tasks that wait for no more than this do not any longer.
    fn take_due(&mut self, turn: u64) -> Vec<Waker> {
        if self.next > turn {
            return Vec::new();
        }
        let due = self
            .waiting
            .extract_if(.., |one| one.turn <= turn)
            .map(|one| one.waker)
            .collect();
        let left = self.waiting.iter().map(|one| one.turn);
        self.next = left.min().unwrap_or(u64::MAX);
        due
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

    fn three_wait(safe: &Durable) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        for turn in [1, 2, 3] {
            assert!(safe.poll(turn, &RestsOn::NOTHING, &waker).is_none());
        }
        count
    }

    #[test]
    fn a_ferry_is_woken_once_and_wakes_all_tasks_that_are_due() {
        let safe = Arc::new(Durable::default());
        let rung = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&rung));
        let mut notifier = pin!(Arc::clone(&safe).commit_notifier());
        let _ = notifier.as_mut().poll(&mut Context::from_waker(&waker));
        let count = three_wait(&safe);
        safe.move_to(2);
        assert_eq!((rung.times(), count.times()), (1, 0));
        let _ = notifier.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!((rung.times(), count.times()), (1, 2));
    }

    #[test]
    fn a_ferry_wakes_only_those_of_its_thread() {
        let safe = Arc::new(Durable::default());
        let mut notifier = pin!(Arc::clone(&safe).commit_notifier());
        let mut task = Context::from_waker(Waker::noop());
        let _ = notifier.as_mut().poll(&mut task);
        let here = three_wait(&safe);
        let there = thread::scope(|scope| scope.spawn(|| three_wait(&safe)).join().unwrap());
        safe.move_to(3);
        assert_eq!((here.times(), there.times()), (0, 3));
        let _ = notifier.as_mut().poll(&mut task);
        assert_eq!((here.times(), there.times()), (3, 3));
    }

    #[test]
    fn one_alone_needs_no_ferry() {
        let safe = Arc::new(Durable::default());
        let mut notifier = pin!(Arc::clone(&safe).commit_notifier());
        let _ = notifier
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(safe.poll(1, &RestsOn::NOTHING, &waker).is_none());
        safe.move_to(1);
        assert_eq!(count.times(), 1);
    }

    #[test]
    fn a_task_that_waits_for_more_waits_on() {
        let safe = Arc::new(Durable::default());
        let mut notifier = pin!(Arc::clone(&safe).commit_notifier());
        let mut task = Context::from_waker(Waker::noop());
        let _ = notifier.as_mut().poll(&mut task);
        let count = three_wait(&safe);
        for (turn, times) in [(2, 2), (2, 2), (3, 3), (4, 3)] {
            safe.move_to(turn);
            let _ = notifier.as_mut().poll(&mut task);
            assert_eq!(count.times(), times, "{turn}");
        }
    }

    #[test]
    fn when_it_fails_all_hear_of_it() {
        let safe = Arc::new(Durable::default());
        let mut notifier = pin!(Arc::clone(&safe).commit_notifier());
        let _ = notifier
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let here = three_wait(&safe);
        let there = thread::scope(|scope| scope.spawn(|| three_wait(&safe)).join().unwrap());
        safe.move_to(1);
        let (fence, newest) = (1, 2);
        safe.fail(Arc::new(StoreError::Fenced { fence, newest }));
        assert_eq!((here.times(), there.times()), (3, 3));
        assert!(matches!(safe.reached(1, &RestsOn::NOTHING), Some(Ok(()))));
        assert!(matches!(safe.reached(2, &RestsOn::NOTHING), Some(Err(_))));
    }

    #[test]
    fn a_ferry_that_is_slow_or_gone_leaves_no_task_behind() {
        let safe = Arc::new(Durable::default());
        let mut notifier = Box::pin(Arc::clone(&safe).commit_notifier());
        let _ = notifier
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let count = three_wait(&safe);
        safe.move_to(2);
        // It has not run since, and takes this one along.
        safe.move_to(3);
        assert_eq!(count.times(), 0);
        let later = two_wait_from(&safe, 8);
        drop(notifier);
        assert_eq!((count.times(), later.times()), (3, 0));
        let count = two_wait_from(&safe, 4);
        safe.move_to(9);
        assert_eq!((count.times(), later.times()), (2, 2));
    }

    fn two_wait_from(safe: &Durable, first: u64) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        for turn in [first, first + 1] {
            assert!(safe.poll(turn, &RestsOn::NOTHING, &waker).is_none());
        }
        count
    }
}
