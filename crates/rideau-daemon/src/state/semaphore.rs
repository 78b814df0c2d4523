//! A semaphore whose number of permits follows the config.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Permits that are taken in order.
pub(crate) struct ResizableSemaphore {
    free: Semaphore,
    max: Mutex<usize>,
    /// This many of those in use end with their users.
    owed: AtomicUsize,
}

/// A permit, until it is dropped.
pub(crate) struct Permit<'a> {
    semaphore: &'a ResizableSemaphore,
    permit: Option<SemaphorePermit<'a>>,
}

impl ResizableSemaphore {
    /// This many permits at a time.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            free: Semaphore::new(max),
            max: Mutex::new(max),
            owed: AtomicUsize::new(0),
        }
    }

    /// A permit, if one is free.
    pub(crate) fn try_take(&self) -> Option<Permit<'_>> {
        let permit = self.free.try_acquire().ok()?;
        Some(Permit {
            semaphore: self,
            permit: Some(permit),
        })
    }

    /// Wait for a permit.
    pub(crate) async fn take(&self) -> Permit<'_> {
        let permit = self.free.acquire().await;
        Permit {
            semaphore: self,
            permit: Some(permit.expect("it is never closed")),
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

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.semaphore.pay(1) == 1
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
    fn fewer_permits_count_as_soon_as_those_in_use_end() {
        let semaphore = ResizableSemaphore::new(3);
        let (one, two) = (semaphore.try_take(), semaphore.try_take());
        semaphore.set_max(1);
        assert_eq!(semaphore.used(), 2);
        assert!(semaphore.try_take().is_none());
        drop(one);
        assert!(semaphore.try_take().is_none(), "it was one too many");
        drop(two);
        let last = semaphore.try_take();
        assert!(last.is_some() && semaphore.try_take().is_none());
    }

    #[test]
    fn more_permits_count_at_once() {
        let semaphore = ResizableSemaphore::new(1);
        let one = semaphore.try_take();
        semaphore.set_max(2);
        let two = semaphore.try_take();
        assert!(one.is_some() && two.is_some() && semaphore.try_take().is_none());
        semaphore.set_max(1);
        semaphore.set_max(3);
        assert!(
            semaphore.try_take().is_some(),
            "what was owed is not owed now"
        );
        assert_eq!(semaphore.used(), 2);
    }
}
