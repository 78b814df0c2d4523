//! The client of etcd against real members: what is relied on of etcd, and what the client
//! makes of it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "etcd/access.rs"]
mod access;
#[path = "etcd/faults.rs"]
mod faults;
#[path = "etcd/laws.rs"]
mod laws;
#[path = "etcd/leases.rs"]
mod leases;
#[path = "etcd/requests.rs"]
mod requests;
#[path = "etcd/script.rs"]
mod script;
#[path = "server/etcd.rs"]
mod server;
#[path = "etcd/txns.rs"]
mod txns;
#[path = "etcd/watches.rs"]
mod watches;

use std::time::Duration;

use rideau::store::etcd::{
    EtcdClient, EtcdKey, EtcdLease, EtcdRead, EtcdRefusal, KeptAlive, KeyRange, KeyStamp,
    LeaseKeeper, Txn, TxnOp, TxnReply,
};
use server::PATIENCE;
use tokio::time::{sleep, timeout};

/// What a test waits for, which must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Waits for longer than a lease lasts: only so can one see that it is still there.
async fn outlast(lease: EtcdLease) {
    sleep(lease.ttl + Duration::from_secs(1)).await;
}

/// A lease with a key, and the revision that created the key. A busy machine may need
/// longer for it than the lease lasts.
async fn hold(client: &EtcdClient, key: &str, ttl: Duration) -> (EtcdLease, i64) {
    loop {
        let lease = client.grant_lease(ttl).await.unwrap();
        match client.txn(Txn::new().then(leased(key, lease))).await {
            Ok(reply) => return (lease, reply.revision),
            Err(error) => assert_eq!(error.refusal(), Some(EtcdRefusal::LeaseNotFound), "{error}"),
        }
    }
}

/// Sends keepalives until one is answered.
async fn keep(keeper: &mut LeaseKeeper) -> KeptAlive {
    loop {
        if let Ok(answer) = soon(keeper.keep_alive()).await {
            return answer;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A key that ends with a lease.
fn leased(key: &str, lease: EtcdLease) -> TxnOp {
    TxnOp::Put {
        key: key.to_owned().into(),
        value: "value".into(),
        lease: Some(lease.id),
    }
}

async fn put(client: &EtcdClient, key: &str, value: &str) -> TxnReply {
    let op = TxnOp::put(key.to_owned(), value.to_owned());
    client.txn(Txn::new().then(op)).await.unwrap()
}

/// The key, if it is there.
async fn read(client: &EtcdClient, key: &str) -> Option<EtcdKey> {
    let read = EtcdRead::newest(KeyRange::key(key.to_owned()));
    let found = client.read(read).await.unwrap();
    found.keys.into_iter().next()
}

/// Whether the key's create revision is this one.
async fn is_created_by(client: &EtcdClient, key: &str, revision: i64) -> bool {
    let txn = Txn::new().when(key.to_owned(), KeyStamp::Created, revision);
    client.txn(txn).await.unwrap().holds
}
