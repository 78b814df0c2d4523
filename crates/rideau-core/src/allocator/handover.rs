//! What a partition's owner leaves to the next, beyond what it writes down anyway.
//!
//! An owner that dies leaves in doubt which values have holders, where that is not
//! written down before it is told. One that hands over writes it down at the end.

use super::Allocator;
use super::effects::Effects;
use super::entry::Entry;
use super::range::{Class, RangeId};

impl Allocator {
    /// Log all that is true and was not logged, and that nothing more comes.
    pub(super) fn log_closed(&self, effects: &mut Effects) {
        for (_, range) in self.memory_ranges() {
            for interval in range.options.intervals() {
                effects.log(&Entry::Known { interval });
            }
            if let Some(quarantine) = &range.quarantine {
                let until = quarantine.until;
                for interval in quarantine.values.intervals() {
                    effects.log(&Entry::Quarantined { interval, until });
                }
            }
        }
        self.each_in_memory(|slot| self.put_record(slot, effects.entry()));
        let last = self.fence;
        effects.log(&Entry::Fence { last });
        effects.log(&Entry::Stopped);
    }

    /// The opposite: more comes, and is not all logged before it is told.
    pub(super) fn log_reopened(&mut self, effects: &mut Effects) {
        for (_, range) in self.memory_ranges() {
            for interval in range.options.intervals() {
                effects.log(&Entry::Unknown { interval });
            }
        }
        self.each_in_memory(|slot| {
            let (value, fence) = (self.records.value(slot), self.records.head(slot).fence);
            effects.log(&Entry::Freed { value, fence });
        });
        for range in self.ranges.iter_mut().flatten() {
            if range.options.class == Class::Claimed {
                for interval in range.stock.intervals() {
                    effects.log(&Entry::Claimed { interval });
                }
                range.stock.wait_for(effects.position());
            }
        }
    }

    fn memory_ranges(&self) -> impl Iterator<Item = (RangeId, &super::Range)> + '_ {
        let ranges = self.names.values().map(|id| (*id, self.at(*id)));
        let is_memory = |range: &super::Range| range.options.class == Class::Memory;
        ranges.filter(move |(_, range)| is_memory(range) && !range.is_draining)
    }

    /// All records of ranges that are not written down.
    fn each_in_memory(&self, mut act: impl FnMut(super::Slot)) {
        let mut cursor = 0;
        while let Some(slot) = self.records.next_from(&mut cursor) {
            if self.class(self.records.head(slot).range) == Class::Memory {
                act(slot);
            }
        }
    }
}
