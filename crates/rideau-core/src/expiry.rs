//! A queue of deadlines, the earliest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Instant;

/// Entries may outlive what they stand for by this many, so that small
/// queues are never swept.
const STALE_MAX: usize = 64;

/// Instants at which something is due.
///
/// An entry is not searched for when what it stands for goes away: it
/// becomes stale, and is dropped when it comes first or when the stale ones
/// outnumber the others. The caller says which are alive.
#[derive(Debug)]
pub(crate) struct Expiry<K>(BinaryHeap<Reverse<(Instant, K)>>);

impl<K: Ord + Copy> Expiry<K> {
    pub(crate) const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    pub(crate) fn push(&mut self, due: Instant, key: K) {
        if due != Instant::NEVER {
            self.0.push(Reverse((due, key)));
        }
    }

    /// The next that is due by `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, K)> {
        let due = self.0.peek().is_some_and(|Reverse((due, _))| *due <= now);
        due.then(|| self.0.pop().expect("it was just seen").0)
    }

    /// When the next is due, if any.
    pub(crate) fn first(&self) -> Instant {
        self.0
            .peek()
            .map_or(Instant::NEVER, |Reverse((due, _))| *due)
    }

    /// Forget stale entries: those that come first always, the others when
    /// there are many beside `alive` living ones.
    pub(crate) fn sweep(&mut self, alive: usize, is_alive: impl Fn(Instant, K) -> bool) {
        while let Some(Reverse((due, key))) = self.0.peek()
            && !is_alive(*due, *key)
        {
            self.0.pop();
        }
        if self.0.len() > 4 * alive + STALE_MAX {
            self.0.retain(|Reverse((due, key))| is_alive(*due, *key));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_stale_ones_do_not_pile_up() {
        let mut expiry = Expiry::new();
        for n in (0..1000_u64).rev() {
            expiry.push(Instant::from_nanos(n), n);
        }
        expiry.sweep(10, |_, key| key >= 990);
        assert_eq!(expiry.first(), Instant::from_nanos(990));
        for n in 0..1000_u64 {
            expiry.push(Instant::from_nanos(2000 + n), n);
            expiry.sweep(10, |due, _| due < Instant::from_nanos(2000));
        }
        assert!(expiry.0.len() <= 4 * 10 + STALE_MAX);
        assert_eq!(expiry.pop_due(Instant::from_nanos(989)), None);
        assert_eq!(
            expiry.pop_due(Instant::from_nanos(990)),
            Some((Instant::from_nanos(990), 990))
        );
    }
}
