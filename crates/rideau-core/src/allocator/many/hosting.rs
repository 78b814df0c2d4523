//! Partitions that come and go, as the nodes of a cluster own them in turn.
//!
//! A partition is read back, opened with an epoch, closed and given up while the others
//! go on. Its fences have the epoch in their upper half. Its clock goes on from the last
//! instant that its former owner wrote down, and nothing is added for the time between:
//! no hold ends early.
//!
//! While a partition is open, the gate is asked before each decision whether it may be
//! decided on at that moment.

use std::fmt;

use super::directory::{Directory, share};
use super::keys::KnownEpochs;
use super::{Many, Part};
use crate::allocator::ask::Which;
use crate::allocator::effects::{Effects, PartLog};
use crate::allocator::entry::{BadEntry, Clock};
use crate::allocator::freed::Freed;
use crate::allocator::limits::COUNT_MAX;
use crate::allocator::partition::Partition;
use crate::allocator::range::{RangeError, RangeOptions};
use crate::allocator::refused::Refused;
use crate::allocator::restore::Restore;
use crate::allocator::{Allocator, Options, RangeId};
use crate::cluster::Partitions;
use crate::time::Instant;

/// The epoch begins at this bit of a fence.
const EPOCH_SHIFT: u32 = 32;
/// When no more fences than these are left of an epoch, it is time for the next one.
const SPENT: u64 = 1 << 24;

/// Says in which epoch a partition may be decided on at this moment, if it may.
pub(super) struct Gate(Box<dyn Fn(u32) -> Option<u64> + Send + Sync>);

impl Gate {
    pub(super) fn epoch(&self, partition: u32) -> Option<u64> {
        (self.0)(partition)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The phase of a hosted partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostPhase {
    /// Everything, from the start to the end.
    Always,
    /// It was read back, and its clock stands still. What its reading logged is kept.
    Loaded { epoch: u64, clock: Instant },
    /// It may be decided on.
    Open { epoch: u64, is_spent: bool },
    /// It is not decided on, and what was decided is written.
    Closed { epoch: u64 },
}

impl HostPhase {
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Always | Self::Open { .. })
    }

    /// Is its log written?
    pub(super) const fn is_written(self) -> bool {
        !matches!(self, Self::Loaded { .. })
    }

    pub(super) const fn epoch(self) -> Option<u64> {
        match self {
            Self::Always => None,
            Self::Loaded { epoch, .. } | Self::Open { epoch, .. } | Self::Closed { epoch } => {
                Some(epoch)
            }
        }
    }
}

impl Part {
    /// The epoch in which it is open, if one decision more has fences enough.
    pub(super) fn open_in(&self) -> Option<u64> {
        let HostPhase::Open { epoch, .. } = self.phase else {
            return None;
        };
        (self.fences_left(epoch) >= u64::from(COUNT_MAX)).then_some(epoch)
    }

    fn fences_left(&self, epoch: u64) -> u64 {
        let end = epoch.saturating_add(1) << EPOCH_SHIFT;
        (end - 1).saturating_sub(self.machine.fence)
    }
}

/// A partition that is being read back, as [`Restore`] does with one machine.
#[derive(Debug)]
pub struct RestorePart {
    at: Partition,
    epoch: u64,
    restore: Restore,
}

/// A partition that was read back.
#[derive(Debug)]
pub struct ReadPart(Box<Part>);

impl RestorePart {
    /// Read a piece of a snapshot or a section of a batch.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), BadEntry> {
        self.restore.read(bytes)
    }

    /// All is read, as [`Restore::finish`] has it, at the last instant that was written
    /// down. If none was, the clock of the partition begins like that of the process.
    pub fn finish(self, now: Instant) -> ReadPart {
        let Self { at, epoch, restore } = self;
        let clock = restore.clock().map_or(now, |clock| clock.now);
        let mut effects = Effects::new();
        let machine = restore.finish(clock, &mut effects);
        let mut log = PartLog::default();
        effects.swap_log(&mut log);
        ReadPart(Box::new(Part {
            phase: HostPhase::Loaded { epoch, clock },
            is_served: false,
            ..Part::new(at.with_clock(clock, now), machine, log)
        }))
    }
}

impl Many {
    pub(super) fn without_parts(
        partitions: Partitions,
        directory: Directory,
        options: &Options,
    ) -> Self {
        Self {
            partitions,
            parts: Vec::with_capacity(partitions.count() as usize),
            directory,
            options: options.clone(),
            records: 0,
            log_len: 0,
            events: 0,
            fence: options.fence,
            gate: None,
            key_epochs: KnownEpochs::default(),
            freed: Freed::default(),
            next: 0,
        }
    }

    /// No partition is here yet. The gate says in which epoch a partition may be decided
    /// on at that moment, if it may.
    pub(in crate::allocator) fn in_cluster(
        partitions: Partitions,
        options: &Options,
        ranges: Vec<(String, RangeOptions)>,
        gate: Box<dyn Fn(u32) -> Option<u64> + Send + Sync>,
    ) -> Result<Self, (String, RangeError)> {
        let mut many = Self::without_parts(partitions, Directory::of(ranges)?, options);
        many.parts.resize_with(partitions.count() as usize, || None);
        many.gate = Some(Gate(gate));
        Ok(many)
    }

    /// Begin to read a partition back. It is here when it was [put](Self::put).
    pub fn restore(&self, partition: u32, epoch: u64) -> RestorePart {
        let at = Partition::new(self.partitions, partition);
        let options = Options {
            fence: 0,
            ..self.options.clone()
        };
        let restore = self.directory.restore(at, &options);
        let restore = restore.with_memory();
        RestorePart { at, epoch, restore }
    }

    /// A partition is here, in place of what there was of it. Nothing is decided on it yet.
    pub fn put(&mut self, read: ReadPart) {
        let ReadPart(mut part) = read;
        let number = part.at.number();
        self.end(number);
        part.machine.freed.watch(self.freed.is_wanted());
        self.records += part.machine.records.len();
        self.parts[number as usize] = Some(part);
    }

    /// A partition that was read back or closed is open from now on, in this epoch. Says
    /// whether it is here.
    pub fn begin(
        &mut self,
        partition: u32,
        epoch: u64,
        now: Instant,
        effects: &mut Effects,
    ) -> bool {
        let number = partition as usize;
        let Some(part) = &mut self.parts[number] else {
            return false;
        };
        let was_closed = matches!(part.phase, HostPhase::Closed { .. });
        if let HostPhase::Loaded { clock, .. } = part.phase {
            part.at = part.at.with_clock(clock, now);
            self.log_len += part.log.len();
        }
        let is_spent = false;
        part.phase = HostPhase::Open { epoch, is_spent };
        part.is_served = false;
        part.machine.fence = part.machine.fence.max(epoch << EPOCH_SHIFT);
        self.visit(number, now, effects, |machine, _, _, effects| {
            if was_closed {
                machine.log_reopened(effects);
            }
            machine.wait_for_first_batch(effects);
        });
        self.follow_directory(number, now, effects);
        true
    }

    /// Nothing more is decided on a partition, which is kept: what is not written down
    /// while it is open is logged for the next owner. Says whether it is here.
    pub fn close(&mut self, partition: u32, now: Instant, effects: &mut Effects) -> bool {
        let number = partition as usize;
        match self.parts[number].as_ref().map(|part| part.phase) {
            Some(HostPhase::Open { epoch, .. }) => {
                self.visit(number, now, effects, |machine, _, _, effects| {
                    machine.log_closed(effects);
                });
                let part = self.parts[number].as_mut().expect("it was just seen");
                part.phase = HostPhase::Closed { epoch };
                part.is_served = false;
                true
            }
            Some(_) => true,
            None => false,
        }
    }

    /// A partition is not here any more. What was logged and not taken is lost.
    pub fn end(&mut self, partition: u32) {
        let Some(part) = self.parts[partition as usize].take() else {
            return;
        };
        self.records -= part.machine.records.len();
        if part.phase.is_written() {
            self.log_len -= part.log.len();
        }
        self.forget_drained();
    }

    /// The epoch in which a partition is here, open or not.
    pub fn epoch(&self, partition: u32) -> Option<u64> {
        self.parts[partition as usize].as_ref()?.phase.epoch()
    }

    /// Is the partition here, and not open?
    pub fn is_closed(&self, partition: u32) -> bool {
        let part = self.parts[partition as usize].as_ref();
        part.is_some_and(|part| !part.phase.is_open())
    }

    /// The partitions that have logged something that was not taken, in order.
    pub fn logging(&self) -> Vec<u32> {
        let here = self.parts.iter().flatten();
        let logging = here.filter(|part| part.log.len() > 0 && part.phase.is_written());
        logging.map(|part| part.at.number()).collect()
    }

    /// The partitions that are not open here.
    pub fn missing(&self) -> Vec<u32> {
        let numbers = 0..self.parts.len();
        let missing = numbers.filter(|number| !self.is_open(*number));
        missing.map(|number| number as u32).collect()
    }

    /// Can this be decided on here? A key is asked for in the partition of its name.
    ///
    /// # Errors
    ///
    /// If its partition is not here, or cannot be decided on at this moment.
    pub fn check_here(&mut self, which: Which<'_>) -> Result<(), Refused> {
        let partition = match which {
            Which::Value(value) => self.partitions.of_value(value),
            Which::Key(key) => self.partitions.of_name(key),
        };
        match self.serves(partition as usize) {
            true => Ok(()),
            false => Err(Refused::NotHere { partition }),
        }
    }

    /// Does an open partition have values of a range?
    pub fn has_some_of(&self, range: RangeId) -> bool {
        let mut shares = self.open().filter_map(|part| share(part, range));
        shares.any(|share| !share.size.is_zero())
    }

    /// Ask the gate about all partitions: what became possible again is noticed.
    pub fn look_again(&mut self) {
        for part in 0..self.parts.len() {
            self.serves(part);
        }
    }

    /// The partitions whose epochs have hardly any fences left, each once, with its epoch.
    pub fn take_spent(&mut self) -> Vec<(u32, u64)> {
        let mut spent = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            if let Some(part) = part
                && let HostPhase::Open {
                    epoch,
                    is_spent: false,
                } = part.phase
                && part.fences_left(epoch) <= SPENT
            {
                let is_spent = true;
                part.phase = HostPhase::Open { epoch, is_spent };
                spent.push((number as u32, epoch));
            }
        }
        spent
    }

    /// How the clocks stand for a partition, if they stand like this for the process.
    pub fn clock(&self, partition: u32, process: Clock) -> Clock {
        let now = match &self.parts[partition as usize] {
            Some(part) => match part.phase {
                HostPhase::Loaded { clock, .. } => clock,
                _ => part.at.inside(process.now),
            },
            None => process.now,
        };
        Clock { now, ..process }
    }

    /// The open partitions in which something will end.
    pub fn ending(&self) -> impl Iterator<Item = u32> + '_ {
        let ending = self.open().filter(|part| part.machine.deadline().is_some());
        ending.map(|part| part.at.number())
    }

    pub(super) fn is_open(&self, part: usize) -> bool {
        let part = self.parts[part].as_ref();
        part.is_some_and(|part| part.phase.is_open())
    }

    /// The numbers of the open partitions.
    pub(super) fn open_numbers(&self) -> Vec<usize> {
        let open = self.open().map(|part| part.at.number() as usize);
        open.collect()
    }

    /// The decision depends on all partitions that are served.
    pub(super) fn rest_on_all(&self, effects: &mut Effects) {
        if self.gate.is_some() {
            self.open()
                .for_each(|part| effects.rest_on(part.at.number()));
        }
    }

    /// The ranges may have changed since the partition was read back or closed.
    fn follow_directory(&mut self, number: usize, now: Instant, effects: &mut Effects) {
        let part = self.parts[number].as_ref().expect("it was just opened");
        let mut changes: Vec<(RangeId, Option<(String, RangeOptions)>)> = Vec::new();
        for (id, known) in self.directory.all() {
            let options = part.at.options(&known.options);
            match share(part, id) {
                Some(range) if known.is_draining && !range.is_draining => changes.push((id, None)),
                Some(range) if known.is_draining || range.options == options => (),
                None if known.is_draining => (),
                _ => changes.push((id, Some((known.name.clone(), options)))),
            }
        }
        for (id, change) in changes {
            self.visit(number, now, effects, |machine, _, now, effects| {
                // A range whose class cannot change while it is held stays as it is until
                // the partition is read back again.
                let _ = match change {
                    Some((name, options)) => machine
                        .put_range(id, &name, options, now, effects)
                        .map_err(|_| Refused::Draining),
                    None => machine.remove_range(id, effects).map(|_| ()),
                };
            });
        }
    }
}

impl Allocator {
    /// Nothing is told, be it written down or not, before what is logged until now is safe:
    /// then no owner before this one can have written after that.
    fn wait_for_first_batch(&mut self, effects: &mut Effects) {
        self.log_fences(effects);
        self.fence_safe = 0;
    }
}
