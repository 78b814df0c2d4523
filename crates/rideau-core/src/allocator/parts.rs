//! The values of all partitions, as their users see them.
//!
//! With one partition there is one machine, which does everything itself: values are
//! given out in the order of their range. With several, each has a machine of its own,
//! and the order holds within a partition only.

mod restore;

use std::collections::HashMap;
use std::time::Duration;

use super::ask::{Ask, Change, Prefer, Proof, Which};
use super::effects::Effects;
use super::entry::Entry;
use super::freed::Freed;
use super::hold::{Held, Released};
use super::interval::Interval;
use super::look::{Bytes, Count, Filter, Seen, Standing};
use super::many::Many;
use super::range::{RangeError, RangeId, RangeOptions, RangeStats};
use super::refused::Refused;
use super::reserve::Share;
use super::size::Size;
use super::snapshot::SnapshotAt;
use super::values::Values;
use super::{Allocator, Options, Reservation};
use crate::cluster::Partitions;
use crate::time::Instant;

pub use restore::RestoreParts;

/// Gives out the values of ranges, from one partition or from several.
///
/// The log of the only machine is that of the effects. Several have logs of their own,
/// which are taken with [`take_logs`](Self::take_logs).
#[derive(Debug)]
pub struct Parts(Machines);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and the one machine is reached without a step between"
)]
enum Machines {
    One {
        machine: Allocator,
        /// How many entries were logged when the log was last taken.
        taken: u64,
    },
    Many(Box<Many>),
}

/// Does the same with the one machine or with the many.
macro_rules! either {
    ($parts:expr, $machine:ident => $act:expr) => {
        match $parts {
            Machines::One { machine, .. } => {
                let $machine = machine;
                $act
            }
            Machines::Many(many) => {
                let $machine = many;
                $act
            }
        }
    };
}

impl From<Allocator> for Parts {
    fn from(machine: Allocator) -> Self {
        Self(Machines::One { machine, taken: 0 })
    }
}

impl Parts {
    /// Parts of a node in a cluster: no partition is here yet. The gate says in which epoch
    /// a partition may be decided on at that moment, if it may.
    ///
    /// # Errors
    ///
    /// If a range cannot be like that; which, and why.
    pub fn in_cluster(
        partitions: Partitions,
        options: &Options,
        ranges: Vec<(String, RangeOptions)>,
        gate: impl Fn(u32) -> Option<u64> + Send + Sync + 'static,
    ) -> Result<Self, (String, RangeError)> {
        let many = Many::in_cluster(partitions, options, ranges, Box::new(gate))?;
        Ok(Self(Machines::Many(Box::new(many))))
    }

    /// The partitions, if they can be added and removed.
    pub fn many(&self) -> Option<&Many> {
        match &self.0 {
            Machines::One { .. } => None,
            Machines::Many(many) => Some(many),
        }
    }

    /// As [`many`](Self::many), to let them come and go.
    pub fn many_mut(&mut self) -> Option<&mut Many> {
        match &mut self.0 {
            Machines::One { .. } => None,
            Machines::Many(many) => Some(many),
        }
    }

    /// How many partitions there are.
    pub fn count(&self) -> usize {
        match &self.0 {
            Machines::One { .. } => 1,
            Machines::Many(many) => many.len(),
        }
    }

    /// How many bytes were logged and not taken.
    pub fn log_len(&self, effects: &Effects) -> usize {
        match &self.0 {
            Machines::One { .. } => effects.log.len(),
            Machines::Many(many) => many.log_len(),
        }
    }

    /// Take the logs that are not empty, each with the number of its partition. What
    /// takes a log has to leave an empty one.
    pub fn take_logs(&mut self, effects: &mut Effects, mut take: impl FnMut(usize, &mut Vec<u8>)) {
        match &mut self.0 {
            Machines::One { taken, .. } => {
                *taken = effects.position();
                if !effects.log.is_empty() {
                    take(0, &mut effects.log);
                }
            }
            Machines::Many(many) => many.take_logs(take),
        }
    }

    /// All that was taken is safe.
    pub fn durable(&mut self) {
        match &mut self.0 {
            Machines::One { machine, taken } => machine.durable(*taken),
            Machines::Many(many) => many.durable(),
        }
    }

    /// Log that nothing more comes.
    pub fn log_stop(&mut self, effects: &mut Effects) {
        match &mut self.0 {
            Machines::One { .. } => Entry::Stopped.put(&mut effects.log),
            Machines::Many(many) => many.log_stop(),
        }
    }

    /// The next piece of a snapshot of a partition, as
    /// [`Allocator::snapshot`] has it.
    pub fn snapshot(
        &self,
        part: usize,
        at: &mut SnapshotAt,
        bytes: usize,
        into: &mut Vec<u8>,
    ) -> bool {
        match &self.0 {
            Machines::One { machine, .. } => machine.snapshot(at, bytes, into),
            Machines::Many(many) => many.snapshot(part, at, bytes, into),
        }
    }

    /// Give out values, and push what was given to `granted`.
    ///
    /// # Errors
    ///
    /// If the ask is wrong, or there are not enough values in all partitions.
    pub fn reserve(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        either!(&mut self.0, machine => machine.reserve(ask, now, effects, granted))
    }

    /// Take a certain value that has no holder, or perhaps has one.
    ///
    /// # Errors
    ///
    /// If it does have a holder, or the change is wrong.
    pub fn claim(
        &mut self,
        value: u128,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        either!(&mut self.0, machine => machine.claim(value, change, now, effects))
    }

    /// Replace what stands beside a value, and hold it from now on.
    ///
    /// # Errors
    ///
    /// If it has no holder or another one, or the change is wrong.
    pub fn write(
        &mut self,
        which: Which<'_>,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        either!(&mut self.0, machine => machine.write(which, change, now, effects))
    }

    /// Lay a patch over what stands beside a value, and hold it from now on.
    ///
    /// # Errors
    ///
    /// If it has no holder or another one, or the change is wrong.
    pub fn update(
        &mut self,
        which: Which<'_>,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        either!(&mut self.0, machine => machine.update(which, change, now, effects))
    }

    /// Hold a value from now on for this long.
    ///
    /// # Errors
    ///
    /// If it has no holder or another one, or the time is wrong.
    pub fn refresh<'a>(
        &mut self,
        which: Which<'_>,
        proof: impl Into<Proof<'a>>,
        ttl: Option<Duration>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let proof = proof.into();
        either!(&mut self.0, machine => machine.refresh(which, proof, ttl, now, effects))
    }

    /// Forget the holder, its keys and data. The value stays apart for a while.
    ///
    /// # Errors
    ///
    /// If it has no holder, or another one.
    pub fn cancel<'a>(
        &mut self,
        which: Which<'_>,
        proof: impl Into<Proof<'a>>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let proof = proof.into();
        either!(&mut self.0, machine => machine.cancel(which, proof, now, effects))
    }

    /// Give a value back. Its data, keys and end go in the same step.
    ///
    /// # Errors
    ///
    /// If another holds it, or it is outside of every range.
    pub fn release<'a>(
        &mut self,
        value: u128,
        proof: impl Into<Proof<'a>>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Released, Refused> {
        let proof = proof.into();
        either!(&mut self.0, machine => machine.release(value, proof, now, effects))
    }

    /// Give many values back, of one range or of all, some at a call: looks at some
    /// `most` records from where the cursor is, and says how many of them went. Gives
    /// nothing when there are no more.
    pub fn release_some(
        &mut self,
        filter: &Filter,
        range: Option<RangeId>,
        cursor: &mut u64,
        most: usize,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<usize> {
        match &mut self.0 {
            Machines::One { machine, .. } => within(cursor, |cursor| {
                machine.release_some(filter, range, cursor, most, now, effects)
            }),
            Machines::Many(many) => many.release_some(filter, range, cursor, most, now, effects),
        }
    }

    /// Add a range, or change the one of this name, in all partitions or in none.
    ///
    /// # Errors
    ///
    /// If the options do not fit together, or another range has some of the values.
    pub fn set_range(
        &mut self,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<RangeId, RangeError> {
        either!(&mut self.0, machine => machine.set_range(name, options, now, effects))
    }

    /// Take a range away, as soon as no partition has a holder of its values. Says
    /// whether that is so already.
    ///
    /// # Errors
    ///
    /// If there is no such range.
    pub fn remove_range(&mut self, range: RangeId, effects: &mut Effects) -> Result<bool, Refused> {
        either!(&mut self.0, machine => machine.remove_range(range, effects))
    }

    /// All records that are meant, oldest first; none for what has no holder.
    pub fn lookup(&mut self, which: Which<'_>, now: Instant, effects: &mut Effects) -> Vec<Seen> {
        either!(&mut self.0, machine => machine.lookup(which, now, effects))
    }

    /// How a value is.
    pub fn stands(&mut self, value: u128, now: Instant, effects: &mut Effects) -> Standing {
        either!(&mut self.0, machine => machine.stands(value, now, effects))
    }

    /// The range of this name.
    pub fn range(&self, name: &str) -> Option<RangeId> {
        either!(&self.0, machine => machine.range(name))
    }

    /// The name of a range.
    pub fn name(&self, range: RangeId) -> Option<&str> {
        either!(&self.0, machine => machine.name(range))
    }

    /// How a range is.
    pub fn options(&self, range: RangeId) -> Option<&RangeOptions> {
        either!(&self.0, machine => machine.options(range))
    }

    /// A range in numbers.
    pub fn stats(&self, range: RangeId) -> Option<RangeStats> {
        either!(&self.0, machine => machine.stats(range))
    }

    /// All ranges in numbers, by name.
    pub fn all_stats(&self) -> Vec<RangeStats> {
        match &self.0 {
            Machines::One { machine, .. } => {
                let ranges = machine.ranges();
                ranges.filter_map(|(_, id)| machine.stats(id)).collect()
            }
            Machines::Many(many) => {
                let ranges = many.names();
                ranges.filter_map(|(_, id)| many.stats(id)).collect()
            }
        }
    }

    /// How many of these values are in which state, in whatever ranges they are.
    pub fn tally(&self, within: Interval) -> Count {
        either!(&self.0, machine => machine.count(within))
    }

    /// The memory that it uses.
    pub fn bytes(&self) -> Bytes {
        either!(&self.0, machine => machine.bytes())
    }

    /// Some of the records, from where the cursor is. Others may change between two
    /// calls.
    pub fn page(&self, cursor: &mut u64, most: usize) -> Vec<Seen> {
        match &self.0 {
            Machines::One { machine, .. } => within(cursor, |cursor| machine.page(cursor, most)),
            Machines::Many(many) => many.page(cursor, most),
        }
    }

    /// Count by range which reservations end by `until`, looking at some `most` records
    /// from where the cursor is. Says whether there may be more.
    pub fn count_ending(
        &self,
        until: Instant,
        cursor: &mut u64,
        most: usize,
        counts: &mut HashMap<RangeId, u64>,
    ) -> bool {
        match &self.0 {
            Machines::One { machine, .. } => within(cursor, |cursor| {
                machine.count_ending(until, cursor, most, counts)
            }),
            Machines::Many(many) => many.count_ending(until, cursor, most, counts),
        }
    }

    fn values(&self) -> &dyn Values {
        match &self.0 {
            Machines::One { machine, .. } => machine,
            Machines::Many(many) => &**many,
        }
    }

    fn values_mut(&mut self) -> &mut dyn Values {
        match &mut self.0 {
            Machines::One { machine, .. } => machine,
            Machines::Many(many) => &mut **many,
        }
    }
}

impl Values for Parts {
    fn reserve(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        self.reserve(ask, now, effects, granted)
    }

    fn reserve_share(
        &mut self,
        ask: &Ask<'_>,
        share: &Share,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        let values = self.values_mut();
        values.reserve_share(ask, share, now, effects, granted)
    }

    fn was_granted(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<bool, Refused> {
        self.values_mut().was_granted(ask, now, effects, granted)
    }

    fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects) {
        self.values_mut().lapse(now, most, effects);
    }

    fn advance(&mut self, now: Instant, effects: &mut Effects) {
        self.values_mut().advance(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        either!(&self.0, machine => machine.deadline())
    }

    fn counts(&self, prefer: &[Prefer]) -> (Size, Size) {
        self.values().counts(prefer)
    }

    fn piece_in(&self, values: Interval) -> Option<(RangeId, Interval)> {
        self.values().piece_in(values)
    }

    fn free_in(&self, range: RangeId, values: Interval) -> Size {
        self.values().free_in(range, values)
    }

    fn options(&self, range: RangeId) -> Option<&RangeOptions> {
        self.values().options(range)
    }

    fn freed(&self) -> &Freed {
        either!(&self.0, machine => machine.freed())
    }

    fn freed_mut(&mut self) -> &mut Freed {
        either!(&mut self.0, machine => machine.freed_mut())
    }

    fn watch_freed(&mut self, is_wanted: bool) {
        self.values_mut().watch_freed(is_wanted);
    }
}

/// The only machine needs the lower half of a cursor.
fn within<T>(cursor: &mut u64, act: impl FnOnce(&mut u32) -> T) -> T {
    let mut within = u32::try_from(*cursor).unwrap_or(u32::MAX);
    let done = act(&mut within);
    *cursor = within.into();
    done
}
