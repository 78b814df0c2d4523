//! Records against plain maps, and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::rng::Rng;

const SECOND: u64 = 1_000_000_000;

/// A record as a plain value.
#[derive(Clone, PartialEq, Debug)]
struct Plain {
    head: Head,
    created: Instant,
    updated: Instant,
    updates: u32,
    data: Vec<u8>,
    owner: Option<Vec<u8>>,
    keys: Vec<(bool, Vec<u8>)>,
}

impl Plain {
    fn draw(rng: &mut Rng) -> Self {
        let millis = |rng: &mut Rng| match rng.below(20) {
            0 => Instant::NEVER,
            1 => Instant::START,
            _ => Instant::from_nanos(rng.below(1 << 40) * 1_000_000),
        };
        let sizes = [0, 10, 64, 300, 3_000];
        let size = if rng.below(300) == 0 {
            65_536
        } else {
            sizes[rng.below(5) as usize]
        };
        let len = rng.below(size + 1);
        let shift = rng.below(64);
        Self {
            head: Head {
                fence: rng.draw() >> shift,
                until: millis(rng),
                range: [0, 1, 7][rng.below(3) as usize],
                state: [State::Reserved, State::Detached, State::Cooling][rng.below(3) as usize],
            },
            created: millis(rng),
            updated: millis(rng),
            updates: rng.draw() as u32 >> rng.below(32),
            data: (0..len).map(|_| rng.draw() as u8).collect(),
            owner: [None, Some(Vec::new()), Some(vec![9; 255])][rng.below(3) as usize].clone(),
            keys: draw_keys(rng),
        }
    }

    fn with_body<T>(&self, call: impl FnOnce(Body<'_>) -> T) -> T {
        let keys: Vec<Key<'_>> = self
            .keys
            .iter()
            .map(|(unique, bytes)| Key {
                unique: *unique,
                bytes,
            })
            .collect();
        call(Body {
            created: self.created,
            updated: self.updated,
            updates: self.updates,
            data: &self.data,
            owner: self.owner.as_deref(),
            keys: &keys,
        })
    }

    fn read(records: &Records, slot: Slot) -> Self {
        let view = records.body(slot);
        Self {
            head: records.head(slot),
            created: view.created,
            updated: view.updated,
            updates: view.updates,
            data: view.data.to_vec(),
            owner: view.owner.map(<[u8]>::to_vec),
            keys: view
                .keys()
                .map(|key| (key.unique, key.bytes.to_vec()))
                .collect(),
        }
    }
}

/// A few keys: some that no other record has, some that many have, at times one
/// of them twice.
fn draw_keys(rng: &mut Rng) -> Vec<(bool, Vec<u8>)> {
    let most = if rng.below(10) == 0 { 17 } else { 4 };
    (0..rng.below(most + 1))
        .map(|_| match rng.below(4) {
            0 => (false, vec![rng.below(3) as u8]),
            1 => (false, format!("gateway/{}", rng.below(300)).into_bytes()),
            2 => (true, vec![7; rng.below(301) as usize]),
            _ => (true, rng.draw().to_le_bytes().to_vec()),
        })
        .collect()
}

fn draw_value(rng: &mut Rng) -> u128 {
    let near = u128::from(rng.below(400));
    match rng.below(5) {
        0 => near,
        1 => u128::MAX - near,
        2 => 0xffff_0a00_0000 + near,
        3 => (1 << 127) - 200 + near,
        _ => 0x2001_0db8 << 96 | near << 60,
    }
}

#[derive(Default)]
struct Model {
    records: BTreeMap<u128, (Slot, Plain)>,
    keys: BTreeMap<Vec<u8>, BTreeSet<Slot>>,
}

impl Model {
    fn insert(&mut self, value: u128, slot: Slot, plain: Plain) {
        for (_, key) in &plain.keys {
            self.keys.entry(key.clone()).or_default().insert(slot);
        }
        assert!(self.records.insert(value, (slot, plain)).is_none());
    }

    fn remove(&mut self, value: u128) -> (Slot, Plain) {
        let (slot, plain) = self.records.remove(&value).unwrap();
        for (_, key) in &plain.keys {
            self.keys.get_mut(key).unwrap().remove(&slot);
        }
        (slot, plain)
    }

    fn check(&self, records: &Records) {
        assert_eq!(records.len(), self.records.len());
        for (value, (slot, plain)) in &self.records {
            assert_eq!(records.find(*value), Some(*slot));
            assert_eq!(records.value(*slot), *value);
            assert_eq!(Plain::read(records, *slot), *plain);
        }
        for (key, slots) in &self.keys {
            assert!(records.by_key(key).eq(slots.iter().copied()), "{key:?}");
        }
        let all: BTreeSet<Slot> = self.records.values().map(|(slot, _)| *slot).collect();
        assert!(records.iter_from(0).eq(all));
    }
}

#[test]
fn records_are_as_plain_maps_say() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let (mut records, mut model) = (Records::new(seed), Model::default());
        for step in 0..30_000_u64 {
            let value = draw_value(&mut rng);
            let shrink = (step / 7_000) % 2 == 1;
            let known = model.records.get(&value).map(|(slot, _)| *slot);
            assert_eq!(records.find(value), known, "seed {seed} step {step}");
            let draw = rng.below(10);
            match known {
                None if !shrink || draw == 0 => {
                    let plain = Plain::draw(&mut rng);
                    let slot = plain.with_body(|body| records.insert(value, plain.head, body));
                    model.insert(value, slot, plain);
                }
                None => (),
                Some(slot) if draw < 2 => {
                    let until = Instant::from_nanos(rng.below(1 << 40) * 1_000_000);
                    records.set_until(slot, until);
                    model.records.get_mut(&value).unwrap().1.head.until = until;
                    assert_eq!(records.until(slot), until);
                }
                Some(slot) if draw < 5 => {
                    let mut plain = Plain::draw(&mut rng);
                    if draw == 4 {
                        plain.keys.clone_from(&model.records[&value].1.keys);
                        plain.keys.pop();
                    }
                    plain.with_body(|body| records.replace(slot, plain.head, body));
                    model.remove(value);
                    model.insert(value, slot, plain);
                }
                Some(slot) => {
                    let (_, plain) = model.remove(value);
                    assert_eq!(records.head(slot), plain.head);
                    assert_eq!(records.remove(slot), value);
                }
            }
            if step % 3_000 == 0 {
                model.check(&records);
            }
        }
        model.check(&records);
        for value in model.records.keys().copied().collect::<Vec<_>>() {
            let (slot, _) = model.remove(value);
            records.remove(slot);
        }
        model.check(&records);
        assert_eq!(records.crowded, 0);
        assert!(records.by_key.is_empty() && records.by_value.is_empty());
    }
}

#[test]
fn instants_are_rounded_up_to_milliseconds() {
    let mut records = Records::new(1);
    let slot = records.insert(5, head(1_000_001), body(&[], &[]));
    assert_eq!(records.until(slot), Instant::from_nanos(2_000_000));
    assert_eq!(records.body(slot).created, Instant::from_nanos(1_000_000));
}

#[test]
fn a_key_of_all_values_costs_no_more_than_one_of_one() {
    let mut records = Records::new(1);
    let (key, count) = (b"gateway/1", 100_000_u32);
    let keys = [Key {
        unique: false,
        bytes: key,
    }];
    for value in 0..count {
        records.insert(u128::from(value), head(0), body(&[], &keys));
    }
    assert_eq!(records.by_key(key).count(), count as usize);
    let mut left = count;
    while let Some(slot) = records.find_by_key(key) {
        records.remove(slot);
        left -= 1;
        assert_eq!(records.len(), left as usize);
    }
    assert_eq!(left, 0);
}

#[test]
fn a_snapshot_in_pieces_sees_all_that_stays() {
    let mut records = Records::new(1);
    for value in 0..10_000 {
        records.insert(value, head(0), body(&[], &[]));
    }
    let (mut from, mut seen) = (0, BTreeSet::new());
    let mut fresh = 10_000;
    loop {
        let piece: Vec<Slot> = records.iter_from(from).take(100).collect();
        let Some(last) = piece.last() else { break };
        from = last.0 + 1;
        seen.extend(piece.iter().map(|slot| records.value(*slot)));
        // Odd values go and others come while the snapshot is being taken.
        if let Some(slot) = records.find(fresh - 9_999) {
            records.remove(slot);
        }
        if fresh < 10_100 {
            records.insert(fresh, head(0), body(&[], &[]));
            fresh += 2;
        }
    }
    assert!((0..10_000).step_by(2).all(|value| seen.contains(&value)));
}

#[test]
fn renewals_and_short_lives_do_not_fill_the_wheel() {
    let (mut records, mut wheel) = (Records::new(1), Wheel::new());
    for second in 0..10_000 {
        let slot = records.insert(1, head((second + 3_600) * SECOND), body(&[], &[]));
        records.watch(slot, &mut wheel);
        records.set_until(slot, Instant::from_nanos((second + 7_200) * SECOND));
        records.watch(slot, &mut wheel);
        records.remove(slot);
        let now = Instant::from_nanos(second * SECOND);
        while let Some((slot, mark)) = wheel.pop_due(now) {
            assert!(
                !records.is_over(slot, mark, now, &mut wheel),
                "it is vacant"
            );
        }
        assert!(wheel.len() <= 1);
    }
}

#[test]
fn every_record_is_over_once_and_in_time() {
    let mut rng = Rng::new(9);
    let (mut records, mut wheel) = (Records::new(9), Wheel::new());
    let mut model: BTreeMap<u128, Instant> = BTreeMap::new();
    let mut now = Instant::START;
    for step in 0..100_000_u64 {
        let value = u128::from(rng.below(2_000));
        let span = [2 * SECOND, 600 * SECOND, 90_000 * SECOND][rng.below(3) as usize];
        let until = now.after(rng.below(span) / 1_000_000 * 1_000_000);
        match records.find(value) {
            Some(slot) if rng.below(3) == 0 => {
                records.remove(slot);
                model.remove(&value);
            }
            Some(slot) => {
                records.set_until(slot, until);
                records.watch(slot, &mut wheel);
                model.insert(value, until);
            }
            None => {
                let slot = records.insert(value, head(until.as_nanos()), body(&[], &[]));
                records.watch(slot, &mut wheel);
                model.insert(value, until);
            }
        }
        let jump = if step % 1_000 == 0 {
            7_200 * SECOND
        } else {
            rng.below(SECOND)
        };
        now = Instant::from_nanos((now.as_nanos() + jump) / 1_000_000 * 1_000_000);
        while wheel.first() <= now {
            let Some((slot, mark)) = wheel.pop_due(now) else {
                continue;
            };
            if records.is_over(slot, mark, now, &mut wheel) {
                let until = records.until(slot);
                assert!(until <= now);
                assert_eq!(model.remove(&records.remove(slot)), Some(until));
            }
        }
        let late = now.as_nanos().saturating_sub(2 * (1 << 24));
        if step % 100 == 0 {
            assert!(model.values().all(|until| until.as_nanos() >= late));
        }
    }
}

#[test]
fn a_fresh_reservation_costs_at_most_150_bytes_with_its_entry_in_the_wheel() {
    let (mut records, mut wheel) = (Records::new(1), Wheel::new());
    let mut worst = 0;
    for n in 1..=1_000_000_u64 {
        let now = 40 * 86_400 * SECOND + n * 10_000;
        let (left, right) = (n.to_be_bytes(), (!n).to_be_bytes());
        let keys = [true, false].map(|unique| Key {
            unique,
            bytes: if unique { &left } else { &right },
        });
        let head = Head {
            fence: (1 << 32) + n,
            ..head(now + 3_600 * SECOND)
        };
        let body = Body {
            created: Instant::from_nanos(now),
            updated: Instant::from_nanos(now),
            updates: 0,
            ..body(&[b'x'; 64], &keys)
        };
        let slot = records.insert(0xffff_0a00_0000 + u128::from(n), head, body);
        records.watch(slot, &mut wheel);
        if n > 500_000 && n % 10_000 == 0 {
            let bytes = records.bytes() + wheel.bytes();
            worst = worst.max(bytes / n as usize);
        }
    }
    println!("{worst} bytes a reservation at most, from 500,000 to 1,000,000");
    assert!(worst < 150, "{worst} bytes a reservation");
}

fn head(until: u64) -> Head {
    Head {
        fence: 1,
        until: Instant::from_nanos(until),
        range: 0,
        state: State::Reserved,
    }
}

const fn body<'a>(data: &'a [u8], keys: &'a [Key<'a>]) -> Body<'a> {
    Body {
        created: Instant::from_nanos(1),
        updated: Instant::from_nanos(1),
        updates: 0,
        data,
        owner: Some(b""),
        keys,
    }
}
