//! What the next start finds.

use rideau::allocator::{
    Ask, Change, Class, Fields, Key, RangeOptions, Seen, Standing, Start, Which,
};
use rideau::store::{Fault, Left};

use crate::rig::{
    HOUR, Rig, anywhere, check_counts, fields, held, is_next, reserve, reserved, seen, values,
};

/// Do some of everything, each acknowledged.
fn traffic(rig: &Rig) -> Vec<Seen> {
    let ranges = rig.open();
    let prefer = anywhere(&ranges, "sync");
    let mut given = Vec::new();
    for at in 0..300 {
        let name = format!("mac:{at}");
        let session = format!("session:{}", at / 3);
        let keys = [
            Key {
                bytes: name.as_bytes(),
                unique: true,
            },
            Key {
                bytes: session.as_bytes(),
                unique: false,
            },
        ];
        let ask = Ask {
            data: &fields(&name),
            keys: &keys,
            ..Ask::new(&prefer)
        };
        given.push(ranges.reserve(&ask).wait().unwrap()[0]);
        rig.clocks.advance(HOUR / 10_000);
    }
    for (at, one) in given.iter().enumerate() {
        let (which, fence) = (Which::Value(one.value), Some(one.fence));
        let patch = fields("patched");
        let change = Change {
            fence,
            ttl: Some(HOUR * 2),
            ..Change::new(&patch)
        };
        match at % 6 {
            0 => drop(ranges.release(one.value, fence).wait().unwrap()),
            1 => drop(ranges.refresh(which, fence, Some(HOUR * 3)).wait().unwrap()),
            2 => drop(ranges.write(which, &change).wait().unwrap()),
            3 => drop(ranges.update(which, &change).wait().unwrap()),
            4 => drop(ranges.cancel(which, fence).wait().unwrap()),
            _ => (),
        }
    }
    held(&ranges)
}

/// Where a value lies in memory, and when its end was noticed, does not matter;
/// nor does when a cancelled one began.
fn compared(seen: &[Seen]) -> Vec<Seen> {
    let mut seen = seen.to_vec();
    for one in &mut seen {
        if one.standing != Standing::Reserved {
            (one.created, one.updated, one.updates) = (one.until, one.until, 0);
        }
    }
    seen
}

#[test]
fn a_restart_finds_exactly_what_was_acknowledged() {
    let rig = Rig::new();
    let before = traffic(&rig);
    assert_eq!(before.len(), 250);
    for _ in 0..3 {
        let ranges = rig.open();
        assert_eq!(compared(&held(&ranges)), compared(&before));
        check_counts(&ranges);
        // Keys lead there again.
        let found = ranges.lookup(Which::Key(b"mac:5")).wait().unwrap();
        assert_eq!(found.len(), 1);
        let of_session = ranges.lookup(Which::Key(b"session:1")).wait().unwrap();
        assert_eq!(of_session.len(), 2, "one of three was cancelled");
    }
}

#[test]
fn a_crash_loses_only_what_no_caller_was_told() {
    let rig = Rig::new();
    let before = traffic(&rig);
    let ranges = rig.open();
    rig.platter.inject(Fault::Append(Left::Torn));
    reserve(&ranges, "sync").wait().unwrap_err();
    assert_eq!(held(&ranges).len(), before.len() + 1);
    let ranges = rig.open();
    assert_eq!(compared(&held(&ranges)), compared(&before));
    assert_eq!(
        ranges.loaded().notes,
        ["dropped the beginning of a batch"],
        "what was left out is said"
    );
}

#[test]
fn fences_grow_over_every_restart() {
    let rig = Rig::new();
    let mut last = 0;
    for round in 0..10 {
        let ranges = rig.open();
        for range in ["sync", "memory", "claimed"] {
            let fence = reserved(&ranges, range).fence;
            assert!(fence > last, "{fence} after {last} in {range}");
            last = fence;
        }
        if round % 2 == 0 {
            // A crash: the store is opened elsewhere before this one ends.
            let next = rig.open();
            drop(ranges);
            drop(next);
        }
    }
}

#[test]
fn what_only_memory_held_is_quarantined_after_a_restart() {
    let mut rig = Rig::new();
    let (_, options) = &mut rig.options.ranges[1];
    *options = RangeOptions {
        quarantine: HOUR,
        ..RangeOptions::in_memory(options.spans.clone())
    };
    let ranges = rig.open();
    let held_before = ranges.claim(100_007, &Change::new(&fields("me"))).wait();
    assert_eq!(held_before.unwrap().was, Standing::Quarantined);
    drop(ranges);
    let ranges = rig.open();
    assert_eq!(ranges.stands(100_007), Standing::Quarantined);
    assert!(reserve(&ranges, "memory").wait().is_err());
    check_counts(&ranges);
    rig.clocks.advance(HOUR + HOUR / 100);
    assert!(is_next(reserved(&ranges, "memory").value, 99_999));
    check_counts(&ranges);
}

#[test]
fn a_durable_range_is_quarantined_only_at_its_first_start() {
    let mut rig = Rig::new();
    for (_, options) in &mut rig.options.ranges {
        options.start = Start::Quarantine;
        options.quarantine = HOUR;
    }
    let ranges = rig.open();
    assert!(reserve(&ranges, "sync").wait().is_err());
    drop(ranges);
    // Half an hour of it is left after this.
    rig.clocks.advance(HOUR / 2);
    let ranges = rig.open();
    assert!(reserve(&ranges, "sync").wait().is_err());
    rig.clocks.advance(HOUR / 2 + HOUR / 100);
    let given = reserved(&ranges, "sync");
    drop(ranges);
    let ranges = rig.open();
    assert_eq!(values(&ranges), [given.value]);
    assert!(is_next(reserved(&ranges, "sync").value, given.value));
}

#[test]
fn an_orderly_end_keeps_claimed_values_out_of_quarantine() {
    for is_orderly in [true, false] {
        let rig = Rig::new();
        let ranges = rig.open();
        let given = reserved(&ranges, "claimed");
        if is_orderly {
            ranges.close();
        }
        rig.clocks.advance(HOUR / 10);
        let next = rig.open();
        let stats = next.stats(next.range("claimed").unwrap()).unwrap();
        assert_eq!(stats.quarantined.is_zero(), is_orderly);
        assert_eq!(stats.reserved, 1);
        let until = seen(&next, given.value).unwrap().until;
        assert_eq!(until, given.until, "it keeps its own end");
        check_counts(&next);
        drop(ranges);
    }
}

#[test]
fn values_of_a_range_that_is_gone_keep_their_holders() {
    let mut rig = Rig::new();
    let ranges = rig.open();
    let given = reserved(&ranges, "sync");
    drop(ranges);
    let (_, sync) = rig.options.ranges.remove(0);
    let ranges = rig.open();
    assert_eq!(values(&ranges), [given.value]);
    ranges.set_range("again", sync).unwrap();
    let of_range = seen(&ranges, given.value).unwrap().range;
    assert_eq!(of_range, ranges.range("again"));
    assert!(is_next(reserved(&ranges, "again").value, given.value));
    check_counts(&ranges);
}

#[test]
fn a_change_of_class_is_for_ranges_without_holders() {
    let rig = Rig::new();
    let ranges = rig.open();
    let given = reserved(&ranges, "sync");
    let id = ranges.range("sync").unwrap();
    let memory = RangeOptions {
        class: Class::Memory,
        ..ranges.options(id).unwrap()
    };
    assert!(ranges.set_range("sync", memory.clone()).is_err());
    ranges
        .release(given.value, Some(given.fence))
        .wait()
        .unwrap();
    ranges.set_range("sync", memory).unwrap();
    let none = Fields::new();
    ranges
        .claim(given.value, &Change::new(&none))
        .wait()
        .unwrap();
    drop(ranges);
    assert!(values(&rig.open()).is_empty());
}
