//! Answers of asks that wait for units.

use std::time::Duration;

use super::claim::Grant;
use crate::ids::Ticket;
use crate::refusal::Refusal;

/// An effect of the queues of a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<U, R> {
    /// Say yes to an ask. The units are counted already, and the ticket is
    /// closed: the holder of the units gives them back to the count.
    Grant {
        /// Whose.
        ticket: Ticket,
        /// How to answer.
        reply: R,
        /// The yes.
        grant: Grant,
        /// The granted units.
        units: U,
        /// How long the ask waited in all.
        waited: Duration,
    },
    /// Say no to an ask.
    Shed {
        /// Whose.
        ticket: Ticket,
        /// How to answer.
        reply: R,
        /// The refusal.
        refusal: Refusal,
    },
    /// There is no asker to answer any more.
    Forget(R),
}
