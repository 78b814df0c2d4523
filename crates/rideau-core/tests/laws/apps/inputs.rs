//! Inputs drawn at random, from a seed.

use std::time::Duration;

use rideau_core::apps::{EvictFor, Limits, Options, ServerRules, TrialRules};
use rideau_core::queue::{self, Shedding};
use rideau_core::{Instant, Rng};

/// Draws what happens next.
pub(crate) struct Dice(Rng);

/// A trial that is soon over.
const TRIAL: TrialRules = TrialRules {
    share: None,
    answers: 5,
    time: Duration::from_secs(1),
    quiet: Duration::from_secs(3),
    max: Duration::from_secs(6),
    judges_slow: true,
};

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| self.one_of(all))
    }

    /// From a nanosecond to minutes, each size as likely as every other.
    pub(crate) fn step(&mut self) -> Duration {
        let size = self.below(38);
        Duration::from_nanos(1 + self.below(1 << size))
    }

    pub(crate) fn span(&mut self) -> Duration {
        self.one_of(&[
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(10),
            Duration::from_secs(1),
            Duration::from_secs(30),
        ])
    }

    fn maybe_span(&mut self) -> Option<Duration> {
        self.chance(50).then(|| self.span())
    }

    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.chance(20).then(|| now + self.span())
    }

    pub(crate) fn limits(&mut self) -> Limits {
        Limits {
            max: self.one_of(&[3, 3, 3, 1, 2, 5]),
            headroom: self.one_of(&[1, 1, 0, 2]),
            starts_max: self.one_of(&[2, 1, 3]),
            evict_for: self.one_of(&[EvictFor::Latency, EvictFor::Count]),
            starve_min: self.span(),
        }
    }

    /// Options of an app that is there, or of a new one: its processes are started here, or are
    /// servers.
    pub(crate) fn options(&mut self, has_servers: Option<bool>) -> Options {
        let has_servers = has_servers.unwrap_or_else(|| self.chance(25));
        let servers = has_servers.then(|| ServerRules {
            failures_max: self.one_of(&[1, 2, 3]),
            failures_window: self.span(),
            quiet_max: self.span().max(Duration::from_millis(1)),
            ..ServerRules::default()
        });
        let min = self.one_of(&[0, 0, 0, 1, 2]);
        let options = Options {
            min,
            servers,
            max: self.one_of(&[None, None, Some(2), Some(3)]),
            concurrency: self.one_of(&[Some(1), Some(1), Some(2), Some(5), None]),
            queue: self.queue(),
            idle_after: self.maybe_span(),
            requests_max: self.one_of(&[None, None, Some(1), Some(4)]),
            life_max: self.one_of(&[None, None, Some(Duration::from_secs(5))]),
            memory_soft: self.one_of(&[None, Some(100)]),
            memory_hard: self.one_of(&[None, Some(200)]),
            drain_timeout: self.span(),
            uptime_min: self.span(),
            target_wait: self.maybe_span(),
            sticky_wait: self.span(),
            deploy_tries: self.one_of(&[1, 2]),
            trial: self.one_of(&[None, Some(TRIAL)]),
            timeouts_max: self.one_of(&[1, 3]),
            streams_count: self.chance(50),
            streams_max: self.one_of(&[0, 1, 9]),
            one_each: !has_servers && self.chance(10),
            alone: self.chance(10),
            ..Options::default()
        };
        options.validate().unwrap();
        options
    }

    fn queue(&mut self) -> queue::Options {
        let shedding = match self.below(4) {
            0 => Shedding::Timeout {
                wait_max: self.span(),
            },
            1 => Shedding::BoundedCoDel {
                target: Duration::from_millis(100),
                interval: Duration::from_secs(1),
                wait_max: Duration::from_secs(2),
            },
            _ => Shedding::Never,
        };
        queue::Options {
            shedding,
            max: self.one_of(&[None, None, Some(0), Some(1), Some(9)]),
            max_fits: self.chance(20),
            ..queue::Options::default()
        }
    }
}
