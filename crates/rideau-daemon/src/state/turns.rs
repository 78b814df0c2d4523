//! Turns to do something dear, as many at a time as the config allows.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Turns that are taken one after the other.
pub(crate) struct Turns {
    free: Semaphore,
    max: Mutex<usize>,
    /// This many of those in use end with their users.
    owed: AtomicUsize,
}

/// A turn, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    permit: Option<SemaphorePermit<'a>>,
}

impl Turns {
    /// This many turns at a time.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            free: Semaphore::new(max),
            max: Mutex::new(max),
            owed: AtomicUsize::new(0),
        }
    }

    /// A turn, if one is free.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        let permit = self.free.try_acquire().ok()?;
        Some(Turn {
            turns: self,
            permit: Some(permit),
        })
    }

    /// Wait for a turn.
    pub(crate) async fn take(&self) -> Turn<'_> {
        let permit = self.free.acquire().await;
        Turn {
            turns: self,
            permit: Some(permit.expect("nobody closes the turns")),
        }
    }

    /// This many at a time from now on. What is in use above that stays, and is not
    /// used again.
    pub(crate) fn set_max(&self, max: usize) {
        let mut now = self.max.lock();
        if max > *now {
            let more = max - *now;
            let spared = self.pay(more);
            self.free.add_permits(more - spared);
        } else {
            let less = *now - max;
            let forgotten = self.free.forget_permits(less);
            self.owed.fetch_add(less - forgotten, Ordering::AcqRel);
        }
        *now = max;
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> usize {
        let owed = self.owed.load(Ordering::Acquire);
        (*self.max.lock() + owed).saturating_sub(self.free.available_permits())
    }

    /// Owe this many less, as far as any are owed. Says how many that were.
    fn pay(&self, most: usize) -> usize {
        let less = |owed: usize| Some(owed.saturating_sub(most));
        let before = self
            .owed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        before.unwrap_or(0).min(most)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.turns.pay(1) == 1
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_turns_count_as_soon_as_those_in_use_end() {
        let turns = Turns::new(3);
        let (one, two) = (turns.try_take(), turns.try_take());
        turns.set_max(1);
        assert_eq!(turns.used(), 2);
        assert!(turns.try_take().is_none());
        drop(one);
        assert!(turns.try_take().is_none(), "it was one too many");
        drop(two);
        let last = turns.try_take();
        assert!(last.is_some() && turns.try_take().is_none());
    }

    #[test]
    fn more_turns_count_at_once() {
        let turns = Turns::new(1);
        let one = turns.try_take();
        turns.set_max(2);
        let two = turns.try_take();
        assert!(one.is_some() && two.is_some() && turns.try_take().is_none());
        turns.set_max(1);
        turns.set_max(3);
        assert!(turns.try_take().is_some(), "what was owed is not owed now");
        assert_eq!(turns.used(), 2);
    }
}
