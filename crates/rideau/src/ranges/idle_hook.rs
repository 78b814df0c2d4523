//! Threads that say when they have nothing more to do.
//!
//! Were the thread that writes woken for the first of many that come at once,
//! it would write that one alone, on the very core that should execute the
//! others. A thread that serves many connections in turn cannot tell any of them
//! its answer before all of them had their turn, so none loses when the writer is
//! woken then.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use parking_lot::Condvar;

thread_local! {
    static RESTS: Cell<bool> = const { Cell::new(false) };
    /// To be rung before this thread sleeps.
    static OWED: RefCell<Vec<Arc<Condvar>>> = const { RefCell::new(Vec::new()) };
}

/// Called by a thread whenever it has nothing more to do, before it sleeps. What
/// it changes in [`Ranges`](crate::Ranges) from the first such call on is written
/// down from the next one on, or a little later if there is none. Nothing needs it,
/// but where one thread serves many it makes fewer and larger batches.
///
/// It fits tokio's `on_thread_park`, for a runtime of one thread.
pub fn rest() {
    RESTS.set(true);
    settle();
}

/// Ring what is owed: this thread is about to wait.
pub(super) fn settle() {
    // A thread that ends has no list any more, and owes nothing.
    let _ = OWED.try_with(|owed| {
        if let Ok(mut owed) = owed.try_borrow_mut() {
            owed.drain(..).for_each(|timer| {
                timer.notify_one();
            });
        }
    });
}

/// Leave it to this thread to ring when it rests, if it is one that does.
pub(super) fn owe(timer: &Arc<Condvar>) -> bool {
    RESTS.try_with(Cell::get).unwrap_or(false)
        && OWED
            .try_with(|owed| {
                let mut owed = owed.borrow_mut();
                if !owed.iter().any(|known| Arc::ptr_eq(known, timer)) {
                    owed.push(Arc::clone(timer));
                }
            })
            .is_ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn owed() -> usize {
        OWED.with_borrow(Vec::len)
    }

    #[test]
    fn only_a_thread_that_rests_owes_and_once_for_each_bell() {
        let (timer, other) = (Arc::new(Condvar::new()), Arc::new(Condvar::new()));
        thread::scope(|scope| {
            let it = || {
                assert!(!owe(&timer));
                rest();
                assert!(owe(&timer) && owe(&timer) && owe(&other));
                assert_eq!(owed(), 2);
                rest();
                assert_eq!(owed(), 0);
            };
            scope.spawn(it).join().unwrap();
        });
        assert!(!owe(&timer), "another thread has not rested");
    }
}
