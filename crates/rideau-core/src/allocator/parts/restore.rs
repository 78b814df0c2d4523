//! From the logs of all partitions back to what is true.

use super::{Machines, Parts};
use crate::allocator::Options;
use crate::allocator::effects::Effects;
use crate::allocator::entry::{BadEntry, Clock};
use crate::allocator::many::RestoreMany;
use crate::allocator::range::{RangeError, RangeOptions};
use crate::allocator::restore::Restore;
use crate::cluster::Partitions;
use crate::time::Instant;

/// Parts that are being read back, as [`Restore`] does with one machine.
#[derive(Debug)]
pub struct RestoreParts(Restores);

#[derive(Debug)]
enum Restores {
    One(Box<Restore>),
    Many(RestoreMany),
}

impl RestoreParts {
    /// Nothing is known, and these are the ranges.
    ///
    /// # Errors
    ///
    /// If a range cannot be like that; which, and why.
    pub fn new(
        partitions: Partitions,
        options: &Options,
        ranges: Vec<(String, RangeOptions)>,
    ) -> Result<Self, (String, RangeError)> {
        Ok(Self(match partitions.count() {
            1 => Restores::One(Box::new(Restore::new(options, ranges)?)),
            _ => Restores::Many(RestoreMany::new(partitions, options, ranges)?),
        }))
    }

    /// Read a piece of a snapshot or a section of a batch, of a partition.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read.
    pub fn read(&mut self, part: usize, bytes: &[u8]) -> Result<(), BadEntry> {
        match &mut self.0 {
            Restores::One(restore) => restore.read(bytes),
            Restores::Many(restore) => restore.read(part, bytes),
        }
    }

    /// How the clocks stood when the last batch was written.
    pub fn clock(&self) -> Option<Clock> {
        match &self.0 {
            Restores::One(restore) => restore.clock(),
            Restores::Many(restore) => restore.clock(),
        }
    }

    /// All is read, as [`Restore::finish`] has it.
    pub fn finish(self, now: Instant, effects: &mut Effects) -> Parts {
        match self.0 {
            Restores::One(restore) => restore.finish(now, effects).into(),
            Restores::Many(restore) => Parts(Machines::Many(Box::new(restore.finish(now)))),
        }
    }
}
