//! Snapshots that are taken while values come and go.

use std::thread;
use std::time::{Duration, Instant};

use rideau::Ranges;
use rideau::allocator::{Ask, Standing};
use rideau::store::{Fault, Left};

use crate::rig::{HOUR, Rig, anywhere, check_counts, fields, held, reserve, reserved, values};

/// A rig that takes a snapshot whenever it has written a little.
fn small() -> Rig {
    let mut rig = Rig::new();
    rig.options.log_bytes_min = 4_096;
    rig
}

/// Wait for the thread to do something that has no other signal.
fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        thread::yield_now();
    }
}

/// A thousand values in one or two batches, more than a log may have here.
fn reserve_at_once(rig: &Rig, ranges: &Ranges) {
    let hold = rig.platter.hold();
    let answers: Vec<_> = (0..1_000).map(|_| reserve(ranges, "sync")).collect();
    drop(hold);
    for answer in answers {
        answer.wait().unwrap();
    }
}

/// A batch that is written while a snapshot is taken stays after it: then try
/// again.
fn reserve_until_only_a_snapshot_is_left(rig: &Rig, ranges: &Ranges) {
    for _ in 0..30 {
        reserve_at_once(rig, ranges);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            if rig.platter.batches() == 0 {
                return;
            }
            thread::yield_now();
        }
    }
    panic!("it never came");
}

#[test]
fn the_log_stays_short_and_nothing_is_lost() {
    let rig = small();
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    thread::scope(|scope| {
        for who in 0..4 {
            let (ranges, prefer) = (&ranges, &prefer);
            scope.spawn(move || {
                for at in 0..500 {
                    let data = fields(&format!("{who} {at}"));
                    let ask = Ask {
                        data: &data,
                        ..Ask::new(prefer)
                    };
                    let one = ranges.reserve(&ask).wait().unwrap()[0];
                    if at % 3 == 0 {
                        let released = ranges.release(one.value, Some(one.fence));
                        released.wait().unwrap();
                    }
                }
            });
        }
    });
    let before = held(&ranges);
    assert_eq!(before.len(), 4 * 333);
    drop(ranges);
    let ranges = rig.open();
    assert_eq!(held(&ranges), before);
    let loaded = ranges.loaded();
    assert!(loaded.chunks > 0, "{loaded:?}");
    let written = 4 * 667;
    // Each partition has its snapshot in turn, and traffic goes on meanwhile: more of it
    // the busier the machine is.
    let meanwhile = 10 * u64::from(crate::partitions().count());
    assert!(loaded.batches < written * 3 / 4 + meanwhile, "{loaded:?}");
    check_counts(&ranges);
}

#[test]
fn the_clock_goes_on_over_a_snapshot_with_nothing_after_it() {
    let rig = small();
    let ranges = rig.open();
    rig.clocks.advance(HOUR * 50);
    reserve_until_only_a_snapshot_is_left(&rig, &ranges);
    let before = ranges.now();
    // A crash, so that no orderly end writes the clocks down.
    let next = rig.open();
    assert_eq!(next.loaded().batches, 0);
    let behind = before.as_nanos() - next.now().as_nanos();
    assert!(Duration::from_nanos(behind) < Duration::from_millis(200));
    rig.clocks.advance(HOUR * 2);
    assert_eq!(next.stands(0), Standing::Free, "it has ended");
}

#[test]
fn whatever_step_of_a_snapshot_fails_nothing_acknowledged_is_lost() {
    let faults = [
        Fault::Chunk,
        Fault::End(false),
        Fault::End(true),
        Fault::Append(Left::Whole),
        Fault::Append(Left::Torn),
    ];
    for fault in faults {
        let rig = small();
        let ranges = rig.open();
        let mut told = Vec::new();
        for _ in 0..20 {
            told.push(reserved(&ranges, "sync").value);
        }
        rig.platter.inject(fault);
        while let Ok(given) = reserve(&ranges, "sync").wait() {
            told.push(given[0].value);
            assert!(told.len() < 5_000, "it fails in time");
        }
        until(|| ranges.failed().is_some());
        drop(ranges);
        let ranges = rig.open();
        let found = values(&ranges);
        for value in &told {
            assert!(found.contains(value), "{fault:?}: {value} is lost");
        }
        assert!(
            found.len() <= told.len() + 1,
            "{fault:?}: {found:?} of {told:?}"
        );
        check_counts(&ranges);
        // And it goes on, snapshots too.
        let last = reserved(&ranges, "sync").value;
        assert!(!found.contains(&last));
    }
}

#[test]
fn a_snapshot_without_traffic_comes_to_its_end() {
    let rig = small();
    let ranges = rig.open();
    reserve_at_once(&rig, &ranges);
    until(|| rig.platter.chunks() > 0);
    let next = rig.open();
    assert_eq!(held(&next).len(), 1_000);
}

#[test]
fn a_log_that_grows_over_many_short_runs_is_cut_too() {
    let rig = small();
    for _ in 0..200 {
        let ranges = rig.open();
        for _ in 0..10 {
            reserved(&ranges, "sync");
        }
    }
    let loaded = rig.open().loaded().clone();
    assert!(loaded.chunks > 0, "{loaded:?}");
    let parts = u64::from(crate::partitions().count());
    assert!(loaded.batches < 1_000 * parts, "{loaded:?}");
}
