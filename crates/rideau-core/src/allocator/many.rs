//! The machines of all partitions, which give out values as if they were one.
//!
//! Each machine has its own values, records and log, and knows nothing of the others.
//! What concerns several of them is decided here: which ranges there are, whose a key
//! is, and from which partition an ask gets its values.
//!
//! A process that is alone has all partitions from the start to the end, and fences come
//! from one counter. In a cluster partitions come and go, each with an epoch for its
//! fences and a clock of its own: see [`hosting`].

mod directory;
mod hold;
mod hosting;
mod keys;
mod known;
mod look;
mod reserve;
mod restore;

use super::effects::{Effects, PartLog};
use super::entry::Entry;
use super::freed::Freed;
use super::interval::Interval;
use super::partition::Partition;
use super::refused::Refused;
use super::snapshot::SnapshotAt;
use super::{Allocator, Options};
use crate::cluster::Partitions;
use crate::time::Instant;
use directory::Directory;
use hosting::{Gate, HostPhase};
use keys::KnownEpochs;

pub use hosting::{ReadPart, RestorePart};
pub use keys::ReportedKey;
pub(super) use restore::RestoreMany;

/// The machines of several partitions.
#[derive(Debug)]
pub struct Many {
    partitions: Partitions,
    /// By number; none if a partition is not here.
    parts: Vec<Option<Box<Part>>>,
    directory: Directory,
    options: Options,
    /// How many records all of them have,
    records: usize,
    /// how many bytes they have logged that were not taken,
    log_len: usize,
    /// how many events there were,
    events: u64,
    /// and the last fence of all, if partitions do not come and go.
    fence: u64,
    /// Says which partitions may be decided on, if they come and go.
    gate: Option<Gate>,
    /// The known epochs of the owners of keys.
    key_epochs: KnownEpochs,
    /// Values that became free and were not offered to an ask yet, while any ask waits.
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
    phase: HostPhase,
    /// It could be decided on when that was last asked.
    is_served: bool,
}

impl Part {
    /// A partition that is there from the start to the end.
    fn new(at: Partition, machine: Allocator, log: PartLog) -> Self {
        Self {
            at,
            machine,
            log,
            taken: 0,
            safe: 0,
            phase: HostPhase::Always,
            is_served: true,
        }
    }
}

impl Many {
    /// Have a machine do something, with its own log and by its own clock. All that others
    /// have to know of it is noted.
    fn visit<T>(
        &mut self,
        part: usize,
        now: Instant,
        effects: &mut Effects,
        act: impl FnOnce(&mut Allocator, Partition, Instant, &mut Effects) -> T,
    ) -> T {
        let here = self.parts[part].as_mut().expect("the partition is here");
        let Part {
            at, machine, log, ..
        } = &mut **here;
        let at = *at;
        let (records, events, len) = (machine.records.len(), machine.events, log.len());
        let told = effects.events.as_ref().map_or(0, Vec::len);
        if self.gate.is_none() {
            machine.fence = machine.fence.max(self.fence);
        }
        machine.reservations_max = self
            .options
            .reservations_max
            .saturating_sub(self.records - records);
        effects.swap_log(log);
        let done = act(machine, at, at.inside(now), effects);
        effects.swap_log(log);
        match self.gate {
            None => self.fence = machine.fence,
            Some(_) if log.len() > len => effects.logged_in(part as u32),
            Some(_) => (),
        }
        self.records = self.records - records + machine.records.len();
        self.log_len = self.log_len - len + log.len();
        if let Some(all) = &mut effects.events {
            for (number, event) in (self.events + 1..).zip(&mut all[told..]) {
                event.number = number;
                event.value = at.value(event.value);
                event.at = at.outside(event.at);
            }
        }
        self.events += machine.events - events;
        for values in machine.freed.take() {
            self.freed.note(at.hull(values));
        }
        self.forget_drained();
        done
    }

    /// The partition of a value, which is decided on next.
    fn part_of(&mut self, value: u128, effects: &mut Effects) -> Result<usize, Refused> {
        self.decide_on(self.partitions.of_value(value), effects)
    }

    /// A partition that is decided on next.
    fn decide_on(&mut self, partition: u32, effects: &mut Effects) -> Result<usize, Refused> {
        let part = partition as usize;
        if !self.serves(part) {
            return Err(Refused::NotHere { partition });
        }
        self.rest_on(part, effects);
        Ok(part)
    }

    /// The decision depends on this partition.
    fn rest_on(&self, part: usize, effects: &mut Effects) {
        if self.gate.is_some() {
            effects.rest_on(part as u32);
        }
    }

    /// May a partition be decided on at this moment?
    fn serves(&mut self, part: usize) -> bool {
        let Some(here) = &mut self.parts[part] else {
            return false;
        };
        if let Some(gate) = &self.gate {
            let epoch = here.open_in();
            let is_served = epoch.is_some() && gate.epoch(part as u32) == epoch;
            if is_served && !here.is_served {
                // Asks that wait may have been refused its values.
                self.freed.note(Interval::ALL);
            }
            here.is_served = is_served;
        }
        here.is_served
    }

    /// The partitions that count: those that may be asked, but for moments.
    fn open(&self) -> impl Iterator<Item = &Part> + '_ {
        let here = self.parts.iter().flatten().map(|part| &**part);
        here.filter(|part| part.phase.is_open())
    }

    /// The partitions that were served when that was last asked.
    fn served(&self) -> impl Iterator<Item = &Part> + '_ {
        let here = self.parts.iter().flatten().map(|part| &**part);
        here.filter(|part| part.is_served)
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
            let Some(part) = part else { continue };
            if part.log.len() > 0 && part.phase.is_written() {
                part.taken = part.log.position();
                take(number, part.log.bytes());
            }
        }
        self.log_len = 0;
    }

    /// All that was taken is safe.
    pub(super) fn durable(&mut self) {
        for part in self.parts.iter_mut().flatten() {
            if part.safe < part.taken {
                part.safe = part.taken;
                part.machine.durable(part.safe);
            }
        }
    }

    /// Nothing more will be logged.
    pub(super) fn log_stop(&mut self) {
        let parts = self.parts.iter_mut().flatten();
        for part in parts.filter(|part| part.phase.is_open()) {
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
        let part = self.parts[part].as_ref();
        part.is_some_and(|part| part.machine.snapshot(at, bytes, into))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.most_due().map(|(due, _)| due)
    }

    /// The machine that has to be advanced next, and when.
    fn most_due(&self) -> Option<(Instant, usize)> {
        let parts = self.parts.iter().enumerate();
        let dues = parts.filter_map(|(number, part)| {
            let part = part.as_ref().filter(|part| part.is_served)?;
            Some((part.at.outside(part.machine.deadline()?), number))
        });
        dues.min()
    }

    /// Do a part of what is due, in one of the machines.
    pub(super) fn advance(&mut self, now: Instant, effects: &mut Effects) {
        if let Some(part) = self.due_by(now) {
            self.visit(part, now, effects, |machine, _, now, effects| {
                machine.advance(now, effects);
            });
        }
    }

    /// Do at most `most` things that are due, in one of the machines.
    pub(super) fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects) {
        if let Some(part) = self.due_by(now) {
            self.visit(part, now, effects, |machine, _, now, effects| {
                machine.lapse(now, most, effects);
            });
        }
    }

    /// A machine in which something is due by now.
    fn due_by(&mut self, now: Instant) -> Option<usize> {
        let (_, part) = self.most_due().filter(|(due, _)| *due <= now)?;
        self.serves(part).then_some(part)
    }

    pub(super) fn freed(&self) -> &Freed {
        &self.freed
    }

    pub(super) fn freed_mut(&mut self) -> &mut Freed {
        &mut self.freed
    }

    /// An ask waits for what becomes free, or none does any longer.
    pub(super) fn watch_freed(&mut self, is_wanted: bool) {
        let machines = self.parts.iter_mut().flatten();
        let machines = machines.map(|part| &mut part.machine.freed);
        for freed in machines.chain([&mut self.freed]) {
            freed.watch(is_wanted);
        }
    }
}
