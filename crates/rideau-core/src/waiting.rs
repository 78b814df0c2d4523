//! The asks that wait for one scarce thing, and what became of the others.
//!
//! A queue with its ledger: it closes the tickets that the queue gives up,
//! passes over asks that are gone, and counts. Which ask is served when is up
//! to the machine.

mod aside;
mod explain;

use std::time::Duration;

use crate::histogram::Histogram;
use crate::ids::{Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::queue::{self, AskOptions, ENDS_MAX, Load, Queue, Shed};
use crate::refusal::{Reason, Refusal};
use crate::time::Instant;

pub(crate) use explain::Account;

/// Outcomes of asks.
#[derive(Clone, Default, Debug)]
#[repr(C)]
pub struct Tally {
    /// How many came.
    pub came: u64,
    /// How many got what they came for: a match, or a lease.
    pub served: u64,
    /// How long the served asks waited.
    pub waits: Histogram,
    /// How many withdrew, or were gone when their turn came.
    pub cancelled: u64,
    /// How many were refused or shed, by [`Reason::index`].
    pub shed: [u64; Reason::ALL.len()],
}

/// The end of a wait for nothing.
#[derive(Debug)]
pub(crate) enum End<R> {
    Shed {
        ticket: Ticket,
        reply: R,
        refusal: Refusal,
    },
    Gone(R),
}

/// The asks that wait, and those that were served and still hold their tickets
/// open.
///
/// Invariant: an open ticket waits in the queue and has a reply, or is held and
/// has none.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waiting<R> {
    // What every input touches comes first and close together: each line of
    // memory that two cores share costs more than the work on it.
    ledger: Ledger<R>,
    queue: Queue,
    tally: Tally,
    shed: Vec<Shed>,
    ended: Vec<End<R>>,
    /// The last refusals, the newest at `recent_at`.
    recent: Vec<Refusal>,
    recent_at: usize,
}

/// How many refusals are remembered, to explain them.
const RECENT: usize = 128;

impl Tally {
    /// How many were refused or shed in all.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }

    /// The same, and this many more that were served the instant they came.
    pub(crate) fn and_prompt(&self, prompt: u64) -> Self {
        let mut tally = self.clone();
        tally.came += prompt;
        tally.served += prompt;
        tally.waits.record_zeros(prompt);
        tally
    }

    /// Count all that the other counted as well.
    pub(crate) fn add(&mut self, other: &Self) {
        self.came += other.came;
        self.served += other.served;
        self.waits.add(&other.waits);
        self.cancelled += other.cancelled;
        for (count, more) in self.shed.iter_mut().zip(other.shed) {
            *count += more;
        }
    }

    /// How many were refused or shed for this reason.
    pub fn shed_for(&self, reason: Reason) -> u64 {
        self.shed[reason.index()]
    }
}

impl<R: Reply> Waiting<R> {
    /// A queue whose tickets `ledger` keeps.
    pub(crate) fn new(queue: Queue, ledger: Ledger<R>) -> Self {
        Self {
            ledger,
            queue,
            tally: Tally::default(),
            shed: Vec::new(),
            ended: Vec::new(),
            recent: Vec::new(),
            recent_at: 0,
        }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn is_shedding(&self, now: Instant) -> bool {
        self.queue.is_shedding(now)
    }

    /// More waits have to be ended than one call may: the queue is due at once.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.queue.is_behind()
    }

    /// A hold ended after this long, for a law that goes by that.
    #[inline]
    pub(crate) fn ended_hold(&mut self, held: Duration) {
        let mut load = self.queue.load();
        load.ended(held);
        self.queue.bear(load);
    }

    /// The load of the machine, for the shedding policy.
    #[inline]
    pub(crate) fn bear(&mut self, load: Load) {
        self.queue.bear(load);
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Open tickets, of asks that wait and of holders.
    pub(crate) fn open(&self) -> usize {
        self.ledger.len()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.queue.oldest()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.queue.deadline()
    }

    pub(crate) fn newest(&self, tag: Tag) -> Option<Ticket> {
        self.ledger.newest(tag)
    }

    /// The reply of an ask that waits.
    pub(crate) fn reply(&self, ticket: Ticket) -> Option<&R> {
        self.ledger.reply(ticket)
    }

    pub(crate) fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.ledger.reply_mut(ticket)
    }

    /// Since when a ticket is held, if it is.
    pub(crate) fn held_since(&self, ticket: Ticket) -> Option<Instant> {
        let held = self.ledger.is_open(ticket) && self.ledger.reply(ticket).is_none();
        held.then(|| self.ledger.sent(ticket))
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The asks whose wait ended for nothing since this was last asked.
    pub(crate) fn ended(&mut self) -> std::vec::Drain<'_, End<R>> {
        self.ended.drain(..)
    }

    /// Let an ask wait.
    #[inline(always)]
    pub(crate) fn join(&mut self, terms: &AskOptions, reply: R, now: Instant) -> Ticket {
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

    /// The end of an ask that came just now, if it was let go at once.
    #[inline]
    pub(crate) fn take_ended(&mut self, ticket: Ticket) -> Option<End<R>> {
        if self.ended.is_empty() {
            return None;
        }
        let is_own = |end: &End<R>| matches!(end, End::Shed { ticket: own, .. } if *own == ticket);
        let at = self.ended.iter().position(is_own)?;
        Some(self.ended.remove(at))
    }

    /// Say no to an ask at once. The queue is not moved on.
    pub(crate) fn refuse(
        &mut self,
        terms: &AskOptions,
        reason: Reason,
        now: Instant,
    ) -> (Ticket, Refusal) {
        self.tally.came += 1;
        let ticket = self.ledger.pass();
        let refusal = self.queue.refuse(reason, terms.sent, now);
        self.count_no(refusal);
        (ticket, refusal)
    }

    /// As [`refuse`](Self::refuse), and the refusal is found among the ends.
    pub(crate) fn turn_away(
        &mut self,
        terms: &AskOptions,
        reply: R,
        reason: Reason,
        now: Instant,
    ) -> Ticket {
        let (ticket, refusal) = self.refuse(terms, reason, now);
        self.ended.push(End::Shed {
            ticket,
            reply,
            refusal,
        });
        ticket
    }

    /// Let every ask go for the same reason.
    pub(crate) fn refuse_all(&mut self, reason: Reason, now: Instant) {
        self.queue.close(&mut self.ledger, &mut self.shed);
        for shed in &mut self.shed {
            shed.reason = reason;
        }
        self.end_shed(now);
    }

    /// Take the ask whose turn it is and that is still there, and forget it. If
    /// there is none although some wait, the queue is behind.
    #[inline(always)]
    pub(crate) fn serve(&mut self, now: Instant) -> Option<(Ticket, Instant, R)> {
        let ticket = self.take(now)?;
        Some(self.close_taken(ticket))
    }

    /// Serve an ask that waits although it may not be its turn, and forget it.
    pub(crate) fn pick(&mut self, ticket: Ticket, now: Instant) -> Option<R> {
        if !self.queue.pick(ticket, &mut self.ledger, now) {
            return None;
        }
        let sent = self.ledger.sent(ticket);
        self.count_served(sent, now);
        self.ledger.close(ticket)
    }

    /// Take the ask whose turn it is and that is still there; it holds its
    /// ticket from now on, which its machine calls `since`.
    pub(crate) fn grant(&mut self, since: Instant, now: Instant) -> Option<(Ticket, Instant, R)> {
        let ticket = self.take(now)?;
        let sent = self.ledger.sent(ticket);
        let reply = self
            .ledger
            .hold(ticket, since)
            .expect("a waiting ask has a reply");
        Some((ticket, sent, reply))
    }

    /// Count an ask that came at `sent` and is served without having waited in
    /// the queue.
    pub(crate) fn count_passed(&mut self, sent: Instant, now: Instant) -> Duration {
        self.tally.came += 1;
        self.count_served(sent, now)
    }

    /// An ask came that holds its ticket at once, since `since`. No reply if it
    /// is gone already.
    pub(crate) fn pass_holding(&mut self, reply: R, since: Instant) -> (Ticket, Option<R>) {
        self.tally.came += 1;
        let ticket = self.ledger.open(reply);
        if self.forget_gone(ticket) {
            return (ticket, None);
        }
        (ticket, self.ledger.hold(ticket, since))
    }

    /// Count an ask that came at `sent` and is served.
    #[inline]
    pub(crate) fn count_served(&mut self, sent: Instant, now: Instant) -> Duration {
        let waited = now.nanos_since(sent);
        self.tally.served += 1;
        self.tally.waits.record_nanos(waited);
        Duration::from_nanos(waited)
    }

    /// Let a waiting ask leave, with a refusal in case it did not ask for this
    /// itself. No ask is shed for it until the queue is advanced: all of a tag
    /// leave first.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant) -> Option<(R, Refusal)> {
        if !self.queue.withdraw(ticket, &mut self.ledger, now) {
            return None;
        }
        let sent = self.ledger.sent(ticket);
        let reply = self
            .ledger
            .close(ticket)
            .expect("a waiting ask has a reply");
        self.tally.cancelled += 1;
        Some((reply, self.queue.refusal(Reason::Cancelled, sent, now)))
    }

    /// A held ticket ends.
    pub(crate) fn release(&mut self, ticket: Ticket) {
        debug_assert!(self.held_since(ticket).is_some(), "what ends was held");
        self.ledger.close(ticket);
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        self.queue.advance(&mut self.ledger, now, &mut self.shed);
        self.end_shed(now);
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.queue.close(&mut self.ledger, &mut self.shed);
        self.end_shed(now);
    }

    /// Change the queue to options that have been validated.
    pub(crate) fn reconfigure(&mut self, options: queue::Options, now: Instant) {
        self.queue
            .reconfigure(options, &mut self.ledger, now, &mut self.shed)
            .expect("the options were validated");
        self.end_shed(now);
    }

    /// Take the ask whose turn it is and that is still there. It must be
    /// closed, or put back.
    #[inline(always)]
    pub(crate) fn take(&mut self, now: Instant) -> Option<Ticket> {
        let mut gone = 0;
        loop {
            let turn = self.queue.pop(&mut self.ledger, now, &mut self.shed);
            self.end_shed(now);
            let ticket = turn.ticket()?;
            if !self.forget_gone(ticket) {
                return Some(ticket);
            }
            gone += 1;
            if gone == ENDS_MAX {
                self.queue.fall_behind(now);
                return None;
            }
        }
    }

    /// Let one wait again that was taken and could not be served.
    pub(crate) fn put_back(&mut self, ticket: Ticket, now: Instant) {
        self.queue.put_back(ticket, &mut self.ledger, now);
    }

    /// Close the ticket of one that was taken.
    #[inline(always)]
    pub(crate) fn close_taken(&mut self, ticket: Ticket) -> (Ticket, Instant, R) {
        let sent = self.ledger.sent(ticket);
        let reply = self
            .ledger
            .close(ticket)
            .expect("a waiting ask has a reply");
        (ticket, sent, reply)
    }

    /// Close the ticket of an ask that is gone.
    fn forget_gone(&mut self, ticket: Ticket) -> bool {
        let gone = self.ledger.reply(ticket).is_some_and(R::is_gone);
        if gone {
            self.tally.cancelled += 1;
            self.ended.extend(self.ledger.close(ticket).map(End::Gone));
        }
        gone
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
            let reply = self.ledger.close(ticket).expect("a shed ask had a ticket");
            let refusal = self.queue.refuse(reason, sent, now);
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
