//! What is held: it is counted, goes with its holder, and is given back.

use std::sync::Arc;
use std::time::Duration;

use rideau_config::Buckets;
use rideau_process::panics;
use tokio::sync::broadcast::error::RecvError;

use super::{Daemon, end};
use crate::state::catalog::RulePlace;
use crate::state::end::{EndReason, NotHeld};
use crate::state::holder::HolderId;
use crate::state::lease_table::Ending;
use crate::state::ticket::Ticket;
use crate::state::values::Happened;

/// What there is of the keys of a rule.
#[derive(Clone, Copy, Default)]
pub(crate) struct LockCount {
    pub(crate) keys: usize,
    pub(crate) held: u64,
    pub(crate) waiting: usize,
    /// Keys of which no unit is left, as far as the rule alone says that.
    pub(crate) full: usize,
}

impl Daemon {
    /// A holder ended: give back all that it held. Says how much that was.
    pub fn end_holder(&self, holder: HolderId, why: EndReason) -> usize {
        let ending = self.lease_table.close(holder);
        let mut count = 0;
        while let Some(some) = ending
            .as_ref()
            .and_then(|ending| self.end_some(ending, why))
        {
            count += some;
        }
        count
    }

    /// The same in slices, between which other tasks of the thread have their turn.
    pub async fn end_holder_in_slices(&self, holder: HolderId, why: EndReason) -> usize {
        let ending = self.lease_table.close(holder);
        let mut count = 0;
        while let Some(some) = ending
            .as_ref()
            .and_then(|ending| self.end_some(ending, why))
        {
            count += some;
            tokio::task::yield_now().await;
        }
        count
    }

    /// Give back one slice of what an ending holder held. None if that was all.
    fn end_some(&self, ending: &Ending, why: EndReason) -> Option<usize> {
        let held = self.lease_table.end_some(ending, why);
        let count = held.len();
        for (ticket, thing) in held {
            self.counts.reclaims.add(ticket.kind, why);
            // None may stay held for another's fault.
            let _ = panics::contain(|| end(thing, why));
        }
        (count > 0).then_some(count)
    }

    /// A value goes with the holder of this ticket. The holder that had it before has
    /// lost it.
    pub fn hold_value(&self, value: u128, ticket: Ticket) {
        if let Some(before) = self.values.hold(value, ticket) {
            let _ = self.lease_table.take_from(before, EndReason::Lapsed);
        }
    }

    /// The keys of each rule, counted, and perhaps the asks that wait for them.
    pub(crate) fn lock_counts(
        &self,
        rules: &[Arc<RulePlace>],
        looks_at_queues: bool,
    ) -> Vec<LockCount> {
        let mut counts = vec![LockCount::default(); rules.len()];
        for (key, held) in self.locks.all_held() {
            let Some(at) = rules.iter().position(|place| place.rule.fits(&key)) else {
                continue;
            };
            let (rule, count) = (&rules[at].rule, &mut counts[at]);
            count.keys += 1;
            count.held += held;
            if looks_at_queues {
                count.waiting += self.locks.waiting(&key);
            }
            if let Buckets::Fixed(buckets) = rule.buckets {
                count.full += usize::from(held >= rule.per.saturating_mul(buckets));
            }
        }
        counts
    }

    /// Log everything that happens to values for so long. What was begun before
    /// ends.
    pub fn debug_values(self: &Arc<Self>, within: Duration) {
        let daemon = Arc::clone(self);
        let mut events = self.values.ranges.watch();
        let deadline = tokio::time::Instant::now() + within;
        let task = tokio::spawn(async move {
            while let Ok(event) = tokio::time::timeout_at(deadline, events.recv()).await {
                match event {
                    Ok(event) => {
                        let seen = Happened::of(&daemon.places.load().ranges, &event);
                        let (what, value, range) = (seen.what, seen.value, seen.range);
                        tracing::info!(what, value, %range, fence = seen.fence, "value");
                    }
                    Err(RecvError::Lagged(count)) => {
                        tracing::info!(count, "values changed too fast to be logged");
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        let before = self.values.debug.lock().replace(task.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }

    /// End one thing by its ticket. Says which holder held it.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub fn release(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
    ) -> Result<HolderId, NotHeld> {
        self.release_at(ticket, user, why, self.lease_table.now())
    }

    /// The same, for a caller that has just looked at the clock.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub fn release_at(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
        now: u64,
    ) -> Result<HolderId, NotHeld> {
        let taken = self.lease_table.take_at(ticket, user, why, now)?;
        end(taken.thing, why);
        Ok(taken.holder)
    }
}
