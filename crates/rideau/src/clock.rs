//! The driver's clock.

#[cfg(all(any(test, not(feature = "test-util")), not(rideau_loom)))]
mod ticker;

use rideau_core::Instant;

/// Counts from the driver's start, by the processor's own counter: reading it
/// costs half of what asking the system does, and every ask reads it.
#[cfg(not(any(feature = "test-util", rideau_loom)))]
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    clock: quanta::Clock,
    start: u64,
    /// The same as the ticker counts, and never before it.
    ticker_start: u64,
}

#[cfg(not(any(feature = "test-util", rideau_loom)))]
impl Clock {
    pub(crate) fn start() -> Self {
        let clock = quanta::Clock::new();
        let epoch = ticker::epoch(&clock);
        let start = clock.raw();
        // Both round down, so that a recent instant might else be ahead.
        let ticker_start = clock.delta_as_nanos(epoch, start) + 1;
        Self {
            clock,
            start,
            ticker_start,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.delta_as_nanos(self.start, self.clock.raw()))
    }

    /// What `now` showed some milliseconds ago, almost for nothing.
    #[inline]
    pub(crate) fn recent(&self) -> Instant {
        match ticker::recent() {
            Some(tick) => Instant::from_nanos(tick.saturating_sub(self.ticker_start)),
            None => self.now(),
        }
    }
}

/// Follows tokio's clock, so that a test that pauses it pauses us as well.
#[cfg(all(feature = "test-util", not(rideau_loom)))]
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
}

#[cfg(all(feature = "test-util", not(rideau_loom)))]
impl Clock {
    pub(crate) fn start() -> Self {
        let start = tokio::time::Instant::now();
        Self { start }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::START + self.start.elapsed()
    }
}

/// Ticks whenever it is read, so that time follows from the interleaving alone.
#[cfg(rideau_loom)]
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    reads: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

#[cfg(rideau_loom)]
impl Clock {
    pub(crate) fn start() -> Self {
        let reads = std::sync::Arc::default();
        Self { reads }
    }

    pub(crate) fn now(&self) -> Instant {
        let before = self.reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Instant::from_nanos(before)
    }
}

impl Clock {
    /// The same as `now` where time is made for tests.
    #[cfg(any(feature = "test-util", rideau_loom))]
    pub(crate) fn recent(&self) -> Instant {
        self.now()
    }

    /// When tokio's clock will show that ours has come to `at`.
    pub(crate) fn to_tokio(&self, at: Instant) -> tokio::time::Instant {
        let ahead = at.as_nanos().saturating_sub(self.now().as_nanos());
        tokio::time::Instant::now() + std::time::Duration::from_nanos(ahead)
    }
}
