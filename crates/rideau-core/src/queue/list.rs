//! Entries linked in the ledger, oldest to newest.

use crate::ledger::{Ledger, NONE};
use crate::time::Instant;

/// Entries linked from `head` (the oldest) to `tail`.
#[derive(Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// When the head was sent; never if there is none.
    pub(super) sent: Instant,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        sent: Instant::NEVER,
    };

    #[inline]
    pub(super) fn link<R>(&mut self, slot: u32, name: u32, ledger: &mut Ledger<R>) {
        let place = ledger.place_mut(slot);
        (place.prev, place.next, place.line) = (self.tail, NONE, name);
        match self.tail {
            NONE => (self.head, self.sent) = (slot, place.sent),
            tail => ledger.place_mut(tail).next = slot,
        }
        self.tail = slot;
    }

    #[inline]
    pub(super) fn unlink<R>(&mut self, slot: u32, ledger: &mut Ledger<R>) {
        let place = ledger.place_mut(slot);
        let (prev, next) = (place.prev, place.next);
        (place.prev, place.next, place.line) = (NONE, NONE, NONE);
        match next {
            NONE => self.tail = prev,
            _ => ledger.place_mut(next).prev = prev,
        }
        match prev {
            NONE => {
                self.head = next;
                // It was touched just now: it comes for nothing.
                self.sent = match next {
                    NONE => Instant::NEVER,
                    _ => ledger.place(next).sent,
                };
            }
            _ => ledger.place_mut(prev).next = next,
        }
    }
}
