//! A machine, a model of it and a disk, and what holders were told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::allocator::{
    Allocator, Class, Effects, Entry, Field, Fields, Interval, Kind, OnExpire, Options, Order,
    RangeError, RangeId, RangeOptions, Refused, Restore, Span, Start,
};
use rideau_core::{Instant, Rng};

use crate::disk::Disk;
use crate::model::{Model, Record, VALUES, values};

/// No range has a longer usual time.
pub(crate) const TTL_LONGEST: Duration = Duration::from_secs(16);
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What a holder was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) value: u128,
    pub(crate) fence: u64,
    pub(crate) until: Instant,
    pub(crate) class: Class,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    pub(crate) machine: Allocator,
    pub(crate) effects: Effects,
    pub(crate) model: Model,
    pub(crate) names: BTreeMap<RangeId, String>,
    pub(crate) disk: Disk,
    /// Answers that wait for the disk, with the place in the log.
    waiting: Vec<(u64, Hold)>,
    pub(crate) holds: BTreeMap<u128, Hold>,
    /// The last fence that a holder was told of each value.
    told: BTreeMap<u128, u64>,
    /// All records there ever were, by their fences.
    pub(crate) past: BTreeMap<u64, Record>,
    /// Fences that were once right.
    pub(crate) stale: Vec<u64>,
    styles: BTreeMap<&'static str, RangeOptions>,
    /// All that is due has been done.
    pub(crate) is_swept: bool,
    pub(crate) crashes: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let styles = NAMES.map(|name| (name, style(&mut rng))).into();
        let mut world = Self {
            now: Instant::START,
            machine: Allocator::new(&Options {
                seed,
                ..Options::default()
            }),
            effects: Effects::new(),
            model: Model::default(),
            names: BTreeMap::new(),
            disk: Disk::default(),
            waiting: Vec::new(),
            holds: BTreeMap::new(),
            told: BTreeMap::new(),
            past: BTreeMap::new(),
            stale: Vec::new(),
            styles,
            is_swept: true,
            crashes: 0,
            rng,
        };
        for _ in 0..6 {
            world.set_range();
        }
        world
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    /// Time goes on, by a nanosecond or by hours.
    pub(crate) fn pass(&mut self) {
        let nanos = match self.below(40) {
            0..8 => self.below(3),
            8..20 => self.below(3_000_000),
            20..32 => self.below(300_000_000),
            32..38 => self.below(4_000_000_000),
            38 => self.below(70_000_000_000),
            _ => match self.below(8) {
                0 => self.below(9 * 3_600_000_000_000),
                _ => 0,
            },
        };
        self.now = self.now.after(nanos);
        self.model.pass(self.now);
        self.is_swept = false;
    }

    /// Do all that is due.
    pub(crate) fn sweep(&mut self) {
        for _ in 0..1_000 {
            if self.machine.deadline().is_none_or(|due| due > self.now) {
                self.is_swept = true;
                return;
            }
            self.machine.advance(self.now, &mut self.effects);
        }
        // What is left is due within this tick.
        self.is_swept = true;
    }

    /// An operation is over, and its answer was yes.
    pub(crate) fn tell(&mut self, hold: Hold) {
        if self.effects.wait {
            self.waiting.push((self.effects.position(), hold));
        } else {
            self.was_told(hold);
        }
    }

    fn was_told(&mut self, hold: Hold) {
        let told = self.told.entry(hold.value).or_default();
        if *told > hold.fence {
            // A late answer about what was given back long ago.
            assert!(hold.until <= self.now, "{hold:?} is late");
            return;
        }
        *told = hold.fence;
        if let Some(other) = self.holds.get(&hold.value) {
            let is_other = other.fence != hold.fence && other.until > self.now;
            assert!(!is_other, "two holders: {other:?} and {hold:?}");
        }
        self.holds.insert(hold.value, hold);
    }

    /// No holder has been told that it holds this value, or will be.
    pub(crate) fn gone(&mut self, value: u128) {
        self.holds.remove(&value);
        for (_, hold) in &mut self.waiting {
            if hold.value == value {
                hold.until = Instant::START;
            }
        }
    }

    /// A holder asked for another end, and may get it or not.
    pub(crate) fn may_end(&mut self, value: u128, until: Instant) {
        if let Some(hold) = self.holds.get_mut(&value) {
            hold.until = hold.until.min(until);
        }
        for (_, hold) in self
            .waiting
            .iter_mut()
            .filter(|(_, hold)| hold.value == value)
        {
            hold.until = hold.until.min(until);
        }
    }

    /// A value gets a new holder: no other was told that it has it.
    pub(crate) fn check_alone(&self, value: u128, fence: u64) {
        if let Some(other) = self.holds.get(&value) {
            assert!(other.until <= self.now, "{other:?} holds {value} still");
        }
        let told = self.told.get(&value).copied().unwrap_or(0);
        assert!(told < fence, "a new fence of {value} is larger");
    }

    /// Write down what was logged.
    pub(crate) fn write(&mut self) {
        if !self.effects.log.is_empty() {
            let position = self.effects.position();
            self.disk
                .write(&self.effects.log, position, self.now, &self.model);
            self.effects.log.clear();
        }
    }

    /// The oldest batch is safe: the asks that wait for it are told.
    pub(crate) fn sync(&mut self) -> bool {
        let Some(position) = self.disk.sync() else {
            return false;
        };
        self.machine.durable(position);
        let ready = self.waiting.partition_point(|(at, _)| *at <= position);
        for (_, hold) in self.waiting.drain(..ready).collect::<Vec<_>>() {
            self.was_told(hold);
        }
        true
    }

    pub(crate) fn snapshot(&mut self) {
        let bytes = self.below(400) as usize + 1;
        if self.disk.snapshot(&self.machine, bytes) {
            self.write();
            while self.sync() {}
            self.disk.end_snapshot();
        }
    }

    pub(crate) fn set_range(&mut self) {
        let name = NAMES[self.below(4) as usize];
        let options = self.options(name);
        let new = values(&options);
        let before = self.effects.position();
        let known = self.model.ranges.get(name).cloned();
        let others = self.model.ranges.iter().filter(|(other, _)| *other != name);
        let spans = |options: &RangeOptions| -> BTreeSet<u128> {
            let all = options.spans.iter();
            all.flat_map(|s| s.interval.first()..=s.interval.last())
                .collect()
        };
        let wanted = spans(&options);
        let overlaps = others.into_iter().any(|(_, other)| {
            let theirs = spans(&other.options);
            theirs.intersection(&wanted).next().is_some()
        });
        let set = self
            .machine
            .set_range(name, options.clone(), self.now, &mut self.effects);
        match set {
            Ok(id) => {
                assert!(!overlaps && known.is_none_or(|range| !range.is_draining));
                self.names.insert(id, name.to_owned());
                self.leave_quarantine(|model, now| model.set_range(name, options, now));
            }
            Err(error) => {
                assert_eq!(self.effects.position(), before, "{error} changes nothing");
                match error {
                    RangeError::Empty => assert!(new.is_empty()),
                    RangeError::Overlaps { .. } => assert!(overlaps || self.lags()),
                    RangeError::Draining => {
                        assert!(self.lags() || known.is_some_and(|range| range.is_draining));
                    }
                    RangeError::ClassHeld => {
                        let is_held = |r: &Record| r.range.as_deref() == Some(name);
                        assert!(self.lags() || self.model.records.values().any(is_held));
                    }
                    other => panic!("{other}"),
                }
            }
        }
    }

    /// A change that takes values out of a range no longer waits for holders
    /// that may have them.
    fn leave_quarantine(&mut self, change: impl FnOnce(&mut Model, Instant)) {
        let before = self.model.quarantined.clone();
        change(&mut self.model, self.now);
        for value in before.into_keys() {
            if !self.model.quarantined.contains_key(&value) {
                self.gone(value);
            }
        }
    }

    /// Something ran out that may not have been noticed.
    pub(crate) fn lags(&self) -> bool {
        !self.is_swept || !self.model.lately.is_empty()
    }

    pub(crate) fn remove_range(&mut self) {
        let name = NAMES[self.below(4) as usize];
        if let Some(id) = self.machine.range(name) {
            let gone = self.machine.remove_range(id, &mut self.effects).unwrap();
            self.leave_quarantine(|model, now| model.remove_range(name, now));
            assert!(gone != self.model.ranges.contains_key(name) || self.lags());
        }
    }

    fn usual_ttl(&mut self) -> Duration {
        [TTL_LONGEST / 2, Duration::from_secs(10), TTL_LONGEST][self.below(3) as usize]
    }

    /// Some of the values around those that are usual for this name.
    fn options(&mut self, name: &'static str) -> RangeOptions {
        let mut options = self.styles[name].clone();
        if let Some(known) = self.model.ranges.get(name) {
            options.class = known.options.class;
        }
        if self.chance(10) {
            options.class = class(&mut self.rng);
        }
        options.ttl = self.usual_ttl();
        let home = 24 * NAMES.iter().position(|n| *n == name).unwrap() as u64;
        let first = (home + self.below(8)).saturating_sub(4);
        let last = first + 1 + self.below(24);
        let last = last.min(VALUES as u64 - 1);
        options.spans = vec![span(first, last)];
        if self.chance(30) && last + 3 < VALUES as u64 {
            options.spans.push(span(last + 2, last + 2));
        }
        if self.chance(30) {
            let skip = first + self.below(last - first + 1);
            options.skip = vec![span(skip, skip)];
        }
        options
    }

    /// Stop in order, or not, and start again.
    pub(crate) fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.write();
            while self.sync() {}
            Entry::Stopped.put(&mut self.effects.log);
            self.write();
            while self.sync() {}
        } else {
            self.crashes += 1;
        }
        self.disk.crash();
        self.waiting.clear();
        let down = self.below(6_000_000_000);
        let down = if self.chance(70) { 0 } else { down };
        self.now = self.now.after(down);
        let mut config = Vec::new();
        let ttl = self.usual_ttl();
        for (name, range) in &self.model.ranges {
            if !range.is_draining && self.rng.below(20) > 0 {
                let mut options = range.options.clone();
                if self.rng.below(4) == 0 {
                    options.ttl = ttl;
                }
                config.push((name.clone(), options));
            }
        }
        let in_memory = |value: &u128| {
            let options = self.model.options_of(*value);
            options.is_some_and(|options| options.class == Class::Memory)
        };
        self.holds
            .retain(|value, hold| hold.class != Class::Memory && !in_memory(value));
        let seed = self.rng.draw();
        let options = Options {
            seed,
            ..Options::default()
        };
        let mut restore = Restore::new(&options, config.clone()).unwrap();
        self.disk.load(&mut restore);
        self.effects = Effects::new();
        self.machine = restore.finish(self.now, &mut self.effects);
        self.names.clear();
        for (name, id) in self.machine.ranges() {
            self.names.insert(id, name.to_owned());
        }
        let mut safe = self.disk.safe.clone();
        // What ran out a moment ago may be noticed late once more.
        safe.lately.extend(self.model.lately.clone());
        self.model = safe.clone().restarted(&config, self.now);
        self.look_at_moved(&safe);
        if !is_clean {
            self.look_at_claimed();
        }
        self.is_swept = false;
        self.check_holds();
    }

    /// A refusal changed nothing.
    pub(crate) fn refused(&self, refused: &Refused, before: u64) {
        let after = self.effects.position();
        assert_eq!(after, before, "{refused} changes nothing");
    }
}

fn class(rng: &mut Rng) -> Class {
    [Class::Sync, Class::Sync, Class::Claimed, Class::Memory][rng.below(4) as usize]
}

fn style(rng: &mut Rng) -> RangeOptions {
    let seconds = |rng: &mut Rng, most| Duration::from_secs(rng.below(most));
    let is_cooling = rng.below(2) > 0;
    RangeOptions {
        class: class(rng),
        order: [Order::Lowest, Order::Random, Order::OldestFreed][rng.below(3) as usize],
        ttl: Duration::from_secs(10),
        ttl_max: Duration::from_secs(60),
        offer_ttl: Duration::from_millis(2_345),
        quarantine: seconds(rng, 20),
        detach: seconds(rng, 8),
        cool: if is_cooling {
            seconds(rng, 5)
        } else {
            Duration::ZERO
        },
        on_expire: [OnExpire::Release, OnExpire::Notify][rng.below(2) as usize],
        start: [Start::Free, Start::Quarantine][rng.below(2) as usize],
        needs_fence: rng.below(4) > 0,
        ..RangeOptions::new(Vec::new())
    }
}

fn span(first: u64, last: u64) -> Span {
    Span {
        kind: Kind::Number,
        interval: Interval::new(first.into(), last.into()).unwrap(),
    }
}

/// Fields as a map; what is nothing has no content.
pub(crate) fn fields(map: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Fields {
    let mut fields = Fields::new();
    for (name, content) in map {
        let field = content.as_ref().map_or(Field::Nothing, |c| Field::Bytes(c));
        fields.set(name, field);
    }
    fields
}

pub(crate) fn map(fields: &Fields) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = fields.iter().map(|(name, field)| match field {
        Field::Bytes(bytes) => (name.to_vec(), bytes.to_vec()),
        other => panic!("no such field was written: {other:?}"),
    });
    all.collect()
}
