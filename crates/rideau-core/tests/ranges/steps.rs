//! What holders do with their values, and what others do with values they do
//! not hold.

use std::collections::BTreeMap;

use rideau_core::allocator::{Change, Class, Filter, Held, Refused, Released, Which};

use crate::grants::{content, keys};
use crate::model::{Record, State, VALUES, end};
use crate::world::{Hold, World, fields, map};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Claim,
    Write,
    Update,
    Refresh,
}

/// Which reservation is meant, by what the model has.
#[derive(Clone, Debug)]
enum Target {
    Value(u128),
    Key(Vec<u8>),
}

impl Target {
    fn which(&self) -> Which<'_> {
        match self {
            Self::Value(value) => Which::Value(*value),
            Self::Key(key) => Which::Key(key),
        }
    }
}

impl World {
    fn some_value(&mut self) -> u128 {
        let held = self.model.records.len() as u64;
        if held > 0 && self.chance(80) {
            let at = self.below(held) as usize;
            return *self.model.records.keys().nth(at).unwrap();
        }
        u128::from(self.below(VALUES as u64 + 4))
    }

    fn some_target(&mut self) -> Target {
        if self.chance(25) {
            return Target::Key(vec![b'k', b'a' + self.below(24) as u8]);
        }
        Target::Value(self.some_value())
    }

    /// The one value that is meant, or why there is none.
    fn meant(&self, target: &Target) -> Result<u128, Refused> {
        match target {
            Target::Value(value) => Ok(*value),
            Target::Key(key) => match *self.model.with_key(key) {
                [] => Err(Refused::NotReserved),
                [value] => Ok(value),
                ref several => Err(Refused::Ambiguous {
                    count: several.len(),
                }),
            },
        }
    }

    fn some_fence(&mut self, target: &Target) -> Option<u64> {
        let value = self.meant(target).ok();
        let right = value
            .and_then(|value| self.model.records.get(&value))
            .map(|r| r.fence);
        match self.below(10) {
            0 => None,
            1 if !self.stale.is_empty() => {
                let at = self.below(self.stale.len() as u64) as usize;
                Some(self.stale[at])
            }
            _ => right,
        }
    }

    pub(crate) fn alter(&mut self, deed: Deed) {
        let target = match deed {
            Deed::Claim => Target::Value(u128::from(self.below(VALUES as u64 + 4))),
            _ => self.some_target(),
        };
        let fence = self.some_fence(&target);
        let ttl = self.some_ttl();
        let refreshes = deed == Deed::Refresh;
        let patch = match refreshes {
            true => BTreeMap::new(),
            false => self.some_content(deed == Deed::Update),
        };
        let own = if refreshes {
            Vec::new()
        } else {
            self.some_keys()
        };
        let claim = deed == Deed::Claim || (deed == Deed::Write && self.chance(20));
        let written = fields(&patch);
        let own_keys = keys(&own);
        let change = Change {
            fence,
            ttl,
            data: &written,
            keys: &own_keys,
            claim,
            ..Change::new(&written)
        };
        let expected = self.expect(deed, &target, &change);
        let before = self.effects.position();
        self.effects.wait = false;
        let (machine, effects, now) = (&mut self.machine, &mut self.effects, self.now);
        let answer = match (deed, &target) {
            (Deed::Claim, Target::Value(value)) => machine.claim(*value, &change, now, effects),
            (Deed::Write, _) => machine.write(target.which(), &change, now, effects),
            (Deed::Update, _) => machine.update(target.which(), &change, now, effects),
            _ => machine.refresh(target.which(), fence, ttl, now, effects),
        };
        match (answer, expected) {
            (Ok(held), Ok(record)) => self.altered(&held, record, deed),
            (Err(refused), Err(expected)) => {
                self.refused(&refused, before);
                let is_outside = matches!(target, Target::Value(v) if self.is_unheld_outside(v));
                assert!(
                    refused == expected || is_outside,
                    "{refused} and not {expected}"
                );
            }
            (answer, expected) => panic!("{deed:?} {target:?}: {answer:?} and not {expected:?}"),
        }
    }

    /// What a record will be like, but for a new fence.
    fn expect(&self, deed: Deed, target: &Target, change: &Change<'_>) -> Result<Record, Refused> {
        let value = self.meant(target)?;
        let Some(record) = self.model.records.get(&value) else {
            return self.expect_new(value, change);
        };
        match (deed, record.state) {
            (Deed::Claim, State::Cooling) => return Err(Refused::Resting),
            (Deed::Claim, _) => return Err(Refused::Reserved),
            (_, State::Cooling) => return Err(Refused::NotReserved),
            _ => (),
        }
        self.check_fence(record, change.fence)?;
        let options = self.model.options_of(value).ok_or(Refused::OutOfRange)?;
        for key in change.keys {
            if self.model.is_taken(key.bytes, key.unique, Some(value)) {
                return Err(Refused::KeyTaken);
            }
        }
        let mut record = record.clone();
        record.until = end(self.now, change.ttl.unwrap_or(options.ttl));
        if record.state != State::Reserved {
            record.id = None;
            record.fence = 0;
        }
        record.state = State::Reserved;
        if deed == Deed::Write {
            record.data.clear();
            if !change.keys.is_empty() {
                record.keys.clear();
            }
        }
        for key in change.keys {
            *record.keys.entry(key.bytes.to_vec()).or_default() |= key.unique;
        }
        lay_over(&mut record, change);
        Ok(record)
    }

    fn expect_new(&self, value: u128, change: &Change<'_>) -> Result<Record, Refused> {
        let (name, range) = self.model.home(value).ok_or(Refused::OutOfRange)?;
        if self.model.is_free(value) && !change.claim {
            return Err(Refused::NotReserved);
        }
        for key in change.keys {
            if self.model.is_taken(key.bytes, key.unique, None) {
                return Err(Refused::KeyTaken);
            }
        }
        let ttl = change.ttl.unwrap_or(range.options.ttl);
        let mut record = Record {
            state: State::Reserved,
            fence: 0,
            until: end(self.now, ttl),
            data: BTreeMap::new(),
            keys: change
                .keys
                .iter()
                .map(|k| (k.bytes.to_vec(), k.unique))
                .collect(),
            id: None,
            range: Some(name.clone()),
        };
        lay_over(&mut record, change);
        Ok(record)
    }

    fn check_fence(&self, record: &Record, fence: Option<u64>) -> Result<(), Refused> {
        let range = record.range.as_ref().map(|name| &self.model.ranges[name]);
        let is_needed =
            record.state == State::Reserved && range.is_some_and(|range| range.options.needs_fence);
        match fence {
            Some(fence) if fence != record.fence => Err(Refused::Conflict {
                fence: record.fence,
            }),
            None if is_needed => Err(Refused::NoFence),
            _ => Ok(()),
        }
    }

    fn altered(&mut self, held: &Held, mut record: Record, deed: Deed) {
        let value = held.value;
        assert_eq!(held.was, self.model.standing(value));
        if let Some(old) = self.model.records.get(&value)
            && deed != Deed::Refresh
        {
            assert_eq!(map(&held.old), old.data);
        }
        let class = self.model.ranges[record.range.as_ref().unwrap()]
            .options
            .class;
        assert!(class != Class::Sync || self.effects.wait, "{deed:?} waits");
        if record.fence == 0 {
            let was = self.model.quarantined.contains_key(&value);
            if was {
                // A write to a value in quarantine is believed.
                self.gone(value);
            }
            self.check_alone(value, held.fence);
            record.fence = held.fence;
        }
        assert_eq!(held.fence, record.fence);
        assert_eq!(held.until, record.until);
        self.may_end(value, record.until);
        self.keep(value, record);
        self.tell(Hold {
            value,
            fence: held.fence,
            until: held.until,
            class,
        });
    }

    pub(crate) fn cancel(&mut self) {
        let target = self.some_target();
        let fence = self.some_fence(&target);
        let before = self.effects.position();
        self.effects.wait = false;
        let answer = self
            .machine
            .cancel(target.which(), fence, self.now, &mut self.effects);
        let meant = self.meant(&target);
        let record = meant
            .as_ref()
            .ok()
            .and_then(|v| self.model.records.get(v))
            .cloned();
        match answer {
            Ok(held) => {
                assert_eq!(meant, Ok(held.value));
                let mut record = record.unwrap();
                assert!(record.state != State::Cooling);
                assert_eq!(self.check_fence(&record, fence), Ok(()));
                assert_eq!(map(&held.old), record.data);
                self.gone(held.value);
                let detach = self.model.options_of(held.value).map(|o| o.detach);
                record.state = State::Detached;
                record.until = end(self.now, detach.unwrap_or_default());
                record.forget();
                self.model.lately.remove(&held.value);
                if detach.is_some() && record.until > self.now {
                    self.model.records.insert(held.value, record);
                } else {
                    self.model.records.remove(&held.value);
                    self.model.pass(self.now);
                }
            }
            Err(refused) => {
                self.refused(&refused, before);
                if let Some(record) = record.filter(|record| record.state != State::Cooling) {
                    assert_eq!(self.check_fence(&record, fence), Err(refused));
                }
            }
        }
    }

    pub(crate) fn release(&mut self) {
        let value = self.some_value();
        let fence = self.some_fence(&Target::Value(value));
        let before = self.effects.position();
        self.effects.wait = false;
        let answer = self
            .machine
            .release(value, fence, self.now, &mut self.effects);
        let record = self.model.records.get(&value).cloned();
        let is_apart = self.model.quarantined.contains_key(&value);
        match answer {
            Ok(Released::Now) => {
                if let Some(record) = &record {
                    assert!(record.state != State::Cooling);
                    assert_eq!(self.check_fence(record, fence), Ok(()));
                }
                assert!(record.is_some() || is_apart, "{value} was held by nobody");
                self.gone(value);
                self.model.quarantined.remove(&value);
                self.model.release(value, self.now);
            }
            Ok(Released::Already) => {
                assert!(!is_apart && record.is_none_or(|r| r.state == State::Cooling));
            }
            Err(refused) => {
                self.refused(&refused, before);
                match record {
                    Some(record) => assert_eq!(self.check_fence(&record, fence), Err(refused)),
                    None => assert_eq!(refused, Refused::OutOfRange),
                }
            }
        }
    }

    pub(crate) fn release_some(&mut self) {
        let by_key = self.chance(50);
        let letter = b'a' + self.below(24) as u8;
        let name = vec![b'f', self.below(4) as u8];
        let text = vec![b'x'; self.below(12) as usize];
        let filter = match by_key {
            true => Filter::KeyPrefix(vec![b'k', letter]),
            false => Filter::Field(name.clone(), text.clone()),
        };
        let range = self.machine.ranges().map(|(_, id)| id).next();
        let range = if self.rng.below(3) == 0 { range } else { None };
        let name_of_range = range.map(|id| self.names[&id].clone());
        let is_meant = |record: &Record| {
            let has_key = record.keys.contains_key([b'k', letter].as_slice());
            let has_field = record.data.get(&name) == Some(&text);
            let is_there = range.is_none() || record.range == name_of_range;
            record.state == State::Reserved && is_there && if by_key { has_key } else { has_field }
        };
        let meant = self.model.records.iter().filter(|(_, r)| is_meant(r));
        let meant: Vec<u128> = meant.map(|(value, _)| *value).collect();
        let (mut cursor, mut released) = (0, 0);
        let most = 1 + self.below(50) as usize;
        while let Some(some) = self.machine.release_some(
            &filter,
            range,
            &mut cursor,
            most,
            self.now,
            &mut self.effects,
        ) {
            released += some;
        }
        assert_eq!(released, meant.len());
        for value in meant {
            self.gone(value);
            self.model.release(value, self.now);
        }
    }

    pub(crate) fn lookup(&mut self) {
        let target = self.some_target();
        let seen = self
            .machine
            .lookup(target.which(), self.now, &mut self.effects);
        let expected = match &target {
            Target::Value(value) => vec![*value],
            Target::Key(key) => self.model.with_key(key),
        };
        let there = expected
            .iter()
            .filter(|v| self.model.records.contains_key(v));
        assert_eq!(seen.len(), there.count());
        seen.iter().for_each(|seen| self.check_seen(seen));
    }
}

/// A patch: what is nothing there goes.
fn lay_over(record: &mut Record, change: &Change<'_>) {
    let mut patch = BTreeMap::new();
    for (name, field) in change.data.iter() {
        let text = match field {
            rideau_core::allocator::Field::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        };
        patch.insert(name.to_vec(), text);
    }
    for name in patch.keys() {
        record.data.remove(name);
    }
    record.data.extend(content(&patch));
}
