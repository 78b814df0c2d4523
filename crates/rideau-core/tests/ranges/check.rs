//! What must hold after every step.

use rideau_core::allocator::{Class, Seen, Size, Standing, Which};

use crate::model::{Model, Record, State, VALUES};
use crate::world::{World, map};

impl World {
    /// All values of every range are in one state each, and as many as there
    /// should be.
    pub(crate) fn check_counts(&mut self) {
        let ranges: Vec<_> = self.machine.ranges().map(|(_, id)| id).collect();
        for id in ranges {
            let stats = self.machine.stats(id).unwrap();
            let held = u128::from(stats.reserved + stats.detached + stats.cooling);
            let all = stats.free + stats.quarantined + Size::new(held);
            assert_eq!(all, stats.size, "{stats:?}");
            if self.lags() {
                continue;
            }
            let name = self.names[&id].as_str();
            let range = &self.model.ranges[name];
            let count = |standing: Standing| {
                let own = self.model.records.iter();
                let own = own.filter(|(_, r)| r.range.as_deref() == Some(name));
                own.filter(|(v, _)| self.model.standing(**v) == standing)
                    .count() as u64
            };
            assert_eq!(stats.reserved, count(Standing::Reserved), "{name}");
            assert_eq!(stats.detached, count(Standing::Detached), "{name}");
            assert_eq!(stats.cooling, count(Standing::Cooling), "{name}");
            assert_eq!(stats.is_draining, range.is_draining);
            let here = range.values.iter().filter(|_| !range.is_draining);
            let stands = |standing| {
                let stand = here
                    .clone()
                    .filter(|v| self.model.standing(**v) == standing);
                Size::new(stand.count() as u128)
            };
            let q: Vec<_> = range
                .values
                .iter()
                .map(|v| {
                    (
                        *v,
                        self.machine.stands(
                            *v,
                            self.now,
                            &mut rideau_core::allocator::Effects::new(),
                        ),
                        self.model.standing(*v),
                    )
                })
                .filter(|(_, a, b)| a != b)
                .collect();
            assert_eq!(
                stats.free,
                stands(Standing::Free),
                "{name} {q:?} {:?} {:?} safe {:?}",
                self.model.quarantined,
                self.now,
                (&self.disk.safe.quarantined, &self.disk.safe.known)
            );
            assert_eq!(stats.quarantined, stands(Standing::Quarantined), "{name}");
        }
    }

    /// Every value is as it should be, with all that stands beside it.
    pub(crate) fn check_values(&mut self) {
        for value in 0..VALUES {
            let standing = self.machine.stands(value, self.now, &mut self.effects);
            assert_eq!(standing, self.model.standing(value), "{value}");
            let seen = self.seen(value);
            assert_eq!(seen.is_some(), self.model.records.contains_key(&value));
            if let Some(seen) = seen {
                self.check_seen(&seen);
            }
        }
        self.model.lately.clear();
    }

    pub(crate) fn check_seen(&self, seen: &Seen) {
        let record = &self.model.records[&seen.value];
        assert_eq!(seen.fence, record.fence, "{}", seen.value);
        assert_eq!(seen.until, record.until, "{}", seen.value);
        assert_eq!(map(&seen.data), record.data, "{}", seen.value);
        let keys: Vec<_> = record.keys.clone().into_iter().collect();
        let mut theirs = seen.keys.clone();
        theirs.sort();
        assert_eq!(theirs, keys, "{}", seen.value);
        let range = seen.range.map(|id| &self.names[&id]);
        assert_eq!(range, record.range.as_ref());
    }

    pub(crate) fn seen(&mut self, value: u128) -> Option<Seen> {
        let which = Which::Value(value);
        let mut seen = self.machine.lookup(which, self.now, &mut self.effects);
        assert!(seen.len() < 2);
        seen.pop()
    }

    /// Nothing is lost that anybody was told.
    pub(crate) fn check_holds(&mut self) {
        let now = self.now;
        self.holds.retain(|_, hold| hold.until > now);
        for hold in self.holds.values().copied().collect::<Vec<_>>() {
            let standing = self.machine.stands(hold.value, now, &mut self.effects);
            match standing {
                Standing::Reserved => {
                    let seen = self.seen(hold.value).unwrap();
                    assert_eq!(seen.fence, hold.fence, "another has {hold:?}");
                    if seen.range.is_none() && hold.class == Class::Claimed {
                        self.holds.remove(&hold.value);
                        continue;
                    }
                    let range = seen.range.and_then(|id| self.machine.options(id));
                    let class = range.map(|options| options.class);
                    assert!(
                        seen.until >= hold.until,
                        "{hold:?} ends early {now:?} {seen:?} {class:?} {:?}",
                        self.disk.safe.records.get(&hold.value)
                    );
                }
                Standing::Quarantined if hold.class == Class::Claimed => {
                    let until = self.model.quarantined[&hold.value];
                    assert!(until >= hold.until, "{hold:?} ends early");
                }
                // Its range was taken away while it crashed, and nobody can have
                // it until the range comes back.
                Standing::Outside if hold.class == Class::Claimed => {
                    self.holds.remove(&hold.value);
                }
                other => panic!("{hold:?} is lost: {other:?}"),
            }
        }
    }

    /// What a crash left of values that are claimed before is in the machine's
    /// discretion: see that it is right, and go on from there.
    pub(crate) fn look_at_claimed(&mut self) {
        let ranges = self.model.ranges.iter();
        let claimed = ranges.filter(|(_, range)| range.options.class != Class::Memory);
        let claimed: Vec<_> = claimed.map(|(n, r)| (n.clone(), r.clone())).collect();
        for (name, range) in claimed {
            let id = self.machine.range(&name).unwrap();
            let until = self.machine.stats(id).unwrap().quarantined_until;
            let is_claimed = range.options.class == Class::Claimed;
            for value in range.values {
                let standing = self.machine.stands(value, self.now, &mut self.effects);
                let was = self.model.standing(value);
                if standing == Standing::Quarantined {
                    // It was claimed once, or waits for others of its range.
                    let is_right = matches!(was, Standing::Free | Standing::Quarantined);
                    assert!(is_right, "{value} was {was:?}");
                    self.model.quarantined.insert(value, until.unwrap());
                } else if is_claimed && standing == Standing::Reserved {
                    self.look_at_reserved(value);
                }
            }
        }
    }

    /// What had run out in one range, and is in another after a restart, rests
    /// by the rules of the one or of the other.
    pub(crate) fn look_at_moved(&mut self, safe: &Model) {
        for (value, before) in &safe.records {
            let after = self.model.records.get(value);
            let has_moved = after.is_none_or(|after| after.range != before.range);
            if !has_moved || before.state == State::Reserved && after.is_some() {
                continue;
            }
            match self.seen(*value) {
                Some(seen) if after_is_rest(&seen) => {
                    let record = Record {
                        state: match seen.standing {
                            Standing::Detached => State::Detached,
                            _ => State::Cooling,
                        },
                        until: seen.until,
                        data: map(&seen.data),
                        keys: seen.keys.clone().into_iter().collect(),
                        range: seen.range.map(|id| self.names[&id].clone()),
                        ..before.clone()
                    };
                    assert_eq!(seen.fence, record.fence);
                    self.model.records.insert(*value, record);
                }
                _ => {
                    self.model.records.remove(value);
                }
            }
        }
    }

    fn look_at_reserved(&mut self, value: u128) {
        let seen = self.seen(value).unwrap();
        let record = self.past[&seen.fence].clone();
        let name = self.model.home(value).unwrap().0.clone();
        let ttl = self.model.ranges[&name].options.ttl;
        let longest = record.until.max(crate::model::end(self.now, ttl));
        assert!(seen.until <= longest, "{value} is kept for too long");
        let known = self.model.records.get(&value);
        let known = known.filter(|known| known.fence == seen.fence);
        if let Some(known) = known
            && known.state == State::Reserved
        {
            assert!(seen.until >= known.until);
        }
        let record = Record {
            state: State::Reserved,
            until: seen.until,
            data: map(&seen.data),
            keys: seen.keys.into_iter().collect(),
            range: Some(name),
            ..record
        };
        self.keep(value, record);
    }
}

fn after_is_rest(seen: &Seen) -> bool {
    matches!(seen.standing, Standing::Detached | Standing::Cooling)
}
