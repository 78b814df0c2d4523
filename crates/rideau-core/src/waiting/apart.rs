//! Those who are served without the queue for a while.
//!
//! Where nobody could be wronged by it, all who wait leave the queue together,
//! and each comes back to it unless it was served meanwhile. No ticket stays
//! open: who comes back gets another one.

use std::time::Duration;

use super::Waiting;
use crate::histogram::Histogram;
use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::queue::Terms;
use crate::time::Instant;

/// One who waits apart from the queue.
#[derive(Debug)]
pub struct Apart<R> {
    /// When it says it asked.
    pub sent: Instant,
    /// When it gives up.
    pub deadline: Instant,
    /// It named its wait.
    pub promised: bool,
    /// How to answer it.
    pub reply: R,
}

impl<R: Reply> Waiting<R> {
    /// Nobody who waits, and nobody of so many more who may come on the usual
    /// terms, needs the queue as long as each waits less than this.
    pub(crate) fn apart_for(&self, more: usize, now: Instant) -> Option<Duration> {
        if self.ledger.has_tags() {
            return None;
        }
        self.queue.apart_for(&self.ledger, more, now)
    }

    /// Let all who wait go, those who came first first.
    pub(crate) fn part(&mut self, mut parts: impl FnMut(Apart<R>)) {
        for slot in self.queue.part(&mut self.ledger) {
            let place = self.ledger.place(slot);
            let (sent, deadline, promised) = (place.sent, place.deadline, place.promised);
            let reply = self.ledger.close(self.ledger.ticket(slot));
            let reply = reply.expect("who waits has a reply");
            // It is counted when it is served, or comes back.
            self.tally.came -= 1;
            parts(Apart {
                sent,
                deadline,
                promised,
                reply,
            });
        }
    }

    /// One who waited apart waits in the queue from now on. If that lets it go
    /// at once, its end is found among the others.
    pub(crate) fn rejoin(&mut self, apart: Apart<R>, now: Instant) -> Ticket {
        let terms = Terms {
            deadline: (apart.deadline != Instant::NEVER).then_some(apart.deadline),
            promised: apart.promised,
            ..Terms::new(apart.sent)
        };
        self.join(&terms, apart.reply, now)
    }

    /// Count those who came and were served apart, each after such a wait.
    pub(crate) fn count_apart(&mut self, waits: &Histogram) {
        self.tally.came += waits.len();
        self.tally.served += waits.len();
        self.tally.waits.add(waits);
    }
}
