//! The clock that a handle goes by.

#[cfg(not(rideau_loom))]
mod ticker;

use rideau_core::Instant;
use tokio::runtime::Handle;

/// What a handle reads the time from: a [`Broker`](crate::Broker), a
/// [`Regulator`](crate::Regulator), a [`Pool`](crate::Pool) and so on.
///
/// Handles are made with [`Clock::system`] unless they are given another one,
/// by a constructor whose name ends with `_by`. Clones are the same clock, and
/// several handles may share one.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// What the ticker counted at the start, or a little more; the largest number,
    /// to which no tick comes, if the ticker does not count for this clock.
    #[cfg_attr(rideau_loom, expect(dead_code, reason = "models know no ticker"))]
    ticker_start: u64,
}

/// Where readings come from.
#[derive(Clone, Debug)]
enum Source {
    /// The processor's own counter. Reading it costs half of what asking the
    /// system does, and every ask reads it.
    #[cfg(not(rideau_loom))]
    Counter { counter: quanta::Clock, start: u64 },
    /// The clock of a tokio runtime, which a test can pause. Boxed, so that a clock
    /// is no larger than it has to be outside of tests.
    Runtime(Box<RuntimeClock>),
    /// Ticks whenever it is read, so that time follows from the interleaving alone.
    #[cfg(rideau_loom)]
    Reads(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

#[derive(Clone, Debug)]
struct RuntimeClock {
    runtime: Handle,
    start: tokio::time::Instant,
}

impl Clock {
    /// The clock of the machine, which no test moves. It starts now.
    #[cfg(not(rideau_loom))]
    pub fn system() -> Self {
        let counter = quanta::Clock::new();
        let epoch = ticker::epoch(&counter);
        let start = counter.raw();
        // Both round down, so that a recent instant might else be ahead.
        let ticker_start = counter.delta_as_nanos(epoch, start) + 1;
        Self {
            source: Source::Counter { counter, start },
            ticker_start,
        }
    }

    /// A clock for models, which loom can follow.
    #[cfg(rideau_loom)]
    pub fn system() -> Self {
        Self {
            source: Source::Reads(std::sync::Arc::default()),
            ticker_start: u64::MAX,
        }
    }

    /// The clock of the tokio runtime around us, for tests that pause it. Timers of
    /// handles that go by it run on that runtime as well, so that a paused runtime
    /// jumps from one deadline to the next.
    ///
    /// ```
    /// use rideau::{Clock, Pool, PoolOptions, AskOptions};
    /// # use rideau::Manager;
    /// use std::time::Duration;
    /// # struct Numbers;
    /// # impl Manager for Numbers {
    /// #     type Member = u32;
    /// #     type Error = std::convert::Infallible;
    /// #     async fn start(&self) -> Result<u32, Self::Error> {
    /// #         Ok(7)
    /// #     }
    /// # }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = PoolOptions { max: 1, ..PoolOptions::default() };
    /// let pool = Pool::new_by(Numbers, options, &Clock::paused())?;
    /// let _held = pool.take().await?;
    ///
    /// // An hour that takes no time.
    /// let wait_max = Some(Duration::from_secs(3600));
    /// let no = pool.take_on(AskOptions { wait_max, ..AskOptions::default() }).await;
    /// assert!(no.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no runtime around us.
    pub fn paused() -> Self {
        let clock = RuntimeClock {
            runtime: Handle::current(),
            start: tokio::time::Instant::now(),
        };
        Self {
            source: Source::Runtime(Box::new(clock)),
            ticker_start: u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match &self.source {
            #[cfg(not(rideau_loom))]
            Source::Counter { counter, start } => {
                Instant::from_nanos(counter.delta_as_nanos(*start, counter.raw()))
            }
            Source::Runtime(clock) => clock.now(),
            #[cfg(rideau_loom)]
            Source::Reads(reads) => {
                let before = reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Instant::from_nanos(before)
            }
        }
    }

    /// What `now` showed some milliseconds ago, almost for nothing; `now` itself if
    /// that is not known.
    #[inline]
    pub(crate) fn recent(&self) -> Instant {
        #[cfg(not(rideau_loom))]
        if let Some(tick) = ticker::recent()
            && let Some(nanos) = tick.checked_sub(self.ticker_start)
        {
            return Instant::from_nanos(nanos);
        }
        self.now()
    }

    /// When tokio's clock will show that ours has come to `at`.
    pub(crate) fn to_tokio(&self, at: Instant) -> tokio::time::Instant {
        let ahead = at.as_nanos().saturating_sub(self.now().as_nanos());
        tokio::time::Instant::now() + std::time::Duration::from_nanos(ahead)
    }

    /// Where timers have to run that go by this clock, if not everywhere.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        match &self.source {
            Source::Runtime(clock) => Some(&clock.runtime),
            _ => None,
        }
    }
}

impl RuntimeClock {
    #[cold]
    fn now(&self) -> Instant {
        // A thread outside of the runtime would read the system's clock.
        let _inside = self.runtime.enter();
        Instant::START + self.start.elapsed()
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_recent_reading_moves_on_and_is_never_ahead() {
        let clock = Clock::system();
        let limit = std::time::Instant::now() + Duration::from_secs(60);
        let first = clock.now();
        while clock.recent() <= first {
            assert!(std::time::Instant::now() < limit, "it stands still");
        }
        for _ in 0..10_000 {
            let recent = clock.recent();
            assert!(recent <= clock.now());
        }
    }

    #[test]
    fn a_clone_is_the_same_clock() {
        let clock = Clock::system();
        let before = clock.now();
        let clone = clock.clone();
        assert!(before <= clone.now() && clone.now() <= clock.now());
        assert!(clock.runtime().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_moves_with_its_runtime_alone() {
        let clock = Clock::paused();
        let system = Clock::system();
        let begun = system.now();
        while system.now() == begun {}
        assert_eq!(
            (clock.now(), clock.recent()),
            (Instant::START, Instant::START)
        );
        tokio::time::advance(HOUR).await;
        let later = Instant::START + HOUR;
        assert_eq!((clock.now(), clock.recent()), (later, later));
        // A thread that knows nothing of the runtime sees the same.
        let elsewhere = clock.clone();
        let seen = thread::spawn(move || elsewhere.now()).join();
        assert_eq!(seen.ok(), Some(later));
        assert!(system.now() < later, "the system's clock is not moved");
    }
}
