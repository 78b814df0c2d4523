//! One side of a broker: who waits there, and what became of the others.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::ids::{Side, Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::queue::{self, Queue, Shed, Terms};
use crate::refusal::{Reason, Refusal};
use crate::time::Instant;

/// What became of those who came to one side.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// How many came.
    pub came: u64,
    /// How many were matched.
    pub matched: u64,
    /// How long those waited who were matched.
    pub waits: Histogram,
    /// How many withdrew, or were gone when their turn came.
    pub cancelled: u64,
    /// How many were refused or shed, by [`Reason::index`].
    pub shed: [u64; Reason::ALL.len()],
}

/// The end of a wait without a match.
#[derive(Debug)]
pub(super) enum End<R> {
    Shed {
        ticket: Ticket,
        reply: R,
        refusal: Refusal,
    },
    Gone(R),
}

/// Invariant: every open ticket waits in the queue.
#[derive(Debug)]
pub(super) struct Party<R> {
    ledger: Ledger<R>,
    queue: Queue,
    tally: Tally,
    shed: Vec<Shed>,
    ended: Vec<End<R>>,
    /// The last no's, the newest at `recent_at`.
    recent: Vec<Refusal>,
    recent_at: usize,
}

/// As many no's are remembered, to explain them.
const RECENT: usize = 128;

impl Tally {
    /// How many were refused or shed in all.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }

    /// How many were refused or shed for this reason.
    pub fn shed_for(&self, reason: Reason) -> u64 {
        self.shed[reason.index()]
    }
}

impl<R: Reply> Party<R> {
    /// Asks have odd serials and offers even ones, so that a ticket knows its
    /// side.
    pub(super) fn new(queue: Queue, side: Side) -> Self {
        let first = match side {
            Side::Ask => 1,
            Side::Offer => 2,
        };
        Self {
            ledger: Ledger::new(first, 2),
            queue,
            tally: Tally::default(),
            shed: Vec::new(),
            ended: Vec::new(),
            recent: Vec::new(),
            recent_at: 0,
        }
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn recent(&self) -> &[Refusal] {
        &self.recent
    }

    pub(super) fn open(&self) -> usize {
        self.ledger.len()
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.queue.oldest(&self.ledger)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.queue.deadline(&self.ledger)
    }

    pub(super) fn newest(&self, tag: Tag) -> Option<Ticket> {
        self.ledger.newest(tag)
    }

    pub(super) fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.ledger.reply_mut(ticket)
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Those whose wait ended without a match since this was last asked.
    pub(super) fn ended(&mut self) -> std::vec::Drain<'_, End<R>> {
        self.ended.drain(..)
    }

    /// Let somebody wait.
    #[inline]
    pub(super) fn join(&mut self, terms: &Terms, reply: R, now: Instant) -> Ticket {
        self.tally.came += 1;
        let ticket = self.ledger.open(reply);
        if let Some(tag) = terms.tag {
            self.ledger.tag(ticket, tag);
        }
        self.queue
            .push(ticket, terms, &mut self.ledger, now, &mut self.shed);
        self.end_shed(now);
        ticket
    }

    /// The end of one who came just now, if it was let go at once.
    #[inline]
    pub(super) fn take_ended(&mut self, ticket: Ticket) -> Option<End<R>> {
        if self.ended.is_empty() {
            return None;
        }
        let is_own = |end: &End<R>| matches!(end, End::Shed { ticket: own, .. } if *own == ticket);
        let at = self.ended.iter().position(is_own)?;
        Some(self.ended.remove(at))
    }

    /// Say no to somebody at once.
    pub(super) fn turn_away(
        &mut self,
        terms: &Terms,
        reply: R,
        reason: Reason,
        now: Instant,
    ) -> (Ticket, End<R>) {
        self.tally.came += 1;
        let ticket = self.ledger.pass();
        let refusal = self.queue.refusal(reason, terms.sent, now);
        self.count_no(refusal);
        self.advance(now);
        let end = End::Shed {
            ticket,
            reply,
            refusal,
        };
        (ticket, end)
    }

    /// Take the one whose turn it is and who is still there.
    #[inline]
    pub(super) fn serve(&mut self, now: Instant) -> Option<(Ticket, Instant, R)> {
        loop {
            let taken = self.queue.pop(&mut self.ledger, now, &mut self.shed);
            self.end_shed(now);
            let ticket = taken?;
            let sent = self.ledger.sent(ticket);
            let reply = self.ledger.close(ticket).expect("who waits has a ticket");
            if !reply.is_gone() {
                return Some((ticket, sent, reply));
            }
            self.tally.cancelled += 1;
            self.ended.push(End::Gone(reply));
        }
    }

    /// Somebody came and is matched at once.
    pub(super) fn pass(&mut self) -> Ticket {
        self.tally.came += 1;
        self.ledger.pass()
    }

    /// Count a match of one who came at `sent`.
    #[inline]
    pub(super) fn count_match(&mut self, sent: Instant, now: Instant) -> Duration {
        let waited = now.nanos_since(sent);
        self.tally.matched += 1;
        self.tally.waits.record_nanos(waited);
        Duration::from_nanos(waited)
    }

    /// Let one leave who waits. Nobody is shed for it until the queue is
    /// advanced: all of a tag leave first.
    pub(super) fn cancel(&mut self, ticket: Ticket, now: Instant) -> Option<(R, Refusal)> {
        if !self.queue.withdraw(ticket, &mut self.ledger, now) {
            return None;
        }
        let sent = self.ledger.sent(ticket);
        let reply = self.ledger.close(ticket).expect("who waits has a ticket");
        self.tally.cancelled += 1;
        Some((reply, self.queue.refusal(Reason::Cancelled, sent, now)))
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.queue.advance(&mut self.ledger, now, &mut self.shed);
        self.end_shed(now);
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.queue.close(&mut self.ledger, &mut self.shed);
        self.end_shed(now);
    }

    /// Change the queue to options that have been validated.
    pub(super) fn reconfigure(&mut self, options: queue::Options, now: Instant) {
        self.queue
            .reconfigure(options, &mut self.ledger, now, &mut self.shed)
            .expect("the options were validated");
        self.end_shed(now);
    }

    #[inline]
    fn end_shed(&mut self, now: Instant) {
        if !self.shed.is_empty() {
            self.end_each_shed(now);
        }
    }

    #[cold]
    fn end_each_shed(&mut self, now: Instant) {
        for at in 0..self.shed.len() {
            let Shed { ticket, reason } = self.shed[at];
            let sent = self.ledger.sent(ticket);
            let reply = self.ledger.close(ticket).expect("who is shed had a ticket");
            let refusal = self.queue.refusal(reason, sent, now);
            self.count_no(refusal);
            self.ended.push(End::Shed {
                ticket,
                reply,
                refusal,
            });
        }
        self.shed.clear();
    }

    fn count_no(&mut self, refusal: Refusal) {
        self.tally.shed[refusal.reason.index()] += 1;
        if self.recent.len() < RECENT {
            self.recent.push(refusal);
        } else {
            self.recent[self.recent_at] = refusal;
        }
        self.recent_at = (self.recent_at + 1) % RECENT;
    }
}

/// On which side a ticket was given.
pub(super) fn side_of(ticket: Ticket) -> Side {
    if ticket.serial() % 2 == 1 {
        Side::Ask
    } else {
        Side::Offer
    }
}
