//! The clock that a node's lease goes by: it counts while the machine sleeps.

use std::time::{Duration, SystemTime};

use rideau_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, counted from when the machine was started.
pub(super) fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// How long it is until then; nothing if that is over.
pub(super) fn until(at: Instant) -> Duration {
    let nanos = at.as_nanos().saturating_sub(now().as_nanos());
    Duration::from_nanos(nanos)
}

/// The wall clock in microseconds.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}
