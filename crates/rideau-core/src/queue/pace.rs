//! How fast waiting asks are served, how long holders hold, and when a refused
//! asker should come again.

use std::time::Duration;

use crate::time::{Instant, nanos};

/// A moving average of spans, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Average {
    mean: u64,
    count: u8,
}

/// The spans between two serves while asks wait.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the last ask was served, or the first joined an empty queue.
    last: Instant,
    gap: Average,
}

/// The load of a machine, as it reports it to its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// How many can be served at once.
    pub capacity: Capacity,
    hold: Average,
}

/// How many asks a place can serve at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Capacity {
    /// The place does not know.
    #[default]
    Unknown,
    /// This many units, ready members, or places in ready processes.
    Units(u32),
    /// None yet, and at least one is being started. That is no overload.
    Starting,
}

/// Both averages reach back over this many samples.
const SAMPLES: u8 = 16;
/// From this many samples on, one sample counts at most [`JUMP`] times the mean.
const STEADY: u8 = 8;
/// One stall must not spoil an average.
const JUMP: u64 = 8;
/// A sample up to this long is always believed.
const MILLISECOND: u64 = 1_000_000;
/// No asker is told to come back later than this.
const RETRY_MAX: u64 = 3_600_000_000_000;

impl Average {
    pub(crate) fn sample(&mut self, span: u64) {
        let mut span = span.min(u64::MAX / 2);
        if self.count >= STEADY {
            let most = self.mean.saturating_mul(JUMP).max(MILLISECOND);
            span = span.min(most);
        }
        let change = span.cast_signed() - self.mean.cast_signed();
        // Division by a constant is cheap, and most samples take this way.
        let step = if self.count >= SAMPLES - 1 {
            self.count = SAMPLES;
            change / i64::from(SAMPLES)
        } else {
            self.count += 1;
            change / i64::from(self.count)
        };
        self.mean = self.mean.saturating_add_signed(step);
    }

    /// The mean; none before the first sample.
    pub(crate) fn mean(&self) -> Option<u64> {
        (self.count > 0).then_some(self.mean)
    }
}

impl Pace {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            last: now,
            gap: Average { mean: 0, count: 0 },
        }
    }

    /// An ask joins an empty queue.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) {
        self.last = now;
    }

    /// An ask sent at `sent` is served. If it did not wait at all, the span says
    /// nothing about the pace.
    #[inline]
    pub(crate) fn serve(&mut self, sent: Instant, now: Instant) {
        let span = now.nanos_since(self.last);
        self.last = now;
        if sent < now {
            self.gap.sample(span);
        }
    }

    pub(crate) fn gap(&self) -> Option<u64> {
        self.gap.mean()
    }

    /// The span since the last serve.
    pub(crate) fn since(&self, now: Instant) -> u64 {
        now.nanos_since(self.last)
    }

    /// When one more asker would be served behind `len` that wait.
    pub(crate) fn expected(&self, len: usize, now: Instant) -> u64 {
        let gap = self.gap().unwrap_or(MILLISECOND);
        let wait = gap.saturating_mul(len as u64 + 1);
        wait.saturating_add(if len > 0 { self.since(now) } else { 0 })
    }

    /// Book the next instant to come again: appointments are one gap apart.
    pub(crate) fn book(
        &self,
        booked: &mut Instant,
        len: usize,
        bound: u64,
        now: Instant,
    ) -> Duration {
        let (gap, wait) = (self.gap().unwrap_or(MILLISECOND), self.expected(len, now));
        let latest = now.after(wait.max(bound).saturating_mul(8));
        *booked = (*booked).max(now.after(wait)).after(gap).min(latest);
        retry_after(booked.nanos_since(now))
    }
}

impl Load {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        capacity: Capacity::Unknown,
        hold: Average { mean: 0, count: 0 },
    };

    /// Of this capacity, and no hold has ended yet.
    pub const fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            ..Self::UNKNOWN
        }
    }

    /// A hold ended after this long.
    #[inline]
    pub fn ended(&mut self, held: Duration) {
        self.hold.sample(nanos(held));
    }

    /// Holds are not reported, but this is what they have to be.
    pub(crate) fn expect_hold(&mut self, nanos: u64) {
        self.hold = Average {
            mean: nanos,
            count: 1,
        };
    }

    /// The mean of the holds that ended; none before the first.
    pub fn hold(&self) -> Option<Duration> {
        self.hold.mean().map(Duration::from_nanos)
    }

    /// The mean hold in nanoseconds; zero if none is known.
    pub(crate) fn hold_nanos(&self) -> u64 {
        self.hold.mean
    }
}

/// A span to tell an asker: never so short that it returns at once.
pub(crate) fn retry_after(span: u64) -> Duration {
    Duration::from_nanos(span.clamp(MILLISECOND, RETRY_MAX))
}
