//! How ranges start, what is believed of unknown values, and the seed's own
//! test of two tiers.

use std::time::Duration;

use rideau_core::allocator::{
    Ask, Change, Class, Entry, Fields, RangeOptions, Refused, Span, Standing, Start, Which,
};

use crate::bench::{Bench, options};

fn in_memory(text: &str) -> RangeOptions {
    RangeOptions::in_memory(vec![Span::parse(text).unwrap()])
}

#[test]
fn a_start_without_memory_holds_all_and_frees_what_was_not_asked_for() {
    let mut bench = Bench::new(&[]);
    bench.add("few", in_memory("0-9"));
    assert_eq!(bench.stats("few").free.to_u128(), Some(0));
    assert_eq!(bench.stats("few").quarantined.to_u128(), Some(10));
    assert!(matches!(bench.one("few"), Err(Refused::Exhausted { .. })));
    let none = Fields::new();
    let change = Change {
        ttl: Some(Duration::from_secs(3_600)),
        ..Change::new(&none)
    };
    let (machine, effects) = (&mut bench.machine, &mut bench.effects);
    let held = machine.update(Which::Value(7), &change, bench.now, effects);
    assert_eq!(held.unwrap().was, Standing::Quarantined);
    bench.after(899);
    bench.sweep();
    assert_eq!(bench.stats("few").free.to_u128(), Some(0));
    bench.after(1);
    bench.sweep();
    assert_eq!(bench.stats("few").free.to_u128(), Some(9));
    assert_eq!(bench.stands(7), Standing::Reserved);
}

#[test]
fn a_start_with_all_free_gives_out_at_once() {
    let mut bench = Bench::new(&[]);
    let free = RangeOptions {
        start: Start::Free,
        ..in_memory("0-9")
    };
    bench.add("few", free);
    assert_eq!(bench.one("few").unwrap().value, 0);
}

#[test]
fn a_range_that_is_new_in_a_known_log_is_in_quarantine_and_no_other() {
    let quarantined = |text| RangeOptions {
        start: Start::Quarantine,
        ..options(text)
    };
    let bench = Bench::new(&[("old", "0-9")]);
    let again = bench.again(&[("old", quarantined("0-9")), ("new", quarantined("10-19"))]);
    assert_eq!(again.stats("old").quarantined.to_u128(), Some(0));
    assert_eq!(again.stats("new").quarantined.to_u128(), Some(10));
    // And what was not written down before is not known when it is.
    let mut bench = Bench::new(&[("old", "100-109")]);
    bench.add("few", in_memory("0-9"));
    let again = bench.again(&[("few", quarantined("0-9"))]);
    assert_eq!(again.stats("few").quarantined.to_u128(), Some(10));
}

#[test]
fn claimed_values_without_a_record_are_in_quarantine_after_a_crash_only() {
    let claimed = RangeOptions {
        class: Class::Claimed,
        ..options("0-9")
    };
    let mut bench = Bench::new(&[]);
    bench.add("few", claimed.clone());
    assert_eq!(bench.one("few").unwrap().value, 0);
    assert!(bench.effects.wait, "the first was not claimed");
    bench.machine.durable(bench.effects.position());
    let safe = bench.effects.log.len();
    assert_eq!(bench.one("few").unwrap().value, 1);
    assert!(!bench.effects.wait, "the second was");
    let mut crashed = Bench::new(&[]);
    crashed.now = bench.now;
    crashed.effects.log = bench.effects.log[..safe].to_vec();
    let mut crashed = crashed.again(&[("few", claimed.clone())]);
    assert_eq!(crashed.stands(0), Standing::Reserved);
    assert_eq!(crashed.stands(1), Standing::Quarantined);
    Entry::Stopped.put(&mut bench.effects.log);
    let mut stopped = bench.again(&[("few", claimed)]);
    assert_eq!(stopped.stands(1), Standing::Reserved);
    assert_eq!(stopped.stands(2), Standing::Free);
}

#[test]
fn a_value_that_a_range_lost_while_held_is_not_given_out_by_another() {
    let mut bench = Bench::new(&[("left", "0-9")]);
    let held: Vec<_> = (0..10).map(|_| bench.one("left").unwrap()).collect();
    bench.add("left", options("0-8"));
    assert_eq!(bench.stats("left").size.to_u128(), Some(10));
    bench.add("right", options("9-10"));
    assert_eq!(bench.stats("left").size.to_u128(), Some(9));
    assert_eq!(bench.stats("right").reserved, 1);
    assert_eq!(bench.one("right").unwrap().value, 10);
    bench.release(held[9]).unwrap();
    assert_eq!(bench.one("right").unwrap().value, 9);
}

#[test]
fn both_tiers_of_the_seed_are_given_out_in_order_and_all_come_back() {
    let ranges = [("primary", "10.128.0.0/17"), ("secondary", "10.0.0.0/17")];
    let mut bench = Bench::new(&ranges);
    let numbers = |bench: &Bench| {
        ranges.map(|(name, _)| {
            let stats = bench.stats(name);
            (stats.size, stats.free, stats.reserved)
        })
    };
    let initial = numbers(&bench);
    let prefer = [bench.prefer("primary", 0), bench.prefer("secondary", 1)];
    let ask = Ask {
        ttl: Some(Duration::from_secs(220)),
        ..Ask::new(&prefer)
    };
    let mut values = std::collections::BTreeSet::new();
    for number in 0..65_536 {
        let granted = bench.reserve(&ask).unwrap()[0];
        assert_eq!(granted.tier, u8::from(number >= 32_768));
        assert!(values.insert(granted.value), "no value twice");
    }
    let peak = numbers(&bench);
    assert!(peak.iter().all(|(size, free, reserved)| {
        free.is_zero() && size.to_u128() == Some((*reserved).into())
    }));
    assert!(matches!(
        bench.reserve(&ask),
        Err(Refused::Exhausted { .. })
    ));
    bench.after(220);
    bench.sweep();
    bench.after(1);
    bench.sweep();
    assert_eq!(numbers(&bench), initial);
}

#[test]
fn values_claimed_before_a_crash_are_kept_apart_for_as_long_as_they_may_be_held() {
    let claimed = RangeOptions {
        class: Class::Claimed,
        ..options("0-99999")
    };
    let mut bench = Bench::new(&[]);
    bench.add("many", claimed.clone());
    bench.one("many").unwrap();
    let position = bench.effects.position();
    bench.machine.durable(position);
    let prefer = [bench.prefer("many", 0)];
    let hours = |hours: u64| Ask {
        ttl: Some(Duration::from_secs(hours * 3_600)),
        ..Ask::new(&prefer)
    };
    bench.reserve(&hours(1)).unwrap();
    assert!(!bench.effects.wait, "it is told at once");
    bench.reserve(&hours(2)).unwrap();
    assert!(bench.effects.wait, "it is told when it is written down");
    // A change of the ttl while the server is down shortens nothing.
    let shorter = RangeOptions {
        ttl: Duration::from_secs(60),
        ..claimed
    };
    let again = bench.again(&[("many", shorter)]);
    let stats = again.stats("many");
    // A half of a 64th of all, of which two are known.
    assert_eq!(stats.quarantined.to_u128(), Some(100_000 / 64 / 2 - 2));
    let hour = bench.now + Duration::from_secs(3_600);
    assert_eq!(stats.quarantined_until, Some(hour));
}

/// What a crash leaves of a range whose values are claimed before.
fn crashed(bench: &Bench, safe: usize, options: RangeOptions) -> Bench {
    let mut crashed = Bench::new(&[]);
    crashed.now = bench.now;
    crashed.effects.log = bench.effects.log[..safe].to_vec();
    crashed.again(&[("few", options)])
}

#[test]
fn a_crash_puts_no_more_than_a_64th_aside_for_no_longer_than_a_lease() {
    for (span, size) in [
        ("0-63", 64),
        ("0-999", 1_000),
        ("0-9999", 10_000),
        ("0-999999", 1_000_000),
    ] {
        let claimed = RangeOptions {
            class: Class::Claimed,
            ttl: Duration::from_secs(60),
            offer_ttl: Duration::from_secs(20),
            ..options(span)
        };
        let mut bench = Bench::new(&[]);
        bench.add("few", claimed.clone());
        let mut safe = 0;
        for turn in 0..200 {
            if turn % 3 == 0 {
                bench.machine.durable(bench.effects.position());
                safe = bench.effects.log.len();
            }
            if bench.one("few").is_err() {
                break;
            }
            let after = crashed(&bench, safe, claimed.clone());
            let stats = after.stats("few");
            let aside = stats.quarantined.to_u128().unwrap();
            assert!(aside <= size / 64, "{aside} of {size} after {turn}");
            if let Some(until) = stats.quarantined_until {
                assert_eq!(until, bench.now + Duration::from_secs(60));
            }
        }
    }
}

#[test]
fn restored_values_that_were_claimed_before_keep_their_own_end() {
    let claimed = RangeOptions {
        class: Class::Claimed,
        ..options("0-9999")
    };
    let mut bench = Bench::new(&[]);
    bench.add("few", claimed.clone());
    let prefer = [bench.prefer("few", 0)];
    let ask = |seconds| Ask {
        ttl: Some(Duration::from_secs(seconds)),
        ..Ask::new(&prefer)
    };
    let short = bench.reserve(&ask(5)).unwrap()[0];
    let long = bench.reserve(&ask(500)).unwrap()[0];
    bench.machine.durable(bench.effects.position());
    let told = bench.effects.log.len();
    // A new end that is not safe is not told either.
    bench.effects.wait = false;
    let proof = Some(short.fence);
    let (now, effects) = (bench.now, &mut bench.effects);
    let minute = Some(Duration::from_secs(60));
    let held = bench
        .machine
        .refresh(Which::Value(short.value), proof, minute, now, effects);
    let prolonged = held.unwrap().until;
    assert!(bench.effects.wait, "it is told when it is safe");
    let all = bench.effects.log.len();
    for (safe, wanted) in [(told, short.until), (all, prolonged)] {
        let mut after = crashed(&bench, safe, claimed.clone());
        for (value, until) in [(short.value, wanted), (long.value, long.until)] {
            let (which, now) = (Which::Value(value), after.now);
            let seen = after.machine.lookup(which, now, &mut after.effects);
            assert_eq!(seen[0].until, until, "{value}");
        }
    }
}
