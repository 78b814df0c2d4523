//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection is given to one I/O thread when it comes and stays there. So nothing
//! about it moves between threads, no I/O thread looks for work at its neighbour's, and a
//! task that is woken by another on the same I/O thread is woken without the system.
//!
//! What belongs to no connection, timers of machines, members, the dashboard,
//! runs elsewhere: what is slow there keeps no connection waiting.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// When an I/O thread has this many tasks, it is time for the I/O threads that were left out. With
/// fewer these only take turns on cores that others need.
const PLENTY: usize = 256;

thread_local! {
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The I/O threads. When they are dropped all is gone that ran on them.
pub struct IoThreads {
    all: Vec<IoThread>,
    /// How many of them have tasks first; the others have some when these have plenty.
    first: usize,
    /// Where to look first for the I/O thread with the fewest tasks.
    next: AtomicUsize,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct IoThread {
    runtime: Handle,
    /// Tasks that were given to it and have not ended.
    len: Arc<AtomicUsize>,
}

impl IoThreads {
    /// This many I/O threads, and at least one; none for one per core.
    ///
    /// # Errors
    ///
    /// If the system has no more threads or files.
    pub fn start(count: Option<usize>) -> io::Result<Self> {
        let count = count.map_or_else(cores, Ok)?.max(1);
        Self::start_with(count, count)
    }

    /// One for each core, where the processes that are waited for run on the same
    /// machine: every other core is theirs until there is plenty to do for the I/O threads.
    ///
    /// # Errors
    ///
    /// If the system has no more threads or files.
    pub fn start_beside_others() -> io::Result<Self> {
        let count = cores()?;
        Self::start_with(count, count.div_ceil(2))
    }

    fn start_with(count: usize, first: usize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut io_threads = Self {
            all: Vec::with_capacity(count),
            first,
            next: AtomicUsize::new(0),
            stop,
            threads: Mutex::default(),
        };
        for index in 0..count {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park(rideau::rest)
                .build()?;
            io_threads.all.push(IoThread {
                runtime: runtime.handle().clone(),
                len: Arc::default(),
            });
            let stopped = stopped.clone();
            let thread = thread::Builder::new()
                .name(format!("io-{index}"))
                .spawn(move || run(index, runtime, stopped))?;
            io_threads.threads.get_mut().push(thread);
        }
        Ok(io_threads)
    }

    /// Have the I/O thread with the fewest tasks do this. The future is made there: a
    /// socket that was accepted elsewhere is registered in it, or never moves on.
    pub fn spawn<F>(&self, make: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let io_thread = self.emptiest();
        let task = Task::begin(&io_thread.len);
        io_thread.runtime.spawn(async move {
            let _task = task;
            make().await;
        });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// On which I/O thread this runs, if on any.
    pub fn here() -> Option<usize> {
        HERE.get()
    }

    /// The runtime of each, for what every one of them needs.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.all.iter().map(|io_thread| &io_thread.runtime)
    }

    /// End them. What still runs there is dropped, and is gone when this returns.
    /// Not to be called from an I/O thread, which cannot wait for its own end.
    pub async fn finish(&self) {
        let threads = self.stop();
        let _ = tokio::task::spawn_blocking(move || join(threads)).await;
    }

    /// Says which threads to wait for.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        self.stop.send_replace(true);
        std::mem::take(&mut *self.threads.lock())
    }

    fn emptiest(&self) -> &IoThread {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let usual = emptiest(&self.all[..self.first], turn);
        if usual.len() < PLENTY {
            usual
        } else {
            emptiest(&self.all, turn)
        }
    }
}

/// Among equals, each in turn.
fn emptiest(io_threads: &[IoThread], turn: usize) -> &IoThread {
    let (before, from) = io_threads.split_at(turn % io_threads.len());
    let io_threads = from.iter().chain(before);
    io_threads
        .min_by_key(|io_thread| io_thread.len())
        .expect("there is a thread")
}

impl IoThread {
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

/// One for each core.
fn cores() -> io::Result<usize> {
    thread::available_parallelism().map(Into::into)
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        let threads = self.stop();
        // What runs on an I/O thread may be the last that has them.
        if Self::here().is_none() {
            join(threads);
        }
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    // One that panicked has ended, too.
    threads.into_iter().map(JoinHandle::join).for_each(drop);
}

fn run(index: usize, runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    HERE.set(Some(index));
    // An error says that the I/O threads were dropped.
    let _ = runtime.block_on(stopped.wait_for(|is_stopped| *is_stopped));
    // A thread that checks a password just now may finish by itself.
    runtime.shutdown_background();
}

/// A task of an I/O thread, until it ends in whatever way.
struct Task(Arc<AtomicUsize>);

impl Task {
    fn begin(len: &Arc<AtomicUsize>) -> Self {
        len.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(len))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use tokio::sync::mpsc::error::TryRecvError;
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// On which I/O thread the next task runs, which ends with the sender.
    async fn next(io_threads: &IoThreads) -> (usize, oneshot::Sender<()>) {
        let (end, ended) = oneshot::channel();
        let (here, is_here) = oneshot::channel();
        io_threads.spawn(move || {
            let made = IoThreads::here();
            async move {
                assert_eq!(made, IoThreads::here(), "it is made where it runs");
                let _ = here.send(made.expect("it runs on an I/O thread"));
                let _ = ended.await;
            }
        });
        (is_here.await.unwrap(), end)
    }

    async fn emptied(io_threads: &IoThreads, index: usize) {
        while io_threads.all[index].len() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn equal_lanes_are_served_in_turn() {
        let io_threads = IoThreads::start(Some(3)).unwrap();
        let mut ends = Vec::new();
        let mut seen = [0; 3];
        for _ in 0..6 {
            let (io_thread, end) = next(&io_threads).await;
            seen[io_thread] += 1;
            ends.push(end);
        }
        assert_eq!(seen, [2, 2, 2]);
        assert_eq!((io_threads.len(), IoThreads::here()), (3, None));
    }

    #[tokio::test]
    async fn the_lane_with_the_fewest_tasks_gets_the_next() {
        let io_threads = IoThreads::start(Some(2)).unwrap();
        let (first, first_end) = next(&io_threads).await;
        let (second, _second_end) = next(&io_threads).await;
        assert_ne!(first, second);
        drop(first_end);
        emptied(&io_threads, first).await;
        let (third, _third_end) = next(&io_threads).await;
        assert_eq!(third, first);
    }

    #[tokio::test]
    async fn lanes_that_are_left_out_get_tasks_when_the_others_have_plenty() {
        let io_threads = IoThreads::start_with(4, 2).unwrap();
        let mut ends = Vec::new();
        let mut seen = [0; 4];
        for _ in 0..2 * PLENTY {
            let (io_thread, end) = next(&io_threads).await;
            seen[io_thread] += 1;
            ends.push(end);
        }
        assert_eq!(seen, [PLENTY, PLENTY, 0, 0]);
        for _ in 0..2 * PLENTY + 4 {
            let (io_thread, end) = next(&io_threads).await;
            seen[io_thread] += 1;
            ends.push(end);
        }
        assert_eq!(seen, [PLENTY + 1; 4]);
    }

    #[tokio::test]
    async fn a_task_that_is_dropped_or_panics_leaves_its_thread() {
        let io_threads = IoThreads::start(Some(1)).unwrap();
        io_threads.spawn(|| async { panic!("a test wants it") });
        emptied(&io_threads, 0).await;
        let (io_thread, _end) = next(&io_threads).await;
        assert_eq!(io_thread, 0, "the thread goes on");
    }

    #[tokio::test]
    async fn what_runs_is_dropped_when_lanes_finish() {
        let io_threads = IoThreads::start(Some(2)).unwrap();
        let (alive, mut dropped) = mpsc::channel::<()>(1);
        for _ in 0..4 {
            let alive = alive.clone();
            io_threads.spawn(move || async move {
                let _alive = alive;
                future::pending::<()>().await;
            });
        }
        drop(alive);
        io_threads.finish().await;
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Disconnected));
        io_threads.finish().await;
    }

    #[tokio::test]
    async fn nothing_runs_on_lanes_that_were_dropped() {
        let io_threads = IoThreads::start(Some(1)).unwrap();
        let (alive, mut dropped) = mpsc::channel::<()>(1);
        io_threads.spawn(move || async move {
            let _alive = alive;
            future::pending::<()>().await;
        });
        drop(io_threads);
        assert_eq!(dropped.try_recv(), Err(TryRecvError::Disconnected));
    }

    #[tokio::test]
    async fn a_task_with_the_last_handle_on_its_own_io_threads_ends_them() {
        let io_threads = Arc::new(IoThreads::start(Some(2)).unwrap());
        let (alive, mut dropped) = mpsc::channel::<()>(1);
        let last = Arc::clone(&io_threads);
        io_threads.spawn(move || async move {
            let _alive = alive;
            while Arc::strong_count(&last) > 1 {
                tokio::task::yield_now().await;
            }
            drop(last);
            future::pending::<()>().await;
        });
        drop(io_threads);
        assert_eq!(dropped.recv().await, None);
    }

    #[test]
    fn by_default_there_is_one_for_each_core() {
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!(IoThreads::start(None).unwrap().len(), cores);
        assert_eq!(IoThreads::start_beside_others().unwrap().len(), cores);
    }
}
