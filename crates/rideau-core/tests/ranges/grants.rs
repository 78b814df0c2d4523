//! Asks for values, and what must be true of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::allocator::{
    Ask, Class, Interval, Key, Order, Place, Prefer, Refused, Reservation, Standing,
};

use crate::model::{Record, State, VALUES, end};
use crate::world::{Hold, World, fields};

/// An ask that owns what it says.
pub(crate) struct Wish {
    prefer: Vec<Prefer>,
    ttl: Option<Duration>,
    content: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    keys: Vec<(Vec<u8>, bool)>,
    id: Option<Vec<u8>>,
    count: u32,
    partial: bool,
}

impl World {
    pub(crate) fn reserve(&mut self) {
        let Some(wish) = self.wish() else {
            return;
        };
        let content = fields(&wish.content);
        let keys = keys(&wish.keys);
        let ask = Ask {
            prefer: &wish.prefer,
            ttl: wish.ttl,
            data: &content,
            keys: &keys,
            id: wish.id.as_deref(),
            count: wish.count,
            partial: wish.partial,
            owner: None,
            vouched: None,
        };
        let before = self.effects.position();
        let mut granted = Vec::new();
        self.effects.wait = false;
        let answer = self
            .machine
            .reserve(&ask, self.now, &mut self.effects, &mut granted);
        match answer {
            Ok(()) => self.granted(&wish, &granted),
            Err(refused) => {
                assert!(granted.is_empty());
                self.refused(&refused, before);
                self.not_granted(&wish, &refused);
            }
        }
    }

    fn wish(&mut self) -> Option<Wish> {
        let mut prefer = Vec::new();
        let ids: Vec<_> = self.names.keys().copied().collect();
        for _ in 0..1 + self.below(3) {
            let range = ids.get(self.below(4) as usize).copied();
            let range = range.filter(|id| {
                let stats = self.machine.stats(*id);
                stats.is_some_and(|stats| !stats.is_draining)
            });
            let first = u128::from(self.below(VALUES as u64));
            let last = first + u128::from(self.below(30));
            let place = match range {
                Some(id) if self.chance(60) => Place::Range(id),
                _ => Place::Within(Interval::new(first, last).unwrap()),
            };
            let tier = self.below(3) as u8;
            prefer.push(Prefer { tier, place });
        }
        let many = self.chance(15);
        let mut keys = self.some_keys();
        if many {
            keys.retain(|(_, unique)| !unique);
        }
        Some(Wish {
            prefer,
            ttl: self.some_ttl(),
            content: self.some_content(false),
            keys,
            id: self.some_id(),
            count: if many { 1 + self.below(6) as u32 } else { 1 },
            partial: self.chance(50),
        })
    }

    pub(crate) fn some_ttl(&mut self) -> Option<Duration> {
        let millis = match self.below(4) {
            0 => 1 + self.below(50),
            1 => 1 + self.below(3_000),
            _ => 1 + self.below(60_000),
        };
        self.chance(70).then_some(Duration::from_millis(millis))
    }

    pub(crate) fn some_content(&mut self, may_delete: bool) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut content = BTreeMap::new();
        for _ in 0..self.below(3) {
            let name = vec![b'f', self.below(4) as u8];
            let is_there = !may_delete || self.chance(60);
            let text = vec![b'x'; self.below(12) as usize];
            content.insert(name, is_there.then_some(text));
        }
        content
    }

    pub(crate) fn some_keys(&mut self) -> Vec<(Vec<u8>, bool)> {
        let mut keys: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        if self.chance(35) {
            for _ in 0..1 + self.below(2) {
                let key = self.below(24);
                let unique = if self.chance(10) { key < 12 } else { key >= 12 };
                keys.insert(vec![b'k', b'a' + key as u8], unique);
            }
        }
        keys.into_iter().collect()
    }

    fn some_id(&mut self) -> Option<Vec<u8>> {
        let id = vec![b'i', self.below(12) as u8];
        self.chance(15).then_some(id)
    }

    fn granted(&mut self, wish: &Wish, granted: &[Reservation]) {
        assert!(!granted.is_empty());
        let known = self.known(wish);
        if let [first, ..] = granted
            && (first.is_known || known.iter().any(|value| *value == first.value))
        {
            let values: BTreeSet<u128> = granted.iter().map(|known| known.value).collect();
            assert_eq!(values, known, "the same answer once more");
            granted
                .iter()
                .for_each(|known| self.given_again(wish, known));
            return;
        }
        assert_eq!(known, BTreeSet::new(), "it has something already");
        for (key, unique) in &wish.keys {
            assert!(!self.model.is_taken(key, *unique, None), "a key is taken");
        }
        let count = wish.count as usize;
        assert!(granted.len() == count || (wish.partial && granted.len() < count));
        self.check_places(wish, granted);
        for reservation in granted {
            self.given(wish, reservation);
        }
    }

    /// Every value is from the best place where one was.
    fn check_places(&self, wish: &Wish, granted: &[Reservation]) {
        let mut gone = BTreeSet::new();
        for reservation in granted {
            let value = reservation.value;
            assert!(self.model.is_free(value), "{value} is not free");
            assert!(!gone.contains(&value), "{value} twice");
            let mut found = false;
            for prefer in sorted(&wish.prefer) {
                let values = self.model.within(prefer.place, &self.names);
                let free = |v: &&u128| self.model.is_surely_free(**v) && !gone.contains(*v);
                if prefer.tier == reservation.tier && values.contains(&value) {
                    found = true;
                    let (_, range) = self.model.home(value).unwrap();
                    let is_lowest = range.options.order == Order::Lowest
                        && range.options.class != Class::Claimed;
                    if self.is_swept && is_lowest {
                        let own = values.iter().filter(|v| range.values.contains(v));
                        let lower = own.filter(free).find(|other| **other < value);
                        assert_eq!(lower, None, "{value} is not the lowest");
                    }
                    break;
                }
                let better = values.iter().find(free);
                let tier = prefer.tier;
                let is_same = tier == reservation.tier && !self.is_swept;
                assert!(better.is_none() || is_same, "{better:?} is in tier {tier}");
            }
            assert!(found, "{value} is nowhere in tier {}", reservation.tier);
            gone.insert(value);
        }
        if granted.len() < wish.count as usize {
            let left = self.surely_free(wish);
            assert!(left.is_subset(&gone), "there are more");
        }
    }

    fn surely_free(&self, wish: &Wish) -> BTreeSet<u128> {
        let places = wish.prefer.iter();
        let all = places.flat_map(|prefer| self.model.within(prefer.place, &self.names));
        all.filter(|value| self.model.is_surely_free(*value))
            .collect()
    }

    fn given(&mut self, wish: &Wish, reservation: &Reservation) {
        let value = reservation.value;
        self.check_alone(value, reservation.fence);
        let (name, range) = self.model.home(value).unwrap();
        let (name, range) = (name.clone(), range.clone());
        let ttl = wish.ttl.unwrap_or(range.options.offer_ttl);
        assert_eq!(reservation.until, end(self.now, ttl));
        assert_eq!(self.names[&reservation.range], name);
        assert!(range.options.class != Class::Sync || self.effects.wait);
        let record = Record {
            state: State::Reserved,
            fence: reservation.fence,
            until: reservation.until,
            data: content(&wish.content),
            keys: wish.keys.iter().cloned().collect(),
            id: wish.id.clone(),
            range: Some(name),
        };
        self.keep(value, record);
        self.gone(value);
        self.tell(Hold {
            value,
            fence: reservation.fence,
            until: reservation.until,
            class: range.options.class,
        });
    }

    pub(crate) fn keep(&mut self, value: u128, record: Record) {
        self.stale.push(record.fence);
        let past = self
            .past
            .entry(record.fence)
            .or_insert_with(|| record.clone());
        let longest = past.until.max(record.until);
        *past = Record {
            until: longest,
            ..record.clone()
        };
        self.model.lately.remove(&value);
        self.model.quarantined.remove(&value);
        self.model.records.insert(value, record);
    }

    /// The asker has this already: by its id, or by a key of its own.
    fn known(&self, wish: &Wish) -> BTreeSet<u128> {
        let is_held = |r: &Record| r.state == State::Reserved && r.range.is_some();
        let records = self.model.records.iter();
        let with_id = records.filter(|(_, r)| is_held(r) && wish.id.is_some() && r.id == wish.id);
        let mut known: BTreeSet<u128> = with_id.map(|(value, _)| *value).collect();
        for (key, _) in wish.keys.iter().filter(|(_, unique)| *unique) {
            known.extend(self.model.with_key(key));
        }
        known
    }

    fn given_again(&mut self, wish: &Wish, reservation: &Reservation) {
        let value = reservation.value;
        let record = self.model.records[&value].clone();
        let class = self.model.options_of(value).unwrap().class;
        if record.state == State::Reserved {
            assert!(reservation.is_known);
            assert_eq!(reservation.fence, record.fence);
            assert_eq!(reservation.until, record.until);
        } else {
            assert!(!reservation.is_known && reservation.fence > record.fence);
            let offer = self.model.options_of(value).unwrap().offer_ttl;
            assert_eq!(reservation.until, end(self.now, wish.ttl.unwrap_or(offer)));
            self.check_alone(value, reservation.fence);
            let record = Record {
                state: State::Reserved,
                fence: reservation.fence,
                until: reservation.until,
                data: content(&wish.content),
                keys: wish.keys.iter().cloned().collect(),
                id: wish.id.clone(),
                range: record.range,
            };
            self.keep(value, record);
        }
        assert!(class != Class::Sync || self.effects.wait);
        self.tell(Hold {
            value,
            fence: reservation.fence,
            until: reservation.until,
            class,
        });
    }

    fn not_granted(&self, wish: &Wish, refused: &Refused) {
        let is_taken = |(key, unique): &(Vec<u8>, bool)| {
            let with = self.model.with_key(key);
            with.iter().any(|value| {
                let record = &self.model.records[value];
                record.keys[key] != *unique || (*unique && record.range.is_none())
            })
        };
        let known = self.known(wish);
        match refused {
            Refused::Exhausted { .. } => {
                assert_eq!(known, BTreeSet::new(), "it has something already");
                let free = self.surely_free(wish).len();
                assert!(free < wish.count as usize, "{free} are free");
                assert!(free == 0 || !wish.partial);
            }
            Refused::KeyTaken => assert!(wish.keys.iter().any(is_taken)),
            Refused::KeysApart => assert!(known.len() > 1),
            Refused::Draining | Refused::UnknownRange => assert!(self.lags()),
            other => panic!("{other}"),
        }
    }

    pub(crate) fn is_unheld_outside(&self, value: u128) -> bool {
        self.model.standing(value) == Standing::Outside
    }
}

fn sorted(prefer: &[Prefer]) -> Vec<Prefer> {
    let mut sorted = prefer.to_vec();
    sorted.sort_by_key(|prefer| prefer.tier);
    sorted
}

pub(crate) fn keys(keys: &[(Vec<u8>, bool)]) -> Vec<Key<'_>> {
    let keys = keys.iter();
    keys.map(|(bytes, unique)| Key {
        bytes,
        unique: *unique,
    })
    .collect()
}

pub(crate) fn content(map: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = map.iter();
    all.filter_map(|(name, content)| Some((name.clone(), content.clone()?)))
        .collect()
}
