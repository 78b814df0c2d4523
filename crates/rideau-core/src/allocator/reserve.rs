//! Finding values for asks: tier after tier, all or none.

use super::ask::{Ask, Place, Prefer};
use super::effects::Effects;
use super::entry::Entry;
use super::free::Free;
use super::interval::{Interval, minus};
use super::limits::TIERS_MAX;
use super::range::{Class, Order, RangeId};
use super::refused::Refused;
use super::size::Size;
use super::{Allocator, Keys, Reservation, body, end, id_key, span};
use crate::time::Instant;

/// This many records are looked at before an ask, so that each ask also tidies up.
pub(super) const TIDY: usize = 16;
/// And this many at a time when no value is free,
pub(super) const LAPSES: usize = 256;
/// this often: so that an asker in a full range is not held up when a million
/// end in another. What is left ends soon without it.
pub(super) const TURNS: usize = 64;

/// A value on its way from the free ones to its holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    value: u128,
    range: RangeId,
    tier: u8,
    /// It was claimed before, so no ask has to wait.
    is_stock: bool,
}

/// The values that an asker may have while others wait.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// Only values of these,
    pub(super) within: Interval,
    /// and none of those.
    pub(super) but: Vec<Interval>,
}

impl Allocator {
    /// Give out values, and push what was given to `granted`.
    ///
    /// # Errors
    ///
    /// If the ask is wrong, or there are not enough values.
    pub fn reserve(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        ask.check()?;
        self.check_places(ask)?;
        self.lapse(now, TIDY, effects);
        if self.was_granted(ask, now, effects, granted)? {
            return Ok(());
        }
        let reservations_max = self.reservations_max;
        let lacks_room = |all: &mut Self| {
            let room = reservations_max.saturating_sub(all.records.len());
            room < ask.count as usize
        };
        self.lapse_while(now, effects, lacks_room);
        let count = self.room(ask)?;
        let mut taken = std::mem::take(&mut self.taken);
        self.take(ask, count, now, effects, &mut taken);
        self.settle(ask, count, taken, now, effects, granted)
    }

    /// As [`reserve`](Self::reserve), but of a share only. Nothing is ended for
    /// it: what ends goes to the ask that waited for it.
    pub(super) fn reserve_share(
        &mut self,
        ask: &Ask<'_>,
        share: &Share,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        ask.check()?;
        self.check_places(ask)?;
        if self.was_granted(ask, now, effects, granted)? {
            return Ok(());
        }
        let count = self.room(ask)?;
        let mut taken = std::mem::take(&mut self.taken);
        for tier in tiers(ask) {
            for prefer in ask.prefer.iter().filter(|prefer| prefer.tier == tier) {
                for (range, piece) in self.share_of(prefer.place, share) {
                    while taken.len() < count
                        && let Some(value) = self.take_from(range, piece, tier)
                    {
                        taken.push(value);
                    }
                }
            }
        }
        self.settle(ask, count, taken, now, effects, granted)
    }

    /// Give out what was taken, if it is enough, and else put it back.
    fn settle(
        &mut self,
        ask: &Ask<'_>,
        count: usize,
        mut taken: Vec<Taken>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        self.asked = taken.last().map(|taken| taken.range);
        let result = if taken.len() == count || (ask.partial && !taken.is_empty()) {
            self.grant(ask, &taken, now, effects, granted);
            Ok(())
        } else {
            taken.iter().for_each(|taken| self.put_back(*taken));
            let (free, size) = self.counts(ask.prefer);
            Err(Refused::Exhausted { free, size })
        };
        taken.clear();
        self.taken = taken;
        result
    }

    /// Have memory bring what the next ask will need: it probably asks where the
    /// last one did. For callers that wait for memory anyway: what they look at
    /// lies elsewhere, and comes at the same time.
    pub(super) fn look_ahead(&self) {
        let range = self.asked.and_then(|id| self.ranges.get(id.index()));
        let next = match range {
            Some(Some(range)) if range.options.order == Order::Lowest => range.free.lowest(),
            _ => None,
        };
        if let Some(next) = next {
            self.records.expect(next);
        }
    }

    /// The values that the asker can have, if there are any.
    fn room(&self, ask: &Ask<'_>) -> Result<usize, Refused> {
        let count = ask.count as usize;
        let reservations_max = self.reservations_max;
        let room = reservations_max.saturating_sub(self.records.len());
        let room = room.min(count);
        if room == count || (ask.partial && room > 0) {
            Ok(room)
        } else {
            Err(Refused::Full { reservations_max })
        }
    }

    /// End what has run out for as long as that may help, and not for ever.
    fn lapse_while(
        &mut self,
        now: Instant,
        effects: &mut Effects,
        mut is_wanted: impl FnMut(&mut Self) -> bool,
    ) {
        for _ in 0..TURNS {
            let is_due = self.deadline().is_some_and(|due| due <= now);
            if !is_due || !is_wanted(self) {
                return;
            }
            self.lapse(now, LAPSES, effects);
        }
    }

    /// Every named range is there and allows the time.
    fn check_places(&self, ask: &Ask<'_>) -> Result<(), Refused> {
        for prefer in ask.prefer {
            match prefer.place {
                Place::Range(id) => {
                    let range = self.ranges.get(id.index()).and_then(Option::as_ref);
                    let range = range.ok_or(Refused::UnknownRange)?;
                    if range.is_draining {
                        return Err(Refused::Draining);
                    }
                    span(&range.options, ask.ttl, range.options.offer_ttl)?;
                }
                Place::Within(within) => {
                    for (piece, _) in self.pieces_in(within) {
                        let range = self.at(piece);
                        span(&range.options, ask.ttl, range.options.offer_ttl)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Look for values in tier after tier, and while there are none, see whose
    /// time has run out.
    fn take(
        &mut self,
        ask: &Ask<'_>,
        count: usize,
        now: Instant,
        effects: &mut Effects,
        taken: &mut Vec<Taken>,
    ) {
        for tier in tiers(ask) {
            self.lapse_while(now, effects, |all| {
                all.take_tier(ask, tier, count, taken);
                taken.len() < count
            });
            self.take_tier(ask, tier, count, taken);
        }
    }

    fn take_tier(&mut self, ask: &Ask<'_>, tier: u8, count: usize, taken: &mut Vec<Taken>) {
        for prefer in ask.prefer.iter().filter(|prefer| prefer.tier == tier) {
            while taken.len() < count
                && let Some(value) = self.take_at(prefer)
            {
                taken.push(value);
            }
        }
    }

    pub(super) fn take_at(&mut self, prefer: &Prefer) -> Option<Taken> {
        let tier = prefer.tier;
        match prefer.place {
            Place::Range(id) => self.take_from(id, Interval::ALL, tier),
            Place::Within(within) => {
                let mut next = Some(within);
                while let Some(within) = next {
                    let (range, piece) = self.pieces_in(within).next()?;
                    let taken = self.take_from(range, piece, tier);
                    if taken.is_some() {
                        return taken;
                    }
                    next = within.after(piece);
                }
                None
            }
        }
    }

    /// Which values of a place belong to a share.
    pub(super) fn share_of(&self, place: Place, share: &Share) -> Vec<(RangeId, Interval)> {
        let mut pieces: Vec<(RangeId, Interval)> = match place {
            Place::Range(id) => {
                let values = self.at(id).options.intervals();
                values.into_iter().map(|values| (id, values)).collect()
            }
            Place::Within(within) => self.pieces_in(within).collect(),
        };
        pieces.retain_mut(|(_, piece)| {
            let part = piece.intersect(share.within);
            *piece = part.unwrap_or(*piece);
            part.is_some()
        });
        let without = |(id, piece)| {
            let left = minus(&[piece], &share.but);
            left.into_iter().map(move |left| (id, left))
        };
        pieces.into_iter().flat_map(without).collect()
    }

    pub(super) fn take_from(&mut self, id: RangeId, within: Interval, tier: u8) -> Option<Taken> {
        let range = self.ranges[id.index()].as_mut()?;
        if range.is_draining {
            return None;
        }
        let order = range.options.order;
        let rng = &mut self.rng;
        let mut from = |free: &mut Free| match order {
            Order::Lowest => free.take_lowest(within),
            Order::Random => free.take_random(within, rng),
            Order::OldestFreed => free.take_oldest(within),
        };
        let taken = |value, is_stock| Taken {
            value,
            range: id,
            tier,
            is_stock,
        };
        if range.options.class == Class::Claimed
            && let Some(value) = from(range.stock.ready())
        {
            return Some(taken(value, true));
        }
        // What is claimed but not safely so is free too: its holder waits.
        let value = from(&mut range.free).or_else(|| range.stock.take_early(within));
        value.map(|value| taken(value, false))
    }

    pub(super) fn put_back(&mut self, taken: Taken) {
        let range = self.at_mut(taken.range);
        if taken.is_stock {
            range.stock.ready().insert(taken.value);
        } else {
            range.free.insert(taken.value);
        }
    }

    pub(super) fn grant(
        &mut self,
        ask: &Ask<'_>,
        taken: &[Taken],
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) {
        let id = ask.id.map(id_key);
        let id = id.as_deref();
        let data = ask.data.something();
        for &Taken {
            value,
            range: id_of_range,
            tier,
            is_stock,
        } in taken
        {
            let range = self.at_mut(id_of_range);
            range.tiers[usize::from(tier)] += 1;
            let ttl = span(&range.options, ask.ttl, range.options.offer_ttl)
                .expect("it was checked before");
            let is_long = ttl > range.options.promise();
            let until = end(now, ttl);
            let keys = Keys::new(ask.keys, id);
            let body = body(&data, &keys, ask.owner, now);
            let fence = self.begin(value, id_of_range, until, body, now, effects);
            if !is_stock || is_long {
                self.wait_for(id_of_range, effects);
            }
            self.restock(id_of_range, effects);
            granted.push(Reservation {
                value,
                kind: self.kind(value, id_of_range),
                range: id_of_range,
                fence,
                until,
                tier,
                is_known: false,
            });
        }
    }

    /// Claim more values if few are left.
    fn restock(&mut self, id: RangeId, effects: &mut Effects) {
        let range = self.at_mut(id);
        if range.options.class != Class::Claimed || !range.stock.is_low(range.size) {
            return;
        }
        let block = range
            .stock
            .claim(&mut range.free, range.size, effects.position());
        for interval in block {
            effects.log(&Entry::Claimed { interval });
        }
    }

    /// Free values and all values in these places. One that is in two places
    /// counts twice.
    pub(super) fn counts(&self, prefer: &[Prefer]) -> (Size, Size) {
        let (mut free, mut size) = (Size::ZERO, Size::ZERO);
        for prefer in prefer {
            match prefer.place {
                Place::Range(id) => {
                    let range = self.at(id);
                    free = free.saturating_add(range.free.count() + range.stock.count());
                    size = size.saturating_add(range.size);
                }
                Place::Within(within) => {
                    for (id, piece) in self.pieces_in(within) {
                        let range = self.at(id);
                        let here = range.free.count_in(piece) + range.stock.count_in(piece);
                        free = free.saturating_add(here);
                        size = size.saturating_add(piece.size());
                    }
                }
            }
        }
        (free, size)
    }
}

/// The tiers that an ask names, the best first.
pub(super) fn tiers(ask: &Ask<'_>) -> impl Iterator<Item = u8> + use<> {
    let mut named = ask.prefer.iter().fold(0_u8, |set, p| set | 1 << p.tier);
    std::iter::from_fn(move || {
        let tier = named.trailing_zeros() as u8;
        named &= named.wrapping_sub(1);
        (tier < TIERS_MAX).then_some(tier)
    })
}
