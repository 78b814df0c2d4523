//! One node on etcd: restarts, and everything that can happen to etcd.

use std::time::Duration;

use rideau::store::etcd::{EtcdRead, KeyRange, Txn, TxnOp};
use rideau_cluster::{PartitionRow, PartitionState};
use rideau_core::cluster::Certainty;
use tokio::time::sleep;

use crate::child::Child;
use crate::rig::{LEASE, PARTITIONS, Rig, TestNode};
use crate::server::{Server, until};

#[tokio::test]
async fn a_node_has_after_a_restart_what_it_had_before() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    for round in 1..4 {
        let node = rig.start("n1").await;
        rig.until_all_serve().await;
        let writer = rig.write();
        rig.until_written(50).await;
        writer.stop().await;
        rig.check().await;
        let view = node.view().await;
        assert_eq!((view.counters.lives, view.nodes.len()), (1, 1));
        assert_eq!(view.counters.takeovers, u64::from(PARTITIONS));
        assert!(!view.counters.appends.is_empty());
        until("a keepalive is answered", async || {
            node.view().await.keepalive_age.is_some()
        })
        .await;
        let serving = |row: &&PartitionRow| row.state == PartitionState::Serving;
        assert_eq!(view.partitions.iter().filter(serving).count(), 8);
        drop(node);
        match round {
            1 => rig.stop("n1").await,
            _ => rig.kill("n1").await,
        }
    }
    rig.start("n1").await;
    rig.check().await;
}

#[tokio::test]
async fn what_a_killed_process_acknowledged_is_there() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    for _ in 0..3 {
        let child = Child::start("n1", &rig.folder("n1"), &server.address());
        child.until_written(100).await;
        rig.written.add(child.kill());
    }
    rig.start("n1").await;
    rig.check().await;
}

#[tokio::test]
async fn an_etcd_that_was_killed_and_is_back_costs_nothing() {
    let mut server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let node = rig.start("n1").await;
    rig.until_all_serve().await;
    let me = node.me().await;
    let writer = rig.write();
    for _ in 0..2 {
        rig.until_written(50).await;
        server.kill();
        until_unsure(&node).await;
        assert_eq!(
            rig.served().len(),
            0,
            "nothing is granted while it is unsure"
        );
        server.start_again().await;
        rig.until_all_serve().await;
    }
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    // The lease of a member that was killed outlives it.
    assert_eq!(node.me().await, me);
    assert_eq!(node.view().await.counters.lives, 1);
}

#[tokio::test]
async fn an_etcd_that_was_paused_for_longer_than_the_lease_costs_a_life() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let node = rig.start("n1").await;
    rig.until_all_serve().await;
    let writer = rig.write();
    rig.until_written(50).await;
    server.pause().await;
    until_unsure(&node).await;
    sleep(LEASE + Duration::from_secs(2)).await;
    server.resume();
    until("a new life begins", async || {
        node.view().await.counters.lives == 2
    })
    .await;
    rig.until_all_serve().await;
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    let told = node.end.told.lock().clone();
    let [Certainty::Sure, .., Certainty::Lost, Certainty::Sure] = told[..] else {
        panic!("{told:?}");
    };
}

#[tokio::test]
async fn a_node_goes_on_when_the_leader_of_three_members_is_killed() {
    let mut servers = Server::start_three().await;
    let rig = Rig::new(servers.iter().map(Server::address).collect());
    let node = rig.start("n1").await;
    rig.until_all_serve().await;
    let writer = rig.write();
    rig.until_written(50).await;
    let leader = leader_of(&servers).await;
    servers[leader].kill();
    rig.until_written(50).await;
    servers[leader].start_again().await;
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    // An election extends all leases.
    assert_eq!(node.view().await.counters.lives, 1);
}

#[tokio::test]
async fn a_partition_that_cannot_be_read_is_not_served_until_it_can() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    rig.start("n1").await;
    rig.until_all_serve().await;
    // One batch with sections of two partitions, and more without them.
    let written = rig.node("n1").host.write(&[(2, 1), (5, 1)]).unwrap();
    rig.written.add(written);
    for partition in [0, 1, 3, 4, 6, 7] {
        let written = rig.node("n1").host.write(&[(partition, 1)]).unwrap();
        rig.written.add(written);
    }
    rig.kill("n1").await;
    let client = server.client().await;
    let all = EtcdRead::newest(KeyRange::prefix("/rideau/test/log/"));
    let batch = client.read(all).await.unwrap().keys.swap_remove(0);
    let mut damaged = batch.value.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let put = |value: Vec<u8>| Txn::new().then(TxnOp::put(batch.key.clone(), value));
    client.txn(put(damaged)).await.unwrap();

    let node = rig.start("n1").await;
    // All partitions were in the same log, so all of them wait.
    until("the damage is found", async || {
        let view = node.view().await;
        let failed = |row: &PartitionRow| matches!(row.state, PartitionState::LoadFailed(_));
        view.partitions.iter().all(failed) && view.counters.loads_failed >= 8
    })
    .await;
    assert_eq!(rig.served().len(), 0);
    client.txn(put(batch.value.to_vec())).await.unwrap();
    rig.check().await;
}

#[tokio::test]
async fn a_node_that_has_no_fences_left_goes_on_in_a_new_epoch() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let node = rig.start("n1").await;
    rig.until_all_serve().await;
    let writer = rig.write();
    for partition in [3, 3, 6] {
        rig.until_written(20).await;
        let epoch = node.node.table().owner(partition).unwrap().1;
        node.node.log().spent(partition, epoch);
        until("the epoch is raised", async || {
            let serves = node.node.serves(partition);
            serves.is_some_and(|serves| serves > epoch)
        })
        .await;
    }
    rig.until_written(20).await;
    writer.stop().await;
    rig.check().await;
    let view = node.view().await;
    assert_eq!((view.counters.lives, view.counters.moves_out), (1, 0));
    drop(node);
    rig.kill("n1").await;
    rig.start("n1").await;
    rig.check().await;
}

async fn leader_of(servers: &[Server]) -> usize {
    for (at, server) in servers.iter().enumerate() {
        let status = server.client().await.status().await.unwrap();
        if status.leader == Some(status.member) {
            return at;
        }
    }
    panic!("a cluster that serves has a leader");
}

/// Wait until the node has told that it is not sure of its lease.
async fn until_unsure(node: &TestNode) {
    until("the node is unsure", async || {
        node.end.told.lock().last() == Some(&Certainty::Unsure)
    })
    .await;
    assert_eq!(node.node.valid_for(), Duration::ZERO);
}
