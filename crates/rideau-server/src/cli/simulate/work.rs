//! Runs many scenarios, as many at a time as there are cores, and shows how far it is.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::exit::Failure;

/// How far all the work is, in whatever unit it has.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU64);

impl Progress {
    /// So much more is done.
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a piece of work ended with, and its processor time in milliseconds.
#[derive(Debug)]
pub(super) struct Worked<T> {
    pub(super) result: T,
    pub(super) cpu_ms: f64,
}

/// How often the bar is drawn.
const REDRAW: Duration = Duration::from_millis(150);
/// What is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);
const BAR: usize = 30;

/// Do a piece of work for each of these, in any order; the results are in theirs. `whole` is
/// how much all of it is.
pub(super) fn for_each<I: Sync, T: Send>(
    items: &[I],
    whole: u64,
    work: impl Fn(&I, &Progress) -> Result<T, Failure> + Sync,
) -> Result<Vec<Worked<T>>, Failure> {
    let (next, progress) = (AtomicUsize::new(0), Progress::default());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut bar = Bar::new(whole);
    let mut found: Vec<_> = items.iter().map(|_| None).collect();
    let mut fault = None;
    thread::scope(|scope| {
        let (told, results) = mpsc::channel();
        for _ in 0..cores.min(items.len()) {
            let (told, next, progress, work) = (told.clone(), &next, &progress, &work);
            scope.spawn(move || {
                while let Some(item) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    let before = cpu_ms();
                    let result = work(item.1, progress);
                    let cpu_ms = cpu_ms() - before;
                    let is_broken = result.is_err();
                    let worked = result.map(|result| Worked { result, cpu_ms });
                    if told.send((item.0, worked)).is_err() || is_broken {
                        return;
                    }
                }
            });
        }
        drop(told);
        loop {
            match results.recv_timeout(REDRAW) {
                Ok((at, Ok(worked))) => found[at] = Some(worked),
                Ok((_, Err(failure))) => {
                    // The others need not begin anything more.
                    next.store(items.len(), Ordering::Relaxed);
                    fault = Some(failure);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => bar.draw(progress.done()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    bar.clear();
    match fault {
        Some(failure) => Err(failure),
        None => Ok(found.into_iter().flatten().collect()),
    }
}

/// The processor time of this thread.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// A bar on standard error, if that is a terminal.
struct Bar {
    whole: u64,
    since: Instant,
    is_wanted: bool,
    is_drawn: bool,
}

impl Bar {
    fn new(whole: u64) -> Self {
        Self {
            whole: whole.max(1),
            since: Instant::now(),
            is_wanted: io::stderr().is_terminal(),
            is_drawn: false,
        }
    }

    fn draw(&mut self, done: u64) {
        let took = self.since.elapsed();
        if !self.is_wanted || took < PATIENCE {
            return;
        }
        self.is_drawn = true;
        // There may be no reader.
        let mut err = io::stderr();
        let _ = write!(err, "\r{}\x1b[K", line(done, self.whole, took));
        let _ = err.flush();
    }

    fn clear(&self) {
        if self.is_drawn {
            let mut err = io::stderr();
            let _ = write!(err, "\r\x1b[K");
            let _ = err.flush();
        }
    }
}

fn line(done: u64, whole: u64, took: Duration) -> String {
    let part = (done as f64 / whole as f64).min(1.0);
    let full = (part * BAR as f64) as usize;
    let mut line = format!(
        "[{}{}] {:>3.0} %",
        "#".repeat(full),
        "-".repeat(BAR - full),
        100.0 * part
    );
    if part > 0.02 {
        let left = took.as_secs_f64() * (1.0 - part) / part;
        line += &format!("  {left:.0} s left");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_work() {
        let items: Vec<u64> = (0..100).collect();
        let done = for_each(&items, 100, |item, progress| {
            progress.add(1);
            Ok(item * 2)
        });
        let results: Vec<_> = done.unwrap().iter().map(|one| one.result).collect();
        assert_eq!(results, (0..100).map(|n| n * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_ends_all() {
        let items: Vec<u64> = (0..100).collect();
        let done = for_each(&items, 100, |item, _| match item {
            7 => Err(Failure::Broken("seven".into())),
            _ => Ok(()),
        });
        assert_eq!(done.unwrap_err().to_string(), "seven");
    }

    #[test]
    fn a_bar_says_how_far_and_how_long() {
        let took = Duration::from_secs(10);
        let said = line(50, 100, took);
        assert_eq!(said, "[###############---------------]  50 %  10 s left");
        assert!(line(0, 100, took).ends_with("0 %"));
        assert!(line(200, 100, took).contains("100 %"));
    }
}
