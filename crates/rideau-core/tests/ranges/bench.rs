//! An allocator with a clock, a log and short words for what tests do.

use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::{
    Allocator, Ask, Effects, Interval, Options, Place, Prefer, RangeId, RangeOptions, RangeStats,
    Refused, Released, Reservation, Restore, Span, Standing,
};

pub(crate) struct Bench {
    pub(crate) machine: Allocator,
    pub(crate) effects: Effects,
    pub(crate) now: Instant,
}

impl Bench {
    pub(crate) fn new(ranges: &[(&str, &str)]) -> Self {
        let mut bench = Self {
            machine: Allocator::new(&Options::default()),
            effects: Effects::new(),
            now: Instant::START,
        };
        for (name, text) in ranges {
            bench.add(name, options(text));
        }
        bench
    }

    pub(crate) fn add(&mut self, name: &str, options: RangeOptions) -> RangeId {
        let added = self
            .machine
            .set_range(name, options, self.now, &mut self.effects);
        added.unwrap()
    }

    pub(crate) fn after(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    pub(crate) fn reserve(&mut self, ask: &Ask<'_>) -> Result<Vec<Reservation>, Refused> {
        let mut granted = Vec::new();
        self.effects.wait = false;
        let result = self
            .machine
            .reserve(ask, self.now, &mut self.effects, &mut granted);
        result.map(|()| granted)
    }

    pub(crate) fn one(&mut self, name: &str) -> Result<Reservation, Refused> {
        let prefer = [self.prefer(name, 0)];
        self.reserve(&Ask::new(&prefer)).map(|granted| granted[0])
    }

    pub(crate) fn prefer(&self, name: &str, tier: u8) -> Prefer {
        let range = self.machine.range(name).unwrap();
        Prefer {
            tier,
            place: Place::Range(range),
        }
    }

    /// From the first value to one before the end, as the seed has it.
    pub(crate) fn between(&mut self, first: u128, end: u128) -> Result<Reservation, Refused> {
        let within = Interval::new(first, end - 1).unwrap();
        let prefer = [Prefer {
            tier: 0,
            place: Place::Within(within),
        }];
        self.reserve(&Ask::new(&prefer)).map(|granted| granted[0])
    }

    pub(crate) fn release(&mut self, held: Reservation) -> Result<Released, Refused> {
        self.machine
            .release(held.value, Some(held.fence), self.now, &mut self.effects)
    }

    pub(crate) fn stats(&self, name: &str) -> RangeStats {
        self.machine
            .stats(self.machine.range(name).unwrap())
            .unwrap()
    }

    pub(crate) fn stands(&mut self, value: u128) -> Standing {
        self.machine.stands(value, self.now, &mut self.effects)
    }

    /// Do all that is due, and say how many steps it took.
    pub(crate) fn sweep(&mut self) -> usize {
        let mut steps = 0;
        while self.machine.deadline().is_some_and(|due| due <= self.now) {
            self.machine.advance(self.now, &mut self.effects);
            steps += 1;
        }
        steps
    }

    /// What all of the log says, with these ranges.
    pub(crate) fn again(&self, ranges: &[(&str, RangeOptions)]) -> Self {
        let ranges = ranges.iter();
        let ranges = ranges.map(|(name, options)| ((*name).to_owned(), options.clone()));
        let mut restore = Restore::new(&Options::default(), ranges.collect()).unwrap();
        restore.read(&self.effects.log).unwrap();
        let mut effects = Effects::new();
        effects.log = self.effects.log.clone();
        Self {
            machine: restore.finish(self.now, &mut effects),
            effects,
            now: self.now,
        }
    }
}

pub(crate) fn options(text: &str) -> RangeOptions {
    RangeOptions::new(vec![Span::parse(text).unwrap()])
}
