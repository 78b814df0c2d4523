//! Lets other tasks run when one always finds at once what it asks for.
//!
//! Such a task never suspends by itself. The answer is made by then, so that no
//! scheduler's budget looks like a refusal; it is only handed over a little
//! later.

use std::cell::Cell;
use std::ptr;
use std::task::{Context, Waker};

use tokio::task;

thread_local! {
    /// The task that was last answered at once on this thread, by what its waker
    /// points at, and how often in a row.
    static LAST: Cell<(*const (), u32)> = const { Cell::new((ptr::null(), 0)) };
}

/// This many answers in a row are enough. Each wakes a task, and a turn of all
/// tasks should not last longer than if all had to suspend.
const IN_A_ROW: u32 = 2;

/// The task was answered at once. True if it should yield first.
///
/// It is woken here already, and so runs again right after those that it woke.
/// Tokio's own `yield_now` would leave it aside until the thread has nothing
/// else to do, and cost a look at the timers.
#[inline]
pub(crate) fn is_enough(context: &Context<'_>) -> bool {
    let waker = context.waker();
    let (last, count) = LAST.get();
    let count = if last == waker.data() { count + 1 } else { 1 };
    if count < IN_A_ROW {
        LAST.set((waker.data(), count));
        return false;
    }
    end();
    yields(waker)
}

/// The task suspends anyway.
#[inline]
pub(crate) fn end() {
    LAST.set((ptr::null(), 0));
}

/// Wake a task to be run again. A plain thread has no task to yield to, and a
/// caller that only has a look will not look again.
fn yields(waker: &Waker) -> bool {
    let is_task = task::try_id().is_some() && !waker.will_wake(Waker::noop());
    if is_task {
        waker.wake_by_ref();
    }
    is_task
}
