//! Invariants of a pool, checked after every input.

use crate::ledger::Reply;
use crate::time::Instant;

use super::{Mode, Pool};

impl<R: Reply> Pool<R> {
    pub(super) fn check(&self, now: Instant) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.members.check();
        let counts = self.members.counts();
        let waits = if self.lines.is_behind() {
            0
        } else {
            self.lines.len()
        };
        assert!(
            self.mode != Mode::Running || waits <= counts.checking || counts.idle == 0,
            "no ask waits for what is free"
        );
        let newest = self.members.newest();
        assert!(
            self.mode != Mode::Running
                || waits == 0
                || newest.is_none_or(|slot| self.is_stale(slot, now)),
            "no take waits for a check while another member is fresh"
        );
        assert!(
            self.valve
                .as_ref()
                .is_none_or(|valve| valve.size() == counts.live()),
            "the valve counts the members"
        );
        assert!(
            waits == 0 || self.is_coming(now),
            "a waiting take waits for an event"
        );
    }

    /// Something will bring a member to the takes that wait.
    fn is_coming(&self, now: Instant) -> bool {
        let counts = self.members.counts();
        self.mode != Mode::Running
            || counts.size() - counts.idle > 0
            || self.retry.is_some_and(|retry| retry > now)
            || self.valve.is_some()
            || self.ration.is_some()
    }
}
