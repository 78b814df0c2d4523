//! Answers that are written only when what they say is safe.
//!
//! A connection executes all that it has read and writes once. So one wait for
//! the disk is enough for all answers of a batch: that for the last of them.

use std::sync::Arc;
use std::time::Instant;

use rideau::{Committed, Failed};

use crate::state::values::RangeCounts;

/// The commits that the answers of one connection wait for.
#[derive(Default)]
pub(crate) struct CommitWait {
    until: Option<Committed>,
    since: Option<Instant>,
    /// How many values were given out, by range.
    given: Vec<(Arc<RangeCounts>, u64)>,
}

impl CommitWait {
    /// A client asks for a value now.
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// The next answer may be sent only when the log is safe up to here.
    pub(crate) fn until(&mut self, until: Committed) {
        self.until = Some(match self.until.take() {
            Some(before) => before.or_later(until),
            None => until,
        });
    }

    /// A value of a range was given out.
    pub(crate) fn give(&mut self, counts: &Arc<RangeCounts>) {
        let known = self.given.iter_mut();
        let mut known = known.filter(|(known, _)| Arc::ptr_eq(known, counts));
        match known.next() {
            Some((_, count)) => *count += 1,
            None => self.given.push((Arc::clone(counts), 1)),
        }
    }

    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.until.is_none()
    }

    /// Wait until everything that was said is safe.
    ///
    /// # Errors
    ///
    /// If it cannot be made safe.
    pub(crate) async fn over(&mut self) -> Result<(), Failed> {
        let Some(until) = self.until.take() else {
            return Ok(());
        };
        let safe = match until.clone().await {
            // Another node may speak for it by now.
            Ok(()) => match until.lost() {
                Some(partition) => Err(Failed::Unknown { partition }),
                None => Ok(()),
            },
            Err(failed) => Err(failed),
        };
        let took = self.since.take().map(|since| since.elapsed());
        for (counts, count) in self.given.drain(..) {
            if let (Some(took), Ok(())) = (took, &safe) {
                counts.give(took, count);
            }
        }
        safe
    }
}
