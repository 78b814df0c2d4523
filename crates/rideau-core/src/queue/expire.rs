//! Deadlines of askers, and limits that a law gave them at arrival.

use super::{Queue, Shape, Shed, Shedding, waits};
use crate::ids::Ticket;
use crate::ledger::Ledger;
use crate::refusal::Reason;
use crate::time::{Instant, nanos};

impl Queue {
    /// Shed the asks whose own deadline has come, or the limit that the law
    /// gave them; no more than the call may still end.
    #[inline]
    pub(super) fn expire<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        // Most queues have no deadlines of their own.
        if self.expiry.first() <= now {
            self.expire_due(ledger, now, shed);
        }
    }

    #[cold]
    fn expire_due<R>(&mut self, ledger: &mut Ledger<R>, now: Instant, shed: &mut Vec<Shed>) {
        while self.left > 0
            && let Some((due, ticket)) = self.expiry.pop_due(now)
        {
            if !waits(ledger, ticket) {
                continue;
            }
            self.left -= 1;
            let reason = if ledger.place(ticket.slot).deadline == due {
                Self::late_reason(ledger.place(ticket.slot).promised)
            } else if self.is_spared(ticket, ledger) {
                continue;
            } else {
                Reason::Standing
            };
            self.unlink(ticket.slot, ledger, now, shed);
            shed.push(Shed { ticket, reason });
        }
        self.sweep(ledger);
    }

    /// Why an ask goes at its deadline. A deadline that it did not name itself
    /// is as long as any ask may wait.
    pub(super) fn late_reason(promised: bool) -> Reason {
        if promised {
            Reason::Deadline
        } else {
            Reason::Timeout
        }
    }

    /// The limit of one has come. The minimum may protect it as yet.
    fn is_spared<R>(&mut self, ticket: Ticket, ledger: &Ledger<R>) -> bool {
        let min = self.limits.min;
        let line = match &mut self.shape {
            Shape::Single(line) => line,
            Shape::Fair(fair) => fair.line_mut(ledger.place(ticket.slot).line),
        };
        let is_spared = line.len() <= min;
        if is_spared {
            line.spare(ticket, min, ledger);
        }
        is_spared
    }

    #[inline]
    pub(super) fn sweep<R>(&mut self, ledger: &Ledger<R>) {
        if self.expiry.is_empty() {
            return;
        }
        let alive = self.len();
        self.expiry.sweep(alive, |_, ticket| waits(ledger, ticket));
    }

    /// Another law settles other limits: askers' own deadlines stay, and a
    /// standing queue gives asks that wait already the longer limit.
    pub(super) fn rebuild_expiry<R>(&mut self, ledger: &Ledger<R>) {
        let limit = match self.options.shedding {
            Shedding::Standing { interval, .. } => nanos(interval),
            _ => u64::MAX,
        };
        let Self { shape, expiry, .. } = self;
        expiry.clear();
        shape.each(ledger, |slot| {
            let (place, ticket) = (ledger.place(slot), ledger.ticket(slot));
            expiry.push(place.deadline, ticket);
            if place.sent.after(limit) != place.deadline {
                expiry.push(place.sent.after(limit), ticket);
            }
        });
    }
}
