//! Asks that wait for values: how many there are, and what ends them.

use rideau_core::allocator::Tally;
use rideau_core::{Instant, Ticket};

use super::Ranges;
use super::shared::Inner;

impl Ranges {
    /// Give out nothing more: asks that wait are refused at once, as
    /// [closed](super::Failed::Closed), and so is what comes. Holders keep their values,
    /// and can change, renew and release them until [`close`](Self::close).
    pub fn refuse_asks(&self) {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        inner.is_refusing = true;
        let now = shared.clock.now();
        inner.let_waiters_go(now, &shared.safe);
        shared.finish(inner, now);
    }

    /// How many wait for values, and since when the oldest of them does.
    pub fn waiting(&self) -> (usize, Option<Instant>) {
        let inner = self.0.shared.inner.lock();
        (inner.waiters.len(), inner.waiters.oldest())
    }

    /// Outcomes of the asks that waited for values.
    pub fn waits(&self) -> Tally {
        self.0.shared.inner.lock().waiters.tally().clone()
    }

    pub(super) fn leave_line(&self, ticket: Ticket) {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        let now = shared.clock.now();
        let Inner {
            waiters, machine, ..
        } = &mut *inner;
        let left = waiters.cancel(ticket, machine, now);
        shared.finish(inner, now);
        // The waker in it has no business under the lock.
        drop(left);
    }
}
