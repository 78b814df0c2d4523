//! What things cost, counted in pieces, entries and bytes and not in time.

use std::time::Duration;

use rideau_core::allocator::{Ask, Key, RangeOptions, Refused, SnapshotAt, Start};

use crate::bench::{Bench, options};

/// What a life of a range costs: bytes of memory, of the log and of a snapshot.
fn life(text: &str) -> (usize, usize, usize) {
    let quarantined = RangeOptions {
        start: Start::Quarantine,
        ..options(text)
    };
    let mut bench = Bench::new(&[]);
    bench.add("range", quarantined.clone());
    assert!(bench.stats("range").free.is_zero());
    bench.after(900);
    assert!(bench.sweep() <= 2, "a quarantine ends in one piece");
    let held = bench.one("range").unwrap();
    let mut again = bench.again(&[("range", quarantined)]);
    assert_eq!(again.stats("range").reserved, 1);
    again.release(held).unwrap();
    let mut snapshot = Vec::new();
    let mut at = SnapshotAt::default();
    while again.machine.snapshot(&mut at, 1_024, &mut snapshot) {}
    let log = bench.effects.log.len();
    (bench.stats("range").bytes, log, snapshot.len())
}

#[test]
fn the_largest_ranges_cost_what_ten_values_cost() {
    let (bytes, log, snapshot) = life("0-9");
    for text in ["10.0.0.0/8", "2000::/3", "::/0"] {
        let (huge, huge_log, huge_snapshot) = life(text);
        assert!(huge <= bytes + 4_096, "{text}: {huge} and {bytes} bytes");
        // Only the numbers are longer.
        assert!(huge_log <= log + 200, "{text}: {huge_log} and {log}");
        assert!(huge_snapshot <= snapshot + 200, "{text}: {huge_snapshot}");
    }
}

#[test]
fn a_million_that_end_at_once_end_in_small_steps_and_asks_go_between() {
    const MANY: u64 = 1_000_000;
    let mut bench = Bench::new(&[("many", "0-999999"), ("full", "2000000-2000000")]);
    let prefer = [bench.prefer("many", 0)];
    let ask = Ask {
        ttl: Some(Duration::from_secs(60)),
        count: 1_000,
        ..Ask::new(&prefer)
    };
    for _ in 0..MANY / 1_000 {
        bench.reserve(&ask).unwrap();
        bench.effects.log.clear();
    }
    bench.one("full").unwrap();
    let full = [bench.prefer("full", 0)];
    let held = bench.between(2_000_000, 2_000_001);
    assert!(matches!(held, Err(Refused::Exhausted { .. })));
    let fence = bench.machine.fence();
    let which = rideau_core::allocator::Which::Value(2_000_000);
    let (machine, effects) = (&mut bench.machine, &mut bench.effects);
    let hour = Some(Duration::from_secs(3_600));
    machine
        .refresh(which, Some(fence), hour, bench.now, effects)
        .unwrap();
    bench.after(61);
    let mut left = bench.stats("many").reserved;
    assert_eq!(left, MANY);
    // An ask for values that are not given back ends some, and not all.
    let refused = bench.reserve(&Ask::new(&full));
    assert!(matches!(refused, Err(Refused::Exhausted { .. })));
    let ended = left - bench.stats("many").reserved;
    assert!(ended < 20_000, "{ended} in one ask");
    left -= ended;
    let mut asks = 0;
    while bench.machine.deadline().is_some_and(|due| due <= bench.now) {
        bench.machine.advance(bench.now, &mut bench.effects);
        let now = bench.stats("many").reserved;
        assert!(left - now <= 1_100, "{} in one step", left - now);
        bench.reserve(&Ask::new(&prefer)).unwrap();
        asks += 1;
        left = bench.stats("many").reserved;
    }
    assert!(asks > 900 && left == asks, "{asks} asks went between");
    assert!(
        bench.effects.log.len() as u64 <= asks * 64,
        "that time ran out is not logged"
    );
}

#[test]
fn a_key_that_a_hundred_thousand_share_does_not_slow_asks_down() {
    let mut bench = Bench::new(&[("many", "0-99999")]);
    let prefer = [bench.prefer("many", 0)];
    let keys = [Key {
        bytes: b"gateway",
        unique: false,
    }];
    let ask = Ask {
        keys: &keys,
        ..Ask::new(&prefer)
    };
    // If each looked at all others, this would take minutes.
    for _ in 0..100_000 {
        bench.reserve(&ask).unwrap();
    }
    assert_eq!(bench.stats("many").reserved, 100_000);
}
