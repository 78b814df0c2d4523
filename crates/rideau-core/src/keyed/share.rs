//! The share of one key of a budget, as last reported.

use crate::time::Instant;

use super::Standing;

/// The share of one key.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) standing: Standing,
    /// How often it was ordered to have more room, and less, and how often
    /// pressing had begun and ended when it was last ordered anything.
    pub(super) given: u64,
    pub(super) taken: u64,
    pub(super) press: u64,
    /// Its place in the order of asking.
    pub(super) asked: u64,
    /// When it last got room.
    pub(super) since: Instant,
}

/// Sums over all shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub(super) claims: usize,
    pub(super) lack: usize,
    /// Units on their way back.
    pub(super) coming: usize,
    pub(super) presses: usize,
}

impl Share {
    pub(super) fn new(asked: u64, now: Instant) -> Self {
        Self {
            standing: Standing::default(),
            given: 0,
            taken: 0,
            press: 0,
            asked,
            since: now,
        }
    }

    /// Orders to have more room that it has not heard yet.
    pub(super) fn gives(&self) -> usize {
        (self.given - self.standing.given) as usize
    }

    pub(super) fn takes(&self) -> usize {
        (self.taken - self.standing.taken) as usize
    }

    pub(super) fn is_pressing(&self) -> bool {
        self.press != self.standing.press
    }

    /// It has heard of all orders.
    pub(super) fn is_calm(&self) -> bool {
        self.gives() + self.takes() == 0 && !self.is_pressing()
    }

    /// The room it has or will have.
    pub(super) fn units(&self) -> usize {
        self.standing.room + self.gives()
    }

    pub(super) fn claim(&self) -> usize {
        self.units().max(self.standing.size)
    }

    pub(super) fn lack(&self) -> usize {
        self.standing.lack.saturating_sub(self.gives())
    }

    /// Members that go when they are released.
    pub(super) fn ceding(&self) -> usize {
        self.standing.live.saturating_sub(self.units())
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            claims: self.claim(),
            lack: self.lack(),
            coming: self.takes() + self.standing.size.saturating_sub(self.units()),
            presses: usize::from(self.is_pressing()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_calm() && self.claim() == 0 && self.lack() == 0 && self.standing.len == 0
    }

    /// Since when it has a member that no take waits for.
    pub(super) fn idle(&self) -> Option<Instant> {
        let spare = self.is_calm() && self.standing.len == 0;
        self.standing.idle.filter(|_| spare)
    }

    pub(super) fn may_cede(&self) -> bool {
        self.is_calm() && self.standing.room > 0 && self.standing.size <= self.standing.room
    }
}

impl Totals {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            claims: self.claims + other.claims,
            lack: self.lack + other.lack,
            coming: self.coming + other.coming,
            presses: self.presses + other.presses,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            claims: self.claims - other.claims,
            lack: self.lack - other.lack,
            coming: self.coming - other.coming,
            presses: self.presses - other.presses,
        }
    }
}
