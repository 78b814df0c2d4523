//! The clocks that Linux reads without entering the kernel.

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use super::coarse::Coarse;

/// The system's monotonic clock, counted from a start of ours.
#[derive(Clone, Debug)]
pub(super) struct System {
    start: u64,
    coarse: Arc<Coarse>,
}

impl System {
    pub(super) fn start() -> Self {
        Self {
            start: nanos(ClockId::Monotonic),
            coarse: Arc::new(Coarse::new()),
        }
    }

    /// What `now` showed at the last tick of the system's coarse clock.
    #[inline]
    pub(super) fn recent(&self, now: impl Fn() -> u64) -> u64 {
        self.coarse.recent(
            || self.since_start(ClockId::MonotonicCoarse),
            || (now(), self.since_start(ClockId::Monotonic)),
        )
    }

    /// The coarse clock may have ticked last before the start.
    #[inline]
    fn since_start(&self, id: ClockId) -> u64 {
        nanos(id).saturating_sub(self.start)
    }
}

#[inline]
fn nanos(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    // Not negative, and of different widths on different processors.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::{Duration, Instant};

    #[test]
    fn a_recent_time_is_never_ahead_nor_goes_back_nor_stands_still() {
        let start = Instant::now();
        let system = System::start();
        let now = || start.elapsed().as_nanos() as u64;
        let (mut last, mut ticks) = (0, 0);
        while ticks < 3 {
            let recent = system.recent(now);
            assert!(recent <= now());
            assert!(recent >= last);
            ticks += usize::from(recent > last);
            last = recent;
            assert!(start.elapsed() < Duration::from_secs(10), "it stands still");
        }
    }
}
