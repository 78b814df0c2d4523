//! What the next owner of a partition finds.

use rideau::allocator::{Fields, Standing};
use rideau::store::PartitionHost;

use crate::shelves::{
    HOUR, Node, QUARANTINE, Shelves, claim, eventually, holder, options, outcome, reserve, reserved,
};

/// Two nodes, of which the first has partition 1.
fn two(shelves: &Shelves) -> [Node; 2] {
    let nodes = [(); 2].map(|()| shelves.start(options()));
    shelves.take(1, &nodes[0]);
    nodes[0].dial.advance(2 * QUARANTINE);
    nodes
}

#[test]
fn a_closed_partition_decides_nothing_and_says_when_all_is_written() {
    let shelves = Shelves::new();
    let [a, _] = two(&shelves);
    shelves.hold(a.life, true);
    let answer = claim(&a, 5);
    let epoch = shelves.close_soon(1, &a);
    assert!(claim(&a, 9).wait().is_err());
    assert!(!shelves.state().is_closed(1, epoch));
    shelves.hold(a.life, false);
    // The answer can be told, as it was written.
    outcome(answer).unwrap();
    shelves.until(|state| state.is_closed(1, epoch));
}

#[test]
fn a_closed_partition_opens_again_in_its_epoch_or_in_the_next() {
    let shelves = Shelves::new();
    let [a, b] = two(&shelves);
    let first = claim(&a, 5).wait().unwrap();
    // Nothing was handed over.
    shelves.close(1, &a);
    shelves.begin(1, &a);
    let epoch = shelves.epoch(1);
    let second = claim(&a, 9).wait().unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(second.fence >> 32, epoch);
    shelves.raise(1, &a);
    let third = claim(&a, 13).wait().unwrap();
    assert_eq!(third.fence >> 32, epoch + 1);
    shelves.hand_over(1, &a, &b);
    for held in [first, second, third] {
        assert_eq!(holder(&b, held.value), Some(held.fence));
    }
}

#[test]
fn a_hand_over_keeps_everything_of_every_class() {
    let shelves = Shelves::new();
    let [a, b] = two(&shelves);
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    shelves.hand_over(1, &a, &b);
    for one in held {
        assert_eq!(holder(&b, one.value), Some(one.fence));
    }
    // Nothing is in doubt, and nothing is given twice.
    for stats in b.ranges.all_stats() {
        assert!(stats.quarantined.is_zero(), "{stats:?}");
        assert_eq!(stats.reserved, 1);
    }
    for (range, before) in [("sync", held[0]), ("memory", held[1]), ("claimed", held[2])] {
        let next = reserved(&b, range);
        assert_ne!(next.value, before.value);
        assert!(next.fence > before.fence);
    }
}

#[test]
fn it_goes_back_and_forth() {
    let shelves = Shelves::new();
    let [a, b] = two(&shelves);
    let mut held = Vec::new();
    for turn in 0..6 {
        let (from, to) = if turn % 2 == 0 { (&a, &b) } else { (&b, &a) };
        held.push(reserved(from, "sync"));
        held.push(reserved(from, "memory"));
        shelves.raise(1, from);
        held.push(reserved(from, "claimed"));
        shelves.hand_over(1, from, to);
        for one in &held {
            assert_eq!(holder(to, one.value), Some(one.fence), "{turn}");
        }
        let gone = held.remove(0);
        let released = to.ranges.release(gone.value, Some(gone.fence));
        released.wait().unwrap();
        assert_eq!(holder(to, gone.value), None);
    }
}

#[test]
fn a_takeover_leaves_in_doubt_what_was_told_before_it_was_written() {
    let shelves = Shelves::new();
    let [a, b] = two(&shelves);
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    let [sync, memory, _] = held;
    eventually(|| shelves.state().sections(1) > 0);
    shelves.lose(1);
    shelves.take(1, &b);
    a.host.end(1);
    assert_eq!(holder(&b, sync.value), Some(sync.fence));
    assert_eq!(b.ranges.stands(memory.value), Standing::Quarantined);
    // Its holder is adopted when it is heard of.
    let adopted = b
        .ranges
        .refresh(rideau::allocator::Which::Value(memory.value), None, None);
    assert!(adopted.wait().unwrap().fence > memory.fence);
    let claimed = b.ranges.range("claimed").unwrap();
    assert!(!b.ranges.stats(claimed).unwrap().quarantined.is_zero());
}

#[test]
fn a_node_that_has_died_before_its_first_batch_leaves_what_it_was_handed() {
    let shelves = Shelves::new();
    let [a, b] = two(&shelves);
    let c = shelves.start(options());
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    shelves.hold(b.life, true);
    shelves.hand_over(1, &a, &b);
    // Nothing is told before the first batch is safe, be it written down or not.
    let untold = reserve(&b, "memory");
    let (_, until) = untold.into_parts();
    assert!(!until.is_reached().unwrap());
    shelves.kill(b);
    assert!(until.wait().is_err());
    shelves.take(1, &c);
    for one in held {
        assert_eq!(holder(&c, one.value), Some(one.fence));
    }
}

#[test]
fn sections_are_cut_between_entries_where_a_call_may_not_be_longer() {
    let shelves = Shelves::new();
    let nodes = [(); 2].map(|()| shelves.start(options()));
    let [a, b] = &nodes;
    shelves.state().len_max = 500;
    (0..4).for_each(|partition| shelves.take(partition, a));
    let mut data = Fields::new();
    let long = [b'x'; 150];
    data.set(b"note", rideau::allocator::Field::Bytes(&long));
    shelves.hold(a.life, true);
    let answers: Vec<_> = (0..100)
        .map(|value| {
            let change = rideau::allocator::Change {
                ttl: Some(HOUR),
                ..rideau::allocator::Change::new(&data)
            };
            a.ranges.claim(value, &change)
        })
        .collect();
    shelves.hold(a.life, false);
    let held: Vec<_> = answers
        .into_iter()
        .map(|one| outcome(one).unwrap())
        .collect();
    let longest = shelves.state().calls.iter().copied().max().unwrap();
    assert!(longest <= 500, "{longest}");
    (0..4).for_each(|partition| shelves.lose(partition));
    (0..4).for_each(|partition| shelves.take(partition, b));
    for one in held {
        assert_eq!(holder(b, one.value), Some(one.fence));
    }
}
