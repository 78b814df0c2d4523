//! The machines of all partitions, each read back from its own log.

use super::directory::Directory;
use super::{Many, Part};
use crate::allocator::Options;
use crate::allocator::effects::{Effects, PartLog};
use crate::allocator::entry::{BadEntry, Clock};
use crate::allocator::partition::Partition;
use crate::allocator::range::{RangeError, RangeOptions};
use crate::allocator::restore::Restore;
use crate::cluster::Partitions;
use crate::time::Instant;

/// Machines that are being read back.
#[derive(Debug)]
pub(in crate::allocator) struct RestoreMany {
    partitions: Partitions,
    options: Options,
    directory: Directory,
    parts: Vec<(Partition, Restore)>,
}

impl RestoreMany {
    pub(in crate::allocator) fn new(
        partitions: Partitions,
        options: &Options,
        ranges: Vec<(String, RangeOptions)>,
    ) -> Result<Self, (String, RangeError)> {
        let directory = Directory::of(ranges)?;
        let parts = Partition::all(partitions).map(|at| (at, directory.restore(at, options)));
        let parts = parts.collect();
        Ok(Self {
            partitions,
            options: options.clone(),
            directory,
            parts,
        })
    }

    pub(in crate::allocator) fn read(&mut self, part: usize, bytes: &[u8]) -> Result<(), BadEntry> {
        self.parts[part].1.read(bytes)
    }

    /// How the clocks stood when the last batch was written, of whichever partition.
    pub(in crate::allocator) fn clock(&self) -> Option<Clock> {
        let clocks = self.parts.iter().filter_map(|(_, restore)| restore.clock());
        clocks.max_by_key(|clock| clock.now)
    }

    pub(in crate::allocator) fn finish(self, now: Instant) -> Many {
        let mut many = Many::without_parts(self.partitions, self.directory, &self.options);
        for (at, restore) in self.parts {
            let mut effects = Effects::new();
            let machine = restore.finish(now, &mut effects);
            let mut log = PartLog::default();
            effects.swap_log(&mut log);
            many.records += machine.records.len();
            many.log_len += log.len();
            many.fence = many.fence.max(machine.fence);
            many.parts.push(Some(Box::new(Part::new(at, machine, log))));
        }
        many
    }
}
