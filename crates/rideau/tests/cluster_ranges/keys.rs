//! A key that a record has for itself, while owners of keys and of values change, die, and
//! are late: no two records ever have it.

use std::collections::{BTreeMap, BTreeSet};

use rideau::allocator::{Ask, Key, Vouched};
use rideau::cluster::{KeyAt, KeyIndexes, KeyTurn};

use crate::kept_logs::{COUNT, KeptLogs, Life, Node, anywhere, options, partitions};

const STEPS: usize = 300;
const SEEDS: u64 = 60;

/// A mistake that is made on purpose, and has to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// The owner of a value takes the word of any owner of a key, however old.
    OldEpochs,
    /// An ask whose answer was lost is taken for one that came to nothing.
    LostIsNothing,
    /// A node gives a value for a key although the record that had it has moved away.
    Moved,
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

/// An ask that is on its way to the owner of a value.
struct Flight {
    key: Vec<u8>,
    at: (u32, u64),
    owner: Life,
    target: Life,
    known: KeyAt,
    beside: Option<u32>,
}

struct World {
    kept_logs: KeptLogs,
    nodes: Vec<Node>,
    indexes: BTreeMap<Life, KeyIndexes>,
    flights: Vec<Flight>,
    held: Option<Life>,
    mistake: Mistake,
    chance: Chance,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let kept_logs = KeptLogs::new();
        let nodes: Vec<Node> = (0..3).map(|_| kept_logs.start(options())).collect();
        for partition in 0..COUNT {
            kept_logs.take(partition, &nodes[partition as usize % 3]);
        }
        Self {
            kept_logs,
            nodes,
            indexes: BTreeMap::new(),
            flights: Vec::new(),
            held: None,
            mistake,
            chance: Chance(seed),
        }
    }

    fn node(&self, life: Life) -> Option<&Node> {
        self.nodes.iter().find(|node| node.life == life)
    }

    fn index(&mut self, life: Life) -> &mut KeyIndexes {
        let new = || KeyIndexes::new(COUNT);
        self.indexes.entry(life).or_insert_with(new)
    }

    fn step(&mut self) {
        match self.chance.below(10) {
            0..=3 => self.ask(),
            4..=6 => self.land(),
            7 => self.release(),
            8 => self.move_one(),
            _ => self.fail(),
        }
    }

    /// A client asks the owner of a key for it.
    fn ask(&mut self) {
        let key = format!("k{}", self.chance.below(4)).into_bytes();
        let partition = partitions().of_name(&key);
        let Some(owner) = self.kept_logs.owner(partition) else {
            return;
        };
        let epoch = self.kept_logs.epoch(partition);
        if !self.collect(owner) {
            return;
        }
        let turn = self.index(owner).take(partition, epoch, &key);
        let KeyTurn::Now(mut known) = turn else {
            return;
        };
        if known == KeyAt::Unsure {
            let is_whole = (0..COUNT).all(|partition| self.kept_logs.owner(partition).is_some());
            let written = self.written(&key).filter(|_| is_whole);
            let Some(values) = written else {
                let index = self.index(owner);
                return index.settle(partition, epoch, &key, KeyAt::Unsure);
            };
            known = match values.is_empty() {
                true => KeyAt::Nowhere,
                false => KeyAt::At(values),
            };
        }
        let at_random = self.chance.below(3) as usize;
        let mut target = Some(self.nodes[at_random].life);
        let mut beside = None;
        if let KeyAt::At(values) = &known {
            let held = values.iter().find(|value| self.has(**value, &key));
            let value = held.or(values.first()).expect("a pointer has a value");
            let of_value = partitions().of_value(*value);
            target = self.kept_logs.owner(of_value);
            beside = Some(of_value).filter(|_| self.mistake != Mistake::Moved);
        }
        let at = (partition, epoch);
        match target {
            None => self.index(owner).settle(partition, epoch, &key, known),
            Some(target) => self.flights.push(Flight {
                key,
                at,
                owner,
                target,
                known,
                beside,
            }),
        }
    }

    /// An ask reaches the owner of a value, maybe late, and its answer may get lost.
    fn land(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let first = self.chance.below(self.flights.len() as u64) as usize;
        let flight = self.flights.swap_remove(first);
        let (partition, mut epoch) = flight.at;
        if self.mistake == Mistake::OldEpochs {
            epoch = u64::MAX;
        }
        let mut came = KeyAt::Unsure;
        if let Some(node) = self.node(flight.target) {
            let keys = [Key {
                bytes: &flight.key,
                unique: true,
            }];
            let prefer = anywhere(&node.ranges, "sync");
            let ask = Ask {
                keys: &keys,
                vouched: Some(Vouched {
                    partition,
                    epoch,
                    beside: flight.beside,
                }),
                ..Ask::new(&prefer)
            };
            let (decision, until) = node.ranges.reserve(&ask).into_parts();
            came = match decision {
                Ok(granted) => {
                    let value = granted[0].value;
                    // An answer comes when it is written.
                    let is_written = matches!(until.is_reached(), Ok(true));
                    match is_written {
                        true => KeyAt::At([value].into()),
                        false => KeyAt::Unsure,
                    }
                }
                Err(_) => flight.known.clone(),
            };
        }
        if self.chance.below(4) == 0 {
            came = match self.mistake {
                Mistake::LostIsNothing => flight.known,
                _ => KeyAt::Unsure,
            };
        }
        let (partition, epoch) = flight.at;
        if self.node(flight.owner).is_some() {
            let index = self.index(flight.owner);
            index.settle(partition, epoch, &flight.key, came);
        }
    }

    /// The owner of keys has all nodes report theirs. Says whether it knows all.
    fn collect(&mut self, owner: Life) -> bool {
        let owned: Vec<(u32, u64)> = (0..COUNT)
            .filter(|partition| self.kept_logs.owner(*partition) == Some(owner))
            .map(|partition| (partition, self.kept_logs.epoch(partition)))
            .collect();
        let wanted = self.index(owner).unready(&owned);
        if wanted.is_empty() {
            return true;
        }
        let mut told = Vec::new();
        for node in &self.nodes {
            let (mut cursor, mut keys) = (Some(0), Vec::new());
            let mut covered: Option<BTreeSet<(u32, u64)>> = None;
            while let Some(at) = cursor {
                let report = node.ranges.report_keys(&wanted, at);
                cursor = report.next;
                keys.extend(report.keys);
                let piece: BTreeSet<_> = report.covered.into_iter().collect();
                covered = Some(covered.map_or(piece.clone(), |before| &before & &piece));
            }
            let is_written = matches!(node.ranges.written().is_reached(), Ok(true));
            let covered = covered.filter(|_| is_written);
            let covered = covered.unwrap_or_default();
            let covered: Vec<u32> = covered.iter().map(|(partition, _)| *partition).collect();
            told.push((covered, keys));
        }
        for (covered, keys) in told {
            for (partition, epoch) in &wanted {
                let of = |key: &[u8]| partitions().of_name(key) == *partition;
                let keys: Vec<_> = keys.iter().filter(|told| of(&told.key)).collect();
                let keys = keys.iter().map(|told| (&told.key[..], told.value));
                let index = self.indexes.get_mut(&owner).expect("it was just used");
                index.reported((*partition, *epoch), &covered, keys);
            }
        }
        self.index(owner).unready(&owned).is_empty()
    }

    fn release(&mut self) {
        let key = format!("k{}", self.chance.below(4)).into_bytes();
        for node in &self.nodes {
            let (seen, _) = node.ranges.find(&key).into_parts();
            if let Some(one) = seen.ok().and_then(|seen| seen.into_iter().next()) {
                drop(node.ranges.release(one.value, Some(one.fence)));
                return;
            }
        }
    }

    /// A partition goes to another node, or one without owner is taken over.
    fn move_one(&mut self) {
        let partition = self.chance.below(COUNT.into()) as u32;
        let to = self.chance.below(3) as usize;
        match self.kept_logs.owner(partition) {
            None => self.kept_logs.take(partition, &self.nodes[to]),
            // What is held up cannot be written before it goes.
            Some(owner) if Some(owner) == self.held => (),
            Some(owner) if owner != self.nodes[to].life => {
                let from = self.node(owner).expect("an owner lives");
                self.kept_logs.hand_over(partition, from, &self.nodes[to]);
            }
            Some(_) => (),
        }
    }

    /// A node dies, or what it writes is held up for a while.
    fn fail(&mut self) {
        if let Some(life) = self.held.take() {
            return self.kept_logs.hold(life, false);
        }
        let at = self.chance.below(3) as usize;
        if self.chance.below(3) > 0 {
            let life = self.nodes[at].life;
            self.kept_logs.hold(life, true);
            self.held = Some(life);
            return;
        }
        let dead = std::mem::replace(&mut self.nodes[at], self.kept_logs.start(options()));
        self.indexes.remove(&dead.life);
        // A command of a dead node that was sent may still be done.
        self.kept_logs.kill(dead);
        for partition in 0..COUNT {
            if self.kept_logs.owner(partition).is_none() && self.chance.below(2) == 0 {
                let to = self.chance.below(3) as usize;
                self.kept_logs.take(partition, &self.nodes[to]);
            }
        }
    }

    /// The same, if it is written that there are no others.
    fn written(&self, key: &[u8]) -> Option<BTreeSet<u128>> {
        let mut all = BTreeSet::new();
        for node in &self.nodes {
            let (seen, until) = node.ranges.find(key).into_parts();
            let is_written = matches!(until.is_reached(), Ok(true));
            let seen = seen.ok().filter(|_| is_written)?;
            all.extend(seen.iter().map(|seen| seen.value));
        }
        Some(all)
    }

    /// The values whose records have a key, on all nodes.
    fn records(&self, key: &[u8]) -> BTreeSet<u128> {
        let all = self.nodes.iter().flat_map(|node| {
            let (seen, _) = node.ranges.find(key).into_parts();
            seen.unwrap_or_default()
        });
        all.map(|seen| seen.value).collect()
    }

    fn has(&self, value: u128, key: &[u8]) -> bool {
        self.records(key).contains(&value)
    }

    /// The first key that two records have, if one is.
    fn doubled(&self) -> Option<String> {
        (0..4)
            .map(|at| format!("k{at}"))
            .find(|key| self.records(key.as_bytes()).len() > 1)
    }
}

/// Runs from a seed; says after how many steps two records have one key.
fn run(seed: u64, mistake: Mistake) -> Option<(usize, String)> {
    let mut world = World::new(seed, mistake);
    for step in 0..STEPS {
        world.step();
        if let Some(key) = world.doubled() {
            return Some((step, key));
        }
    }
    if let Some(life) = world.held.take() {
        world.kept_logs.hold(life, false);
    }
    None
}

#[test]
fn no_two_records_have_a_key_that_is_for_one() {
    for seed in 0..SEEDS {
        assert_eq!(run(seed, Mistake::None), None, "seed {seed}");
    }
}

#[test]
fn mistakes_with_keys_are_found() {
    for mistake in [Mistake::OldEpochs, Mistake::LostIsNothing, Mistake::Moved] {
        let found = (0..10 * SEEDS).find_map(|seed| run(seed, mistake));
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
