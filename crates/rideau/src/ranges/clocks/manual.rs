//! Clocks that a test moves.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::System;

/// The clocks of a system: time passes, the wall clock is set, and the system
/// is booted again, all when a test says so. Clones are the same clocks.
#[derive(Clone, Debug)]
pub struct ManualClocks(Arc<Mutex<Shown>>);

#[derive(Debug)]
struct Shown {
    passed: Duration,
    booted: Duration,
    boot: u128,
    /// Milliseconds since 1970 when nothing had passed.
    wall: i64,
}

impl ManualClocks {
    /// A system that has just been booted, at some time of some day.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Shown {
            passed: Duration::from_secs(100),
            booted: Duration::ZERO,
            boot: 1,
            wall: 1_800_000_000_000,
        })))
    }

    /// Time passes.
    pub fn advance(&self, span: Duration) {
        self.0.lock().passed += span;
    }

    /// An operator sets the wall clock forward by this many seconds, or back.
    pub fn set_wall_by(&self, seconds: i64) {
        self.0.lock().wall += seconds * 1_000;
    }

    /// The system is booted again. What was open is not any more.
    pub fn reboot(&self) {
        let mut shown = self.0.lock();
        shown.boot += 1;
        shown.booted = shown.passed;
    }

    /// The system does not say which boot it is.
    pub fn forget_boots(&self) {
        self.0.lock().boot = 0;
    }

    pub(super) fn nanos(&self) -> u64 {
        let passed = self.0.lock().passed;
        passed.as_nanos().try_into().unwrap_or(u64::MAX)
    }

    pub(super) fn read(&self) -> System {
        let shown = self.0.lock();
        let passed = i64::try_from(shown.passed.as_millis()).unwrap_or(i64::MAX);
        System {
            wall: (shown.wall + passed).max(0).cast_unsigned(),
            boot: shown.boot,
            since_boot: shown.passed - shown.booted,
        }
    }
}

impl Default for ManualClocks {
    fn default() -> Self {
        Self::new()
    }
}
