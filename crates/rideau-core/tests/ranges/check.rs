//! What must hold after every step.

use rideau_core::allocator::{Class, Interval, Seen, Size, Standing, Start, Which};

use crate::model::{Model, Record, State, VALUES, end};
use crate::world::{TTL_LONGEST, World, map};

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
            assert_eq!(stats.free, stands(Standing::Free), "{name}");
            assert_eq!(stats.quarantined, stands(Standing::Quarantined), "{name}");
        }
    }

    /// Whichever values one looks at, they are counted as they stand.
    fn check_view(&mut self) {
        let first = u128::from(self.below(VALUES as u64));
        let last = first + u128::from(self.below((VALUES - first) as u64));
        let mut stand = [0_u128; 3];
        for value in first..=last {
            match self.machine.stands(value, self.now, &mut self.effects) {
                Standing::Free => stand[0] += 1,
                Standing::Quarantined => stand[1] += 1,
                Standing::Outside => (),
                // One that was taken away from its range keeps its holder.
                _ => {
                    let home = self.model.home(value);
                    stand[2] += u128::from(home.is_some_and(|(_, range)| !range.is_draining));
                }
            }
        }
        if self.lags() {
            return;
        }
        let count = self.machine.count(Interval::new(first, last).unwrap());
        let counted = [count.free, count.quarantined, count.held];
        assert_eq!(counted, stand.map(Size::new), "{first}-{last}");
        assert_eq!(count.size, Size::new(stand.iter().sum()));
    }

    /// Every value is as it should be, with all that stands beside it.
    pub(crate) fn check_values(&mut self) {
        self.check_view();
        for value in 0..VALUES {
            let standing = self.machine.stands(value, self.now, &mut self.effects);
            assert_eq!(standing, self.model.standing(value), "{value}");
            let seen = self.seen(value);
            assert_eq!(seen.is_some(), self.model.records.contains_key(&value));
            if let Some(seen) = seen {
                self.check_seen(&seen);
            }
        }
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

    /// Nothing is lost that a holder was told.
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
                    assert!(seen.until >= hold.until, "{hold:?} ends early");
                }
                Standing::Quarantined if hold.class == Class::Claimed => {
                    let until = self.model.quarantined[&hold.value];
                    assert!(until >= hold.until, "{hold:?} ends early");
                }
                // Its range was taken away while it crashed, and it cannot be
                // held until the range comes back.
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
            let stats = self.machine.stats(id).unwrap();
            let until = stats.quarantined_until;
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

    /// What had run out, and is in another range after a restart or in one of
    /// which nothing is known, rests by the rules of the one or of the other,
    /// or is in quarantine.
    pub(crate) fn look_at_moved(&mut self, safe: &Model) {
        for value in 0..VALUES {
            let before = safe.records.get(&value);
            let after = self.model.records.get(&value);
            let home = self
                .model
                .home(value)
                .map(|(name, range)| (name.clone(), range.clone()));
            let is_unknown = home
                .as_ref()
                .is_some_and(|(_, range)| !range.is_logged() || !safe.known.contains(&value));
            let was = before.and_then(|before| before.range.as_ref());
            let has_moved = before.is_some() && was != home.as_ref().map(|(name, _)| name);
            let is_live = after.is_some_and(|after| after.state == State::Reserved);
            let stray = safe.strays.get(&value).copied();
            let is_back = before.is_none() && home.is_some() && stray.is_some();
            if !(is_unknown || has_moved || is_back) || is_live {
                continue;
            }
            let seen = self.seen(value);
            if is_back && !is_unknown && seen.as_ref().map(|seen| seen.fence) != stray {
                continue;
            }
            let fence = seen.as_ref().map(|seen| seen.fence);
            self.model.records.remove(&value);
            if let (Some(before), None, None) = (before, &home, &seen) {
                self.model.strays.insert(value, before.fence);
            }
            if let Some(seen) = seen {
                if seen.standing == Standing::Reserved {
                    // A crash may have lost that it was to be longer.
                    let class = home.map(|(_, range)| range.options.class);
                    assert_eq!(class, Some(Class::Claimed), "{seen:?} was over");
                    continue;
                }
                let record = Record {
                    state: match seen.standing {
                        Standing::Detached => State::Detached,
                        _ => State::Cooling,
                    },
                    until: seen.until,
                    data: map(&seen.data),
                    keys: seen.keys.clone().into_iter().collect(),
                    range: seen.range.map(|id| self.names[&id].clone()),
                    ..self.past[&fence.unwrap()].clone()
                };
                self.model.quarantined.remove(&value);
                self.model.records.insert(value, record);
            } else if let Some((name, range)) = home
                && is_unknown
                && range.options.start == Start::Quarantine
                && end(self.now, range.options.quarantine) > self.now
            {
                let id = self.machine.range(&name).unwrap();
                let until = self.machine.stats(id).unwrap().quarantined_until;
                self.model.quarantined.insert(value, until.unwrap());
            }
        }
    }

    fn look_at_reserved(&mut self, value: u128) {
        let seen = self.seen(value).unwrap();
        let record = self.past[&seen.fence].clone();
        let name = self.model.home(value).unwrap().0.clone();
        let longest = record.until.max(end(self.now, TTL_LONGEST));
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
