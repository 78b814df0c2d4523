//! Requests of a node: which outcomes are certain, and what a node never sees.

use std::time::Duration;

use bytes::Bytes;
use rideau::store::etcd::{EtcdClient, KeyRange as EtcdRange, Txn, TxnOp, Watched};
use rideau_core::cluster::{
    KeyChange, KeyRange, StoreOp, StoreOutcome, StoreRefusal, StoreReply, StoreRequest, StoreTxn,
    TxnReply,
};

use crate::script::put;
use crate::server::Server;
use crate::soon;

async fn carry_out(client: &EtcdClient, then: Vec<StoreOp>) -> StoreOutcome {
    let txn = StoreTxn {
        then,
        ..StoreTxn::default()
    };
    client.carry_out(StoreRequest::Txn(txn)).await
}

#[tokio::test]
async fn a_full_etcd_and_one_that_is_down_leave_the_outcome_unknown() {
    let mut server = Server::start_with(&["--quota-backend-bytes", "4194304"]).await;
    let client = server.client().await;
    let value = vec![b'x'; 512 * 1_024];
    let outcome = loop {
        match carry_out(&client, vec![put("full/a".to_owned(), &value)]).await {
            StoreOutcome::Done(_) => (),
            outcome => break outcome,
        }
    };
    assert_eq!(outcome, StoreOutcome::Unknown);
    let ttl = Duration::from_secs(60);
    let granted = client.carry_out(StoreRequest::GrantLease { ttl }).await;
    assert_eq!(granted, StoreOutcome::Unknown);

    server.kill();
    let hasty = client.with_timeout(Duration::from_secs(1));
    let read = StoreOp::Read(KeyRange::one("full/a"));
    assert_eq!(carry_out(&hasty, vec![read]).await, StoreOutcome::Unknown);
    let compacted = hasty.carry_out(StoreRequest::Compact { revision: 1 }).await;
    assert_eq!(compacted, StoreOutcome::Unknown);
}

#[tokio::test]
async fn a_lease_that_cannot_be_is_lost_and_writes_nothing() {
    let server = Server::shared().await;
    let client = server.client().await;
    let lost = StoreOutcome::Refused(StoreRefusal::NoLease);
    for lease in [0, 1, u64::MAX] {
        let revoked = client.carry_out(StoreRequest::RevokeLease { lease }).await;
        assert_eq!(revoked, lost, "{lease}");
        let leased = StoreOp::Put {
            key: "lost/a".to_owned(),
            value: Vec::new(),
            lease: Some(lease),
        };
        let both = vec![put("lost/b".to_owned(), b""), leased];
        assert_eq!(carry_out(&client, both).await, lost, "{lease}");
    }
    assert_eq!(crate::read(&client, "lost/b").await, None);
}

#[tokio::test]
async fn a_node_sees_no_key_that_is_no_text() {
    let server = Server::shared().await;
    let client = server.client().await;
    let strange = Bytes::from_static(b"text/\xff");
    let txn = Txn::new()
        .then(TxnOp::put(strange, "x"))
        .then(TxnOp::put("text/a", "x"))
        .then(TxnOp::Delete(EtcdRange::key("text/b")));
    let revision = client.txn(txn).await.unwrap().revision;
    let all = KeyRange::prefix("text/");
    let none = KeyRange {
        from: "text/b".to_owned(),
        to: "text/a".to_owned(),
    };
    let reads = [none, all.clone()].map(StoreOp::Read).into();
    let StoreOutcome::Done(StoreReply::Txn(TxnReply { reads, .. })) =
        carry_out(&client, reads).await
    else {
        panic!("it can be read");
    };
    let [none, found] = &reads[..] else {
        panic!("{reads:?}");
    };
    assert_eq!((none.len(), found.len()), (0, 1));
    assert_eq!(found[0].key, "text/a");

    let mut watch = client.watch_core(&all, found[0].changed).unwrap();
    let told = soon(watch.next()).await.unwrap();
    let (seen, changes) = told.to_core().unwrap();
    assert_eq!(i64::try_from(seen), Ok(revision));
    assert_eq!(changes, [KeyChange::Put(found[0].clone())]);
    assert_eq!(Watched::Alive.to_core(), None);
}
