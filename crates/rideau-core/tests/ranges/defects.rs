//! What the original gets wrong, done right, defect by defect.
//!
//! What needs a store, processes and clocks is tried in the crate `rideau`, in
//! `tests/ranges`: answers that no task waits for (D2) in `told.rs`, a program
//! that is killed and comes back (D6, D8) in `kill.rs`, clocks that step (D9)
//! in `time.rs`.

use std::time::Duration;

use rideau_core::allocator::{
    Ask, Change, Effects, Fields, Key, Place, Prefer, RangeError, Refused, Released, Span,
    Standing, Which,
};

use crate::bench::{Bench, options};

#[test]
fn d1_a_value_that_was_released_early_is_not_given_out_twice() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let alice = bench.one("few").unwrap();
    assert_eq!(bench.release(alice), Ok(Released::Now));
    let bob = bench.one("few").unwrap();
    assert_eq!(bob.value, alice.value);
    bench.after(20);
    let which = Which::Value(bob.value);
    let (machine, effects) = (&mut bench.machine, &mut bench.effects);
    let kept = machine.refresh(which, Some(bob.fence), None, bench.now, effects);
    assert!(kept.is_ok());
    bench.after(20);
    bench.sweep();
    let carol = bench.one("few").unwrap();
    assert_ne!(carol.value, bob.value);
}

#[test]
fn d2_an_answer_that_is_not_read_loses_no_value() {
    let mut bench = Bench::new(&[("few", "0-0")]);
    bench.one("few").unwrap();
    bench.after(31);
    assert_eq!(bench.one("few").unwrap().value, 0);
}

#[test]
fn d3_a_reservation_without_a_write_comes_back_and_a_write_does_too() {
    let mut bench = Bench::new(&[("few", "0-1")]);
    bench.one("few").unwrap();
    let held = bench.one("few").unwrap();
    let none = Fields::new();
    let change = Change {
        fence: Some(held.fence),
        ttl: Some(Duration::from_secs(60)),
        ..Change::new(&none)
    };
    let (machine, effects) = (&mut bench.machine, &mut bench.effects);
    let written = machine.write(Which::Value(held.value), &change, bench.now, effects);
    assert!(written.is_ok());
    bench.after(60);
    bench.sweep();
    assert_eq!(bench.stats("few").free.to_u128(), Some(2));
}

#[test]
fn d4_a_value_of_the_second_tier_is_the_answer_when_the_first_has_none() {
    let mut bench = Bench::new(&[("first", "0-0"), ("second", "10-10")]);
    bench.one("first").unwrap();
    let prefer = [bench.prefer("first", 0), bench.prefer("second", 1)];
    let granted = bench.reserve(&Ask::new(&prefer)).unwrap();
    assert_eq!((granted[0].value, granted[0].tier), (10, 1));
    bench.release(granted[0]).unwrap();
    assert_eq!(bench.stats("second").free.to_u128(), Some(1));
}

#[test]
fn d5_a_value_outside_of_every_range_is_never_put_into_one() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let released = bench
        .machine
        .release(99, None, bench.now, &mut bench.effects);
    assert_eq!(released, Err(Refused::OutOfRange));
    let refused = bench.between(50, 100);
    assert!(matches!(refused, Err(Refused::Exhausted { .. })));
}

#[test]
fn d6_and_d8_all_that_was_acknowledged_is_there_after_a_start() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = bench.one("few").unwrap();
    let mut again = bench.again(&[("few", options("0-3"))]);
    assert_eq!(again.stands(held.value), Standing::Reserved);
    assert_eq!(again.release(held), Ok(Released::Now));
    assert_eq!(again.stats("few").quarantined.to_u128(), Some(0));
}

#[test]
fn d7_several_keys_lead_to_one_reservation_with_one_end() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let prefer = [bench.prefer("few", 0)];
    let keys = [b"mac".as_slice(), b"name", b"port"].map(|bytes| Key {
        bytes,
        unique: false,
    });
    let ask = Ask {
        keys: &keys,
        ..Ask::new(&prefer)
    };
    let held = bench.reserve(&ask).unwrap()[0];
    let (machine, effects, now) = (&mut bench.machine, &mut bench.effects, bench.now);
    let fence = Some(held.fence);
    let kept = machine.refresh(Which::Key(b"name"), fence, None, now, effects);
    let until = kept.unwrap().until;
    for key in &keys {
        let seen = machine.lookup(Which::Key(key.bytes), now, effects);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].value, seen[0].until), (held.value, until));
    }
    machine
        .cancel(Which::Key(b"port"), fence, now, effects)
        .unwrap();
    assert_eq!(machine.lookup(Which::Key(b"mac"), now, effects), []);
}

#[test]
fn d9_nothing_but_the_time_that_passed_ends_a_reservation() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = bench.one("few").unwrap();
    bench.after(29);
    bench.sweep();
    assert_eq!(bench.stands(held.value), Standing::Reserved);
    bench.after(1);
    assert_eq!(bench.stands(held.value), Standing::Free);
}

#[test]
fn d10_an_address_is_one_number_however_it_is_written() {
    let two = Span::between("10.0.0.0", "11.0.0.0").unwrap();
    let prefix = Span::parse("10.0.0.0/8").unwrap();
    let dash = Span::parse("10.0.0.0-10.255.255.255").unwrap();
    let mapped = Span::parse("::ffff:10.0.0.0/104").unwrap();
    for other in [prefix, dash, mapped] {
        assert_eq!(two.interval, other.interval);
    }
    assert_eq!(two.interval.first(), 0xffff_0a00_0000);
}

#[test]
fn d11_ranges_that_overlap_are_refused_also_across_families() {
    let mut bench = Bench::new(&[("v4", "10.0.0.0/8")]);
    let before = bench.effects.position();
    for text in ["::ffff:10.0.0.0/104", "10.1.0.0/16", "::/0"] {
        let (machine, effects) = (&mut bench.machine, &mut bench.effects);
        let refused = machine.set_range("other", options(text), bench.now, effects);
        let Err(RangeError::Overlaps { name, .. }) = refused else {
            panic!("{text} overlaps");
        };
        assert_eq!(name, "v4");
    }
    assert_eq!(bench.effects.position(), before);
    assert_eq!(bench.machine.range("other"), None);
}

#[test]
fn d12_the_largest_ranges_start_and_give_out_values() {
    for text in ["2000::/3", "::/0"] {
        let mut bench = Bench::new(&[("huge", text)]);
        let first = bench.stats("huge").first;
        assert_eq!(bench.one("huge").unwrap().value, first);
        assert_eq!(bench.one("huge").unwrap().value, first + 1);
    }
}

#[test]
fn the_manual_session_of_the_seed_goes_as_it_says() {
    let mut bench = Bench::new(&[("all", "0-9999")]);
    for expected in 0..20 {
        assert_eq!(bench.between(0, 10_000).unwrap().value, expected);
    }
    let refused = bench.between(20_000, 20_001);
    assert!(matches!(refused, Err(Refused::Exhausted { .. })));
    let prefer = [(0, 20_000, 20_001), (1, 0, 10_000)].map(|(tier, first, end)| {
        let within = rideau_core::allocator::Interval::new(first, end - 1_u128);
        Prefer {
            tier,
            place: Place::Within(within.unwrap()),
        }
    });
    assert_eq!(bench.reserve(&Ask::new(&prefer)).unwrap()[0].tier, 1);
}

#[test]
fn the_eight_conversions_of_the_seed_are_exact() {
    let all = [
        ("10.0.0.0/8", "281470849515520", "281470866292736"),
        ("172.16.0.0/12", "281473568473088", "281473569521664"),
        ("192.168.0.0/16", "281473913978880", "281473914044416"),
        ("::ffff:0.0.0.0/96", "281470681743360", "281474976710656"),
        (
            "2001:db8::/114",
            "42540766411282592856903984951653826560",
            "42540766411282592856903984951653842944",
        ),
        (
            "2001:db8::/32",
            "42540766411282592856903984951653826560",
            "42540766490510755371168322545197776896",
        ),
        (
            "2002::/16",
            "42545680458834377588178886921629466624",
            "42550872755692912415807417417958686720",
        ),
        (
            "2000::/3",
            "42535295865117307932921825928971026432",
            "85070591730234615865843651857942052864",
        ),
    ];
    for (text, first, end) in all {
        let span = Span::parse(text).unwrap();
        assert_eq!(span.interval.first().to_string(), first, "{text}");
        assert_eq!(span.interval.end().to_string(), end, "{text}");
        let mut effects = Effects::new();
        let mut bench = Bench::new(&[]);
        let range = rideau_core::allocator::RangeOptions::new(vec![span]);
        let id = bench.machine.set_range("a", range, bench.now, &mut effects);
        let stats = bench.machine.stats(id.unwrap()).unwrap();
        assert_eq!(stats.first.to_string(), first, "{text}");
    }
}
