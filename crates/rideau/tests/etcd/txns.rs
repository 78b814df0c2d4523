//! Transactions and reads, and their limits.

use bytes::Bytes;
use rideau::store::etcd::{
    EtcdClient, EtcdDoubt, EtcdError, EtcdRead, EtcdRefusal, KeyRange, KeyStamp, Txn, TxnDone,
    TxnOp, TxnReply,
};

use crate::server::Server;
use crate::{put, read};

#[tokio::test]
async fn a_transaction_does_one_branch_as_its_compares_say() {
    let server = Server::shared().await;
    let client = server.client().await;
    let batch = || {
        Txn::new()
            .when("branch/log", KeyStamp::Version, 0)
            .then(TxnOp::put("branch/log", "batch"))
            .otherwise(TxnOp::Read(EtcdRead::newest(KeyRange::key("branch/log"))))
            .otherwise(TxnOp::Read(EtcdRead::newest(KeyRange::key("branch/x"))))
    };
    let first = client.txn(batch()).await.unwrap();
    assert_eq!((first.holds, &first.done[..]), (true, &[TxnDone::Put][..]));

    let again = client.txn(batch()).await.unwrap();
    assert!(!again.holds && again.revision >= first.revision);
    let [TxnDone::Read(log), TxnDone::Read(none)] = &again.done[..] else {
        panic!("{again:?}");
    };
    assert_eq!((log.count, none.count), (1, 0));
    let log = &log.keys[0];
    assert_eq!(
        (&log.key[..], &log.value[..]),
        (&b"branch/log"[..], &b"batch"[..])
    );
    assert_eq!(
        (log.created, log.modified),
        (first.revision, first.revision)
    );
    assert_eq!((log.version, log.lease), (1, None));
}

#[tokio::test]
async fn every_number_of_a_key_is_compared() {
    let server = Server::shared().await;
    let client = server.client().await;
    let created = put(&client, "stamp/a", "1").await.revision;
    let modified = put(&client, "stamp/a", "2").await.revision;
    for (stamp, number) in [
        (KeyStamp::Created, created),
        (KeyStamp::Modified, modified),
        (KeyStamp::Version, 2),
    ] {
        for (number, is_right) in [(number, true), (number + 1, false), (0, false)] {
            let when = Txn::new().when("stamp/a", stamp, number);
            let not = Txn::new().when_not("stamp/a", stamp, number);
            let (when, not) = (client.txn(when).await, client.txn(not).await);
            assert_eq!(when.unwrap().holds, is_right, "{stamp:?} {number}");
            assert_eq!(not.unwrap().holds, !is_right, "{stamp:?} {number}");
        }
    }
}

#[tokio::test]
async fn ranges_are_read_in_parts_and_deleted_as_a_whole() {
    let server = Server::shared().await;
    let client = server.client().await;
    for key in ["range/a", "range/b", "range/c", "range0"] {
        put(&client, key, key).await;
    }
    let mut part = EtcdRead::newest(KeyRange::prefix("range/"));
    (part.keys_max, part.keys_only) = (2, true);
    let found = client.read(part.clone()).await.unwrap();
    assert_eq!((found.count, found.has_more), (3, true));
    let keys: Vec<_> = found.keys.iter().map(|key| &key.key[..]).collect();
    assert_eq!(keys, [b"range/a", b"range/b"]);
    assert!(found.keys.iter().all(|key| key.value.is_empty()));

    let delete = Txn::new().then(TxnOp::Delete(KeyRange::prefix("range/")));
    let deleted = client.txn(delete).await.unwrap();
    assert_eq!(deleted.done, [TxnDone::Deleted(3)]);
    assert_eq!(client.read(part.clone()).await.unwrap().count, 0);
    // As it was before.
    part.revision = found.revision;
    part.may_be_old = true;
    assert_eq!(client.read(part).await.unwrap().count, 3);
    assert!(read(&client, "range0").await.is_some());
    let rest = KeyRange::between("range/", "range1");
    assert_eq!(client.read(EtcdRead::newest(rest)).await.unwrap().count, 1);
}

#[tokio::test]
async fn a_branch_has_at_most_128_operations() {
    let server = Server::shared().await;
    let client = server.client().await;
    let puts = async |count: usize| {
        let keys = (0..count).map(|number| format!("many/{number}"));
        let txn = keys.fold(Txn::new(), |txn, key| txn.then(TxnOp::put(key, "")));
        client.txn(txn).await
    };
    assert_eq!(puts(128).await.unwrap().done.len(), 128);
    let error = puts(129).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::TooMany), "{error}");

    let twice = Txn::new()
        .then(TxnOp::put("many/twice", "a"))
        .then(TxnOp::put("many/twice", "b"));
    let error = client.txn(twice).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::KeyTwice), "{error}");
    assert_eq!(read(&client, "many/twice").await, None);
}

#[tokio::test]
async fn a_value_has_at_most_1536_kib() {
    let server = Server::shared().await;
    let client = server.client().await;
    assert!(put_large(&client, 1_535 * 1_024).await.is_ok());
    for kib in [1_537, 3_000] {
        let error = put_large(&client, kib * 1_024).await.unwrap_err();
        assert_eq!(
            error.refusal(),
            Some(EtcdRefusal::TooLarge),
            "{kib}: {error}"
        );
    }
    let kept = read(&client, "large/a").await.unwrap();
    assert_eq!(kept.value.len(), 1_535 * 1_024);
}

async fn put_large(client: &EtcdClient, len: usize) -> Result<TxnReply, EtcdError> {
    let value = Bytes::from(vec![b'x'; len]);
    client
        .txn(Txn::new().then(TxnOp::put("large/a", value)))
        .await
}

#[tokio::test]
async fn a_full_etcd_is_told_apart_and_still_reads_and_deletes() {
    let server = Server::start_with(&["--quota-backend-bytes", "4194304"]).await;
    let client = server.client().await;
    let lease = client.grant_lease(std::time::Duration::from_secs(60)).await;
    let lease = lease.unwrap();
    let error = loop {
        if let Err(error) = put_large(&client, 512 * 1_024).await {
            break error;
        }
    };
    // etcd may have done it all the same, so it is no refusal.
    assert_eq!(error.doubt(), Some(EtcdDoubt::NoSpace), "{error}");
    assert!(error.to_string().contains("then defragment"));
    let error = client.grant_lease(lease.ttl).await.unwrap_err();
    assert_eq!(error.doubt(), Some(EtcdDoubt::NoSpace), "{error}");

    let status = client.status().await.unwrap();
    assert!(
        status.bytes > 2_000_000 && status.used_bytes > 0,
        "{status:?}"
    );
    assert!(read(&client, "large/a").await.is_some());
    let delete = Txn::new().then(TxnOp::Delete(KeyRange::key("large/a")));
    let deleted = client.txn(delete).await.unwrap();
    assert_eq!(deleted.done, [TxnDone::Deleted(1)]);
    let mut keeper = client.keep_lease(lease.id, lease.ttl);
    keeper.keep_alive().await.unwrap();
}
