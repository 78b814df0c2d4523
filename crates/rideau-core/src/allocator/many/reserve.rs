//! Finding values for asks in all partitions: tier after tier, all or none.

use super::directory::share;
use super::{Many, Part};
use crate::allocator::ask::{Ask, Place, Prefer};
use crate::allocator::effects::Effects;
use crate::allocator::refused::Refused;
use crate::allocator::reserve::{LAPSES, Share, TIDY, TURNS, Taken, tiers};
use crate::allocator::{Reservation, span};
use crate::time::Instant;

/// A value on its way to its holder, and its partition.
type TakenAt = (usize, Taken);

impl Many {
    pub(in crate::allocator) fn reserve(
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
        self.lapse_while(now, effects, |all| all.room() < ask.count as usize);
        let count = self.room_for(ask)?;
        let mut taken = Vec::new();
        self.begin_at_key(ask);
        for tier in tiers(ask) {
            self.lapse_while(now, effects, |all| {
                all.take_tier(ask, tier, count, &mut taken);
                taken.len() < count
            });
            self.take_tier(ask, tier, count, &mut taken);
        }
        self.settle(ask, count, &taken, now, effects, granted)
    }

    /// As [`reserve`](Self::reserve), but of a share only. Nothing is ended for it.
    pub(in crate::allocator) fn reserve_share(
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
        let count = self.room_for(ask)?;
        let mut taken = Vec::new();
        let mut shares: Vec<(usize, Share)> = Vec::new();
        for number in 0..self.parts.len() {
            if self.serves(number)
                && let Some(part) = &self.parts[number]
                && let Some(share) = part.at.share(share)
            {
                shares.push((number, share));
            }
        }
        for tier in tiers(ask) {
            for prefer in ask.prefer.iter().filter(|prefer| prefer.tier == tier) {
                for (number, share) in &shares {
                    if let Some(part) = &mut self.parts[*number] {
                        take_share(part, *number, prefer, share, count, &mut taken);
                    }
                }
            }
        }
        self.settle(ask, count, &taken, now, effects, granted)
    }

    /// Give out what was taken, if it is enough, and else put it back.
    fn settle(
        &mut self,
        ask: &Ask<'_>,
        count: usize,
        taken: &[TakenAt],
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        if taken.len() == count || (ask.partial && !taken.is_empty()) {
            for (part, taken) in taken {
                let before = granted.len();
                self.rest_on(*part, effects);
                let at = self.visit(*part, now, effects, |machine, at, now, effects| {
                    machine.grant(ask, &[*taken], now, effects, granted);
                    at
                });
                for one in &mut granted[before..] {
                    *one = at.reservation(*one);
                }
            }
            return Ok(());
        }
        for (part, taken) in taken {
            let part = self.parts[*part].as_mut().expect("it was just asked");
            part.machine.put_back(*taken);
        }
        let (free, size) = self.counts(ask.prefer);
        Err(Refused::Exhausted { free, size })
    }

    /// How many values may get a holder.
    fn room(&self) -> usize {
        self.options.reservations_max.saturating_sub(self.records)
    }

    /// The values that the asker can have, if there are any.
    fn room_for(&self, ask: &Ask<'_>) -> Result<usize, Refused> {
        let count = ask.count as usize;
        let room = self.room().min(count);
        if room == count || (ask.partial && room > 0) {
            Ok(room)
        } else {
            let reservations_max = self.options.reservations_max;
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
                    let known = self.directory.known(id).ok_or(Refused::UnknownRange)?;
                    if known.is_draining {
                        return Err(Refused::Draining);
                    }
                    span(&known.options, ask.ttl, known.options.offer_ttl)?;
                }
                Place::Within(within) => {
                    for (id, _) in self.directory.pieces_in(within) {
                        let known = self.directory.known(id).ok_or(Refused::UnknownRange)?;
                        span(&known.options, ask.ttl, known.options.offer_ttl)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// An ask with a key begins in the partition of the key, so that the record is where
    /// it will be looked for first.
    fn begin_at_key(&mut self, ask: &Ask<'_>) {
        let unique = ask.keys.iter().find(|key| key.unique);
        let first = unique.or(ask.keys.first()).map(|key| key.bytes);
        if let Some(key) = first.or(ask.id) {
            self.next = self.partitions.of_name(key) as usize;
        }
    }

    /// Take one value after the other, of each partition in turn.
    fn take_tier(&mut self, ask: &Ask<'_>, tier: u8, count: usize, taken: &mut Vec<TakenAt>) {
        for prefer in ask.prefer.iter().filter(|prefer| prefer.tier == tier) {
            let mut in_vain = 0;
            while taken.len() < count && in_vain < self.parts.len() {
                match self.take_here(prefer) {
                    Some(value) => {
                        taken.push((self.next, value));
                        in_vain = 0;
                    }
                    None => in_vain += 1,
                }
                self.next = (self.next + 1) % self.parts.len();
            }
        }
    }
}

impl Many {
    /// Take a value of the next partition, if that has one and may be asked.
    fn take_here(&mut self, prefer: &Prefer) -> Option<Taken> {
        if !self.serves(self.next) {
            return None;
        }
        let part = self.parts[self.next].as_mut()?;
        let here = part.at.prefer(prefer)?;
        part.machine.take_at(&here)
    }
}

/// Take values of a partition that belong to a share.
fn take_share(
    part: &mut Part,
    number: usize,
    prefer: &Prefer,
    of: &Share,
    count: usize,
    taken: &mut Vec<TakenAt>,
) {
    let Some(here) = part.at.prefer(prefer) else {
        return;
    };
    if let Place::Range(id) = here.place
        && share(part, id).is_none()
    {
        return;
    }
    for (range, piece) in part.machine.share_of(here.place, of) {
        while taken.len() < count
            && let Some(value) = part.machine.take_from(range, piece, prefer.tier)
        {
            taken.push((number, value));
        }
    }
}
