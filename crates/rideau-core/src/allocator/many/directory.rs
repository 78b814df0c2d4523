//! Which ranges there are. Every machine has its share of each, under the same number.

use std::collections::BTreeMap;

use super::{Many, Part};
use crate::allocator::ask::{Place, Prefer};
use crate::allocator::change::{self, check_name};
use crate::allocator::effects::Effects;
use crate::allocator::interval::Interval;
use crate::allocator::partition::Partition;
use crate::allocator::range::{Range, RangeError, RangeId, RangeOptions};
use crate::allocator::refused::Refused;
use crate::allocator::restore::Restore;
use crate::allocator::size::Size;
use crate::allocator::{Options, Piece, RANGES_MAX, STRAY, pieces_in};
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Directory {
    ranges: BTreeMap<RangeId, Known>,
    names: BTreeMap<String, RangeId>,
    /// By their first value, all values that can ever be given out.
    pieces: BTreeMap<u128, Piece>,
    /// This many ranges are being taken away.
    draining: usize,
}

/// A range as all partitions have it together.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) options: RangeOptions,
    pub(super) is_draining: bool,
}

impl Directory {
    /// These ranges.
    pub(super) fn of(ranges: Vec<(String, RangeOptions)>) -> Result<Self, (String, RangeError)> {
        let mut directory = Self::default();
        for (name, options) in ranges {
            match directory.check(&name, &options) {
                Ok(id) => directory.put(id, &name, options),
                Err(error) => return Err((name, error)),
            }
        }
        Ok(directory)
    }

    /// A machine of a partition that is to be read back, with its shares of all ranges but
    /// those that are being taken away.
    pub(super) fn restore(&self, at: Partition, options: &Options) -> Restore {
        let ranges = self.ranges.iter().filter(|(_, known)| !known.is_draining);
        let shares = ranges.map(|(id, known)| (*id, &*known.name, at.options(&known.options)));
        Restore::of_part(options, shares)
    }

    pub(super) fn find(&self, name: &str) -> Option<RangeId> {
        self.names.get(name).copied()
    }

    pub(super) fn known(&self, id: RangeId) -> Option<&Known> {
        self.ranges.get(&id)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&str, RangeId)> + '_ {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Which ranges have values within these, and which values, in order.
    pub(super) fn pieces_in(
        &self,
        within: Interval,
    ) -> impl Iterator<Item = (RangeId, Interval)> + '_ {
        pieces_in(&self.pieces, within)
    }

    /// All ranges.
    pub(super) fn all(&self) -> impl Iterator<Item = (RangeId, &Known)> + '_ {
        self.ranges.iter().map(|(id, known)| (*id, known))
    }

    /// How many values there are in these places, in whatever partitions.
    pub(super) fn size_of(&self, prefer: &[Prefer]) -> Size {
        let mut size = Size::ZERO;
        for prefer in prefer {
            let (wanted, within) = match prefer.place {
                Place::Range(id) => (Some(id), Interval::ALL),
                Place::Within(within) => (None, within),
            };
            let pieces = self.pieces_in(within);
            let pieces = pieces.filter(|(id, _)| wanted.is_none_or(|wanted| wanted == *id));
            size = pieces.fold(size, |sum, (_, piece)| sum.saturating_add(piece.size()));
        }
        size
    }

    /// Can a range be like this? Says which one it is or will be.
    pub(super) fn check(&self, name: &str, options: &RangeOptions) -> Result<RangeId, RangeError> {
        check_name(name)?;
        options.check()?;
        let known = self.find(name);
        let others = self.ranges.iter().filter(|(id, _)| Some(**id) != known);
        for (_, other) in others {
            change::check_overlap(&other.name, &other.options, options)?;
        }
        if let Some(id) = known {
            let is_draining = self.ranges.get(&id).is_some_and(|range| range.is_draining);
            return match is_draining {
                true => Err(RangeError::Draining),
                false => Ok(id),
            };
        }
        let mut numbers = (STRAY + 1..RANGES_MAX as u16).map(RangeId);
        let vacant = numbers.find(|id| !self.ranges.contains_key(id));
        vacant.ok_or(RangeError::TooMany)
    }

    /// A range is like this from now on.
    pub(super) fn put(&mut self, id: RangeId, name: &str, options: RangeOptions) {
        self.pieces.retain(|_, piece| piece.range != id);
        for values in options.intervals() {
            let last = values.last();
            self.pieces
                .insert(values.first(), Piece { last, range: id });
        }
        self.names.insert(name.to_owned(), id);
        let known = Known {
            name: name.to_owned(),
            options,
            is_draining: false,
        };
        self.ranges.insert(id, known);
    }

    fn drain(&mut self, id: RangeId) -> Result<(), Refused> {
        let range = self.ranges.get_mut(&id).ok_or(Refused::UnknownRange)?;
        self.draining += usize::from(!range.is_draining);
        range.is_draining = true;
        Ok(())
    }

    fn remove(&mut self, id: RangeId) {
        if let Some(range) = self.ranges.remove(&id) {
            self.names.remove(&range.name);
            self.draining -= usize::from(range.is_draining);
        }
        self.pieces.retain(|_, piece| piece.range != id);
    }
}

impl Many {
    pub(in crate::allocator) fn set_range(
        &mut self,
        name: &str,
        options: RangeOptions,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<RangeId, RangeError> {
        let id = self.directory.check(name, &options)?;
        let before = self.directory.known(id);
        let has_class = before.is_none_or(|known| known.options.class == options.class);
        if !has_class && self.shares(id).any(|range| range.held() > 0) {
            return Err(RangeError::ClassHeld);
        }
        for part in self.open_numbers() {
            self.visit(part, now, effects, |machine, at, now, effects| {
                machine.put_range(id, name, at.options(&options), now, effects)
            })?;
        }
        self.directory.put(id, name, options);
        Ok(id)
    }

    pub(in crate::allocator) fn remove_range(
        &mut self,
        id: RangeId,
        effects: &mut Effects,
    ) -> Result<bool, Refused> {
        self.directory.drain(id)?;
        for part in self.open_numbers() {
            self.visit(part, Instant::START, effects, |machine, _, _, effects| {
                match machine.remove_range(id, effects) {
                    // Its share is gone already.
                    Err(Refused::UnknownRange) => Ok(true),
                    removed => removed,
                }
            })?;
        }
        self.forget_drained();
        Ok(self.directory.known(id).is_none())
    }

    /// The shares of a range in all machines.
    pub(super) fn shares(&self, id: RangeId) -> impl Iterator<Item = &Range> + '_ {
        let here = self.parts.iter().flatten();
        here.filter_map(move |part| share(part, id))
    }

    /// A range that is taken away is gone when no machine has any of it.
    pub(super) fn forget_drained(&mut self) {
        if self.directory.draining == 0 {
            return;
        }
        let ranges = self.directory.ranges.iter();
        let draining = ranges.filter(|(_, range)| range.is_draining);
        let gone: Vec<RangeId> = draining
            .map(|(id, _)| *id)
            .filter(|id| self.shares(*id).next().is_none())
            .collect();
        for id in gone {
            self.directory.remove(id);
        }
    }
}

/// The share of a range in a machine.
pub(super) fn share(part: &Part, id: RangeId) -> Option<&Range> {
    part.machine.ranges.get(id.index())?.as_ref()
}
