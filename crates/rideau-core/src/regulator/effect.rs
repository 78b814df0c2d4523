//! An effect of a regulator.

use std::time::Duration;

use crate::ids::Ticket;
use crate::meter;
use crate::refusal::Refusal;
use crate::time::Lead;

/// An effect of a regulator.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<R> {
    /// Say yes to an ask. The ticket stays open until its lease ends.
    Grant {
        /// Whose.
        ticket: Ticket,
        /// How to answer.
        reply: R,
        /// How much earlier the ask came than the opening of the valve.
        lead: Lead,
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
    /// Pass on what a meter says.
    Meter(meter::Effect),
}

impl<R> From<meter::Effect> for Effect<R> {
    fn from(said: meter::Effect) -> Self {
        Self::Meter(said)
    }
}
