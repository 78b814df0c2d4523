//! Leases: how long they last, and how their end shows.

use std::time::Duration;

use rideau::store::etcd::{
    EtcdDoubt, EtcdRefusal, KeptAlive, KeyChange, KeyRange, Txn, TxnOp, Watched,
};

use crate::server::{Server, until};
use crate::{hold, is_created_by, keep, leased, outlast, put, read, soon};

const TTL: Duration = Duration::from_secs(2);
/// Long enough for some calls on a busy machine.
const LONG: Duration = Duration::from_secs(5);
const PATIENT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_lease_of_one_second_lasts_two() {
    let server = Server::shared().await;
    let client = server.client().await;
    for (asked, granted) in [(1_000, 2), (2_000, 2), (2_001, 3), (5_000, 5)] {
        let lease = client.grant_lease(Duration::from_millis(asked)).await;
        let lease = lease.unwrap();
        assert_eq!(lease.ttl, Duration::from_secs(granted), "{asked} ms");
        client.revoke_lease(lease.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_create_revision_is_right_until_the_lease_expires() {
    let server = Server::shared().await;
    let client = server.client().await;
    let (lease, created) = hold(&client, "fence/a", LONG).await;
    let key = read(&client, "fence/a").await.unwrap();
    assert_eq!((key.created, key.lease), (created, Some(lease.id)));
    assert!(is_created_by(&client, "fence/a", created).await);
    assert!(!is_created_by(&client, "fence/a", created - 1).await);
    until("the lease has expired", async || {
        read(&client, "fence/a").await.is_none()
    })
    .await;
    assert!(!is_created_by(&client, "fence/a", created).await);
    assert!(is_created_by(&client, "fence/a", 0).await);
}

#[tokio::test]
async fn all_keys_of_a_lease_go_in_one_revision() {
    let server = Server::shared().await;
    let client = server.client().await;
    let lease = client.grant_lease(LONG).await.unwrap();
    let names = ["gone/a", "gone/b", "gone/c", "gone/d", "gone/e"];
    let puts = names
        .iter()
        .fold(Txn::new(), |txn, key| txn.then(leased(key, lease)));
    let put = client.txn(puts).await.unwrap().revision;

    let mut watch = client.watch(KeyRange::prefix("gone/"), put + 1);
    let Watched::Changed { revision, changes } = soon(watch.next()).await.unwrap() else {
        panic!("the keys go");
    };
    let mut gone = Vec::new();
    for change in changes {
        match change {
            KeyChange::Deleted(key) if key.modified == revision => gone.push(key.key),
            change => panic!("{change:?}"),
        }
    }
    gone.sort();
    assert_eq!(gone, names);
}

#[tokio::test]
async fn a_put_with_a_lost_lease_is_refused_with_all_that_is_beside_it() {
    let server = Server::shared().await;
    let client = server.client().await;
    let lease = client.grant_lease(TTL).await.unwrap();
    client.revoke_lease(lease.id).await.unwrap();
    let txn = Txn::new()
        .then(TxnOp::put("refused/a", ""))
        .then(leased("refused/b", lease));
    let error = client.txn(txn).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::LeaseNotFound), "{error}");
    assert_eq!(read(&client, "refused/a").await, None);
    assert_eq!(read(&client, "refused/b").await, None);

    let error = client.revoke_lease(lease.id).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::LeaseNotFound), "{error}");
}

#[tokio::test]
async fn a_keepalive_tells_whether_the_lease_is_lost() {
    let server = Server::shared().await;
    let client = server.client().await;
    let lease = client.grant_lease(LONG).await.unwrap();
    let mut keeper = client.keep_lease(lease.id, PATIENT);
    for _ in 0..3 {
        assert_eq!(keeper.keep_alive().await.unwrap(), KeptAlive::Kept(LONG));
    }
    client.revoke_lease(lease.id).await.unwrap();
    for _ in 0..2 {
        assert_eq!(keeper.keep_alive().await.unwrap(), KeptAlive::Lost);
    }
}

#[tokio::test]
async fn a_keepalive_that_is_given_up_leaves_no_reply_behind() {
    let server = Server::start().await;
    let client = server.client().await;
    for is_dropped in [false, true] {
        let lease = client.grant_lease(Duration::from_secs(60)).await.unwrap();
        let mut keeper = client.keep_lease(lease.id, Duration::from_millis(300));
        assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));

        server.pause().await;
        if is_dropped {
            let part = Duration::from_millis(50);
            let dropped = tokio::time::timeout(part, keeper.keep_alive()).await;
            assert!(dropped.is_err());
        } else {
            let error = keeper.keep_alive().await.unwrap_err();
            assert_eq!(error.doubt(), Some(EtcdDoubt::Silent), "{error}");
        }
        // What was asked before must not be answered to what is asked now.
        server.resume();
        client.revoke_lease(lease.id).await.unwrap();
        assert_eq!(keep(&mut keeper).await, KeptAlive::Lost);
    }
}

#[tokio::test]
async fn a_lease_outlives_a_crash_of_etcd_that_is_longer_than_it() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let (lease, created) = hold(&client, "node", LONG).await;
    let mut keeper = client.keep_lease(lease.id, Duration::from_secs(1));
    assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));

    server.kill();
    assert!(keeper.keep_alive().await.is_err());
    outlast(lease).await;
    server.begin_again();
    // No restart loses a lease.
    assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));
    assert!(is_created_by(&client, "node", created).await);
}

#[tokio::test]
async fn a_lone_member_that_is_paused_for_longer_than_a_lease_loses_it() {
    let server = Server::start().await;
    let client = server.client().await;
    let (lease, created) = hold(&client, "node", TTL).await;
    let mut keeper = client.keep_lease(lease.id, Duration::from_secs(1));
    assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));

    server.pause().await;
    outlast(lease).await;
    server.resume();
    assert_eq!(keep(&mut keeper).await, KeptAlive::Lost);
    until("the key is gone", async || {
        read(&client, "node").await.is_none()
    })
    .await;
    assert!(!is_created_by(&client, "node", created).await);
    put(&client, "node", "again").await;
}
