//! The clock of a partition goes with it from node to node.

use std::time::Duration;

use rideau::allocator::{Ask, Which};
use rideau::store::PartitionHost;

use crate::kept_logs::{KeptLogs, Node, anywhere, eventually, holder, options};

const SECOND: Duration = Duration::from_secs(1);

fn two(kept_logs: &KeptLogs) -> [Node; 2] {
    [(); 2].map(|()| kept_logs.start(options()))
}

/// Reserve a value for so long.
fn reserve_for(node: &Node, ttl: Duration) -> rideau::allocator::Reservation {
    let prefer = anywhere(&node.ranges, "sync");
    let ask = Ask {
        ttl: Some(ttl),
        ..Ask::new(&prefer)
    };
    node.ranges.reserve(&ask).wait().unwrap()[0]
}

/// How long a value is still held, by the clock of a node.
fn left(node: &Node, value: u128) -> Duration {
    let seen = node.ranges.lookup(Which::Value(value)).wait().unwrap();
    seen[0].until.since(node.ranges.now())
}

fn close_to(span: Duration, wanted: Duration) -> bool {
    span >= wanted && span < wanted + Duration::from_millis(20)
}

#[test]
fn nothing_is_added_for_the_time_between_two_owners() {
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    kept_logs.take(1, &a);
    a.clocks.advance(100 * SECOND);
    let held = reserve_for(&a, 60 * SECOND);
    // Nothing was written after the hold began, for as long as nothing looked.
    kept_logs.lose(1);
    b.clocks.advance(9 * SECOND);
    kept_logs.load(1, &b);
    b.clocks.advance(5 * SECOND);
    kept_logs.begin(1, &b);
    assert!(close_to(left(&b, held.value), 60 * SECOND));
    b.clocks.advance(59 * SECOND);
    assert_eq!(holder(&b, held.value), Some(held.fence));
    b.clocks.advance(2 * SECOND);
    assert_eq!(holder(&b, held.value), None);
}

#[test]
fn a_hand_over_goes_on_where_the_clock_was() {
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    kept_logs.take(1, &a);
    let held = reserve_for(&a, 60 * SECOND);
    a.clocks.advance(20 * SECOND);
    kept_logs.hand_over(1, &a, &b);
    assert!(close_to(left(&b, held.value), 40 * SECOND));
    b.clocks.advance(15 * SECOND);
    kept_logs.hand_over(1, &b, &a);
    assert!(close_to(left(&a, held.value), 25 * SECOND));
}

#[test]
fn a_hand_over_to_itself_goes_on_as_before() {
    let kept_logs = KeptLogs::new();
    let [a, _] = two(&kept_logs);
    kept_logs.take(1, &a);
    let held = reserve_for(&a, 60 * SECOND);
    let epoch = kept_logs.close_soon(1, &a);
    kept_logs.until(|state| state.is_closed(1, epoch));
    a.clocks.advance(20 * SECOND);
    kept_logs.raise_closed(1, &a);
    assert!(close_to(left(&a, held.value), 40 * SECOND));
}

#[test]
fn an_idle_node_writes_the_clock_where_something_ends() {
    let kept_logs = KeptLogs::new();
    let mut options = options();
    options.ranges.truncate(1);
    let [a, b] = [(); 2].map(|()| kept_logs.start(options.clone()));
    kept_logs.take(1, &a);
    kept_logs.take(2, &a);
    let held = loop {
        let held = reserve_for(&a, 60 * SECOND);
        if crate::kept_logs::partitions().of_value(held.value) == 1 {
            break held;
        }
        a.ranges
            .release(held.value, Some(held.fence))
            .wait()
            .unwrap();
    };
    eventually(|| kept_logs.state().clock(2).is_some());
    let before = [1, 2].map(|partition| kept_logs.state().sections(partition));
    let clock = kept_logs.state().clock(1).unwrap();
    a.clocks.advance(6 * SECOND);
    let moved = |nanos: u64| nanos >= clock + 6_000_000_000;
    eventually(|| kept_logs.state().clock(1).is_some_and(moved));
    assert!(kept_logs.state().sections(1) > before[0]);
    assert_eq!(
        kept_logs.state().sections(2),
        before[1],
        "nothing ends there"
    );
    kept_logs.lose(1);
    kept_logs.take(1, &b);
    a.host.end(1);
    assert!(close_to(left(&b, held.value), 54 * SECOND));
}

#[test]
fn all_that_is_told_of_times_is_by_the_clock_of_the_node() {
    let kept_logs = KeptLogs::new();
    let [a, b] = two(&kept_logs);
    kept_logs.take(1, &a);
    a.clocks.advance(50_000 * SECOND);
    let held = reserve_for(&a, 60 * SECOND);
    a.clocks.advance(10 * SECOND);
    kept_logs.hand_over(1, &a, &b);
    let seen = b.ranges.lookup(Which::Value(held.value)).wait().unwrap();
    let age = b.ranges.now().since(seen[0].created);
    assert!(
        close_to(age + Duration::from_millis(2), 10 * SECOND),
        "{age:?}"
    );
    assert_eq!(b.ranges.ending_within(51 * SECOND).len(), 1);
    assert_eq!(b.ranges.ending_within(49 * SECOND).len(), 0);
    let mut events = b.ranges.watch();
    b.clocks.advance(55 * SECOND);
    let fence = eventually_told(&mut events, &b);
    assert_eq!(fence, held.fence);
}

fn eventually_told(
    events: &mut tokio::sync::broadcast::Receiver<rideau::allocator::Event>,
    node: &Node,
) -> u64 {
    let event = crate::serving::block_on(events.recv()).unwrap();
    assert_eq!(event.at.since(node.ranges.now()), Duration::ZERO);
    event.fence
}
