//! Nodes that come and go at random, and what is true all the same.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rideau::allocator::{
    Ask, Class, RangeOptions, Released, Reservation, Span, Standing, Start, Which,
};
use rideau::store::PartitionHost;
use rideau::{Committed, Failed, RangesOptions, Reserving};

use crate::kept_logs::{
    COUNT, HOUR, KeptLogs, Node, QUARANTINE, anywhere, eventually, outcome, partitions,
};
use crate::oracle::Oracle;

const SECOND: Duration = Duration::from_secs(1);
const STEPS: usize = 250;
const SEEDS: u64 = 24;
const WAITS_TTL: Duration = Duration::from_secs(5);
/// The end of a hold is noticed so late, and its instant is rounded up.
const COARSE: Duration = Duration::from_millis(50);

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

/// What a client asked for and was not told yet.
enum Asked {
    Reserve(Result<Vec<Reservation>, Failed>),
    Release(Result<Released, Failed>),
    Refresh(bool),
}

struct Pending {
    asked: Asked,
    value: u128,
    fence: u64,
    since: Duration,
    ttl: Duration,
    until: Committed,
}

struct World {
    kept_logs: KeptLogs,
    nodes: Vec<Node>,
    chance: Chance,
    oracle: Oracle,
    pending: Vec<Pending>,
    /// Asks that wait, with the lives of their nodes.
    waits: Vec<(u32, Reserving)>,
    heard_at: Duration,
    /// By how much holds of each partition may end late.
    late: BTreeMap<u32, Duration>,
    faults: BTreeMap<&'static str, usize>,
}

fn options() -> RangesOptions {
    let classes = [
        ("sync", Class::Sync, "0-39"),
        ("claimed", Class::Claimed, "100-139"),
        ("memory", Class::Memory, "200-239"),
    ];
    let ranges = classes.map(|(name, class, span)| {
        let options = RangeOptions {
            class,
            offer_ttl: 10 * SECOND,
            ttl: 10 * SECOND,
            ttl_max: 60 * SECOND,
            start: match class {
                Class::Memory => Start::Quarantine,
                Class::Sync | Class::Claimed => Start::Free,
            },
            quarantine: QUARANTINE,
            ..RangeOptions::new(vec![Span::parse(span).unwrap()])
        };
        (name.to_owned(), options)
    });
    RangesOptions {
        ranges: ranges.into(),
        partitions: partitions(),
        ..RangesOptions::default()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let kept_logs = KeptLogs::new();
        let nodes = (0..3).map(|_| kept_logs.start(options())).collect();
        let mut world = Self {
            kept_logs,
            nodes,
            chance: Chance(seed),
            oracle: Oracle::default(),
            pending: Vec::new(),
            waits: Vec::new(),
            heard_at: Duration::ZERO,
            late: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        (0..COUNT).for_each(|partition| world.take(partition));
        world.advance(QUARANTINE);
        world
    }

    fn now(&self) -> Duration {
        self.kept_logs.state().time
    }

    fn advance(&mut self, span: Duration) {
        self.kept_logs.state().time += span;
        for node in &self.nodes {
            node.clocks.advance(span);
        }
    }

    fn any_node(&mut self) -> usize {
        self.chance.below(self.nodes.len() as u64) as usize
    }

    fn owner(&self, partition: u32) -> Option<usize> {
        let life = self.kept_logs.owner(partition)?;
        self.nodes.iter().position(|node| node.life == life)
    }

    /// A partition without owner gets one. Its clock stood since it was last written.
    fn take(&mut self, partition: u32) {
        let node = self.any_node();
        self.kept_logs.take(partition, &self.nodes[node]);
        self.count_late(partition);
    }

    fn count_late(&mut self, partition: u32) {
        let state = self.kept_logs.state();
        let written = state.written_at.get(&partition).copied();
        let lost = state.time - written.unwrap_or(state.time);
        drop(state);
        *self.late.entry(partition).or_default() += lost + COARSE;
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..=34 => self.reserve(),
            35..=49 => self.release(),
            50..=59 => self.refresh(),
            60..=64 => self.wait(),
            65..=76 => {
                let span = Duration::from_millis(self.chance.below(2_500));
                self.advance(span);
            }
            77..=80 => self.fault("hand-over", Self::hand_over),
            81..=83 => self.fault("raise", Self::raise),
            84..=87 => self.fault("snapshot", Self::snapshot),
            88..=90 => self.fault("loss", Self::lose),
            91..=92 => self.fault("kill", Self::kill),
            93..=96 => self.fault("slow", Self::slow),
            _ => self.fault("unsure", Self::unsure),
        }
        self.hear();
        self.oracle.check();
    }

    fn fault(&mut self, name: &'static str, act: impl FnOnce(&mut Self)) {
        *self.faults.entry(name).or_default() += 1;
        act(self);
    }

    fn reserve(&mut self) {
        let node = self.any_node();
        let range = ["sync", "claimed", "memory"][self.chance.below(3) as usize];
        let ttl = Duration::from_secs(1 + self.chance.below(20));
        let since = self.now();
        let ranges = &self.nodes[node].ranges;
        let prefer = anywhere(ranges, range);
        let ask = Ask {
            ttl: Some(ttl),
            ..Ask::new(&prefer)
        };
        let (decision, until) = ranges.reserve(&ask).into_parts();
        self.pending.push(Pending {
            asked: Asked::Reserve(decision),
            value: 0,
            fence: 0,
            since,
            ttl,
            until,
        });
    }

    /// A hold that a client knows of, and the node of its partition.
    fn any_hold(&mut self) -> Option<(u128, u64, usize)> {
        let mut open = self.oracle.open(self.now());
        // A client does one thing after the other.
        let pending = |fence| self.pending.iter().any(|one| one.fence == fence);
        open.retain(|(_, fence)| !pending(*fence));
        if open.is_empty() {
            return None;
        }
        let (value, fence) = open[self.chance.below(open.len() as u64) as usize];
        let owner = self.owner(partitions().of_value(value))?;
        Some((value, fence, owner))
    }

    fn release(&mut self) {
        let Some((value, fence, node)) = self.any_hold() else {
            return;
        };
        let since = self.now();
        let ranges = &self.nodes[node].ranges;
        let (decision, until) = ranges.release(value, Some(fence)).into_parts();
        self.oracle.releases(value, fence, since);
        self.pending.push(Pending {
            asked: Asked::Release(decision),
            value,
            fence,
            since,
            ttl: Duration::ZERO,
            until,
        });
    }

    fn refresh(&mut self) {
        let Some((value, fence, node)) = self.any_hold() else {
            return;
        };
        let since = self.now();
        let ttl = Duration::from_secs(1 + self.chance.below(20));
        let ranges = &self.nodes[node].ranges;
        let answer = ranges.refresh(Which::Value(value), Some(fence), Some(ttl));
        let (decision, until) = answer.into_parts();
        // One that was forgotten and adopted is another hold.
        let is_same = decision.as_ref().is_ok_and(|held| held.fence == fence);
        if decision.is_ok() {
            self.oracle.prolongs(value, fence, since + ttl);
        }
        self.pending.push(Pending {
            asked: Asked::Refresh(is_same),
            value,
            fence,
            since,
            ttl,
            until,
        });
    }

    fn wait(&mut self) {
        if self.waits.len() > 10 {
            return;
        }
        let node = self.any_node();
        let ranges = &self.nodes[node].ranges;
        let prefer = anywhere(ranges, "sync");
        let ask = Ask {
            ttl: Some(WAITS_TTL),
            count: 1 + self.chance.below(3) as u32,
            ..Ask::new(&prefer)
        };
        let wait = ranges.reserve_within(&ask, HOUR);
        self.waits.push((self.nodes[node].life, wait));
    }

    fn hand_over(&mut self) {
        let partition = self.chance.below(u64::from(COUNT)) as u32;
        let to = self.any_node();
        if let Some(from) = self.owner(partition)
            && from != to
        {
            self.let_all_go();
            self.kept_logs
                .hand_over(partition, &self.nodes[from], &self.nodes[to]);
            self.count_late(partition);
        }
    }

    fn raise(&mut self) {
        let partition = self.chance.below(u64::from(COUNT)) as u32;
        if let Some(owner) = self.owner(partition) {
            self.let_all_go();
            self.kept_logs.raise(partition, &self.nodes[owner]);
        }
    }

    fn snapshot(&mut self) {
        let partition = self.chance.below(u64::from(COUNT)) as u32;
        if let Some(owner) = self.owner(partition) {
            let epoch = self.kept_logs.epoch(partition);
            self.nodes[owner].host.snapshot(partition, epoch);
        }
    }

    fn lose(&mut self) {
        let partition = self.chance.below(u64::from(COUNT)) as u32;
        let former = self.owner(partition);
        self.kept_logs.lose(partition);
        // Sometimes the node hears of it late.
        if self.chance.below(2) == 0
            && let Some(former) = former
        {
            self.nodes[former].host.end(partition);
        }
        let span = Duration::from_millis(self.chance.below(3_000));
        self.advance(span);
        self.take(partition);
        if let Some(former) = former
            && self.owner(partition) != Some(former)
        {
            self.nodes[former].host.end(partition);
        }
    }

    fn kill(&mut self) {
        let node = self.any_node();
        let node = self.nodes.swap_remove(node);
        let life = node.life;
        self.kept_logs.kill(node);
        self.waits.retain(|(of, _)| *of != life);
        let span = Duration::from_millis(self.chance.below(7_000));
        self.advance(span);
        self.nodes.push(self.kept_logs.start(options()));
        for partition in 0..COUNT {
            if self.kept_logs.owner(partition).is_none() {
                self.take(partition);
            }
        }
    }

    fn slow(&mut self) {
        let node = self.any_node();
        let is_held = self.chance.below(2) == 0;
        self.kept_logs.hold(self.nodes[node].life, is_held);
    }

    fn unsure(&mut self) {
        let node = self.any_node();
        let is_unsure = self.chance.below(3) == 0;
        self.kept_logs.set_unsure(&self.nodes[node], is_unsure);
    }

    fn let_all_go(&self) {
        for node in &self.nodes {
            self.kept_logs.hold(node.life, false);
        }
    }

    /// Hear all answers that have come. The program that writes one to a client looks once
    /// more whether the node may still say so.
    fn hear(&mut self) {
        let now = self.now();
        for (life, mut wait) in std::mem::take(&mut self.waits) {
            let mut task = Context::from_waker(Waker::noop());
            let _ = pin!(wait.decided()).poll(&mut task);
            match wait.into_parts() {
                Err(wait) => self.waits.push((life, wait)),
                Ok((decision, until)) => self.pending.push(Pending {
                    asked: Asked::Reserve(decision),
                    value: 0,
                    fence: 0,
                    since: now,
                    // It may have been decided as soon as was heard before.
                    ttl: WAITS_TTL.saturating_sub(now - self.heard_at),
                    until,
                }),
            }
        }
        self.heard_at = now;
        for one in std::mem::take(&mut self.pending) {
            match one.until.is_reached() {
                Ok(false) => self.pending.push(one),
                Ok(true) if one.until.is_owned() => self.told(one),
                Ok(true) | Err(_) => self.oracle.unknown += 1,
            }
        }
    }

    fn told(&mut self, one: Pending) {
        let Pending {
            asked,
            value,
            fence,
            since,
            ttl,
            ..
        } = one;
        match asked {
            Asked::Reserve(Ok(granted)) => {
                for Reservation { value, fence, .. } in granted {
                    self.oracle.granted(value, fence, since, since + ttl);
                }
            }
            Asked::Release(Ok(_)) => self.oracle.released(value, fence),
            Asked::Refresh(true) => self.oracle.prolonged(value, fence, since + ttl),
            Asked::Reserve(Err(_)) | Asked::Release(Err(_)) | Asked::Refresh(false) => (),
        }
    }

    /// Nothing goes wrong any more: all answers come, and all that was told is true.
    fn settle(&mut self) {
        self.let_all_go();
        for node in &self.nodes {
            self.kept_logs.set_unsure(node, false);
        }
        for one in &self.pending {
            eventually(|| !matches!(one.until.is_reached(), Ok(false)));
        }
        self.hear();
        self.oracle.check();
        for (value, fence) in self.oracle.held(self.now()) {
            let owner = self.owner(partitions().of_value(value)).unwrap();
            let ranges = &self.nodes[owner].ranges;
            let seen = outcome(ranges.lookup(Which::Value(value))).unwrap();
            let is_held = seen.first().is_some_and(|seen| seen.fence == fence);
            // What was told before it was written is in doubt when its owner was lost. Then
            // it has no holder, or its own again.
            let is_adopted = seen.first().is_some_and(|seen| seen.fence > fence);
            let is_doubted = ranges.stands(value) == Standing::Quarantined || is_adopted;
            let is_sync = value < 100;
            assert!(
                is_held || (is_doubted && !is_sync),
                "{value} {fence}: {seen:?}"
            );
        }
    }

    /// All asks that wait are told, when their time is over.
    fn end_waits(&mut self) {
        self.advance(HOUR);
        let end = std::time::Instant::now() + 30 * SECOND;
        while !self.waits.is_empty() {
            assert!(std::time::Instant::now() < end, "an ask waits for ever");
            std::thread::sleep(Duration::from_millis(1));
            self.hear();
        }
    }

    /// Everything ends in time: the longest hold, and what its partition may be late by.
    fn check_ends(&mut self) {
        let now = self.now();
        let open = self.oracle.open(now);
        let late = self.late.values().max().copied().unwrap_or_default();
        self.advance(20 * SECOND + late + SECOND);
        for (value, fence) in open {
            let owner = self.owner(partitions().of_value(value)).unwrap();
            let ranges = &self.nodes[owner].ranges;
            let seen = outcome(ranges.lookup(Which::Value(value))).unwrap();
            let is_held = seen.first().is_some_and(|seen| seen.fence == fence);
            assert!(!is_held, "{value} is held for too long: {seen:?}");
        }
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    world.check_ends();
    world.end_waits();
    world.settle();
    world
}

#[test]
fn whatever_becomes_of_nodes_holders_keep_what_they_were_told() {
    let mut faults = BTreeMap::new();
    let (mut told, mut unknown) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let world = run(seed);
        told += world.oracle.told;
        unknown += world.oracle.unknown;
        for (name, count) in world.faults {
            *faults.entry(name).or_insert(0) += count;
        }
    }
    // All that can go wrong has, and most asks were answered.
    assert_eq!(faults.len(), 7, "{faults:?}");
    assert!(told > unknown && unknown > 0, "{told} and {unknown}");
}
