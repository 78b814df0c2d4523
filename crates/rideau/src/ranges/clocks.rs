//! The clock of the values: it goes on where it stood when the store was last
//! written, and does not follow the wall clock.
//!
//! How long we were down is told by the time since the system's boot, if it is
//! still the same boot, and only else by the wall clock. So moving the
//! wall clock changes nothing while the system runs. After a reboot it is
//! trusted, less a second.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rideau_core::Instant;
use rideau_core::allocator::Clock as Clocks;

use crate::clock::Clock;

/// Two wall clocks may differ by as much, that before a reboot and that after.
const SKEW: Duration = Duration::from_secs(1);
/// The time since boot is told in hundredths of a second, twice.
const COARSE: Duration = Duration::from_millis(20);

/// What the system's clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    /// Milliseconds since 1970.
    wall: u64,
    /// Which boot it is; zero if nobody knows.
    boot: u128,
    since_boot: Duration,
}

impl System {
    pub(super) fn read() -> Self {
        let boot = boot().unwrap_or(0);
        Self {
            wall: wall(),
            boot,
            since_boot: since_boot().unwrap_or_default(),
        }
    }
}

/// A clock that went on while nobody looked.
#[derive(Debug)]
pub(super) struct Continued {
    clock: Clock,
    start: u64,
    boot: u128,
}

impl Continued {
    /// Go on from where the clocks stood when they were last written down.
    pub(super) fn start(last: Option<Clocks>, system: System) -> Self {
        let start = last.map_or(Instant::START, |last| last.now + down(last, system));
        Self {
            clock: Clock::start(),
            start: start.as_nanos(),
            boot: system.boot,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now().after(self.start)
    }

    /// How the clocks stand, to be written down.
    pub(super) fn written(&self) -> Clocks {
        Clocks {
            now: self.now(),
            wall: wall(),
            boot: self.boot,
            since_boot: since_boot().unwrap_or_default(),
        }
    }
}

/// How long nobody wrote, or a little less: nothing ends early by it.
fn down(last: Clocks, system: System) -> Duration {
    if last.boot == system.boot && last.boot != 0 {
        let down = system.since_boot.saturating_sub(last.since_boot);
        return down.saturating_sub(COARSE);
    }
    let down = Duration::from_millis(system.wall.saturating_sub(last.wall));
    down.saturating_sub(SKEW)
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
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
        let system = System::read();
        assert!(system.boot != 0 && !system.since_boot.is_zero());
    }
}
