//! What is relied on in etcd, step by step.

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn put(key: &str, lease: Option<u64>) -> StoreOp {
    StoreOp::Put {
        key: key.to_owned(),
        value: b"x".to_vec(),
        lease,
    }
}

fn txn(etcd: &mut EtcdModel, compares: &[(&str, Holds)], then: Vec<StoreOp>) -> StoreOutcome {
    let compares = compares.iter().map(|(key, holds)| Compare {
        key: (*key).to_owned(),
        holds: *holds,
    });
    let txn = StoreTxn {
        compares: compares.collect(),
        then,
        otherwise: Vec::new(),
    };
    etcd.call(&StoreRequest::Txn(txn), at(0))
}

fn held(outcome: &StoreOutcome) -> bool {
    matches!(
        outcome,
        StoreOutcome::Done(StoreReply::Txn(TxnReply { held: true, .. }))
    )
}

fn granted(etcd: &mut EtcdModel, secs: u64, now: Instant) -> u64 {
    let ttl = Duration::from_secs(secs);
    match etcd.call(&StoreRequest::GrantLease { ttl }, now) {
        StoreOutcome::Done(StoreReply::Granted { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_knows_when_it_was_created_and_how_often_it_was_put() {
    let mut etcd = EtcdModel::default();
    txn(&mut etcd, &[], vec![put("a", None)]);
    txn(&mut etcd, &[], vec![put("a", None), put("b", None)]);
    let a = etcd.key("a").unwrap();
    assert_eq!((a.created, a.changed, a.version), (2, 3, 2));
    let b = etcd.key("b").unwrap();
    assert_eq!((b.created, b.changed, b.version), (3, 3, 1));
    txn(&mut etcd, &[], vec![StoreOp::Delete(KeyRange::one("a"))]);
    txn(&mut etcd, &[], vec![put("a", None)]);
    let a = etcd.key("a").unwrap();
    assert_eq!((a.created, a.version), (5, 1));
    // Nothing to delete: no revision.
    txn(&mut etcd, &[], vec![StoreOp::Delete(KeyRange::one("none"))]);
    assert_eq!(etcd.revision(), 5);
}

#[test]
fn compares_decide_and_a_missing_key_is_zero() {
    let mut etcd = EtcdModel::default();
    assert!(held(&txn(
        &mut etcd,
        &[("a", Holds::Version(0))],
        vec![put("a", None)]
    )));
    assert!(!held(&txn(
        &mut etcd,
        &[("a", Holds::Version(0))],
        vec![put("a", None)]
    )));
    assert!(held(&txn(&mut etcd, &[("a", Holds::CreatedAt(2))], vec![])));
    assert!(held(&txn(&mut etcd, &[("a", Holds::ChangedAt(2))], vec![])));
    assert!(!held(&txn(
        &mut etcd,
        &[("a", Holds::NotCreatedAt(2))],
        vec![]
    )));
    assert!(held(&txn(
        &mut etcd,
        &[("b", Holds::NotCreatedAt(2))],
        vec![]
    )));
}

#[test]
fn a_range_that_ends_before_its_beginning_has_no_keys() {
    let mut etcd = EtcdModel::default();
    let none = KeyRange {
        from: "b".to_owned(),
        to: "a".to_owned(),
    };
    let ops = vec![
        put("a", None),
        put("b", None),
        StoreOp::Delete(none.clone()),
    ];
    assert!(held(&txn(&mut etcd, &[], ops)));
    assert_eq!(etcd.range(&none).count(), 0);
    assert_eq!(etcd.range(&KeyRange::prefix("b")).count(), 1);
}

#[test]
fn keys_of_a_lease_go_in_one_revision_and_never_early() {
    let mut etcd = EtcdModel::default();
    let lease = granted(&mut etcd, 1, at(0));
    txn(&mut etcd, &[], vec![put("a", Some(lease))]);
    txn(&mut etcd, &[], vec![put("b", Some(lease))]);
    etcd.expire(at(1_999));
    assert_eq!(etcd.keep_alive(lease, at(1_999)), TTL_MIN);
    etcd.expire(at(3_998));
    assert!(etcd.key("a").is_some());
    etcd.expire(at(3_999));
    let gone = ["a", "b"].map(|key| KeyChange::Deleted(key.to_owned()));
    let all = [KeyRange::prefix("a"), KeyRange::prefix("b")];
    assert_eq!(etcd.changes(4, &all).unwrap(), [(4, gone.to_vec())]);
    assert_eq!(etcd.keep_alive(lease, at(4_000)), Duration::ZERO);
    let refused = txn(&mut etcd, &[], vec![put("c", None), put("a", Some(lease))]);
    assert_eq!(refused, StoreOutcome::Refused(StoreRefusal::NoLease));
    assert!(etcd.key("c").is_none(), "all or nothing");
}

#[test]
fn a_lease_lasts_for_whole_seconds_and_no_less_than_asked() {
    let mut etcd = EtcdModel::default();
    for (asked, given) in [(0, 2), (1_000, 2), (2_000, 2), (2_001, 3), (5_000, 5)] {
        let ttl = Duration::from_millis(asked);
        let lease = etcd.call(&StoreRequest::GrantLease { ttl }, at(0));
        let StoreOutcome::Done(StoreReply::Granted { ttl, .. }) = lease else {
            panic!("{lease:?}");
        };
        assert_eq!(ttl, Duration::from_secs(given), "{asked} ms");
    }
}

#[test]
fn an_election_gives_leases_their_whole_length_again() {
    let mut etcd = EtcdModel::default();
    let lease = granted(&mut etcd, 5, at(0));
    etcd.elect(at(13_000));
    etcd.expire(at(17_999));
    assert_eq!(etcd.keep_alive(lease, at(17_999)), Duration::from_secs(5));
}

#[test]
fn limits_are_those_of_etcd() {
    let mut etcd = EtcdModel::default();
    let puts = |count: usize| (0..count).map(|at| put(&format!("k{at}"), None)).collect();
    assert!(held(&txn(&mut etcd, &[], puts(128))));
    let refused = StoreOutcome::Refused(StoreRefusal::TooMany);
    assert_eq!(txn(&mut etcd, &[], puts(129)), refused);
    assert_eq!(
        txn(&mut etcd, &[("a", Holds::Version(0)); 200], vec![]),
        refused
    );
    let twice = txn(&mut etcd, &[], vec![put("a", None), put("a", None)]);
    assert_eq!(twice, StoreOutcome::Refused(StoreRefusal::KeyTwice));
    let mut large = |kib: usize, keys: [&str; 2]| {
        let ops = keys.map(|key| StoreOp::Put {
            key: key.to_owned(),
            value: vec![b'x'; kib * 512],
            lease: None,
        });
        txn(&mut etcd, &[], ops.into())
    };
    assert!(held(&large(1_500, ["a", "b"])));
    for (kib, keys, refusal) in [
        (1_600, ["a", "b"], StoreRefusal::TooLarge),
        (1_600, ["a", "a"], StoreRefusal::KeyTwice),
        (2_200, ["a", "a"], StoreRefusal::TooLarge),
    ] {
        assert_eq!(large(kib, keys), StoreOutcome::Refused(refusal), "{kib}");
    }
}

#[test]
fn a_watch_from_a_compacted_revision_is_told_so() {
    let mut etcd = EtcdModel::default();
    for _ in 0..5 {
        txn(&mut etcd, &[], vec![put("a", None)]);
    }
    let all = [KeyRange::prefix("a")];
    etcd.call(&StoreRequest::Compact { revision: 4 }, at(0));
    assert_eq!(etcd.changes(3, &all), Err(4));
    assert_eq!(etcd.changes(4, &all).unwrap().len(), 3);
    for revision in [3, 4, 7] {
        let again = etcd.call(&StoreRequest::Compact { revision }, at(0));
        assert_eq!(again, StoreOutcome::Refused(StoreRefusal::Compacted));
    }
}

#[test]
fn a_watch_from_the_compacted_revision_misses_its_deletions() {
    let mut etcd = EtcdModel::default();
    txn(&mut etcd, &[], vec![put("a", None)]);
    let ops = vec![StoreOp::Delete(KeyRange::one("a")), put("ab", None)];
    txn(&mut etcd, &[], ops);
    let all = [KeyRange::prefix("a")];
    assert_eq!(etcd.changes(3, &all).unwrap()[0].1.len(), 2);
    etcd.call(&StoreRequest::Compact { revision: 3 }, at(0));
    let left = etcd.key("ab").unwrap().clone();
    assert_eq!(
        etcd.changes(3, &all).unwrap(),
        [(3, vec![KeyChange::Put(left)])]
    );
}

#[test]
fn a_full_etcd_deletes_and_keeps_alive_but_puts_and_grants_nothing() {
    let mut etcd = EtcdModel::new(4);
    let lease = granted(&mut etcd, 5, at(0));
    assert!(held(&txn(
        &mut etcd,
        &[],
        vec![put("a", None), put("b", None)]
    )));
    // The request that reaches the quota is done, and refused all the same.
    let full = StoreOutcome::Unknown;
    assert_eq!(txn(&mut etcd, &[], vec![put("c", None)]), full);
    assert!(etcd.key("c").is_some());
    assert_eq!(txn(&mut etcd, &[], vec![put("d", None)]), full);
    assert!(etcd.key("d").is_none());
    let ttl = Duration::from_secs(5);
    assert_eq!(etcd.call(&StoreRequest::GrantLease { ttl }, at(0)), full);
    assert_eq!(etcd.keep_alive(lease, at(0)), ttl);
    assert!(held(&txn(
        &mut etcd,
        &[],
        vec![StoreOp::Delete(KeyRange {
            from: "a".to_owned(),
            to: "c".to_owned()
        })]
    )));
    assert_eq!(
        txn(&mut etcd, &[], vec![put("d", None)]),
        full,
        "the alarm stays"
    );
    etcd.disarm();
    assert!(held(&txn(&mut etcd, &[], vec![put("d", None)])));
}
