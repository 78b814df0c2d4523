//! Values given out of ranges, one call after the other.

use std::time::Duration;

use rideau_core::allocator::{Fields, Refused, Released, Which};

use crate::bench::Bench;

#[test]
fn the_lowest_value_is_given_out_and_comes_back() {
    let mut bench = Bench::new(&[("few", "0-2")]);
    let values: Vec<u128> = (0..3).map(|_| bench.one("few").unwrap().value).collect();
    assert_eq!(values, [0, 1, 2]);
    assert!(matches!(bench.one("few"), Err(Refused::Exhausted { .. })));
    bench.after(31);
    assert_eq!(bench.one("few").unwrap().value, 0);
}

#[test]
fn a_release_takes_the_timer_along() {
    // The original frees a value a second time when the timer of its first
    // holder fires, and gives it to two.
    let mut bench = Bench::new(&[("few", "0-0")]);
    let alice = bench.one("few").unwrap();
    assert_eq!(bench.release(alice), Ok(Released::Now));
    bench.after(29);
    let bob = bench.one("few").unwrap();
    assert!(bob.fence > alice.fence);
    bench.after(2);
    bench.machine.advance(bench.now, &mut bench.effects);
    assert!(matches!(bench.one("few"), Err(Refused::Exhausted { .. })));
    let stale = bench.release(alice);
    assert_eq!(stale, Err(Refused::Conflict { fence: bob.fence }));
}

#[test]
fn a_value_outside_of_every_range_cannot_be_released_into_one() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let released = bench
        .machine
        .release(99, None, bench.now, &mut bench.effects);
    assert_eq!(released, Err(Refused::OutOfRange));
}

#[test]
fn a_forgotten_reservation_can_be_found_and_kept() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = bench.one("few").unwrap();
    bench.after(29);
    let minute = Some(Duration::from_secs(60));
    let which = Which::Value(held.value);
    let kept = bench.machine.refresh(
        which,
        Some(held.fence),
        minute,
        bench.now,
        &mut bench.effects,
    );
    assert_eq!(kept.unwrap().old, Fields::new());
    bench.after(59);
    let seen = bench.machine.lookup(which, bench.now, &mut bench.effects);
    assert_eq!(seen[0].fence, held.fence);
    bench.after(1);
    assert_eq!(
        bench.machine.lookup(which, bench.now, &mut bench.effects),
        []
    );
}
