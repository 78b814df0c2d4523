//! What holders do with their values: write beside them, keep them for longer,
//! give them back.

use std::time::Duration;

use super::ask::{Change, Proof, Which, check_data, check_key};
use super::effects::{Effects, What};
use super::entry::Entry;
use super::fields::{self, Fields};
use super::interval::Interval;
use super::limits::KEYS_MAX;
use super::look::Standing;
use super::range::{Class, RangeId};
use super::records::{Body, Head, State};
use super::refused::Refused;
use super::slot::Slot;
use super::{Allocator, ID_MARK, Keys, STRAY, body, end, span};
use crate::time::Instant;

/// A value that is held, after its holder said something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The value.
    pub value: u128,
    /// The holder's number; a new one if the value had no holder.
    pub fence: u64,
    /// When it ends.
    pub until: Instant,
    /// Its state before.
    pub was: Standing,
    /// Its data before.
    pub old: Fields,
}

/// The result of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// The value had a holder, or might have had one.
    Now,
    /// The value was free.
    Already,
}

/// Whether to merge or to replace the data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Replace,
    Merge,
    Keep,
}

impl Allocator {
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
        change.check()?;
        match self.slot(value, now, effects) {
            Some(slot) => Err(match self.records.head(slot).state {
                State::Cooling => Refused::Resting,
                State::Reserved | State::Detached => Refused::Reserved,
            }),
            None => self.adopt(value, change, true, now, effects),
        }
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
        self.alter(which, change, Mode::Replace, now, effects)
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
        self.alter(which, change, Mode::Merge, now, effects)
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
        const NONE: &Fields = &Fields::new();
        let Proof { fence, owner } = proof.into();
        let change = Change {
            fence,
            ttl,
            owner,
            ..Change::new(NONE)
        };
        self.alter(which, &change, Mode::Keep, now, effects)
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
        let slot = self.held(which, now, effects)?;
        let head = self.records.head(slot);
        self.check_proof(slot, head, proof.into())?;
        let value = self.records.value(slot);
        let old = Fields::kept(self.records.body(slot).data);
        self.tell(What::Cancelled, slot, now, effects);
        let detach = match head.range {
            STRAY => Duration::ZERO,
            range => self.at(RangeId(range)).options.detach,
        };
        let until = end(now, detach);
        if until <= now || head.range == STRAY {
            self.set_free(slot, head, true, effects);
        } else {
            self.move_to(slot, State::Detached, until);
            let fence = head.fence;
            let entry = Entry::Detached {
                value,
                fence,
                until,
            };
            self.log(head, &entry, effects);
        }
        Ok(Held {
            value,
            fence: head.fence,
            until,
            was: Standing::of(head.state),
            old,
        })
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
        self.look_ahead();
        let Some(slot) = self.slot(value, now, effects) else {
            return self.release_unheld(value, now, effects);
        };
        let head = self.records.head(slot);
        match head.state {
            State::Cooling => {
                effects.wait |= self.must_wait(head.range, head.fence);
                return Ok(Released::Already);
            }
            State::Reserved | State::Detached => self.check_proof(slot, head, proof.into())?,
        }
        self.let_go(slot, head, now, effects);
        Ok(Released::Now)
    }

    fn alter(
        &mut self,
        which: Which<'_>,
        change: &Change<'_>,
        mode: Mode,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        change.check()?;
        let slot = match which {
            Which::Key(_) => self.held(which, now, effects)?,
            Which::Value(value) => match self.slot(value, now, effects) {
                Some(slot) if self.records.head(slot).state == State::Cooling => {
                    return Err(Refused::NotReserved);
                }
                Some(slot) => slot,
                None => return self.adopt(value, change, change.claim, now, effects),
            },
        };
        self.check_proof(slot, self.records.head(slot), change.proof())?;
        if mode == Mode::Keep && self.records.head(slot).state == State::Reserved {
            return self.prolong(slot, change.ttl, now, effects);
        }
        self.rewrite(slot, change, mode, now, effects)
    }

    /// A record gets other data, keys and end.
    pub(super) fn replace(
        &mut self,
        slot: Slot,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        self.rewrite(slot, change, Mode::Replace, now, effects)
    }

    /// Only the end changes, which is the most frequent change of all.
    fn prolong(
        &mut self,
        slot: Slot,
        ttl: Option<Duration>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let until = self.end_for(slot, ttl, now)?;
        self.records.set_until(slot, until);
        self.records.watch(slot, &mut self.wheel);
        let head = self.records.head(slot);
        let value = self.records.value(slot);
        let fence = head.fence;
        let entry = Entry::Prolonged {
            value,
            fence,
            until,
        };
        self.log(head, &entry, effects);
        self.wait_to_tell(head.range, effects);
        self.tell(What::Updated, slot, now, effects);
        Ok(Held {
            value,
            fence,
            until,
            was: Standing::Reserved,
            old: Fields::new(),
        })
    }

    fn rewrite(
        &mut self,
        slot: Slot,
        change: &Change<'_>,
        mode: Mode,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let until = self.end_for(slot, change.ttl, now)?;
        self.check_keys_free(change, Some(slot), now, effects)?;
        let was = self.records.head(slot).state;
        let value = self.records.value(slot);
        let kept = self.records.body(slot);
        let old = Fields::kept(kept.data);
        let data = match mode {
            Mode::Replace => change.data.something().into_owned(),
            Mode::Merge => fields::merged(kept.data, change.data),
            Mode::Keep => old.clone(),
        };
        check_data(&data)?;
        let (created, updates) = (kept.created, kept.updates);
        let kept_owner = kept.owner.map(<[u8]>::to_vec);
        let kept_keys: Vec<_> = kept
            .keys()
            .map(|key| (key.unique, key.bytes.into()))
            .collect();
        let keys = self.keys_after(slot, &kept_keys, change, mode)?;
        let mut head = self.records.head(slot);
        let range = head.range;
        if was != State::Reserved {
            self.fence += 1;
            head.fence = self.fence;
            self.set_fences_aside(range, effects);
            self.recount(range, was, State::Reserved);
        }
        head = Head {
            until,
            state: State::Reserved,
            ..head
        };
        let body = Body {
            created,
            updated: end(now, Duration::ZERO),
            updates: updates.saturating_add(1),
            data: data.as_bytes(),
            owner: match was {
                State::Reserved => kept_owner.as_deref(),
                State::Detached | State::Cooling => change.owner.or(kept_owner.as_deref()),
            },
            keys: keys.as_slice(),
        };
        self.records.replace(slot, head, body);
        self.records.watch(slot, &mut self.wheel);
        self.log_reserved(slot, effects);
        if was != State::Reserved {
            self.wait_for(RangeId(range), effects);
        }
        self.wait_to_tell(range, effects);
        let what = match was {
            State::Reserved => What::Updated,
            State::Detached | State::Cooling => What::Reserved,
        };
        self.tell(what, slot, now, effects);
        Ok(Held {
            value,
            fence: head.fence,
            until,
            was: Standing::of(was),
            old,
        })
    }

    /// The keys that a record has after a change.
    fn keys_after<'a>(
        &self,
        slot: Slot,
        kept: &'a [(bool, Box<[u8]>)],
        change: &Change<'a>,
        mode: Mode,
    ) -> Result<Keys<'a>, Refused> {
        let is_id = |bytes: &[u8]| bytes.first() == Some(&ID_MARK);
        let is_held = self.records.head(slot).state == State::Reserved;
        let mut keys = Keys::none();
        let replaces = mode == Mode::Replace && !change.keys.is_empty();
        for (unique, bytes) in kept {
            // An asker's id stays for as long as its reservation.
            let stays = if is_id(bytes) { is_held } else { !replaces };
            if stays {
                keys.add(bytes, *unique);
            }
        }
        for key in change.keys {
            if !keys.add(key.bytes, key.unique) {
                return Err(Refused::TooManyKeys);
            }
        }
        let own = keys.as_slice().iter().filter(|key| !is_id(key.bytes));
        match own.count() > KEYS_MAX {
            true => Err(Refused::TooManyKeys),
            false => Ok(keys),
        }
    }

    /// Give a value without a record to the caller that writes to it: one in
    /// quarantine always, a free one if that is wanted.
    fn adopt(
        &mut self,
        value: u128,
        change: &Change<'_>,
        may_be_free: bool,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let id = self.range_of(value).ok_or(Refused::OutOfRange)?;
        let was = self.standing(value, id, now);
        if was == Standing::Free && !may_be_free {
            return Err(Refused::NotReserved);
        }
        let range = self.at(id);
        if was == Standing::Free && range.is_draining {
            return Err(Refused::Draining);
        }
        let ttl = span(&range.options, change.ttl, range.options.ttl)?;
        self.check_keys_free(change, None, now, effects)?;
        if self.records.len() >= self.reservations_max {
            let reservations_max = self.reservations_max;
            return Err(Refused::Full { reservations_max });
        }
        self.unfree(value, id);
        let until = end(now, ttl);
        let keys = Keys::new(change.keys, None);
        let data = change.data.something();
        let body = body(&data, &keys, change.owner, now);
        let fence = self.begin(value, id, until, body, now, effects);
        self.wait_for(id, effects);
        Ok(Held {
            value,
            fence,
            until,
            was,
            old: Fields::new(),
        })
    }

    /// Take a value that has no record out of wherever it is.
    fn unfree(&mut self, value: u128, id: RangeId) {
        let range = self.at_mut(id);
        if range.free.remove(value) || range.stock.remove(value) {
            return;
        }
        let quarantine = range.quarantine.as_mut();
        let removed = quarantine.is_some_and(|held| held.values.remove(value));
        assert!(removed, "what has no record is free or in quarantine");
    }

    fn release_unheld(
        &mut self,
        value: u128,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Released, Refused> {
        let id = self.range_of(value).ok_or(Refused::OutOfRange)?;
        if self.standing(value, id, now) == Standing::Free {
            // That it is free may not be safe yet.
            effects.wait |= self.must_wait(id.0, 0);
            return Ok(Released::Already);
        }
        self.unfree(value, id);
        self.at_mut(id).free.insert(value);
        self.freed.note(Interval::of(value));
        let entry = Entry::Freed { value, fence: 0 };
        effects.wait |= self.must_wait(id.0, 0);
        if self.class(id.0) != Class::Memory {
            effects.log(&entry);
        }
        Ok(Released::Now)
    }

    /// The one reservation that is meant.
    fn held(
        &mut self,
        which: Which<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Slot, Refused> {
        let slot = match which {
            Which::Value(value) => match self.slot(value, now, effects) {
                Some(slot) => slot,
                None if self.range_of(value).is_none() => return Err(Refused::OutOfRange),
                None => return Err(Refused::NotReserved),
            },
            Which::Key(key) => {
                check_key(key)?;
                match *self.with_key(key, now, effects) {
                    [] => return Err(Refused::NotReserved),
                    [slot] => slot,
                    ref several => {
                        let count = several.len();
                        return Err(Refused::Ambiguous { count });
                    }
                }
            }
        };
        match self.records.head(slot).state {
            State::Cooling => Err(Refused::NotReserved),
            State::Reserved | State::Detached => Ok(slot),
        }
    }

    /// Whether this is the holder's to do. What others have is not told: whose it is
    /// counts before the fence.
    fn check_proof(&self, slot: Slot, head: Head, proof: Proof<'_>) -> Result<(), Refused> {
        let Proof { fence, owner } = proof;
        if !self.may_own(slot, owner) {
            return Err(Refused::Foreign);
        }
        let is_needed = head.state == State::Reserved
            && head.range != STRAY
            && self.at(RangeId(head.range)).options.needs_fence;
        match fence {
            Some(fence) if fence != head.fence => Err(Refused::Conflict { fence: head.fence }),
            None if is_needed => Err(Refused::NoFence),
            _ => Ok(()),
        }
    }

    /// May this record, or a new one, have these keys?
    fn check_keys_free(
        &mut self,
        change: &Change<'_>,
        own: Option<Slot>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        for key in change.keys {
            if self.keys_taken || self.in_the_way(key, own, now, effects).is_some() {
                return Err(Refused::KeyTaken);
            }
        }
        Ok(())
    }

    /// A new end is told when it is safe: then each restored value has the end that its
    /// holder was told.
    fn wait_to_tell(&self, range: u16, effects: &mut Effects) {
        effects.wait |= self.class(range) == Class::Claimed;
    }

    fn end_for(&self, slot: Slot, ttl: Option<Duration>, now: Instant) -> Result<Instant, Refused> {
        match self.records.head(slot).range {
            STRAY => Err(Refused::OutOfRange),
            range => {
                let range = self.at(RangeId(range));
                Ok(end(now, span(&range.options, ttl, range.options.ttl)?))
            }
        }
    }
}
