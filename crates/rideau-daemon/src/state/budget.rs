//! Bytes that many share, and that each gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// This many bytes for all together.
///
/// Nothing else is ordered by these numbers, so all of it is relaxed.
#[derive(Debug)]
pub(crate) struct Budget {
    max: AtomicU64,
    used: AtomicU64,
}

/// Bytes drawn from the budget; they return to it on drop.
#[derive(Debug)]
pub(crate) struct Drawn {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    /// This many bytes, and all of them are free.
    pub(crate) fn new(max: u64) -> Self {
        Self {
            max: AtomicU64::new(max),
            used: AtomicU64::new(0),
        }
    }

    /// How many there are.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// How many are drawn.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// This many from now on. What is drawn above that stays until it is given back.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn draw(&self, bytes: u64) -> bool {
        let max = self.max();
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= max);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.used.fetch_update(set, get, more).is_ok()
    }
}

impl Drawn {
    /// Nothing yet.
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Have this many from now on. Says whether they are free; if not, nothing has
    /// changed. Fewer can always be had.
    #[must_use]
    pub(crate) fn set(&mut self, bytes: u64) -> bool {
        let is_had = match bytes.checked_sub(self.bytes) {
            Some(more) => more == 0 || self.budget.draw(more),
            None => {
                self.give_back_to(bytes);
                true
            }
        };
        if is_had {
            self.bytes = bytes;
        }
        is_had
    }

    /// Have fewer from now on.
    fn give_back_to(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.budget.used.fetch_sub(back, Ordering::Relaxed);
        self.bytes -= back;
    }

    /// Have none.
    pub(crate) fn give_back(&mut self) {
        self.give_back_to(0);
    }

    /// How many there are for all together.
    pub(crate) fn max(&self) -> u64 {
        self.budget.max()
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_drawn_is_given_back() {
        let budget = Arc::new(Budget::new(100));
        let (mut one, mut other) = (Drawn::new(&budget), Drawn::new(&budget));
        assert!(one.set(60));
        assert!(!other.set(41), "only 40 are left");
        assert!(other.set(40));
        assert!(!one.set(61));
        assert_eq!(budget.used(), 100);
        assert!(one.set(10));
        assert_eq!(budget.used(), 50);
        drop(other);
        assert_eq!(budget.used(), 10);
        one.give_back();
        assert_eq!(budget.used(), 0);
        assert!(one.set(100));
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_lower_max_takes_nothing_away() {
        let budget = Arc::new(Budget::new(100));
        let mut drawn = Drawn::new(&budget);
        assert!(drawn.set(80));
        budget.set_max(50);
        assert_eq!((budget.max(), budget.used()), (50, 80));
        assert!(!drawn.set(81));
        assert!(drawn.set(70), "fewer can always be had");
        budget.set_max(90);
        assert!(drawn.set(90));
    }

    #[test]
    fn a_panic_gives_back_what_was_drawn() {
        let budget = Arc::new(Budget::new(100));
        let inner = Arc::clone(&budget);
        let ended = thread::spawn(move || {
            let mut drawn = Drawn::new(&inner);
            assert!(drawn.set(100));
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn threads_never_draw_more_than_there_is() {
        let budget = Arc::new(Budget::new(1000));
        thread::scope(|scope| {
            for seed in 0..4 {
                let budget = &budget;
                scope.spawn(move || {
                    let mut drawn = Drawn::new(budget);
                    for step in 0..10_000_u64 {
                        let _ = drawn.set((step * 37 + seed * 101) % 400);
                        assert!(budget.used() <= 1000);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
