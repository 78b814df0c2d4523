//! From what is true to a snapshot, piece by piece.

use super::Allocator;
use super::entry::Entry;
use super::range::{Class, RangeId};
use super::records::{Slot, State};
use crate::time::Instant;

/// How far a snapshot is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SnapshotAt {
    cursor: u32,
    has_begun: bool,
}

impl Allocator {
    /// The next piece of a snapshot, of some `bytes`. Says whether there may be
    /// more. Changes may go on between two calls, if they are logged and kept
    /// from before the first.
    pub fn snapshot(&self, at: &mut SnapshotAt, bytes: usize, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        if !at.has_begun {
            at.has_begun = true;
            self.put_head(into);
        }
        while into.len() - before < bytes {
            let Some(slot) = self.records.next_from(&mut at.cursor) else {
                return false;
            };
            self.put_record(slot, into);
        }
        true
    }

    fn put_head(&self, into: &mut Vec<u8>) {
        let last = self.fence.max(self.fence_logged);
        Entry::Fence { last }.put(into);
        let ranges = self.ranges.iter().flatten();
        for range in ranges.filter(|range| range.options.class != Class::Memory) {
            for interval in range.stock.intervals() {
                Entry::Claimed { interval }.put(into);
            }
            if let Some(quarantine) = &range.quarantine {
                let until = quarantine.until;
                for interval in quarantine.values.intervals() {
                    Entry::Quarantined { interval, until }.put(into);
                }
            }
        }
    }

    fn put_record(&self, slot: Slot, into: &mut Vec<u8>) {
        let head = self.records.head(slot);
        if self.class(head.range) == Class::Memory {
            return;
        }
        let value = self.records.value(slot);
        let (fence, until) = (head.fence, head.until);
        match head.state {
            State::Reserved => self.with_entry(slot, until, |entry| entry.put(into)),
            State::Detached if !self.records.body(slot).data.is_empty() => {
                // Its time ran out, and that follows once more.
                let until = self.ran_out(head.range, until);
                self.with_entry(slot, until, |entry| entry.put(into));
            }
            State::Detached => Entry::Detached {
                value,
                fence,
                until,
            }
            .put(into),
            State::Cooling => Entry::Cooling {
                value,
                fence,
                until,
            }
            .put(into),
        }
    }

    /// When a hold ended whose value is detached until then.
    fn ran_out(&self, range: u16, until: Instant) -> Instant {
        let detach = match range {
            super::STRAY => 0,
            range => self.at(RangeId(range)).options.detach.as_nanos(),
        };
        let detach = u64::try_from(detach).unwrap_or(u64::MAX);
        Instant::from_nanos(until.as_nanos().saturating_sub(detach))
    }
}
