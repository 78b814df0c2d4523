//! What asks that wait have to know of the values that they wait for, be it one machine
//! or one for each partition.

use super::ask::{Ask, Prefer};
use super::effects::Effects;
use super::freed::Freed;
use super::interval::Interval;
use super::many::Many;
use super::range::{RangeId, RangeOptions};
use super::refused::Refused;
use super::reserve::Share;
use super::size::Size;
use super::{Allocator, Reservation};
use crate::time::Instant;

/// Values that become free, and can be given to asks that waited for them.
pub(super) trait Values {
    fn reserve(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused>;

    fn reserve_share(
        &mut self,
        ask: &Ask<'_>,
        share: &Share,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused>;

    fn was_granted(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<bool, Refused>;

    fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects);

    fn advance(&mut self, now: Instant, effects: &mut Effects);

    fn deadline(&self) -> Option<Instant>;

    /// Free values and all values in these places.
    fn counts(&self, prefer: &[Prefer]) -> (Size, Size);

    /// The first range that has some of these values, and which.
    fn piece_in(&self, values: Interval) -> Option<(RangeId, Interval)>;

    fn free_in(&self, range: RangeId, values: Interval) -> Size;

    fn options(&self, range: RangeId) -> Option<&RangeOptions>;

    /// What became free and was not offered to an ask yet. There may be others between
    /// the values of an offer.
    fn freed(&self) -> &Freed;

    fn freed_mut(&mut self) -> &mut Freed;

    /// An ask waits for what becomes free, or none does any longer.
    fn watch_freed(&mut self, is_wanted: bool);
}

/// What a machine does by itself is what asks that wait have to know.
macro_rules! values_of {
    ($machine:ty) => {
        impl Values for $machine {
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
                self.reserve_share(ask, share, now, effects, granted)
            }

            fn was_granted(
                &mut self,
                ask: &Ask<'_>,
                now: Instant,
                effects: &mut Effects,
                granted: &mut Vec<Reservation>,
            ) -> Result<bool, Refused> {
                self.was_granted(ask, now, effects, granted)
            }

            fn lapse(&mut self, now: Instant, most: usize, effects: &mut Effects) {
                self.lapse(now, most, effects);
            }

            fn advance(&mut self, now: Instant, effects: &mut Effects) {
                self.advance(now, effects);
            }

            fn deadline(&self) -> Option<Instant> {
                self.deadline()
            }

            fn counts(&self, prefer: &[Prefer]) -> (Size, Size) {
                self.counts(prefer)
            }

            fn piece_in(&self, values: Interval) -> Option<(RangeId, Interval)> {
                self.piece_in(values)
            }

            fn free_in(&self, range: RangeId, values: Interval) -> Size {
                self.free_in(range, values)
            }

            fn options(&self, range: RangeId) -> Option<&RangeOptions> {
                self.options(range)
            }

            fn freed(&self) -> &Freed {
                self.freed()
            }

            fn freed_mut(&mut self) -> &mut Freed {
                self.freed_mut()
            }

            fn watch_freed(&mut self, is_wanted: bool) {
                self.watch_freed(is_wanted);
            }
        }
    };
}

values_of!(Allocator);
values_of!(Many);

impl Allocator {
    fn piece_in(&self, values: Interval) -> Option<(RangeId, Interval)> {
        self.pieces_in(values).next()
    }

    fn free_in(&self, range: RangeId, values: Interval) -> Size {
        let range = self.at(range);
        range.free.count_in(values) + range.stock.count_in(values)
    }

    pub(super) fn freed(&self) -> &Freed {
        &self.freed
    }

    pub(super) fn freed_mut(&mut self) -> &mut Freed {
        &mut self.freed
    }

    fn watch_freed(&mut self, is_wanted: bool) {
        self.freed.watch(is_wanted);
    }
}
