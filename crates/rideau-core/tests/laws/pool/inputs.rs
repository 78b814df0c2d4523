//! Chance, spans and options of a pool.

use std::time::Duration;

use rideau_core::pool::{Backoff, Options, Reuse};
use rideau_core::queue::{self, FairOptions, Order, Overflow, Shedding};
use rideau_core::{Rng, Settings, valve};

/// Draws whatever a case needs.
#[derive(Clone)]
pub(crate) struct Dice(Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// True this many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// From a nanosecond to minutes, every size as likely.
    pub(crate) fn nanos(&mut self) -> u64 {
        self.nanos_of(12)
    }

    /// From a nanosecond to one of this many digits, every size as likely.
    pub(crate) fn nanos_of(&mut self, digits: usize) -> u64 {
        let size = self.below(digits) as u32;
        1 + self.0.below(3 * 10_u64.pow(size))
    }

    /// Most are longer than what happens meanwhile.
    fn span(&mut self) -> Duration {
        match self.below(10) {
            0 => Duration::MAX,
            1..4 => Duration::from_nanos(self.nanos()),
            _ => Duration::from_millis(self.nanos_of(6)),
        }
    }

    fn some_span(&mut self, percent: u64) -> Option<Duration> {
        self.chance(percent).then(|| self.span())
    }

    pub(crate) fn options(&mut self) -> Options {
        let max = 1 + self.below(6);
        let life_max = self.some_span(60);
        let backoff_max = Duration::from_nanos(self.nanos());
        let jitter_max = life_max.map_or(Duration::MAX, |life| life - Duration::from_nanos(1));
        let options = Options {
            init: self.below(max + 1),
            max,
            idle_min: if self.chance(30) {
                self.below(max + 1)
            } else {
                0
            },
            grow_at: self.chance(20).then(|| self.below(max + 1)),
            idle_age_max: self.some_span(60),
            life_max,
            life_jitter: self.some_span(50).unwrap_or_default().min(jitter_max),
            uses_max: self.chance(20).then(|| 1 + self.below(4) as u64),
            reuse: self.one_of(&[Reuse::Lifo, Reuse::Lifo, Reuse::Fifo]),
            starts_max: 1 + self.below(4),
            start_timeout: self.span(),
            backoff: Backoff {
                first: self.span().min(backoff_max),
                max: backoff_max,
                failures: 1 + self.below(4) as u32,
            },
            fail_fast: self.chance(25),
            stop_timeout: self.span(),
            check_after: match self.below(4) {
                0 => None,
                1 => Some(Duration::ZERO),
                _ => Some(self.span()),
            },
            queue: self.queue(),
            valve: self.chance(20).then(|| self.valve()),
            seed: self.nanos(),
            ..Options::default()
        };
        options.validate().unwrap();
        options
    }

    fn queue(&mut self) -> queue::Options {
        let (target, interval) = (self.span(), Duration::from_nanos(self.nanos()));
        let shedding = match self.below(10) {
            0..4 => Shedding::Never,
            4..7 => Shedding::Timeout {
                wait_max: self.span(),
            },
            7 => Shedding::CoDel { target, interval },
            8 => Shedding::Standing { target, interval },
            _ => Shedding::BoundedCoDel {
                target: target.min(interval),
                interval,
                wait_max: target.min(interval),
            },
        };
        let options = queue::Options {
            max_fits: false,
            order: self.one_of(&[Order::Fifo, Order::Fifo, Order::Lifo]),
            shedding,
            min: 0,
            max: self.one_of(&[None, None, None, None, Some(0), Some(1), Some(3), Some(9)]),
            overflow: self.one_of(&[Overflow::Newest, Overflow::Oldest]),
            fair: self.chance(10).then(FairOptions::default),
        };
        match options.validate() {
            Ok(()) => options,
            Err(_) => self.queue(),
        }
    }

    fn valve(&mut self) -> valve::Options {
        let (min, more, nanos) = (self.below(3), self.below(5), self.nanos());
        let words = match self.below(6) {
            0 => format!("kind=open max={more}"),
            1 => format!(
                "kind=relative target={nanos}ns min={} max={}",
                min + 1,
                min + 1 + more
            ),
            2 => format!(
                "kind=codel target={nanos}ns min={} max={}",
                min + 1,
                min + 1 + more
            ),
            3 => format!("kind=rate limit={} interval={nanos}ns min={min}", 1 + more),
            4 => "kind=breaker".into(),
            _ => format!("kind=gradient min=1 initial={} max=9", 1 + more),
        };
        valve::Options::parse(Settings::parse(&words).unwrap()).unwrap()
    }
}
