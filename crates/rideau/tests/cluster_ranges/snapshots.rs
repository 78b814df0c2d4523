//! Snapshots of partitions that a node wants.

use rideau::allocator::{Change, Field, Fields};
use rideau::store::PartitionHost;

use crate::kept_logs::{
    HOUR, KeptLogs, Node, claim, eventually, holder, options, outcome, reserved,
};

const CHUNK: usize = 256 * 1024;

fn snapshot(kept_logs: &KeptLogs, partition: u32, node: &Node) {
    let before = kept_logs.state().snapshots.len();
    node.host.snapshot(partition, kept_logs.epoch(partition));
    kept_logs.until(|state| state.snapshots.len() > before);
}

/// Much of a partition.
fn fill(node: &Node, values: impl Iterator<Item = u128>) -> Vec<(u128, u64)> {
    let mut data = Fields::new();
    let long = vec![b'x'; 20_000];
    data.set(b"note", Field::Bytes(&long));
    let change = Change {
        ttl: Some(HOUR),
        ..Change::new(&data)
    };
    let answers: Vec<_> = values
        .map(|value| node.ranges.claim(value, &change))
        .collect();
    let held = answers.into_iter().map(|one| outcome(one).unwrap());
    held.map(|held| (held.value, held.fence)).collect()
}

#[test]
fn the_next_owner_needs_only_the_snapshot_and_what_came_after_it_began() {
    let kept_logs = KeptLogs::new();
    let nodes = [(); 2].map(|()| kept_logs.start(options()));
    let [a, b] = &nodes;
    kept_logs.take(1, a);
    let mut held = fill(a, (1..200).step_by(4));
    snapshot(&kept_logs, 1, a);
    let (partition, epoch, chunks) = kept_logs.state().snapshots[0];
    assert_eq!((partition, epoch), (1, 1));
    assert!(chunks >= 50 * 20_000 / CHUNK, "{chunks}");
    // What was before is not read any more.
    let after: usize = kept_logs.state().pieces(1).iter().map(Vec::len).sum();
    assert!(after < 20_000, "{after}");
    held.extend(fill(a, (201..240).step_by(4)));
    let gone = held.remove(0);
    a.ranges.release(gone.0, Some(gone.1)).wait().unwrap();
    kept_logs.lose(1);
    kept_logs.take(1, b);
    for (value, fence) in held {
        assert_eq!(holder(b, value), Some(fence));
    }
    assert_eq!(holder(b, gone.0), None);
}

#[test]
fn changes_go_on_while_a_snapshot_is_taken() {
    let kept_logs = KeptLogs::new();
    let nodes = [(); 2].map(|()| kept_logs.start(options()));
    let [a, b] = &nodes;
    kept_logs.take(1, a);
    let mut held = fill(a, (1..300).step_by(4));
    for turn in 0..5 {
        a.host.snapshot(1, kept_logs.epoch(1));
        let gone = held.remove(0);
        a.ranges.release(gone.0, Some(gone.1)).wait().unwrap();
        let one = reserved(a, "sync");
        held.push((one.value, one.fence));
        kept_logs.until(|state| state.snapshots.len() > turn);
    }
    kept_logs.lose(1);
    kept_logs.take(1, b);
    for (value, fence) in held {
        assert_eq!(holder(b, value), Some(fence));
    }
}

#[test]
fn a_snapshot_shows_nothing_that_is_not_written() {
    let kept_logs = KeptLogs::new();
    let nodes = [(); 2].map(|()| kept_logs.start(options()));
    let [a, b] = &nodes;
    kept_logs.take(1, a);
    claim(a, 5).wait().unwrap();
    kept_logs.hold(a.life, true);
    let mut untold = vec![claim(a, 9)];
    kept_logs.until_held();
    a.host.snapshot(1, 1);
    untold.push(claim(a, 13));
    kept_logs.let_one_go();
    // The snapshot has begun, and its only piece will show this one.
    untold.push(claim(a, 17));
    kept_logs.let_one_go();
    assert!(kept_logs.state().snapshots.is_empty());
    // It is not handed in when that is lost.
    kept_logs.lose(1);
    kept_logs.hold(a.life, false);
    let outcomes: Vec<_> = untold.into_iter().map(|one| outcome(one).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false]);
    kept_logs.take(1, b);
    let held = [9, 13, 17].map(|value| holder(b, value).is_some());
    assert_eq!(held, [true, true, false]);
    assert!(kept_logs.state().snapshots.is_empty());
}

#[test]
fn a_partition_that_ends_gives_its_snapshot_up() {
    let kept_logs = KeptLogs::new();
    let a = kept_logs.start(options());
    kept_logs.take(1, &a);
    kept_logs.take(2, &a);
    claim(&a, 5).wait().unwrap();
    kept_logs.hold(a.life, true);
    let answer = claim(&a, 6);
    kept_logs.until_held();
    a.host.snapshot(1, 1);
    a.host.snapshot(2, 1);
    a.host.end(1);
    kept_logs.hold(a.life, false);
    outcome(answer).unwrap();
    kept_logs.until(|state| !state.snapshots.is_empty());
    assert_eq!(kept_logs.state().snapshots[0].0, 2);
}

#[test]
fn a_partition_is_snapshotted_before_it_begins() {
    let kept_logs = KeptLogs::new();
    let nodes = [(); 3].map(|()| kept_logs.start(options()));
    let [a, b, c] = &nodes;
    kept_logs.take(1, a);
    let held = claim(a, 5).wait().unwrap();
    let clock = kept_logs.state().clock(1);
    kept_logs.lose(1);
    kept_logs.load(1, b);
    snapshot(&kept_logs, 1, b);
    // Its clock has not begun.
    eventually(|| kept_logs.state().clock(1) == clock);
    kept_logs.lose(1);
    kept_logs.take(1, c);
    assert_eq!(holder(c, 5), Some(held.fence));
}
