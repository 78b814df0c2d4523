//! An ask that comes again gets what it has: by an id or by a key of its own.

use super::ask::{Ask, Change, Key, Place};
use super::effects::Effects;
use super::range::RangeId;
use super::records::State;
use super::refused::Refused;
use super::slot::Slot;
use super::{Allocator, Reservation, STRAY, id_key};
use crate::time::Instant;

impl Allocator {
    /// Push what this asker has already, if it has something.
    pub(super) fn was_granted(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<bool, Refused> {
        if ask.id.is_none() && ask.keys.is_empty() {
            return Ok(false);
        }
        let mut slots = self.with_id(ask, now, effects);
        if let Some(slot) = self.owner(ask, now, effects)? {
            if !slots.is_empty() && slots != [slot] {
                return Err(Refused::KeysApart);
            }
            if self.records.head(slot).state == State::Detached {
                self.give_again(slot, ask, now, effects)?;
                granted.push(self.reservation(slot, ask, false));
                return Ok(true);
            }
            slots = vec![slot];
        }
        if slots.is_empty() {
            self.check_plain(ask, now, effects)?;
        }
        slots.sort_by_key(|slot| self.records.head(*slot).fence);
        for slot in &slots {
            granted.push(self.known(*slot, ask, effects));
        }
        Ok(!slots.is_empty())
    }

    /// The reservation in a record that this asker already has.
    pub(super) fn known(&self, slot: Slot, ask: &Ask<'_>, effects: &mut Effects) -> Reservation {
        let head = self.records.head(slot);
        effects.wait |= self.must_wait(head.range, head.fence);
        self.reservation(slot, ask, true)
    }

    pub(super) fn with_id(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Slot> {
        let Some(id) = ask.id else {
            return Vec::new();
        };
        let mut slots = self.with_key(&id_key(id), now, effects);
        slots.retain(|slot| {
            let head = self.records.head(*slot);
            let is_held = head.state == State::Reserved && head.range != STRAY;
            is_held && self.may_own(*slot, ask.owner)
        });
        slots
    }

    /// The one record that has the asker's own keys.
    pub(super) fn owner(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Option<Slot>, Refused> {
        let mut owner = None;
        for key in ask.keys.iter().filter(|key| key.unique) {
            let Some(slot) = self.in_the_way(key, None, now, effects) else {
                continue;
            };
            if !self.has_alone(slot, key.bytes)
                || self.records.head(slot).range == STRAY
                || !self.may_own(slot, ask.owner)
            {
                return Err(Refused::KeyTaken);
            }
            if owner.is_some_and(|owner| owner != slot) {
                return Err(Refused::KeysApart);
            }
            owner = Some(slot);
        }
        Ok(owner)
    }

    /// This owner may have the value of a record: it is not another's.
    pub(super) fn may_own(&self, slot: Slot, owner: Option<&[u8]>) -> bool {
        owner.is_none_or(|owner| {
            let known = self.records.body(slot).owner;
            known.is_none_or(|known| known == owner)
        })
    }

    /// No other has one of the asker's shared keys for itself.
    pub(super) fn check_plain(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        for key in ask.keys.iter().filter(|key| !key.unique) {
            if self.in_the_way(key, None, now, effects).is_some() {
                return Err(Refused::KeyTaken);
            }
        }
        Ok(())
    }

    /// Another record with which this key cannot be shared. However many share
    /// it, only one has to be looked at: a record that has a key alone is alone.
    pub(super) fn in_the_way(
        &mut self,
        key: &Key<'_>,
        own: Option<Slot>,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Slot> {
        loop {
            let mut others = self.records.by_key(key.bytes);
            let slot = others.find(|slot| Some(*slot) != own)?;
            drop(others);
            if !key.unique && !self.has_alone(slot, key.bytes) {
                return None;
            }
            // One whose time ran out goes, or at least its keys do.
            let value = self.records.value(slot);
            let found = self.slot(value, now, effects);
            if found == Some(slot) && self.records.head(slot).state != State::Cooling {
                return Some(slot);
            }
        }
    }

    /// A value whose time ran out goes back to the holder that had it.
    pub(super) fn give_again(
        &mut self,
        slot: Slot,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let id = ask.id.map(id_key);
        let mut keys = ask.keys.to_vec();
        keys.extend(id.as_deref().map(|bytes| Key {
            bytes,
            unique: false,
        }));
        let range = RangeId(self.records.head(slot).range);
        let change = Change {
            ttl: Some(ask.ttl.unwrap_or(self.at(range).options.offer_ttl)),
            keys: &keys,
            owner: ask.owner,
            ..Change::new(ask.data)
        };
        self.replace(slot, &change, now, effects).map(|_| ())
    }

    pub(super) fn reservation(&self, slot: Slot, ask: &Ask<'_>, is_known: bool) -> Reservation {
        let head = self.records.head(slot);
        let value = self.records.value(slot);
        let range = RangeId(head.range);
        let has = |place: Place| match place {
            Place::Range(other) => other == range,
            Place::Within(within) => within.contains(value),
        };
        let tiers = ask.prefer.iter().filter(|prefer| has(prefer.place));
        Reservation {
            value,
            kind: self.kind(value, range),
            range,
            fence: head.fence,
            until: head.until,
            tier: tiers.map(|prefer| prefer.tier).min().unwrap_or(0),
            is_known,
        }
    }
}
