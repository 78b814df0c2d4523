//! A lock that a thread need not wait for if it only leaves something behind.
//!
//! Lanes meet here for every request. One that finds the lock taken may find that
//! its holder was just put aside by the system, for milliseconds; its other
//! connections should not wait for that too. So an I/O thread that ends something leaves a
//! word of it, and the thread that has the lock, or has just released it, sees to
//! that.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};

/// Something behind a lock, and what was left for its holder.
pub(super) struct Desk<S, L> {
    state: Mutex<S>,
    left: Mutex<Vec<L>>,
    is_left: AtomicBool,
}

impl<S, L> Desk<S, L> {
    pub(super) fn new(state: S) -> Self {
        Self {
            state: Mutex::new(state),
            left: Mutex::default(),
            is_left: AtomicBool::new(false),
        }
    }

    /// A thread that takes the lock also takes what was left, and having released it
    /// looks with [`lock_for_left`](Self::lock_for_left).
    pub(super) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// The same if no other thread has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, S>> {
        self.state.try_lock()
    }

    /// Leave something for the holder of the lock. The caller then looks as if it had
    /// just released the lock: it may be free by now.
    pub(super) fn leave(&self, what: L) {
        let mut left = self.left.lock();
        left.push(what);
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// What was left, for the holder of the lock.
    pub(super) fn take_left(&self) -> Vec<L> {
        if !self.is_left.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut left = self.left.lock();
        self.is_left.store(false, Ordering::Relaxed);
        std::mem::take(&mut *left)
    }

    /// The lock once more, if something was left and no thread has it that will look.
    ///
    /// A thread that leaves something looks for the lock afterwards, and a thread that
    /// releases the lock looks for what was left. The fences put these in one order, so
    /// that one of the two sees the other.
    pub(super) fn lock_for_left(&self) -> Option<MutexGuard<'_, S>> {
        fence(Ordering::SeqCst);
        if self.is_left.load(Ordering::Relaxed) {
            self.try_lock()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_left_is_seen_to_by_somebody_else() {
        let desk: Desk<Vec<u32>, u32> = Desk::new(Vec::new());
        assert!(desk.lock_for_left().is_none(), "nothing was left");
        let state = desk.lock();
        assert!(desk.try_lock().is_none());
        desk.leave(1);
        desk.leave(2);
        assert!(desk.lock_for_left().is_none(), "who has it will look");
        drop(state);
        let mut state = desk.lock_for_left().expect("two were left");
        state.extend(desk.take_left());
        drop(state);
        assert_eq!(*desk.lock(), [1, 2]);
        assert!(desk.lock_for_left().is_none());
    }

    #[test]
    fn nothing_is_left_when_all_have_gone() {
        const THREADS: u64 = 4;
        const TURNS: u64 = 20_000;
        let desk: Desk<u64, u64> = Desk::new(0);
        thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    for _ in 0..TURNS {
                        match desk.try_lock() {
                            Some(mut sum) => *sum += 1 + desk.take_left().iter().sum::<u64>(),
                            None => desk.leave(1),
                        }
                        while let Some(mut sum) = desk.lock_for_left() {
                            *sum += desk.take_left().iter().sum::<u64>();
                        }
                    }
                });
            }
        });
        assert!(desk.take_left().is_empty(), "somebody saw to it");
        assert_eq!(*desk.lock(), THREADS * TURNS);
    }
}
