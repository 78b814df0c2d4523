//! One node and an etcd that answers at once: what a reader can follow step by step.

use std::time::Duration;

use rideau_core::cluster::{
    AskRoute, Certainty, Cluster, DownReason, Effect, Incarnation, KeyRange, Options, OwnerRecord,
    PARKED_MAX, PeerMessage, RowMessage, StoreOp, StoreOutcome, StoreRequest, StoreTxn,
};
use rideau_core::{Instant, Machine};
use rideau_testing::etcd_model::EtcdModel;

/// A node, its etcd, and what the node wanted beside requests.
struct Pair {
    node: Cluster,
    etcd: EtcdModel,
    now: Instant,
    watch: (u64, u64),
    /// etcd gets nothing.
    is_cut: bool,
    told: Vec<Effect>,
}

impl Pair {
    fn new() -> Self {
        Self::resting(Duration::ZERO)
    }

    /// What the death of a node frees rests for this long.
    fn resting(rest: Duration) -> Self {
        let mut options = Options::new("sim", "n0");
        options.partitions = 2;
        options.rest = rest;
        let mut pair = Self {
            node: Cluster::new(options, 1),
            etcd: EtcdModel::default(),
            now: Instant::START,
            watch: (0, 1),
            is_cut: false,
            told: Vec::new(),
        };
        pair.step(|node, now, effects| node.began(Vec::new(), 0, now, effects));
        pair
    }

    /// A node that has settled and serves both partitions.
    fn serving() -> Self {
        let mut pair = Self::new();
        pair.pass(4_000);
        assert!(pair.serves(0) && pair.serves(1));
        pair.told.clear();
        pair
    }

    fn serves(&self, partition: u32) -> bool {
        self.node.serves(partition, self.now).is_some()
    }

    fn step(&mut self, input: impl FnOnce(&mut Cluster, Instant, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        input(&mut self.node, self.now, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Store { .. } | Effect::KeepAlive { .. } if self.is_cut => (),
            Effect::Store { id, request } => {
                let outcome = self.etcd.call(&request, now);
                self.step(|node, now, effects| node.stored(id, outcome, now, effects));
            }
            Effect::KeepAlive { stream, lease } => {
                let ttl = self.etcd.keep_alive(lease, now);
                self.step(|node, now, effects| node.kept(stream, ttl, now, effects));
            }
            Effect::Watch { watch, from } => self.watch = (watch, from),
            Effect::Load {
                partition, epoch, ..
            } => self.step(|node, now, effects| node.loaded(partition, epoch, now, effects)),
            Effect::Snapshot { partition, epoch } => self.step(|node, now, effects| {
                node.snapshot_begun(partition, epoch, now, effects);
                node.snapshotted(partition, epoch, vec![b"all".to_vec()], now, effects);
            }),
            told => self.told.push(told),
        }
    }

    /// Let this many milliseconds pass, in steps of ten.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.now = self.now.after(10_000_000);
            self.etcd.expire(self.now);
            if !self.is_cut {
                self.show();
            }
            self.step(Machine::advance);
        }
    }

    /// Show the node what its watch has.
    fn show(&mut self) {
        let (watch, from) = self.watch;
        let range = self.node.keys().watched();
        let seen = self
            .etcd
            .changes(from, &[range])
            .expect("nothing is compacted");
        for (revision, changes) in seen {
            self.watch.1 = revision + 1;
            self.step(|node, now, effects| node.seen(watch, revision, &changes, now, effects));
        }
        let revision = self.etcd.revision();
        self.step(|node, now, effects| node.seen(watch, revision, &[], now, effects));
    }

    /// All that was decided of a partition was appended.
    fn close(&mut self, partition: u32, epoch: u64) {
        self.step(|node, now, effects| node.closed(partition, epoch, now, effects));
        self.pass(20);
    }

    fn routes(&mut self) -> Vec<(u64, AskRoute)> {
        let routes = self.told.drain(..).filter_map(|effect| match effect {
            Effect::Route { ask, to } => Some((ask, to)),
            _ => None,
        });
        routes.collect()
    }
}

#[test]
fn a_node_owns_nothing_before_it_has_settled() {
    let mut pair = Pair::new();
    pair.pass(2_900);
    assert!(!pair.serves(0));
    pair.pass(200);
    assert!(pair.serves(0) && pair.serves(1));
    let epoch = pair.node.serves(0, pair.now);
    assert!(pair.told.contains(&Effect::Begin {
        partition: 0,
        epoch: epoch.unwrap()
    }));
}

#[test]
fn a_node_without_etcd_is_unsure_after_four_fifths_of_its_lease_and_keeps_all() {
    let mut pair = Pair::serving();
    pair.is_cut = true;
    pair.pass(2_900);
    assert!(
        pair.serves(0),
        "its last keepalive was at most a second ago"
    );
    pair.pass(1_200);
    assert!(!pair.serves(0));
    assert_eq!(pair.told, [Effect::Tell(Certainty::Unsure)]);
    // etcd was restarted, so the lease lives.
    pair.etcd.elect(pair.now);
    pair.is_cut = false;
    pair.pass(1_100);
    assert!(pair.serves(0));
    assert_eq!(pair.told[1..], [Effect::Tell(Certainty::Sure)]);
}

#[test]
fn a_node_whose_lease_is_gone_loses_all_and_joins_anew() {
    let mut pair = Pair::serving();
    let before = pair.node.incarnation().cloned().unwrap();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    pair.is_cut = true;
    pair.pass(6_000);
    pair.is_cut = false;
    pair.told.clear();
    pair.pass(2_000);
    assert!(pair.told.contains(&Effect::Tell(Certainty::Lost)));
    assert!(pair.told.contains(&Effect::End { partition: 0 }));
    pair.pass(8_000);
    let after = pair.node.incarnation().cloned().unwrap();
    assert!(after.fence > before.fence);
    assert!(pair.node.serves(0, pair.now).unwrap() > epoch);
}

#[test]
fn entries_are_committed_in_batches_of_what_came_meanwhile() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    let mut effects = Vec::new();
    let now = pair.now;
    let mut append = |node: &mut Cluster, epoch| node.append(0, epoch, b"e", now, &mut effects);
    assert_eq!(append(&mut pair.node, epoch), Some(0));
    assert_eq!(append(&mut pair.node, epoch), Some(1));
    assert_eq!(append(&mut pair.node, epoch), Some(1));
    assert_eq!(
        append(&mut pair.node, epoch + 1),
        None,
        "of another ownership"
    );
    assert_eq!(effects.len(), 1, "one batch is on its way: {effects:?}");
    // The outcome of the first is unknown, so it is written again, and etcd has it already.
    let Effect::Store { id, request } = effects.remove(0) else {
        panic!("a batch is written");
    };
    pair.etcd.call(&request, now);
    pair.step(|node, now, effects| node.stored(id, StoreOutcome::Unknown, now, effects));
    pair.pass(300);
    let committed = [0, 1].map(|seq| Effect::Committed { seq });
    assert_eq!(pair.told, committed);
}

#[test]
fn entries_that_come_late_are_written_once_the_node_is_sure() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    pair.is_cut = true;
    pair.pass(4_100);
    assert_eq!(pair.node.open_in(0), Some(epoch));
    assert!(pair.node.valid_until() <= pair.now);
    let mut seq = None;
    pair.step(|node, now, effects| seq = node.append(0, epoch, b"e", now, effects));
    assert_eq!(seq, Some(0));
    pair.etcd.elect(pair.now);
    pair.is_cut = false;
    pair.pass(1_100);
    assert!(pair.told.contains(&Effect::Committed { seq: 0 }));
    // The same while it is closing, and not when it is handed over.
    pair.step(|node, now, effects| node.spent(0, epoch, now, effects));
    pair.step(|node, now, effects| seq = node.append(0, epoch, b"e", now, effects));
    assert_eq!(seq, Some(1));
    pair.close(0, epoch);
    pair.step(|node, now, effects| seq = node.append(0, epoch, b"e", now, effects));
    assert_eq!(seq, None);
}

#[test]
fn a_hand_over_is_raised_epoch_by_epoch_when_fences_are_used_up() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    pair.step(|node, now, effects| node.spent(0, epoch, now, effects));
    let partition = 0;
    assert_eq!(pair.told, [Effect::Close { partition, epoch }]);
    pair.pass(20);
    assert_eq!(pair.node.serves(0, pair.now), None, "not closed yet");
    pair.close(0, epoch);
    assert_eq!(pair.node.serves(0, pair.now), Some(epoch + 1));
}

#[test]
fn an_ask_waits_for_an_owner_and_then_is_told_that_there_is_none() {
    let mut pair = Pair::new();
    pair.pass(100);
    let wait = Some(Duration::from_millis(500));
    pair.step(|node, now, effects| node.asked(1, 0, wait, now, effects));
    pair.step(|node, now, effects| node.asked(2, 0, None, now, effects));
    pair.pass(490);
    assert_eq!(pair.routes(), []);
    pair.pass(10);
    let down = AskRoute::Down(DownReason::NoOwner);
    assert_eq!(pair.routes(), [(1, down.clone())]);
    pair.pass(500);
    assert_eq!(pair.routes(), [(2, down)]);
    pair.pass(1_500);
    pair.step(|node, now, effects| node.asked(3, 0, None, now, effects));
    pair.pass(990);
    let epoch = pair.node.serves(0, pair.now).unwrap();
    assert_eq!(pair.routes(), [(3, AskRoute::Here { epoch })]);
}

#[test]
fn a_node_parks_a_limited_number_of_asks() {
    let mut pair = Pair::new();
    for ask in 0..=PARKED_MAX as u64 {
        pair.step(|node, now, effects| node.asked(ask, 0, None, now, effects));
    }
    let full = AskRoute::Down(DownReason::Full);
    assert_eq!(pair.routes(), [(PARKED_MAX as u64, full)]);
    pair.step(|node, now, effects| node.cancelled(7, now, effects));
    assert_eq!(pair.node.parked(), PARKED_MAX - 1);
}

#[test]
fn an_ask_of_another_node_counts_for_one_ownership() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    pair.step(|node, now, effects| node.asked_by_peer(1, 0, epoch, now, effects));
    pair.step(|node, now, effects| node.asked_by_peer(2, 0, epoch - 1, now, effects));
    // The sender knows more than this node: the ask waits for the watch.
    pair.step(|node, now, effects| node.asked_by_peer(3, 0, epoch + 1, now, effects));
    let routes = [
        (1, AskRoute::Here { epoch }),
        (2, AskRoute::NotMine { epoch }),
    ];
    assert_eq!(pair.routes(), routes);
    pair.step(|node, now, effects| node.spent(0, epoch, now, effects));
    pair.close(0, epoch);
    let epoch = epoch + 1;
    assert_eq!(pair.routes(), [(3, AskRoute::Here { epoch })]);
}

#[test]
fn names_wait_for_the_reports_of_all_nodes_and_ends_wait_behind_them() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    let me = pair.node.incarnation().cloned().unwrap();
    assert_eq!(pair.node.serves_names(0, pair.now), None);
    assert_eq!(Vec::from_iter(pair.node.awaited_reports(0)), [&me]);
    let (partition, ticket) = (0, 5);
    let end = RowMessage::End {
        partition,
        epoch,
        ticket,
        how: b"done".to_vec(),
    };
    pair.step(|node, now, effects| node.row_heard(&me, 0, end, now, effects));
    assert_eq!(pair.told, []);
    pair.step(|node, now, effects| node.name_asked(1, 0, None, now, effects));
    let report = RowMessage::Report {
        partition,
        epoch,
        rows: Vec::new(),
    };
    pair.step(|node, now, effects| node.row_heard(&me, 0, report.clone(), now, effects));
    let send = |message| Effect::SendRow {
        to: me.clone(),
        message,
    };
    let reported = send(RowMessage::Reported { partition, epoch });
    let told = [
        reported.clone(),
        Effect::Adopt {
            partition,
            epoch,
            reports: vec![(me.clone(), Vec::new())],
        },
        Effect::EndRow {
            partition,
            epoch,
            node: me.clone(),
            ticket,
            how: b"done".to_vec(),
        },
        send(RowMessage::Ended {
            partition,
            epoch,
            ticket,
        }),
        Effect::Route {
            ask: 1,
            to: AskRoute::Here { epoch },
        },
    ];
    assert_eq!(pair.told, told);
    assert_eq!(pair.node.serves_names(0, pair.now), Some(epoch));
    // A copy is acknowledged and changes nothing.
    pair.told.clear();
    pair.step(|node, now, effects| node.row_heard(&me, 0, report, now, effects));
    assert_eq!(pair.told, [reported]);
}

#[test]
fn a_name_that_another_node_has_is_not_taken() {
    let mut pair = Pair::new();
    pair.pass(100);
    let mut other = Cluster::new(Options::new("sim", "n0"), 2);
    let now = pair.now;
    let mut effects = Vec::new();
    other.began(Vec::new(), 0, now, &mut effects);
    let mut resigned = false;
    for step in 0..800 {
        let now = now.after(step * 10_000_000);
        other.advance(now, &mut effects);
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::Store { id, request } => {
                    let outcome = pair.etcd.call(&request, now);
                    other.stored(id, outcome, now, &mut effects);
                }
                Effect::Resign(_) => resigned = true,
                _ => (),
            }
        }
    }
    assert!(resigned);
    assert_eq!(other.incarnation(), None::<&Incarnation>);
}

#[test]
fn batches_that_no_record_names_are_deleted() {
    let mut pair = Pair::serving();
    let log = |pair: &Pair| {
        pair.etcd
            .range(&KeyRange::prefix("/rideau/sim/log/"))
            .count()
    };
    let epoch = pair.node.serves(0, pair.now).unwrap();
    for _ in 0..10 {
        pair.step(|node, now, effects| {
            let seq = node.append(0, epoch, &[0; 100], now, effects);
            assert!(seq.is_some());
        });
    }
    assert_eq!(log(&pair), 10);
    // A hand-over adds a segment, and the snapshot after it makes old batches needless. The
    // other partition has nothing in them, but its record names the same log.
    let other = pair.node.serves(1, pair.now).unwrap();
    pair.step(|node, now, effects| node.spent(0, epoch, now, effects));
    pair.step(|node, now, effects| node.spent(1, other, now, effects));
    pair.close(0, epoch);
    pair.close(1, other);
    pair.pass(1_000);
    assert_eq!(log(&pair), 0);
    let snapshot = StoreTxn::reading(vec![KeyRange::prefix("/rideau/sim/snap/0/")]);
    assert!(matches!(snapshot.then[..], [StoreOp::Read(_)]));
    let found = pair.etcd.call(&StoreRequest::Txn(snapshot), pair.now);
    assert!(format!("{found:?}").contains("snap/0/"));
}

impl Pair {
    /// Another node writes a key that does not go with a lease.
    fn put(&mut self, key: String, value: String) {
        let put = StoreOp::Put {
            key,
            value: value.into_bytes(),
            lease: None,
        };
        let txn = StoreTxn {
            compares: Vec::new(),
            then: vec![put],
            otherwise: Vec::new(),
        };
        self.etcd.call(&StoreRequest::Txn(txn), self.now);
    }

    /// A second node lives, and there is a link to it.
    fn joined_by_another(&mut self) -> Incarnation {
        self.put(self.node.keys().node("n1"), "1 9 1 ".into());
        let other = Incarnation::new("n1", self.etcd.revision());
        self.pass(10);
        let node = other.clone();
        self.step(|it, now, effects| it.linked(node, 0, now, effects));
        other
    }
}

#[test]
fn the_next_partition_moves_when_the_taker_says_that_it_serves_the_last() {
    let mut pair = Pair::serving();
    let epoch = pair.node.serves(0, pair.now).unwrap();
    let other = pair.joined_by_another();
    pair.pass(3_100);
    let closing = |effect: &Effect| match effect {
        Effect::Close { partition, .. } => Some(*partition),
        _ => None,
    };
    let partition = pair.told.iter().find_map(closing).expect("one moves");
    // It was handed over, and the taker is faster than this node's watch.
    pair.step(|node, now, effects| node.closed(partition, epoch, now, effects));
    let message = PeerMessage::Serves {
        partition,
        epoch: epoch + 1,
    };
    pair.step(|node, now, effects| node.heard(&other, &message, now, effects));
    assert!(pair.node.is_moving());
    pair.pass(200);
    assert_eq!(pair.node.owner(partition), Some((&other, epoch + 1)));
    assert!(!pair.node.is_moving(), "nothing is waited for");
}

#[test]
fn a_node_that_gave_a_partition_without_having_written_to_it_is_told_that_it_is_served() {
    let mut pair = Pair::new();
    let other = pair.joined_by_another();
    let record = |epoch, owner| OwnerRecord {
        epoch,
        owner,
        snapshot: None,
        segments: Vec::new(),
    };
    let key = pair.node.keys().owner(0);
    pair.put(key.clone(), record(5, other.clone()).to_string());
    pair.pass(100);
    let me = pair.node.incarnation().cloned().expect("it is live");
    // The segment of the giver is left out: it is empty.
    let given = record(5, other.clone()).succeeded_by(6, me, None, 4);
    pair.put(key, given.to_string());
    pair.pass(100);
    assert_eq!(pair.node.serves(0, pair.now), Some(6));
    let (to, partition, epoch) = (other, 0, 6);
    let message = PeerMessage::Serves { partition, epoch };
    assert!(pair.told.contains(&Effect::Send { to, message }));
}

#[test]
fn what_a_dead_node_leaves_is_granted_after_the_rest() {
    for rest in [0, 30] {
        let mut pair = Pair::resting(Duration::from_secs(rest));
        let other = pair.joined_by_another();
        let record = OwnerRecord {
            epoch: 5,
            owner: other.clone(),
            snapshot: None,
            segments: Vec::new(),
        };
        pair.put(pair.node.keys().owner(0), record.to_string());
        pair.pass(4_000);
        assert!(!pair.serves(0) && pair.serves(1));
        let delete = StoreOp::Delete(KeyRange::one(&pair.node.keys().node("n1")));
        let txn = StoreTxn {
            compares: Vec::new(),
            then: vec![delete],
            otherwise: Vec::new(),
        };
        pair.etcd.call(&StoreRequest::Txn(txn), pair.now);
        pair.pass(4_000);
        let me = pair.node.incarnation().cloned().unwrap();
        for partition in [0, 1] {
            let epoch = pair.node.serves(partition, pair.now).unwrap();
            let rows = Vec::new();
            let report = RowMessage::Report {
                partition,
                epoch,
                rows,
            };
            pair.step(|node, now, effects| node.row_heard(&me, 0, report, now, effects));
        }
        let gone = Effect::Gone {
            node: other.clone(),
        };
        let is_free = rest == 0;
        assert!(pair.node.serves_names(1, pair.now).is_some(), "none had it");
        assert_eq!(pair.node.serves_names(0, pair.now).is_some(), is_free);
        assert_eq!(pair.told.contains(&gone), is_free);
        pair.pass(30_000);
        assert!(pair.node.serves_names(0, pair.now).is_some());
        assert!(pair.told.contains(&gone));
    }
}
