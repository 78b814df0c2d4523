//! The clock of the values: it goes on where it stood when the store was last
//! written, and does not follow the wall clock.
//!
//! How long we were down is told by the time since the system's boot, if it is
//! still the same boot, and only else by the wall clock, less a second. What is
//! written down of the wall clock is the furthest that it has shown since the
//! boot, so that setting it back and forth before a reboot ends nothing early.
//!
//! So this is how far the end of a hold may be from the time that was asked for:
//!
//! - While we run, and over a restart within one boot, never early, whatever
//!   the wall clock does; late by some 20 ms for each restart.
//! - Over a reboot, early by what the wall clock shows too much at the start
//!   after it, less a second, and by nothing else; late by a second and as long
//!   as we were down, at most.
//! - Where the system cannot tell its boots apart, every restart is a reboot.
//!
//! While the system sleeps, the clock of a running process may stand still: then
//! holds end later by that. By how much the processor's own counter runs wrong,
//! some millionths, ends of long holds are wrong too.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rideau_core::Instant;
use rideau_core::allocator::Clock as Clocks;

use crate::clock::Clock;

mod manual;

pub use manual::ManualClocks;

/// Two wall clocks may differ by as much, that before a reboot and that after.
const SKEW: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The time since boot is told in hundredths of a second, twice.
const COARSE: Duration = Duration::from_millis(20);

/// Readings of the system's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct System {
    /// Milliseconds since 1970.
    wall: u64,
    /// Which boot it is; zero if that is not known.
    boot: u128,
    /// Since that boot, or since whenever if that is not known.
    since_boot: Duration,
}

/// Where readings come from.
#[derive(Debug)]
pub(super) enum Source {
    System { clock: Clock, boot: u128 },
    Manual { clocks: ManualClocks, start: u64 },
}

/// A clock that went on while nothing looked at it.
#[derive(Debug)]
pub(super) struct Continued {
    source: Source,
    start: u64,
    /// How far the wall clock was ahead of the time since boot, at most.
    ahead: AtomicU64,
}

impl Source {
    pub(super) fn system() -> Self {
        Self::System {
            boot: boot().unwrap_or(0),
            clock: Clock::system(),
        }
    }

    pub(super) fn manual(clocks: &ManualClocks) -> Self {
        Self::Manual {
            start: clocks.nanos(),
            clocks: clocks.clone(),
        }
    }

    /// Since it was made.
    fn elapsed(&self) -> u64 {
        match self {
            Self::System { clock, .. } => clock.now().as_nanos(),
            Self::Manual { clocks, start } => clocks.nanos() - start,
        }
    }

    fn read(&self) -> System {
        match self {
            Self::System { boot: 0, .. } => System {
                wall: wall(),
                boot: 0,
                since_boot: Duration::from_nanos(self.elapsed()),
            },
            Self::System { boot, .. } => System {
                wall: wall(),
                boot: *boot,
                since_boot: since_boot().unwrap_or_default(),
            },
            Self::Manual { clocks, .. } => clocks.read(),
        }
    }
}

impl System {
    /// How far the wall clock is ahead of the time since boot.
    fn ahead(&self) -> u64 {
        self.wall.saturating_sub(millis(self.since_boot))
    }
}

impl Continued {
    /// Go on from where the clocks stood when they were last written down.
    pub(super) fn start(last: Option<Clocks>, source: Source) -> Self {
        // First, so that what passes in between is not counted twice.
        let elapsed = source.elapsed();
        let system = source.read();
        let last = last.map(|last| (last, is_same_boot(last, system)));
        let ahead = match last {
            Some((last, true)) => last.wall.saturating_sub(millis(last.since_boot)),
            _ => 0,
        };
        let start = last.map_or(0, |(last, _)| (last.now + down(last, system)).as_nanos());
        Self {
            start: start.saturating_sub(elapsed),
            source,
            ahead: AtomicU64::new(ahead.max(system.ahead())),
        }
    }

    /// A clock that shows a year: what is older than the process can be told too.
    pub(super) fn a_year_in(source: Source) -> Self {
        let ahead = AtomicU64::new(source.read().ahead());
        let start = (YEAR.as_nanos() as u64).saturating_sub(source.elapsed());
        Self {
            source,
            start,
            ahead,
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.source.elapsed()).after(self.start)
    }

    /// How the clocks stand, to be written down.
    pub(super) fn written(&self) -> Clocks {
        let now = self.now();
        let system = self.source.read();
        let ahead = self.ahead.fetch_max(system.ahead(), Ordering::Relaxed);
        let wall = ahead.max(system.ahead()) + millis(system.since_boot);
        Clocks {
            now,
            wall,
            boot: system.boot,
            since_boot: system.since_boot,
        }
    }
}

fn is_same_boot(last: Clocks, system: System) -> bool {
    last.boot == system.boot && last.boot != 0
}

/// How long nothing was written, or a little less: nothing ends early by it.
fn down(last: Clocks, system: System) -> Duration {
    if is_same_boot(last, system) {
        let down = system.since_boot.saturating_sub(last.since_boot);
        return down.saturating_sub(COARSE);
    }
    let down = Duration::from_millis(system.wall.saturating_sub(last.wall));
    down.saturating_sub(SKEW)
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

fn wall() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, millis)
}

fn boot() -> Option<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

fn since_boot() -> Option<Duration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn last(boot: u128) -> Clocks {
        Clocks {
            now: Instant::START + Duration::from_secs(100),
            wall: 10 * HOUR,
            boot,
            since_boot: Duration::from_secs(500),
        }
    }

    fn system(wall: u64, boot: u128, since_boot: u64) -> System {
        System {
            wall,
            boot,
            since_boot: Duration::from_secs(since_boot),
        }
    }

    #[test]
    fn a_wall_clock_that_was_moved_changes_nothing_within_one_boot() {
        for wall in [9 * HOUR, 10 * HOUR, 11 * HOUR] {
            let down = down(last(7), system(wall, 7, 530));
            assert_eq!(down, Duration::from_secs(30) - COARSE);
        }
    }

    #[test]
    fn after_a_reboot_the_wall_clock_counts() {
        let down = down(last(7), system(10 * HOUR + 90_000, 8, 3));
        assert_eq!(down, Duration::from_secs(90) - SKEW);
    }

    #[test]
    fn a_wall_clock_that_went_back_over_a_reboot_stops_time_and_no_more() {
        assert_eq!(down(last(7), system(9 * HOUR, 8, 3)), Duration::ZERO);
        assert_eq!(down(last(0), system(9 * HOUR, 0, 3)), Duration::ZERO);
    }

    #[test]
    fn this_system_knows_its_boot_and_its_time_since() {
        let system = Source::system().read();
        assert!(system.boot != 0 && !system.since_boot.is_zero());
    }
}
