//! Clocks that are set, and systems that are booted again.

use std::time::Duration;

use rideau::Ranges;
use rideau::allocator::{Ask, Reservation, Standing};

use crate::rig::{HOUR, Rig, anywhere, reserved};

const SECOND: Duration = Duration::from_secs(1);
/// Within one boot, a restart makes nothing longer by more than this.
const LATE: Duration = Duration::from_millis(25);

/// A value for ten hours.
fn hold(ranges: &Ranges) -> Reservation {
    let prefer = anywhere(ranges, "sync");
    let ask = Ask {
        ttl: Some(HOUR * 10),
        ..Ask::new(&prefer)
    };
    ranges.reserve(&ask).wait().unwrap()[0]
}

fn is_held(ranges: &Ranges) -> bool {
    ranges.stands(0) == Standing::Reserved
}

#[test]
fn setting_the_wall_clock_changes_nothing_while_running() {
    for seconds in [3_600, -3_600, 1_000_000_000, -1_000_000_000] {
        let rig = Rig::new();
        let ranges = rig.open();
        hold(&ranges);
        rig.clocks.set_wall_by(seconds);
        assert!(is_held(&ranges));
        rig.clocks.advance(HOUR * 10 - SECOND);
        reserved(&ranges, "sync");
        assert!(is_held(&ranges));
        rig.clocks.advance(SECOND + Duration::from_millis(2));
        assert!(!is_held(&ranges));
    }
}

/// A value is held for ten hours. After one of them `running` happens, and
/// something is written; after another the process ends, `between` happens, and
/// an hour later the next starts. The value ends at most so early or late.
fn check(early: Duration, late: Duration, running: impl Fn(&Rig), between: impl Fn(&Rig)) {
    for is_orderly in [true, false] {
        let rig = Rig::new();
        let first = rig.open();
        hold(&first);
        rig.clocks.advance(HOUR);
        running(&rig);
        rig.clocks.advance(SECOND);
        reserved(&first, "sync");
        rig.clocks.advance(HOUR - SECOND);
        if is_orderly {
            first.close();
        }
        between(&rig);
        rig.clocks.advance(HOUR);
        // If it was not closed, this is what a crash leaves.
        let next = rig.open();
        let left = HOUR * 7;
        rig.clocks
            .advance(left.saturating_sub(early + SECOND / 100));
        assert!(is_held(&next), "no more than {early:?} early");
        rig.clocks.advance(early.min(left) + SECOND / 100 + late);
        assert!(!is_held(&next), "no more than {late:?} late");
        drop(first);
    }
}

const HOURS: [i64; 3] = [0, 3_600, -3_600];

#[test]
fn setting_the_wall_clock_changes_nothing_over_a_restart() {
    for while_running in HOURS {
        for while_down in HOURS {
            check(
                Duration::ZERO,
                LATE,
                |rig| rig.clocks.set_wall_by(while_running),
                |rig| rig.clocks.set_wall_by(while_down),
            );
        }
    }
}

#[test]
fn a_reboot_with_a_right_clock_makes_ends_a_second_late() {
    let late = SECOND + LATE;
    check(Duration::ZERO, late, |_| (), |rig| rig.clocks.reboot());
}

#[test]
fn setting_the_wall_clock_and_back_before_a_reboot_ends_nothing_early() {
    for seconds in HOURS {
        check(
            Duration::ZERO,
            // The furthest that it showed is what counts.
            HOUR + SECOND + LATE,
            |rig| rig.clocks.set_wall_by(seconds),
            |rig| {
                rig.clocks.set_wall_by(-seconds);
                rig.clocks.reboot();
            },
        );
    }
}

#[test]
fn a_wall_clock_that_is_fast_after_a_reboot_ends_things_early_by_that() {
    check(
        HOUR,
        LATE,
        |_| (),
        |rig| {
            rig.clocks.set_wall_by(3_600);
            rig.clocks.reboot();
        },
    );
}

#[test]
fn a_wall_clock_that_is_slow_after_a_reboot_makes_ends_late_by_the_time_down() {
    for seconds in [-3_600, -1_000_000_000] {
        // Two hours that are not known: what was last written is one old.
        let late = HOUR * 2 + LATE;
        check(
            Duration::ZERO,
            late,
            |_| (),
            |rig| {
                rig.clocks.set_wall_by(seconds);
                rig.clocks.reboot();
            },
        );
    }
}

#[test]
fn where_boots_cannot_be_told_apart_every_restart_is_one() {
    let late = SECOND + LATE;
    check(
        Duration::ZERO,
        late,
        |rig| rig.clocks.forget_boots(),
        |_| (),
    );
    check(
        HOUR,
        LATE,
        |rig| rig.clocks.forget_boots(),
        |rig| rig.clocks.set_wall_by(3_600),
    );
    check(
        Duration::ZERO,
        HOUR * 2 + LATE,
        |rig| rig.clocks.forget_boots(),
        |rig| rig.clocks.set_wall_by(-3_600),
    );
}

#[test]
fn many_restarts_add_little() {
    let rig = Rig::new();
    let mut ranges = rig.open();
    hold(&ranges);
    for _ in 0..100 {
        rig.clocks.advance(HOUR / 20);
        ranges = rig.open();
        reserved(&ranges, "sync");
    }
    rig.clocks.advance(HOUR * 5 - SECOND);
    assert!(is_held(&ranges));
    rig.clocks.advance(SECOND + 100 * LATE);
    assert!(!is_held(&ranges));
}
