//! The machines of all partitions, which give out values as if they were one.
//!
//! Each machine has its own values, records and log, and knows nothing of the others.
//! What concerns several of them is decided here: which ranges there are, whose a key
//! is, and from which partition an ask gets its values. Fences come from one counter.

mod directory;
mod hold;
mod known;
mod look;
mod reserve;
mod restore;

use super::Allocator;
use super::effects::{Effects, PartLog};
use super::entry::Entry;
use super::freed::Freed;
use super::partition::Partition;
use super::snapshot::SnapshotAt;
use crate::cluster::Partitions;
use crate::time::Instant;
use directory::Directory;

pub(super) use restore::RestoreMany;

/// The machines of all partitions.
#[derive(Debug)]
pub(super) struct Many {
    partitions: Partitions,
    parts: Vec<Part>,
    directory: Directory,
    reservations_max: usize,
    /// How many records all of them have,
    records: usize,
    /// how many bytes they have logged that were not taken,
    log_len: usize,
    /// how many events there were,
    events: u64,
    /// and the last fence of all.
    fence: u64,
    /// What became free and was not offered to an ask yet, while any ask waits.
    freed: Freed,
    /// The partition where the next ask begins to look.
    next: usize,
}

#[derive(Debug)]
struct Part {
    at: Partition,
    machine: Allocator,
    log: PartLog,
    /// How many entries were logged when the log was last taken,
    taken: u64,
    /// and how many of them are known to be safe.
    safe: u64,
}

impl Many {
    /// Have a machine do something, with its own log. All that others have to know of it
    /// is noted.
    fn visit<T>(
        &mut self,
        part: usize,
        effects: &mut Effects,
        act: impl FnOnce(&mut Allocator, Partition, &mut Effects) -> T,
    ) -> T {
        let Part {
            at, machine, log, ..
        } = &mut self.parts[part];
        let at = *at;
        let (records, events, len) = (machine.records.len(), machine.events, log.len());
        let told = effects.events.as_ref().map_or(0, Vec::len);
        machine.fence = machine.fence.max(self.fence);
        machine.reservations_max = self.reservations_max.saturating_sub(self.records - records);
        effects.swap_log(log);
        let done = act(machine, at, effects);
        effects.swap_log(log);
        self.fence = machine.fence;
        self.records = self.records - records + machine.records.len();
        self.log_len = self.log_len - len + log.len();
        if let Some(all) = &mut effects.events {
            for (number, event) in (self.events + 1..).zip(&mut all[told..]) {
                event.number = number;
                event.value = at.value(event.value);
            }
        }
        self.events += machine.events - events;
        for values in machine.freed.take() {
            self.freed.note(at.hull(values));
        }
        self.forget_drained();
        done
    }

    /// The partition of a value.
    fn part_of(&self, value: u128) -> usize {
        self.partitions.of_value(value) as usize
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn log_len(&self) -> usize {
        self.log_len
    }

    /// Take the logs, each with its partition. What is taken has to leave an empty one.
    pub(super) fn take_logs(&mut self, mut take: impl FnMut(usize, &mut Vec<u8>)) {
        if self.log_len == 0 {
            return;
        }
        for (number, part) in self.parts.iter_mut().enumerate() {
            if part.log.len() > 0 {
                part.taken = part.log.position();
                take(number, part.log.bytes());
            }
        }
        self.log_len = 0;
    }

    /// All that was taken is safe.
    pub(super) fn durable(&mut self) {
        for part in &mut self.parts {
            if part.safe < part.taken {
                part.safe = part.taken;
                part.machine.durable(part.safe);
            }
        }
    }

    /// Nothing more will be logged.
    pub(super) fn log_stop(&mut self) {
        for part in &mut self.parts {
            Entry::Stopped.put(part.log.bytes());
            self.log_len += 1;
        }
    }

    pub(super) fn snapshot(
        &self,
        part: usize,
        at: &mut SnapshotAt,
        bytes: usize,
        into: &mut Vec<u8>,
    ) -> bool {
        self.parts[part].machine.snapshot(at, bytes, into)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.most_due().map(|(due, _)| due)
    }

    /// The machine that has to be advanced next, and when.
    fn most_due(&self) -> Option<(Instant, usize)> {
        let parts = self.parts.iter().enumerate();
        let dues = parts.filter_map(|(number, part)| Some((part.machine.deadline()?, number)));
        dues.min()
    }

    /// Do a part of what is due, in one of the machines.
    pub(super) fn advance(&mut self, now: Instant, effects: &mut Effects) {
        if let Some((_, part)) = self.most_due().filter(|(due, _)| *due <= now) {
            self.visit(part, effects, |machine, _, effects| {
                machine.advance(now, effects);
            });
        }
    }

    /// Do at most `most` things that are due, in one of the machines.
    pub(super) fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects) {
        if let Some((_, part)) = self.most_due().filter(|(due, _)| *due <= now) {
            self.visit(part, effects, |machine, _, effects| {
                machine.lapse(now, most, effects);
            });
        }
    }

    pub(super) fn freed(&self) -> &Freed {
        &self.freed
    }

    pub(super) fn freed_mut(&mut self) -> &mut Freed {
        &mut self.freed
    }

    /// An ask waits for what becomes free, or none does any longer.
    pub(super) fn watch_freed(&mut self, is_wanted: bool) {
        let machines = self.parts.iter_mut().map(|part| &mut part.machine.freed);
        for freed in machines.chain([&mut self.freed]) {
            match is_wanted {
                true => freed.begin(),
                false => freed.end(),
            }
        }
    }
}
