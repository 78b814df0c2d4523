//! What the tests of the locks share: patience, deaths and single polls.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rideau::{Clock, Locks, LocksOptions, queue};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Nothing here takes nearly as long, unless it hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(60);

/// The tests run for much longer.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("RIDEAU_SOAK").is_some()
}

/// So often, and eight times as often in a soak.
pub(crate) fn times(times: u64) -> u64 {
    if is_soak() { times * 8 } else { times }
}

/// Wait for what others bring about.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANGS, "{what} does not come about");
        thread::park_timeout(MS);
    }
}

/// Die while doing something, without a word.
pub(crate) fn die() -> ! {
    resume_unwind(Box::new("it was meant"))
}

/// Whether doing this ends in a panic.
pub(crate) fn panics<T>(act: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// Look once whether a future is ready; no task is woken.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// No waiting ask is shed.
pub(crate) fn patient() -> queue::Options {
    queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    }
}

/// Locks for which one waits in such a queue.
pub(crate) fn locks_with(queue: queue::Options) -> Locks<String> {
    Locks::with(LocksOptions { queue, fence: 0 }).unwrap()
}

/// The same, on a paused clock.
pub(crate) fn paused_locks(queue: queue::Options) -> Locks<String> {
    Locks::with_by(LocksOptions { queue, fence: 0 }, &Clock::paused()).unwrap()
}

/// Locks for which one waits as long as it takes.
pub(crate) fn patient_locks() -> Locks<String> {
    locks_with(patient())
}
