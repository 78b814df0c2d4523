//! Where a take that waits for a member finds its answer.
//!
//! Cells are used again and again, so that a wait needs no memory of its own.
//! The machine's lock gives them out; an answer is a few plain words, which
//! one store makes visible.

use std::time::Duration;

use rideau_core::pool::Grant;
use rideau_core::{Lead, Reason, Refusal};

use crate::sync::{AtomicU64, Ordering};

/// The answer to a take that waits.
///
/// As long as a line of memory, so that takes that wait side by side do not
/// slow each other down.
#[repr(align(64))]
pub(super) struct ReplySlot {
    /// Nothing yet, a slot, or a reason.
    answer: AtomicU64,
    waited: AtomicU64,
    /// The lead of a grant, or when to come back after a refusal.
    span: AtomicU64,
    len: AtomicU64,
}

/// No answer yet.
const NONE: u64 = 0;
/// A slot, in the lower bits.
const GRANTED: u64 = 1 << 32;
/// The index of a reason, in the lower bits.
const REFUSED: u64 = 2 << 32;

impl ReplySlot {
    pub(super) fn new() -> Self {
        Self {
            answer: AtomicU64::new(NONE),
            waited: AtomicU64::new(0),
            span: AtomicU64::new(0),
            len: AtomicU64::new(0),
        }
    }

    /// A take waits here from now on. Only under the lock.
    pub(super) fn clear(&self) {
        self.answer.store(NONE, Ordering::Relaxed);
    }

    /// Say yes.
    #[inline]
    pub(super) fn grant(&self, grant: &Grant) {
        self.waited.store(nanos(grant.waited), Ordering::Relaxed);
        let lead = grant.lead.as_nanos().cast_unsigned();
        self.span.store(lead, Ordering::Relaxed);
        let answer = GRANTED | u64::from(grant.slot);
        self.answer.store(answer, Ordering::Release);
    }

    /// Say no.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        self.waited.store(nanos(refusal.waited), Ordering::Relaxed);
        let retry_after = nanos(refusal.retry_after);
        self.span.store(retry_after, Ordering::Relaxed);
        self.len.store(refusal.len as u64, Ordering::Relaxed);
        let answer = REFUSED | refusal.reason.index() as u64;
        self.answer.store(answer, Ordering::Release);
    }

    /// The answer, if there is one.
    #[inline]
    pub(super) fn answer(&self) -> Option<Result<Grant, Refusal>> {
        let answer = self.answer.load(Ordering::Acquire);
        if answer == NONE {
            return None;
        }
        let waited = Duration::from_nanos(self.waited.load(Ordering::Relaxed));
        let span = self.span.load(Ordering::Relaxed);
        Some(if answer & GRANTED != 0 {
            Ok(Grant {
                slot: (answer & !GRANTED) as u32,
                lead: Lead::from_nanos(span.cast_signed()),
                waited,
            })
        } else {
            Err(Refusal {
                reason: Reason::ALL[(answer & !REFUSED) as usize],
                waited,
                len: self.len.load(Ordering::Relaxed) as usize,
                retry_after: Duration::from_nanos(span),
            })
        })
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_out_as_it_went_in() {
        let cell = ReplySlot::new();
        assert_eq!(cell.answer(), None);
        let grant = Grant {
            slot: 7,
            lead: Lead::from_nanos(-5),
            waited: Duration::from_nanos(3),
        };
        cell.grant(&grant);
        assert_eq!(cell.answer(), Some(Ok(grant)));
        cell.clear();
        assert_eq!(cell.answer(), None);
        for reason in Reason::ALL {
            let refusal = Refusal {
                reason,
                waited: Duration::from_secs(2),
                len: 9,
                retry_after: Duration::from_millis(4),
            };
            cell.refuse(&refusal);
            assert_eq!(cell.answer(), Some(Err(refusal)));
        }
    }
}
