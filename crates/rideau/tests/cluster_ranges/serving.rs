//! What a node gives out, by the partitions it has.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rideau::allocator::{Ask, Key, RangeOptions, Refused, Span, Standing, Which};
use rideau::store::PartitionHost;
use rideau::{Failed, Ranges};

use crate::kept_logs::{
    COUNT, HOUR, KeptLogs, anywhere, claim, eventually, holder, options, outcome, partitions,
    reserve, reserved,
};

fn not_here<T: std::fmt::Debug>(answer: Result<T, Failed>) -> u32 {
    match answer {
        Err(Failed::Refused(Refused::NotHere { partition })) => partition,
        other => panic!("{other:?}"),
    }
}

fn sizes(ranges: &Ranges) -> Vec<Option<u128>> {
    let all = ranges.all_stats().into_iter();
    all.map(|stats| stats.size.to_u128()).collect()
}

#[test]
fn a_node_without_partitions_gives_nothing_and_says_whose_it_would_be() {
    let node = KeptLogs::new().start(options());
    let refused = reserve(&node, "sync").wait();
    assert!(
        matches!(refused, Err(Failed::Refused(Refused::Exhausted { free, .. })) if free.is_zero())
    );
    for value in 0..8 {
        let partition = partitions().of_value(value);
        assert_eq!(not_here(claim(&node, value).wait()), partition);
        let lookup = node.ranges.lookup(Which::Value(value)).wait();
        assert_eq!(not_here(lookup), partition);
        let release = node.ranges.release(value, None).wait();
        assert_eq!(not_here(release), partition);
        let here = node.ranges.check_here(Which::Value(value));
        assert_eq!(here, Err(Refused::NotHere { partition }));
        assert_eq!(node.ranges.stands(value), Standing::Outside);
    }
    let key = partitions().of_name(b"user");
    let refresh = node.ranges.refresh(Which::Key(b"user"), None, None);
    assert_eq!(not_here(refresh.wait()), key);
    let lookup = node.ranges.lookup(Which::Key(b"user")).wait();
    assert_eq!(not_here(lookup), key);
    assert_eq!(node.ranges.missing_partitions(), [0, 1, 2, 3]);
    assert!(!node.ranges.has_some_of(node.ranges.range("sync").unwrap()));
    assert_eq!(sizes(&node.ranges), [Some(0); 3]);
}

#[test]
fn a_partition_that_is_only_loaded_gives_nothing() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    kept_logs.load(1, &node);
    assert_eq!(not_here(claim(&node, 1).wait()), 1);
    assert_eq!(node.ranges.missing_partitions(), [0, 1, 2, 3]);
    kept_logs.begin(1, &node);
    assert!(claim(&node, 1).wait().is_ok());
    assert_eq!(node.ranges.missing_partitions(), [0, 2, 3]);
}

#[test]
fn values_come_from_the_partitions_that_are_here() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    kept_logs.take(1, &node);
    kept_logs.take(2, &node);
    let mut granted = Vec::new();
    while let Ok(one) = reserve(&node, "sync").wait() {
        granted.push(one[0].value);
    }
    granted.sort_unstable();
    let here = |value: &u128| [1, 2].contains(&partitions().of_value(*value));
    let all: Vec<u128> = (0..400).filter(here).collect();
    assert_eq!(granted, all);
    assert_eq!(sizes(&node.ranges), [Some(200); 3]);
    assert!(node.ranges.check_here(Which::Value(5)).is_ok());
    assert!(node.ranges.has_some_of(node.ranges.range("sync").unwrap()));
}

#[test]
fn a_node_that_is_unsure_decides_nothing_and_goes_on_when_it_is_sure() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    let held = reserved(&node, "sync");
    kept_logs.set_unsure(&node, true);
    assert!(reserve(&node, "sync").wait().is_err());
    assert!(reserve(&node, "memory").wait().is_err());
    let partition = partitions().of_value(held.value);
    assert_eq!(
        not_here(node.ranges.release(held.value, Some(held.fence)).wait()),
        partition
    );
    assert!(node.ranges.check_here(Which::Value(held.value)).is_err());
    kept_logs.set_unsure(&node, false);
    assert!(node.ranges.check_here(Which::Value(held.value)).is_ok());
    assert!(
        node.ranges
            .release(held.value, Some(held.fence))
            .wait()
            .is_ok()
    );
    assert!(reserve(&node, "sync").wait().is_ok());
}

#[test]
fn a_key_is_found_in_the_partitions_that_are_here() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    let keys = [Key {
        bytes: b"user",
        unique: true,
    }];
    let prefer = anywhere(&node.ranges, "sync");
    let ask = Ask {
        keys: &keys,
        ..Ask::new(&prefer)
    };
    let first = node.ranges.reserve(&ask).wait().unwrap()[0];
    let again = node.ranges.reserve(&ask).wait().unwrap()[0];
    assert_eq!((again.value, again.is_known), (first.value, true));
    // It is put where its key is looked for.
    let partition = partitions().of_name(b"user");
    assert_eq!(partitions().of_value(first.value), partition);
    assert!(node.ranges.check_here(Which::Key(b"user")).is_ok());
    node.host.end(partition);
    let lookup = node.ranges.lookup(Which::Key(b"user")).wait();
    assert_eq!(not_here(lookup), partition);
}

#[test]
fn asks_that_wait_get_what_comes_with_a_partition() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    let prefer = anywhere(&node.ranges, "sync");
    let mut wait = pin!(node.ranges.reserve_within(&Ask::new(&prefer), HOUR));
    let mut task = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut task).is_pending());
    kept_logs.take(3, &node);
    eventually(|| node.ranges.waiting().0 == 0);
    let granted = block_on(wait).unwrap();
    assert_eq!(partitions().of_value(granted[0].value), 3);
}

#[test]
fn asks_that_wait_outlast_a_partition_and_are_served_by_what_is_left() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    kept_logs.take(0, &node);
    kept_logs.take(1, &node);
    let mut held = Vec::new();
    while let Ok(one) = reserve(&node, "sync").wait() {
        held.push(one[0]);
    }
    let prefer = anywhere(&node.ranges, "sync");
    let wait = node.ranges.reserve_within(&Ask::new(&prefer), HOUR);
    assert!(!wait.is_decided());
    node.host.end(1);
    let kept = held
        .iter()
        .find(|one| partitions().of_value(one.value) == 0);
    let kept = kept.unwrap();
    let released = node.ranges.release(kept.value, Some(kept.fence));
    released.wait().unwrap();
    assert_eq!(block_on(wait).unwrap()[0].value, kept.value);
}

#[test]
fn asks_that_wait_are_served_when_the_node_is_sure_again() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    kept_logs.set_unsure(&node, true);
    let prefer = anywhere(&node.ranges, "sync");
    let wait = node.ranges.reserve_within(&Ask::new(&prefer), HOUR);
    assert!(!wait.is_decided());
    kept_logs.set_unsure(&node, false);
    assert_eq!(block_on(wait).unwrap().len(), 1);
}

#[test]
fn fences_have_the_epoch_of_their_partition() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    for (partition, epoch) in [(0, 7), (1, 900)] {
        kept_logs.set_epoch(partition, epoch - 1);
        kept_logs.take(partition, &node);
    }
    let mut last = [7 << 32, 900 << 32];
    for value in 0..40 {
        let partition = partitions().of_value(value) as usize;
        if partition < 2 {
            let fence = claim(&node, value).wait().unwrap().fence;
            assert_eq!(fence, last[partition] + 1);
            last[partition] = fence;
        }
    }
    kept_logs.raise(0, &node);
    let held = holder(&node, 0);
    node.ranges.release(0, held).wait().unwrap();
    assert_eq!(claim(&node, 0).wait().unwrap().fence, (8 << 32) + 1);
}

#[test]
fn an_epoch_without_fences_is_told_once_and_gives_nothing() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    kept_logs.set_epoch(2, 6);
    let epoch = kept_logs.load(2, &node);
    // As if the former owner had used them up.
    let mut spent = Vec::new();
    let last = (epoch << 32) + u64::from(u32::MAX) - 100;
    rideau::allocator::Entry::Fence { last }.put(&mut spent);
    let piece = rideau::store::Piece::Batch(&spent);
    node.host.load(2, epoch, &[piece]).unwrap();
    kept_logs.begin(2, &node);
    assert_eq!(not_here(claim(&node, 2).wait()), 2);
    kept_logs.until(|state| state.spent == [(2, 7)]);
    kept_logs.raise(2, &node);
    let fence = claim(&node, 2).wait().unwrap().fence;
    assert_eq!(fence >> 32, 8);
    assert_eq!(kept_logs.state().spent, [(2, 7)]);
}

#[test]
fn ranges_change_also_where_partitions_are_closed_or_come_later() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start(options());
    kept_logs.take(0, &node);
    kept_logs.take(1, &node);
    let epoch = kept_logs.close_soon(1, &node);
    kept_logs.until(|state| state.is_closed(1, epoch));
    let new = RangeOptions::new(vec![Span::parse("5000-5099").unwrap()]);
    node.ranges.set_range("new", new).unwrap();
    let old = node.ranges.range("memory").unwrap();
    node.ranges.remove_range(old).unwrap();
    kept_logs.load(2, &node);
    kept_logs.begin(2, &node);
    kept_logs.raise(1, &node);
    for value in [5_000, 5_001, 5_002] {
        outcome(claim(&node, value)).unwrap();
    }
    assert_eq!(node.ranges.range("memory"), None);
    assert_eq!(node.ranges.stands(1_001), Standing::Outside);
}

#[test]
fn an_answer_says_what_it_rests_on() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    // From now on the first batches are safe.
    for value in 1_000..1_000 + u128::from(COUNT) {
        outcome(claim(&node, value)).unwrap();
    }
    let (_, at_once) = claim(&node, 1_005).into_parts();
    assert_eq!(at_once.ownerships().collect::<Vec<_>>(), [(1, 1)]);
    assert!(at_once.is_reached().unwrap() && at_once.is_owned());
    let (_, written) = claim(&node, 6).into_parts();
    assert_eq!(written.ownerships().collect::<Vec<_>>(), [(2, 1)]);
    written.wait().unwrap();
    kept_logs.set_unsure(&node, true);
    assert!(!at_once.is_owned());
    assert!(
        written.is_owned(),
        "its owner wrote it after it was decided"
    );
    let both = at_once.or_later(written);
    assert_eq!(both.ownerships().count(), 2);
    assert!(!both.is_owned());
}

#[test]
fn a_node_with_partitions_ends_in_order() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    let host = node.host.clone();
    let before = kept_logs.state().sections(0);
    drop(node);
    // All is written, and that nothing more comes.
    assert!(kept_logs.state().sections(0) > before);
    host.begin(0, 1);
    host.end(0);
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(30), future).await })
        .expect("it comes")
}
