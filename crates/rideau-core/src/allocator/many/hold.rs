//! Changes by holders, each in the partition of the value.

use std::time::Duration;

use super::Many;
use crate::allocator::ask::{Change, Proof, Which};
use crate::allocator::effects::Effects;
use crate::allocator::fields::Fields;
use crate::allocator::hold::{Held, Released};
use crate::allocator::refused::Refused;
use crate::time::Instant;

impl Many {
    pub(in crate::allocator) fn claim(
        &mut self,
        value: u128,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let part = self.part_of(value, effects)?;
        self.change(part, change, now, effects, |machine, at, now, effects| {
            let held = machine.claim(at.index(value), change, now, effects);
            held.map(|held| at.held(held))
        })
    }

    pub(in crate::allocator) fn write(
        &mut self,
        which: Which<'_>,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let part = self.part_with(which, now, effects)?;
        self.change(part, change, now, effects, |machine, at, now, effects| {
            let held = machine.write(at.which(which), change, now, effects);
            held.map(|held| at.held(held))
        })
    }

    pub(in crate::allocator) fn update(
        &mut self,
        which: Which<'_>,
        change: &Change<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let part = self.part_with(which, now, effects)?;
        self.change(part, change, now, effects, |machine, at, now, effects| {
            let held = machine.update(at.which(which), change, now, effects);
            held.map(|held| at.held(held))
        })
    }

    pub(in crate::allocator) fn refresh(
        &mut self,
        which: Which<'_>,
        proof: Proof<'_>,
        ttl: Option<Duration>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let part = self.part_with(which, now, effects)?;
        let none = Fields::new();
        let change = Change::new(&none);
        self.change(part, &change, now, effects, |machine, at, now, effects| {
            let held = machine.refresh(at.which(which), proof, ttl, now, effects);
            held.map(|held| at.held(held))
        })
    }

    pub(in crate::allocator) fn cancel(
        &mut self,
        which: Which<'_>,
        proof: Proof<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Held, Refused> {
        let part = self.part_with(which, now, effects)?;
        self.visit(part, now, effects, |machine, at, now, effects| {
            let held = machine.cancel(at.which(which), proof, now, effects);
            held.map(|held| at.held(held))
        })
    }

    pub(in crate::allocator) fn release(
        &mut self,
        value: u128,
        proof: Proof<'_>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<Released, Refused> {
        let part = self.part_of(value, effects)?;
        self.visit(part, now, effects, |machine, at, now, effects| {
            machine.release(at.index(value), proof, now, effects)
        })
    }
}
