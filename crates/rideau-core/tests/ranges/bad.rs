//! Everything that can be wrong about what one asks for, each with an answer
//! of its own, and none with an effect.

use std::time::Duration;

use rideau_core::allocator::{Allocator, RangeStats};
use rideau_core::allocator::{
    Ask, COUNT_MAX, Change, Field, Fields, Interval, KEY_LEN_MAX, Key, OnExpire, Options, Place,
    Prefer, RangeError, RangeId, RangeOptions, Refused, Span, SpanError, TIME_MAX, Which,
};

use crate::bench::{Bench, options};

/// A range with one holder, and what must not change.
struct Quiet {
    bench: Bench,
    log: usize,
    stats: RangeStats,
}

impl Quiet {
    fn new() -> Self {
        let mut bench = Bench::new(&[("few", "0-9")]);
        bench.one("few").unwrap();
        Self {
            log: bench.effects.log.len(),
            stats: bench.stats("few"),
            bench,
        }
    }

    fn is_unchanged(&self) {
        assert_eq!(self.bench.effects.log.len(), self.log);
        assert_eq!(self.bench.stats("few"), self.stats);
        assert_eq!(self.bench.machine.ranges().count(), 1);
    }

    fn refuses(&mut self, expected: &Refused, change: impl Fn(&mut Ask<'_>)) {
        let prefer = [self.bench.prefer("few", 0)];
        let mut ask = Ask::new(&prefer);
        change(&mut ask);
        assert_eq!(self.bench.reserve(&ask).as_ref(), Err(expected));
        self.is_unchanged();
    }
}

fn key(bytes: &[u8], unique: bool) -> Key<'_> {
    Key { bytes, unique }
}

#[test]
fn asks_with_bad_places_are_refused() {
    let mut quiet = Quiet::new();
    quiet.refuses(&Refused::NoPlace, |ask| ask.prefer = &[]);
    let range = quiet.bench.prefer("few", 0).place;
    let bad_tier = [Prefer {
        tier: 8,
        place: range,
    }];
    let prefer = Ask::new(&bad_tier);
    assert_eq!(quiet.bench.reserve(&prefer), Err(Refused::BadTier));
    let many = [quiet.bench.prefer("few", 0); 65];
    assert_eq!(
        quiet.bench.reserve(&Ask::new(&many)),
        Err(Refused::TooManyPlaces)
    );
    let gone = gone_range();
    let unknown = [Prefer {
        tier: 0,
        place: Place::Range(gone),
    }];
    assert_eq!(
        quiet.bench.reserve(&Ask::new(&unknown)),
        Err(Refused::UnknownRange)
    );
    let refused = quiet.bench.between(500, 600);
    assert!(matches!(refused, Err(Refused::Exhausted { .. })));
    quiet.is_unchanged();
    // An interval without values, or the wrong way round, cannot be made.
    assert_eq!(Interval::new(7, 6), None);
}

/// The number of a range that is not there.
fn gone_range() -> RangeId {
    let mut machine = Allocator::new(&Options::default());
    let mut effects = rideau_core::allocator::Effects::new();
    let now = rideau_core::Instant::START;
    machine
        .set_range("a", options("0-1"), now, &mut effects)
        .unwrap();
    machine
        .set_range("b", options("2-3"), now, &mut effects)
        .unwrap()
}

#[test]
fn asks_with_bad_counts_and_times_are_refused() {
    let mut quiet = Quiet::new();
    quiet.refuses(&Refused::BadCount, |ask| ask.count = 0);
    quiet.refuses(&Refused::BadCount, |ask| ask.count = COUNT_MAX + 1);
    quiet.refuses(&Refused::NoTime, |ask| ask.ttl = Some(Duration::ZERO));
    let ttl_max = RangeOptions::new(Vec::new()).ttl_max;
    let long = ttl_max + Duration::from_nanos(1);
    quiet.refuses(&Refused::TooLong { ttl_max }, |ask| ask.ttl = Some(long));
    quiet.refuses(&Refused::TooLong { ttl_max }, |ask| {
        ask.ttl = Some(Duration::MAX)
    });
    let prefer = [quiet.bench.prefer("few", 0)];
    let many = Ask {
        count: 10,
        ..Ask::new(&prefer)
    };
    let refused = quiet.bench.reserve(&many);
    assert!(matches!(refused, Err(Refused::Exhausted { .. })));
    quiet.is_unchanged();
}

#[test]
fn asks_with_bad_keys_are_refused() {
    let mut quiet = Quiet::new();
    let names: Vec<Vec<u8>> = (1..=17).map(|n| vec![n]).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name, false)).collect();
    let prefer = [quiet.bench.prefer("few", 0)];
    let long = vec![b'x'; KEY_LEN_MAX + 1];
    let bad: [(&[Key<'_>], u32, Refused); 5] = [
        (&keys, 1, Refused::TooManyKeys),
        (&[key(&long, false)], 1, Refused::BadKey),
        (&[key(b"", true)], 1, Refused::BadKey),
        (&[key(b"\0a", false)], 1, Refused::BadKey),
        (&[key(b"a", true)], 2, Refused::UniqueForMany),
    ];
    for (keys, count, expected) in bad {
        let ask = Ask {
            keys,
            count,
            ..Ask::new(&prefer)
        };
        assert_eq!(quiet.bench.reserve(&ask), Err(expected));
    }
    let bad_id = Ask {
        id: Some(b""),
        ..Ask::new(&prefer)
    };
    assert_eq!(quiet.bench.reserve(&bad_id), Err(Refused::BadKey));
    quiet.is_unchanged();
}

#[test]
fn too_much_to_stand_beside_a_value_is_refused_everywhere() {
    let mut quiet = Quiet::new();
    let mut much = Fields::new();
    much.set(b"f", Field::Bytes(&vec![0; 65 * 1_024]));
    let prefer = [quiet.bench.prefer("few", 0)];
    let ask = Ask {
        data: &much,
        ..Ask::new(&prefer)
    };
    assert_eq!(quiet.bench.reserve(&ask), Err(Refused::TooMuchData));
    let change = Change::new(&much);
    let (machine, effects, now) = (
        &mut quiet.bench.machine,
        &mut quiet.bench.effects,
        quiet.bench.now,
    );
    let which = Which::Value(0);
    assert_eq!(
        machine.claim(5, &change, now, effects),
        Err(Refused::TooMuchData)
    );
    assert_eq!(
        machine.write(which, &change, now, effects),
        Err(Refused::TooMuchData)
    );
    assert_eq!(
        machine.update(which, &change, now, effects),
        Err(Refused::TooMuchData)
    );
    quiet.is_unchanged();
}

#[test]
fn holders_that_are_not_are_refused() {
    let mut quiet = Quiet::new();
    let fence = quiet.bench.machine.fence();
    let none = Fields::new();
    let change = Change::new(&none);
    let stale = Change {
        fence: Some(fence + 1),
        ..change
    };
    let (machine, effects, now) = (
        &mut quiet.bench.machine,
        &mut quiet.bench.effects,
        quiet.bench.now,
    );
    let conflict = Refused::Conflict { fence };
    let held = Which::Value(0);
    assert_eq!(
        machine.write(held, &stale, now, effects),
        Err(conflict.clone())
    );
    assert_eq!(
        machine.update(held, &stale, now, effects),
        Err(conflict.clone())
    );
    let stale = Some(fence + 1);
    assert_eq!(
        machine.refresh(held, stale, None, now, effects),
        Err(conflict.clone())
    );
    assert_eq!(
        machine.cancel(held, stale, now, effects),
        Err(conflict.clone())
    );
    assert_eq!(machine.release(0, stale, now, effects), Err(conflict));
    assert_eq!(
        machine.write(held, &change, now, effects),
        Err(Refused::NoFence)
    );
    assert_eq!(
        machine.release(0, None, now, effects),
        Err(Refused::NoFence)
    );
    assert_eq!(
        machine.claim(0, &change, now, effects),
        Err(Refused::Reserved)
    );
    assert_eq!(
        machine.write(Which::Value(5), &change, now, effects),
        Err(Refused::NotReserved)
    );
    assert_eq!(
        machine.cancel(Which::Key(b"a"), None, now, effects),
        Err(Refused::NotReserved)
    );
    let outside = Which::Value(99);
    assert_eq!(
        machine.write(outside, &change, now, effects),
        Err(Refused::OutOfRange)
    );
    assert_eq!(
        machine.claim(99, &change, now, effects),
        Err(Refused::OutOfRange)
    );
    assert_eq!(
        machine.cancel(outside, None, now, effects),
        Err(Refused::OutOfRange)
    );
    let zero = Some(Duration::ZERO);
    let none = machine.refresh(held, Some(fence), zero, now, effects);
    assert_eq!(none, Err(Refused::NoTime));
    quiet.is_unchanged();
}

#[test]
fn as_many_holders_as_may_be_are_and_no_more() {
    let mut bench = Bench::new(&[]);
    bench.machine = Allocator::new(&Options {
        reservations_max: 2,
        ..Options::default()
    });
    bench.add("few", options("0-9"));
    bench.one("few").unwrap();
    bench.one("few").unwrap();
    let full = Refused::Full {
        reservations_max: 2,
    };
    assert_eq!(bench.one("few"), Err(full.clone()));
    let none = Fields::new();
    let (machine, effects) = (&mut bench.machine, &mut bench.effects);
    let claimed = machine.claim(5, &Change::new(&none), bench.now, effects);
    assert_eq!(claimed, Err(full));
    bench.after(31);
    assert!(
        bench.one("few").is_ok(),
        "those whose time ran out do not count"
    );
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let mut quiet = Quiet::new();
    let fine = || options("100-109");
    let day = Duration::from_secs(24 * 3_600);
    let bad: Vec<(&str, RangeOptions, RangeError)> = vec![
        ("", fine(), RangeError::BadName),
        ("a b", fine(), RangeError::BadName),
        ("a", RangeOptions::new(Vec::new()), RangeError::Empty),
        (
            "a",
            RangeOptions {
                skip: fine().spans,
                ..fine()
            },
            RangeError::Empty,
        ),
        (
            "a",
            RangeOptions {
                ttl: Duration::ZERO,
                ..fine()
            },
            RangeError::NoTime,
        ),
        (
            "a",
            RangeOptions {
                ttl: 40 * day,
                ..fine()
            },
            RangeError::TtlOverMax,
        ),
        (
            "a",
            RangeOptions {
                cool: TIME_MAX + day,
                on_expire: OnExpire::Notify,
                ..fine()
            },
            RangeError::TooLong,
        ),
        (
            "a",
            RangeOptions::new([fine().spans, fine().spans].concat()),
            RangeError::Repeated(fine().spans[0].interval),
        ),
    ];
    for (name, options, expected) in bad {
        let (machine, effects) = (&mut quiet.bench.machine, &mut quiet.bench.effects);
        let refused = machine.set_range(name, options, quiet.bench.now, effects);
        assert_eq!(refused, Err(expected));
        quiet.is_unchanged();
    }
    let held = RangeOptions {
        class: rideau_core::allocator::Class::Memory,
        ..options("0-9")
    };
    let (machine, effects) = (&mut quiet.bench.machine, &mut quiet.bench.effects);
    let refused = machine.set_range("few", held, quiet.bench.now, effects);
    assert_eq!(refused, Err(RangeError::ClassHeld));
    quiet.is_unchanged();
}

#[test]
fn texts_that_are_no_range_are_refused() {
    let texts = ["", "9-3", "10.0.0.0/33", "10.0.0.1-::2", "x", "10.0.0.256"];
    for text in texts {
        let error: Result<Span, SpanError> = Span::parse(text);
        assert!(error.is_err(), "{text}");
    }
    assert!(Span::between("7", "7").is_err(), "it has no value");
    assert!(
        Span::between("9", "3").is_err(),
        "it is the wrong way round"
    );
    assert!(Span::between("10.0.0.0", "::1").is_err(), "two families");
}
