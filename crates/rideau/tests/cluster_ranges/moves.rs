//! What the next owner of a partition finds.

use rideau::allocator::{Fields, Standing};
use rideau::store::PartitionHost;

use crate::kept_logs::{
    HOUR, KeptLogs, Node, QUARANTINE, claim, eventually, holder, options, outcome, reserve,
    reserved,
};

/// Two nodes, of which the first has partition 1.
fn two(kept_logs: &KeptLogs) -> [Node; 2] {
    let nodes = [(); 2].map(|()| kept_logs.start(options()));
    kept_logs.take(1, &nodes[0]);
    nodes[0].clocks.advance(2 * QUARANTINE);
    nodes
}

#[test]
fn a_closed_partition_decides_nothing_and_says_when_all_is_written() {
    let kept_logs = KeptLogs::new();
    let [a, _] = two(&kept_logs);
    kept_logs.hold(a.life, true);
    let answer = claim(&a, 5);
    let epoch = kept_logs.close_soon(1, &a);
    assert!(claim(&a, 9).wait().is_err());
    assert!(!kept_logs.state().is_closed(1, epoch));
    kept_logs.hold(a.life, false);
    // The answer can be told, as it was written.
    outcome(answer).unwrap();
    kept_logs.until(|state| state.is_closed(1, epoch));
}

#[test]
fn a_closed_partition_opens_again_in_its_epoch_or_in_the_next() {
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    let first = claim(&a, 5).wait().unwrap();
    // Nothing was handed over.
    kept_logs.close(1, &a);
    kept_logs.begin(1, &a);
    let epoch = kept_logs.epoch(1);
    let second = claim(&a, 9).wait().unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(second.fence >> 32, epoch);
    kept_logs.raise(1, &a);
    let third = claim(&a, 13).wait().unwrap();
    assert_eq!(third.fence >> 32, epoch + 1);
    kept_logs.hand_over(1, &a, &b);
    for held in [first, second, third] {
        assert_eq!(holder(&b, held.value), Some(held.fence));
    }
}

#[test]
fn a_hand_over_keeps_everything_of_every_class() {
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    kept_logs.hand_over(1, &a, &b);
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
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    let mut held = Vec::new();
    for turn in 0..6 {
        let (from, to) = if turn % 2 == 0 { (&a, &b) } else { (&b, &a) };
        held.push(reserved(from, "sync"));
        held.push(reserved(from, "memory"));
        kept_logs.raise(1, from);
        held.push(reserved(from, "claimed"));
        kept_logs.hand_over(1, from, to);
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
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    let [sync, memory, _] = held;
    eventually(|| kept_logs.state().sections(1) > 0);
    kept_logs.lose(1);
    kept_logs.take(1, &b);
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
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    let c = kept_logs.start(options());
    let held = ["sync", "memory", "claimed"].map(|range| reserved(&a, range));
    kept_logs.hold(b.life, true);
    kept_logs.hand_over(1, &a, &b);
    // Nothing is told before the first batch is safe, be it written down or not.
    let untold = reserve(&b, "memory");
    let (_, until) = untold.into_parts();
    assert!(!until.is_reached().unwrap());
    kept_logs.kill(b);
    assert!(until.wait().is_err());
    kept_logs.take(1, &c);
    for one in held {
        assert_eq!(holder(&c, one.value), Some(one.fence));
    }
}

#[test]
fn sections_are_cut_between_entries_where_a_call_may_not_be_longer() {
    let kept_logs = KeptLogs::new();
    let nodes = [(); 2].map(|()| kept_logs.start(options()));
    let [a, b] = &nodes;
    kept_logs.state().len_max = 500;
    (0..4).for_each(|partition| kept_logs.take(partition, a));
    let mut data = Fields::new();
    let long = [b'x'; 150];
    data.set(b"note", rideau::allocator::Field::Bytes(&long));
    kept_logs.hold(a.life, true);
    let answers: Vec<_> = (0..100)
        .map(|value| {
            let change = rideau::allocator::Change {
                ttl: Some(HOUR),
                ..rideau::allocator::Change::new(&data)
            };
            a.ranges.claim(value, &change)
        })
        .collect();
    kept_logs.hold(a.life, false);
    let held: Vec<_> = answers
        .into_iter()
        .map(|one| outcome(one).unwrap())
        .collect();
    let longest = kept_logs.state().calls.iter().copied().max().unwrap();
    assert!(longest <= 500, "{longest}");
    (0..4).for_each(|partition| kept_logs.lose(partition));
    (0..4).for_each(|partition| kept_logs.take(partition, b));
    for one in held {
        assert_eq!(holder(b, one.value), Some(one.fence));
    }
}
