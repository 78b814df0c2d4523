//! From what is true to a snapshot, piece by piece.

use super::Allocator;
use super::entry::Entry;
use super::range::Class;

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
            if self.class(self.records.head(slot).range) != Class::Memory {
                self.put_record(slot, into);
            }
        }
        true
    }

    fn put_head(&self, into: &mut Vec<u8>) {
        let last = self.fence.max(self.fence_logged);
        Entry::Fence { last }.put(into);
        let ranges = self.ranges.iter().flatten();
        for range in ranges.filter(|range| range.options.class != Class::Memory) {
            if !range.is_draining {
                for interval in range.options.intervals() {
                    Entry::Known { interval }.put(into);
                }
            }
            if range.options.class == Class::Claimed {
                let span = range.options.promise();
                for interval in range.options.intervals() {
                    Entry::Promised { interval, span }.put(into);
                }
            }
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
}
