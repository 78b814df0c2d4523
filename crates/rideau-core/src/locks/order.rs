//! Which line is served next, and which ask may pass those that wait.
//!
//! Older first. A line that does not fit is passed only by lines that see a
//! larger capacity: to lines that see the same, it is its turn, and they would
//! keep what it needs from ever coming together; to lines that see a larger
//! one, units are there that it may not have at all.

use super::claim::{Capacity, Claim};
use super::line::{Age, Line};
use crate::ledger::Reply;
use crate::time::Instant;

/// The place of the line that is to be served next while this many are held.
pub(super) fn next<R: Reply>(lines: &[Line<R>], held: u64) -> Option<usize> {
    let aged = |(at, line): (usize, &Line<R>)| Some((line.age()?, at));
    let mut order: Vec<(Age, usize)> = lines.iter().enumerate().filter_map(aged).collect();
    order.sort_unstable();
    // The largest capacity that a line sees which does not fit.
    let mut blocked: Option<Capacity> = None;
    for (_, at) in order {
        let claim = lines[at].claim();
        if Some(claim.capacity) > blocked && claim.fits(held) {
            return Some(at);
        }
        blocked = blocked.max(Some(claim.capacity));
    }
    None
}

/// Whether an ask that was sent at `sent` may be served before all that wait,
/// none of which is to be served [`next`].
pub(super) fn may_pass<R: Reply>(lines: &[Line<R>], claim: Claim, sent: Instant) -> bool {
    lines.iter().all(|line| match line.age() {
        None => true,
        Some(_) if line.claim() == claim => false,
        Some((oldest, _)) => sent < oldest || line.claim().capacity < claim.capacity,
    })
}
