//! Invariants of a regulator, checked after every input.

use crate::ledger::Reply;

use super::{Regulator, State};

impl<R: Reply> Regulator<R> {
    pub(super) fn check(&self) {
        let (waiting, size) = (&self.waiting, self.size());
        let is_open = self.state == State::Open;
        debug_assert!(
            is_open == self.valve.is_open(self.told) || waiting.is_behind(),
            "it is as its valve"
        );
        debug_assert!(!is_open || self.is_empty(), "no ask waits for what is free");
        debug_assert_eq!(
            waiting.open(),
            waiting.len() + size,
            "a ticket waits or is held"
        );
        let (tally, leases) = (waiting.tally(), &self.leases);
        debug_assert_eq!(
            tally.came,
            tally.served + tally.cancelled + tally.shed_total() + waiting.len() as u64,
            "every ask has one end"
        );
        debug_assert_eq!(
            tally.served,
            leases.ended() + size as u64,
            "every lease has one end"
        );
    }
}
