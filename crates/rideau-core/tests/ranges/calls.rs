//! Values given out of ranges, one call after the other.

use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::{
    Allocator, Ask, Effects, Fields, Options, Place, Prefer, RangeId, RangeOptions, Refused,
    Released, Reservation, Span, Which,
};

/// An allocator with a clock in seconds.
struct Bench {
    machine: Allocator,
    effects: Effects,
    now: Instant,
}

impl Bench {
    fn new(ranges: &[(&str, &str)]) -> Self {
        let mut bench = Self {
            machine: Allocator::new(&Options::default()),
            effects: Effects::new(),
            now: Instant::START,
        };
        for (name, span) in ranges {
            bench.add(name, RangeOptions::new(vec![Span::parse(span).unwrap()]));
        }
        bench
    }

    fn add(&mut self, name: &str, options: RangeOptions) -> RangeId {
        let added = self
            .machine
            .set_range(name, options, self.now, &mut self.effects);
        added.unwrap()
    }

    fn after(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn reserve(&mut self, ask: &Ask<'_>) -> Result<Vec<Reservation>, Refused> {
        let mut granted = Vec::new();
        let result = self
            .machine
            .reserve(ask, self.now, &mut self.effects, &mut granted);
        result.map(|()| granted)
    }

    fn one(&mut self, name: &str) -> Result<Reservation, Refused> {
        let range = self.machine.range(name).unwrap();
        let prefer = [Prefer {
            tier: 0,
            place: Place::Range(range),
        }];
        self.reserve(&Ask::new(&prefer)).map(|granted| granted[0])
    }

    fn release(&mut self, held: Reservation) -> Result<Released, Refused> {
        self.machine
            .release(held.value, Some(held.fence), self.now, &mut self.effects)
    }
}

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
