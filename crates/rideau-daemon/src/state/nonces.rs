//! The names that a holder gave its own asks, so that it can ask twice and get
//! one answer.

use std::collections::HashMap;

use crate::state::answer::AnswerField;
use crate::state::ticket::Ticket;

/// This many are remembered of one holder.
const MOST: usize = 4096;

/// Asks by the names that their holder gave them. A holder without any costs
/// nothing.
#[derive(Default)]
#[allow(
    clippy::box_collection,
    reason = "most holders name nothing, and a pointer is small"
)]
pub(crate) struct Names(Option<Box<HashMap<Vec<u8>, Named>>>);

/// An ask with a nonce.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Its ticket.
    pub ticket: Ticket,
    /// The fields of its grant besides the ticket.
    pub told: Vec<AnswerField>,
}

impl Names {
    /// Remember an ask. Those that are over make room if there are too many.
    pub(crate) fn add(&mut self, name: &[u8], named: Named, is_there: impl Fn(Ticket) -> bool) {
        let names = self.0.get_or_insert_default();
        if names.len() >= MOST {
            names.retain(|_, named| is_there(named.ticket));
        }
        names.insert(name.into(), named);
    }

    /// The ask with this nonce.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.0.as_ref()?.get(name)
    }
}
