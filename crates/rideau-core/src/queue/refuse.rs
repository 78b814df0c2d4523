//! Refusals: the queue's numbers, and when to retry.

use std::time::Duration;

use super::{Queue, Shedding, pace};
use crate::refusal::{Reason, Refusal};
use crate::time::Instant;

/// No asker is told to come back later than this.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);

impl Queue {
    /// A refusal for an ask that waited since `sent`, with the queue's numbers.
    /// It books no time to come again: for an asker that asks again and is to
    /// have a chance then, see [`refuse`](Self::refuse).
    pub fn refusal(&self, reason: Reason, sent: Instant, now: Instant) -> Refusal {
        Refusal {
            reason,
            waited: now.since(sent),
            len: self.len(),
            retry_after: self.retry_after(now),
        }
    }

    /// As [`refusal`](Self::refusal), for one asker: where the law makes
    /// appointments, refused askers get instants one gap apart.
    pub fn refuse(&mut self, reason: Reason, sent: Instant, now: Instant) -> Refusal {
        let refusal = self.refusal(reason, sent, now);
        let is_paced = matches!(self.options.shedding, Shedding::Paced { .. });
        if !is_paced || matches!(reason, Reason::Cancelled | Reason::Closed) {
            return refusal;
        }
        let (bound, len) = (self.shape.bound(&self.limits), self.len());
        let pace = self.shape.pace();
        let retry_after = pace.book(&mut self.booked, len, bound, now);
        Refusal {
            retry_after,
            ..refusal
        }
    }

    /// About the time that the waiting asks will take, and one more.
    fn retry_after(&self, now: Instant) -> Duration {
        let pace = self.shape.pace();
        let patience = match self.options.shedding {
            Shedding::Paced { .. } => return pace::retry_after(pace.expected(self.len(), now)),
            Shedding::Never | Shedding::Custom(_) => Duration::from_secs(1),
            Shedding::Timeout { wait_max } => wait_max,
            Shedding::CoDel { interval, .. }
            | Shedding::BoundedCoDel { interval, .. }
            | Shedding::MinDelay { interval, .. }
            | Shedding::Standing { interval, .. } => interval,
        };
        let patience = patience.min(PATIENCE_MAX);
        let Some(gap) = pace.gap() else {
            return patience;
        };
        let waiting = u64::try_from(self.len()).expect("a length fits") + 1;
        Duration::from_nanos(gap.saturating_mul(waiting)).min(patience.saturating_mul(8))
    }
}
