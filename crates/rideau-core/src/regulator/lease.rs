//! Answers of holders, and outcomes of leases.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::time::Lead;

/// The answer to a holder that wants to keep its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease goes on.
    Go {
        /// Minus how long the valve had been open for it; never positive, as no
        /// lease waits to renew.
        lead: Lead,
        /// How long the answer took.
        waited: Duration,
    },
    /// The lease is over.
    Stop {
        /// How long the answer took.
        waited: Duration,
    },
    /// The ticket holds no lease.
    NotFound {
        /// How long the answer took.
        waited: Duration,
    },
}

/// The answer to a holder that gives its lease back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// The lease is over.
    Stop {
        /// How long the answer took.
        waited: Duration,
    },
    /// The ticket holds no lease.
    NotFound {
        /// How long the answer took.
        waited: Duration,
    },
}

/// The state of a ticket when it was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended<R> {
    /// It waited; this would have been the way to answer.
    Cancelled(R),
    /// It held a lease.
    Released,
    /// It was over already.
    NotFound,
}

/// Outcomes of leases.
#[derive(Clone, Default, Debug)]
pub struct Leases {
    /// How many renewals were granted.
    pub renewed: u64,
    /// How many leases were not renewed.
    pub stopped: u64,
    /// How many were released after their work went well.
    pub released: u64,
    /// How many were released after it did not.
    pub failed: u64,
    /// How long those leases were held that are over.
    pub held: Histogram,
}

impl Leases {
    /// How many leases are over.
    pub fn ended(&self) -> u64 {
        self.stopped + self.released + self.failed
    }

    /// A lease was not renewed.
    pub(super) fn count_stop(&mut self, held: Duration) {
        self.stopped += 1;
        self.held.record(held);
    }

    pub(super) fn count_release(&mut self, held: Duration, ok: bool) {
        if ok {
            self.released += 1;
        } else {
            self.failed += 1;
        }
        self.held.record(held);
    }
}
