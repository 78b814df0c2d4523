//! Lets other tasks run when one always finds at once what it asks for.
//!
//! Such a task never suspends by itself. The answer is made by then, so that no
//! scheduler's budget looks like a refusal; it is only handed over a little
//! later.

use std::cell::Cell;
use std::pin::pin;
use std::task::Context;

use tokio::task::{self, Id};

thread_local! {
    /// The task that was last answered at once on this thread, and how often in
    /// a row.
    static LAST: Cell<(Option<Id>, u32)> = const { Cell::new((None, 0)) };
}

/// So many answers in a row are enough. Each wakes somebody; more than tokio's
/// local queue holds would end up in its global one, and starve there.
const IN_A_ROW: u32 = 4;

/// The task was answered at once. True if it should yield first, and will be
/// woken when the others have run.
#[inline]
pub(crate) fn is_enough(context: &mut Context<'_>) -> bool {
    let Some(task) = task::try_id() else {
        return false;
    };
    let (last, count) = LAST.get();
    let count = if last == Some(task) { count + 1 } else { 1 };
    if count < IN_A_ROW {
        LAST.set((Some(task), count));
        return false;
    }
    end();
    pin!(task::yield_now()).poll(context).is_pending()
}

/// The task suspends anyway.
#[inline]
pub(crate) fn end() {
    LAST.set((None, 0));
}
