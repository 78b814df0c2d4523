//! The driver's clock.

use rideau_core::Instant;

/// Counts from the driver's start. It follows tokio's clock, so that a paused
/// runtime pauses us as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::START + self.start.elapsed()
    }

    /// The same point on tokio's clock.
    pub(crate) fn to_tokio(self, at: Instant) -> tokio::time::Instant {
        self.start + at.since(Instant::START)
    }
}
