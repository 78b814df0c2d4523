//! Keys and ids over all partitions. A key belongs to records wherever they are.

use super::Many;
use crate::allocator::ask::{Ask, Change, Key, Which};
use crate::allocator::effects::Effects;
use crate::allocator::partition::Partition;
use crate::allocator::records::State;
use crate::allocator::refused::Refused;
use crate::allocator::slot::Slot;
use crate::allocator::{Allocator, Reservation};
use crate::time::Instant;

impl Many {
    /// Push what this asker has already, if it has something.
    pub(in crate::allocator) fn was_granted(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
        granted: &mut Vec<Reservation>,
    ) -> Result<bool, Refused> {
        if ask.id.is_none() && ask.keys.is_empty() {
            return Ok(false);
        }
        self.check_keys(ask.keys, ask.id, ask.vouched)?;
        let mut found = self.with_id(ask, now, effects);
        if let Some(owner) = self.owner(ask, now, effects)? {
            if !found.is_empty() && found != [owner] {
                return Err(Refused::KeysApart);
            }
            if self.is_detached(owner) {
                granted.push(self.give_again(owner, ask, now, effects)?);
                return Ok(true);
            }
            found = vec![owner];
        }
        if found.is_empty() {
            self.check_plain(ask, now, effects)?;
        }
        let known = granted.len();
        for (part, slot) in found {
            self.rest_on(part, effects);
            granted.push(self.visit(part, now, effects, |machine, at, _, effects| {
                let prefer = at.prefers(ask);
                let ask = Ask {
                    prefer: &prefer,
                    ..*ask
                };
                at.reservation(machine.known(slot, &ask, effects))
            }));
        }
        granted[known..].sort_by_key(|one| one.fence);
        Ok(granted.len() > known)
    }

    fn with_id(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<(usize, Slot)> {
        let mut found = Vec::new();
        if ask.id.is_none() {
            return found;
        }
        for part in 0..self.parts.len() {
            if !self.serves(part) {
                continue;
            }
            let slots = self.visit(part, now, effects, |machine, _, now, effects| {
                machine.with_id(ask, now, effects)
            });
            found.extend(slots.into_iter().map(|slot| (part, slot)));
        }
        found
    }

    /// The one record that has the asker's own keys.
    fn owner(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Option<(usize, Slot)>, Refused> {
        let mut owner = None;
        if !ask.keys.iter().any(|key| key.unique) {
            return Ok(None);
        }
        for part in 0..self.parts.len() {
            if !self.serves(part) {
                continue;
            }
            let slot = self.visit(part, now, effects, |machine, _, now, effects| {
                machine.owner(ask, now, effects)
            })?;
            let Some(slot) = slot else { continue };
            if owner.is_some() {
                return Err(Refused::KeysApart);
            }
            owner = Some((part, slot));
        }
        Ok(owner)
    }

    fn is_detached(&self, (part, slot): (usize, Slot)) -> bool {
        let part = self.parts[part].as_ref().expect("it was just found");
        part.machine.records.head(slot).state == State::Detached
    }

    fn give_again(
        &mut self,
        (part, slot): (usize, Slot),
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Reservation, Refused> {
        let is_taken = self.is_taken_elsewhere(ask.keys, part, now, effects);
        self.rest_on(part, effects);
        self.visit(part, now, effects, |machine, at, now, effects| {
            let prefer = at.prefers(ask);
            let ask = Ask {
                prefer: &prefer,
                ..*ask
            };
            machine.keys_taken = is_taken;
            let given = machine.give_again(slot, &ask, now, effects);
            machine.keys_taken = false;
            given?;
            Ok(at.reservation(machine.reservation(slot, &ask, false)))
        })
    }

    /// No other has one of the asker's shared keys for itself.
    fn check_plain(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        if ask.keys.iter().all(|key| key.unique) {
            return Ok(());
        }
        for part in 0..self.parts.len() {
            if !self.serves(part) {
                continue;
            }
            self.visit(part, now, effects, |machine, _, now, effects| {
                machine.check_plain(ask, now, effects)
            })?;
        }
        Ok(())
    }

    /// Has a record of another partition one of these keys, so that it cannot be shared?
    fn is_taken_elsewhere(
        &mut self,
        keys: &[Key<'_>],
        own: usize,
        now: Instant,
        effects: &mut Effects,
    ) -> bool {
        if keys.is_empty() {
            return false;
        }
        (0..self.parts.len()).any(|part| {
            part != own
                && self.serves(part)
                && self.visit(part, now, effects, |machine, _, now, effects| {
                    let mut keys = keys.iter();
                    keys.any(|key| machine.in_the_way(key, None, now, effects).is_some())
                })
        })
    }

    /// Change a record in its partition, unless a record of another has one of its new
    /// keys.
    pub(super) fn change<T>(
        &mut self,
        part: usize,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
        act: impl FnOnce(&mut Allocator, Partition, Instant, &mut Effects) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        change.check()?;
        self.check_keys(change.keys, None, change.vouched)?;
        let is_taken = self.is_taken_elsewhere(change.keys, part, now, effects);
        let done = self.visit(part, now, effects, |machine, at, now, effects| {
            machine.keys_taken = is_taken;
            let done = act(machine, at, now, effects);
            machine.keys_taken = false;
            done
        });
        let reservations_max = self.options.reservations_max;
        done.map_err(|refused| match refused {
            Refused::Full { .. } => Refused::Full { reservations_max },
            other => other,
        })
    }

    /// The partition of the one record that is meant.
    pub(super) fn part_with(
        &mut self,
        which: Which<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<usize, Refused> {
        let key = match which {
            Which::Value(value) => return self.part_of(value, effects),
            Which::Key(key) => key,
        };
        // If none has it, the partition of the key says so.
        let mut found = self.partitions.of_name(key) as usize;
        let mut count = 0;
        for part in 0..self.parts.len() {
            if !self.serves(part) {
                continue;
            }
            let slots = self.visit(part, now, effects, |machine, _, now, effects| {
                machine.with_key(key, now, effects).len()
            });
            if slots > 0 {
                found = part;
            }
            count += slots;
        }
        match count {
            0 => {
                self.rest_on_all(effects);
                self.decide_on(found as u32, effects)
            }
            1 => {
                self.rest_on(found, effects);
                Ok(found)
            }
            count => Err(Refused::Ambiguous { count }),
        }
    }
}
