//! Room in etcd: what is measured, what is deleted, and a full etcd.

use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdRead, KeyRange, Txn, TxnOp};
use rideau_cluster::RoomLevel;

use crate::rig::{PARTITIONS, Rig};
use crate::server::{Server, until};

#[tokio::test]
async fn a_full_etcd_is_told_with_what_to_do() {
    let server = Server::start_with(&["--quota-backend-bytes", "16777216"]).await;
    let rig = Rig::new(vec![server.address()]);
    let mut options = rig.options("n1");
    options.room_quota = 16 << 20;
    let node = rig.try_start(options).await.unwrap();
    until("the room is measured", async || node.node.room().used > 0).await;
    assert_eq!(node.node.room().level, RoomLevel::Enough);
    let client = server.client().await;
    let value = vec![b'x'; 1 << 20];
    for number in 0.. {
        let put = TxnOp::put(format!("filler/{number}"), value.clone());
        if client.txn(Txn::new().then(put)).await.is_err() {
            break;
        }
    }
    until("it is known to be full", async || {
        node.node.room().level == RoomLevel::Full
    })
    .await;
    let said = node.node.room().to_string();
    assert!(said.contains("defrag") && node.node.room().level.refuses_growth());
}

#[tokio::test]
async fn growth_is_refused_before_etcd_is_full() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    // What the node itself writes is little beside this.
    let client = server.client().await;
    for number in 0..4 {
        let put = TxnOp::put(format!("filler/{number}"), vec![b'x'; 1 << 20]);
        client.txn(Txn::new().then(put)).await.unwrap();
    }
    // etcd counts what it has written out.
    until("etcd counts that", async || {
        client.status().await.unwrap().used_bytes > 4 << 20
    })
    .await;
    for (percent, level) in [(70, RoomLevel::Alarm), (90, RoomLevel::Refuse)] {
        let used = client.status().await.unwrap().used_bytes;
        let mut options = rig.options("n1");
        options.room_quota = used * 100 / percent;
        options.folder = rig.folder(&percent.to_string());
        let node = rig.try_start(options).await.unwrap();
        until("the room is measured", async || {
            node.node.room().level == level
        })
        .await;
    }
}

#[tokio::test]
async fn logs_and_snapshots_that_no_partition_needs_are_deleted() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    for round in 0..3 {
        let mut options = rig.options("n1");
        options.housekeeping = Duration::from_secs(1);
        let node = rig.try_start(options).await.unwrap();
        rig.nodes.lock().insert("n1".to_owned(), node);
        rig.until_all_serve().await;
        let writer = rig.write();
        rig.until_written(30).await;
        writer.stop().await;
        if round < 2 {
            rig.kill("n1").await;
        }
    }
    let client = server.client().await;
    let me = rig.node("n1").me().await.unwrap().to_string();
    until("only what is needed is left", async || {
        let logs = names(&client, "log/").await;
        let snapshots = names(&client, "snap/").await;
        logs.iter().all(|log| *log == me) && snapshots.len() <= PARTITIONS as usize
    })
    .await;
    until("etcd is compacted", async || {
        let mut read = EtcdRead::newest(KeyRange::key("any"));
        read.revision = 2;
        client.read(read).await.is_err()
    })
    .await;
    rig.check().await;
    rig.kill("n1").await;
    rig.start("n1").await;
    rig.check().await;
}

/// The lives that have a log, or the snapshots of all partitions.
async fn names(client: &EtcdClient, folder: &str) -> Vec<String> {
    let prefix = format!("/rideau/test/{folder}");
    let mut read = EtcdRead::newest(KeyRange::prefix(prefix.clone()));
    read.keys_only = true;
    let found = client.read(read).await.unwrap();
    let names = found.keys.iter().map(|key| {
        let key = String::from_utf8(key.key.to_vec()).unwrap();
        let (name, _) = key[prefix.len()..].rsplit_once('/').unwrap();
        name.to_owned()
    });
    let mut names: Vec<_> = names.collect();
    names.dedup();
    names
}
