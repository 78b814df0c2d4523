//! Asks that wait outside of the queue, for one certain thing.
//!
//! The ticket stays open while the machine that set an asker aside keeps its
//! reply; it ends in a grant, in the queue, or with the asker's leave.

use std::time::Duration;

use super::Waiting;
use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::queue::AskOptions;
use crate::refusal::{Reason, Refusal};
use crate::time::Instant;

impl<R: Reply> Waiting<R> {
    /// An ask came at `sent` that is not to wait in the queue. No reply if it
    /// is gone already.
    pub(crate) fn set_aside(&mut self, reply: R, sent: Instant) -> (Ticket, Option<R>) {
        self.pass_holding(reply, sent)
    }

    /// An ask that was set aside waits in the queue from now on.
    pub(crate) fn call_back(&mut self, ticket: Ticket, terms: &AskOptions, reply: R, now: Instant) {
        self.ledger.wait_again(ticket, reply);
        if let Some(tag) = terms.tag {
            self.ledger.tag(ticket, tag);
        }
        self.queue
            .push(ticket, terms, &mut self.ledger, now, &mut self.shed);
        self.end_shed(now);
    }

    /// An ask that was set aside is served.
    pub(crate) fn serve_aside(&mut self, ticket: Ticket, sent: Instant, now: Instant) -> Duration {
        self.release(ticket);
        self.count_served(sent, now)
    }

    /// An ask that was set aside leaves, with a refusal in case it did not ask
    /// for this itself.
    pub(crate) fn cancel_aside(&mut self, ticket: Ticket, now: Instant) -> Refusal {
        let sent = self.ledger.sent(ticket);
        self.release(ticket);
        self.tally.cancelled += 1;
        self.queue.refusal(Reason::Cancelled, sent, now)
    }
}
