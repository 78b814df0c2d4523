//! Several partitions do what one does, but for the order of values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau::allocator::{
    Ask, Change, Fields, Key, Place, Prefer, RangeOptions, Reservation, Seen, Span, Standing, Which,
};
use rideau::cluster::Partitions;
use rideau::{Failed, Ranges};

use crate::rig::{Rig, check_counts, fields, held};

/// Ranges with one partition, and others with several that are asked for the same.
struct Pair {
    rigs: [Rig; 2],
    ranges: [Ranges; 2],
    /// What the same ask got of each.
    held: Vec<[Reservation; 2]>,
    /// The last fence of each value, of the ranges with several partitions.
    fences: BTreeMap<u128, u64>,
    chance: Chance,
}

/// Chance that follows from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let rig = |partitions| {
            let mut rig = Rig::new();
            let spans = [("low", "0-69"), ("high", "1000-1009"), ("one", "77")];
            let ranges = spans.map(|(name, span)| {
                let spans = vec![Span::parse(span).unwrap()];
                (name.to_owned(), RangeOptions::new(spans))
            });
            rig.options.ranges = ranges.into();
            rig.options.partitions = partitions;
            rig.options.log_bytes_min = 2_000;
            rig
        };
        let rigs = [rig(Partitions::ONE), rig(crate::partitions())];
        Self {
            ranges: [rigs[0].open(), rigs[1].open()],
            rigs,
            held: Vec::new(),
            fences: BTreeMap::new(),
            chance: Chance(seed),
        }
    }

    fn act(&mut self) {
        match self.chance.below(20) {
            0..8 => self.reserve(),
            8..11 => self.release(),
            11..13 => self.change(),
            13 => self.claim(),
            14..16 => self.look(),
            16 => self.release_many(),
            17 | 18 => {
                let span = Duration::from_secs(self.chance.below(60));
                self.rigs.iter().for_each(|rig| rig.clocks.advance(span));
            }
            _ => self.restart(),
        }
        self.check();
    }

    fn reserve(&mut self) {
        let tier = |name: &str, tier| {
            let id = self.ranges[0].range(name).unwrap();
            assert_eq!(self.ranges[1].range(name), Some(id));
            let place = Place::Range(id);
            Prefer { tier, place }
        };
        let prefer = [tier("high", 0), tier("low", 1), tier("one", 2)];
        let (own, shared) = (self.chance.below(12), self.chance.below(4));
        let names = [
            format!("own:{own}"),
            format!("shared:{shared}"),
            format!("id:{own}"),
        ];
        let keys = [
            Key {
                bytes: names[0].as_bytes(),
                unique: true,
            },
            Key {
                bytes: names[1].as_bytes(),
                unique: false,
            },
        ];
        let kind = self.chance.below(4);
        let ask = Ask {
            keys: match kind {
                0 => &keys,
                1 => &keys[1..],
                _ => &[],
            },
            id: (kind == 2).then_some(names[2].as_bytes()),
            count: if kind == 0 {
                1
            } else {
                self.chance.below(9) as u32 + 1
            },
            partial: self.chance.below(3) == 0,
            ttl: Some(Duration::from_secs(30 + self.chance.below(200))),
            ..Ask::new(&prefer)
        };
        let answers = [0, 1].map(|at| self.ranges[at].reserve(&ask).wait());
        match answers {
            [Ok(one), Ok(many)] => self.granted(&one, &many),
            [Err(one), Err(many)] => assert_eq!(one.to_string(), many.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn granted(&mut self, one: &[Reservation], many: &[Reservation]) {
        let tiers = |all: &[Reservation]| -> Vec<_> {
            all.iter()
                .map(|one| (one.tier, one.is_known, one.until))
                .collect()
        };
        assert_eq!(tiers(one), tiers(many));
        for (one, many) in one.iter().zip(many) {
            if one.is_known {
                let is_pair = |held: &[Reservation; 2]| held[1].value == many.value;
                let pair = self.held.iter().find(|held| is_pair(held));
                assert_eq!(pair.map(|held| held[0].value), Some(one.value));
                continue;
            }
            let before = self.fences.insert(many.value, many.fence);
            assert!(before < Some(many.fence), "{before:?}, then {many:?}");
            self.held.push([*one, *many]);
        }
    }

    fn pick(&mut self) -> Option<[Reservation; 2]> {
        let len = self.held.len() as u64;
        (len > 0).then(|| self.held[self.chance.below(len) as usize])
    }

    fn release(&mut self) {
        let Some(held) = self.pick() else { return };
        let answers = [0, 1].map(|at| {
            let Reservation { value, fence, .. } = held[at];
            let released = self.ranges[at].release(value, Some(fence));
            released.wait().map_err(kind_of)
        });
        assert_eq!(answers[0], answers[1]);
        self.held.retain(|one| one[1].value != held[1].value);
    }

    fn change(&mut self) {
        let Some(held) = self.pick() else { return };
        let name = format!("own:{}", self.chance.below(12));
        let keys = [Key {
            bytes: name.as_bytes(),
            unique: true,
        }];
        let data = fields(&name);
        let by_key = self.chance.below(2) == 0;
        let answers = [0, 1].map(|at| {
            let change = Change {
                keys: if by_key { &[] } else { &keys },
                fence: (!by_key).then_some(held[at].fence),
                ..Change::new(&data)
            };
            let which = match by_key {
                true => Which::Key(name.as_bytes()),
                false => Which::Value(held[at].value),
            };
            let answer = self.ranges[at].update(which, &change).wait();
            answer
                .map(|held| (held.was, held.until, held.old))
                .map_err(kind_of)
        });
        assert_eq!(answers[0], answers[1]);
    }

    fn claim(&mut self) {
        let none = Fields::new();
        let value = 77;
        let answers = [0, 1].map(|at| self.ranges[at].claim(value, &Change::new(&none)).wait());
        let [one, many] = answers;
        assert_eq!(one.is_ok(), many.is_ok());
        if let (Ok(one), Ok(many)) = (one, many) {
            assert_eq!((one.value, one.was), (many.value, many.was));
            self.fences.insert(value, many.fence);
            for ranges in &self.ranges {
                let fence = ranges.lookup(Which::Value(value)).wait().unwrap()[0].fence;
                ranges.release(value, Some(fence)).wait().unwrap();
            }
        }
    }

    fn look(&mut self) {
        for name in [
            format!("shared:{}", self.chance.below(4)),
            "own:3".to_owned(),
        ] {
            let [one, many] = [0, 1].map(|at| {
                let seen = self.ranges[at].lookup(Which::Key(name.as_bytes())).wait();
                seen.unwrap().iter().map(but_for_value).collect::<Vec<_>>()
            });
            assert_eq!(one, many);
        }
    }

    fn release_many(&mut self) {
        let prefix = format!("shared:{}", self.chance.below(4)).into_bytes();
        let filter = rideau::allocator::Filter::KeyPrefix(prefix);
        let [one, many] = [0, 1].map(|at| self.ranges[at].release_all(&filter, None).wait());
        assert_eq!(one.unwrap(), many.unwrap());
    }

    /// What was acknowledged is there again, be it after an end or a crash.
    fn restart(&mut self) {
        let before = held(&self.ranges[1]);
        let is_orderly = self.chance.below(2) == 0;
        for at in [0, 1] {
            if is_orderly {
                self.ranges[at].close();
            }
            self.ranges[at] = self.rigs[at].open();
        }
        // A clock loses a little if it was not written down just before.
        let latest = self.ranges.iter().map(Ranges::now).max().unwrap();
        for (ranges, rig) in self.ranges.iter().zip(&self.rigs) {
            rig.clocks.advance(latest.since(ranges.now()));
        }
        let now = latest;
        let live = |seen: &Seen| seen.standing == Standing::Reserved && seen.until > now;
        let before: Vec<_> = before.into_iter().filter(live).collect();
        let after: Vec<_> = held(&self.ranges[1]).into_iter().filter(live).collect();
        assert_eq!(before, after);
    }

    /// Both have the same numbers, and no key is a second holder's.
    fn check(&mut self) {
        let now = self.ranges[1].now();
        for ranges in &self.ranges {
            check_counts(ranges);
        }
        let live = |at: usize| -> Vec<Seen> {
            let all = held(&self.ranges[at]).into_iter();
            all.filter(|seen| seen.until > now).collect()
        };
        let (one, many) = (live(0), live(1));
        let kinds = |all: &[Seen]| {
            let mut kinds: Vec<_> = all.iter().map(but_for_value).collect();
            kinds.sort_by(|one, other| format!("{one:?}").cmp(&format!("{other:?}")));
            kinds
        };
        assert_eq!(kinds(&one), kinds(&many));
        let values: BTreeSet<u128> = many.iter().map(|seen| seen.value).collect();
        assert_eq!(values.len(), many.len(), "a value has one holder");
        let fences: BTreeSet<u64> = many.iter().map(|seen| seen.fence).collect();
        self.held.retain(|held| fences.contains(&held[1].fence));
        assert_eq!(fences.len(), many.len(), "a fence is one holder's");
        let keys = many.iter().flat_map(|seen| &seen.keys);
        let own: Vec<_> = keys.filter(|(_, unique)| *unique).collect();
        let apart: BTreeSet<_> = own.iter().collect();
        assert_eq!(own.len(), apart.len(), "a unique key has one holder");
    }
}

/// A failure without the numbers that differ.
fn kind_of(failed: Failed) -> String {
    let words = failed.to_string();
    words.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn but_for_value(seen: &Seen) -> impl std::fmt::Debug + PartialEq + use<> {
    let mut keys = seen.keys.clone();
    keys.sort();
    (
        seen.range,
        seen.standing,
        seen.until,
        seen.created,
        seen.updates,
        keys,
        seen.data.clone(),
    )
}

#[test]
fn several_partitions_do_what_one_does() {
    for seed in 0..30 {
        let mut pair = Pair::new(seed);
        for _ in 0..200 {
            pair.act();
        }
    }
}

#[test]
fn batches_of_several_partitions_may_be_small() {
    let mut rig = Rig::new();
    rig.options.log_bytes_min = 10_000;
    rig.platter.limit_batches(1_000);
    let ranges = rig.open();
    let prefer = crate::rig::anywhere(&ranges, "sync");
    let data = fields("a text that makes an entry somewhat longer than it would be without");
    let ask = Ask {
        count: 500,
        data: &data,
        ..Ask::new(&prefer)
    };
    for _ in 0..4 {
        ranges.reserve(&ask).wait().unwrap();
    }
    let before = held(&ranges);
    assert_eq!(before.len(), 2_000);
    // As after a crash.
    assert_eq!(held(&rig.open()), before);
    drop(ranges);
    assert_eq!(held(&rig.open()), before);
}
