//! Values that may be given away before it is written down, because it is
//! written down that they may.
//!
//! After a crash it is not known which of them have a holder, and all are
//! quarantined. A value that comes back is not stock again until it is claimed
//! anew: so the log always has its release before the claim.

use std::collections::VecDeque;

use super::free::Free;
use super::interval::Interval;
use super::size::Size;

/// Of a range, this part at most is claimed or was just given away: that is what a crash
/// leaves in doubt.
const PART: u128 = 64;
/// No more than these are claimed at a time, however large a range is.
const CLAIMED_MAX: u128 = 4_096;

/// How many values of a range of this size are claimed: half of what may be in doubt, as
/// much may have been given away since the log was last safe. One at least.
fn target(size: Size) -> u128 {
    let size = size.to_u128().unwrap_or(u128::MAX);
    (size / PART / 2).clamp(1, CLAIMED_MAX)
}

/// The claimed values of a range that have no holder.
#[derive(Debug)]
pub(super) struct ClaimedValues {
    ready: Free,
    /// Claims that may not be safe yet, each with its place in the log.
    claims: VecDeque<(u64, Interval)>,
    claimed: Size,
    /// All entries up to here are safe,
    safe: u64,
    /// and this one must be before anything else is told of the range.
    awaited: u64,
}

impl ClaimedValues {
    pub(super) fn new(ready: Free) -> Self {
        Self {
            ready,
            claims: VecDeque::new(),
            claimed: Size::ZERO,
            safe: 0,
            awaited: 0,
        }
    }

    /// An ask got a value that was not claimed, with the entry at `position`:
    /// what is told of it now may not be true after a crash.
    pub(super) fn wait_for(&mut self, position: u64) {
        self.awaited = position;
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.awaited > self.safe
    }

    /// Values that can be given away at once.
    pub(super) fn ready(&mut self) -> &mut Free {
        &mut self.ready
    }

    pub(super) fn count(&self) -> Size {
        self.ready.count() + self.claimed
    }

    pub(super) fn count_in(&self, within: Interval) -> Size {
        let parts = self.claims.iter().filter_map(|(_, i)| i.intersect(within));
        parts.fold(self.ready.count_in(within), |sum, part| sum + part.size())
    }

    pub(super) fn bytes(&self) -> usize {
        self.ready.bytes()
    }

    /// Fewer than half are left of those that a range of this size has claimed.
    pub(super) fn is_low(&self, size: Size) -> bool {
        let low = target(size).div_ceil(2);
        self.claims.is_empty() && self.ready.count() < Size::new(low)
    }

    /// Take a block from the free values of a range of this size, to be used once the
    /// entries that say so are safe. The first of them comes after `position`.
    pub(super) fn claim(
        &mut self,
        free: &mut Free,
        size: Size,
        mut position: u64,
    ) -> Vec<Interval> {
        let mut block = Vec::new();
        let ready = self.ready.count().to_u128().unwrap_or(u128::MAX);
        let mut wanted = target(size).saturating_sub(ready);
        while wanted > 0
            && let Some(interval) = free.pop_interval()
        {
            let most = interval.first().saturating_add(wanted - 1);
            let last = interval.last().min(most);
            let taken = Interval::new(interval.first(), last).expect("it has a value");
            if let Some(rest) = interval.after(taken) {
                free.insert_all(rest);
            }
            wanted -= last - interval.first() + 1;
            position += 1;
            self.claims.push_back((position, taken));
            self.claimed += taken.size();
            block.push(taken);
        }
        block
    }

    /// All entries up to `position` are safe.
    pub(super) fn durable(&mut self, position: u64) {
        self.safe = position;
        while let Some((at, interval)) = self.claims.front().copied()
            && at <= position
        {
            self.claims.pop_front();
            self.claimed -= interval.size();
            self.ready.insert_all(interval);
        }
    }

    /// Take the lowest of those that may not be told at once yet.
    pub(super) fn take_early(&mut self, within: Interval) -> Option<u128> {
        let parts = self.claims.iter().filter_map(|(_, i)| i.intersect(within));
        let value = parts.map(Interval::first).min()?;
        self.remove(value);
        Some(value)
    }

    /// Is this value among them? Then it no longer is.
    pub(super) fn remove(&mut self, value: u128) -> bool {
        if self.ready.remove(value) {
            return true;
        }
        let holds = |(_, interval): &(u64, Interval)| interval.contains(value);
        let Some(at) = self.claims.iter().position(holds) else {
            return false;
        };
        let (position, interval) = self.claims.remove(at).expect("it was just found");
        let gone = Interval::of(value);
        let rests = [interval.before(gone), interval.after(gone)];
        for rest in rests.into_iter().flatten() {
            self.claims.insert(at, (position, rest));
        }
        self.claimed -= Size::ONE;
        true
    }

    /// Take away whatever lies in an interval, and say how much it was.
    pub(super) fn remove_all(&mut self, gone: Interval) -> Size {
        let mut removed = self.ready.remove_all(gone);
        for (position, interval) in std::mem::take(&mut self.claims) {
            let mut kept = Size::ZERO;
            let rests = match interval.is_disjoint(gone) {
                true => [Some(interval), None],
                false => [interval.before(gone), interval.after(gone)],
            };
            for rest in rests.into_iter().flatten() {
                kept += rest.size();
                self.claims.push_back((position, rest));
            }
            removed += interval.size() - kept;
            self.claimed -= interval.size() - kept;
        }
        removed
    }

    /// All that is claimed and has no holder.
    pub(super) fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        let claims = self.claims.iter().map(|(_, interval)| *interval);
        self.ready.intervals().chain(claims)
    }
}
