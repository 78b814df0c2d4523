//! Several nodes on one etcd, linked within the process: deaths, joins and drains.

use std::collections::BTreeSet;

use crate::child::Child;
use crate::rig::{PARTITIONS, Rig};
use crate::server::{Server, until};

#[tokio::test]
async fn the_partitions_of_a_dead_node_are_taken_over() {
    let server = Server::start().await;
    let mut rig = Rig::new(vec![server.address()]);
    // Without links, so that a join moves nothing.
    rig.has_links = false;
    rig.start("n1").await;
    rig.until_all_serve().await;
    let two = rig.start("n2").await;
    let writer = rig.write();
    rig.until_written(50).await;
    assert!(two.host.served().is_empty());
    rig.kill("n1").await;
    rig.until_all_serve().await;
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    assert_eq!(two.host.served().len(), 8);
    let view = two.view().await;
    assert_eq!(view.counters.takeovers, u64::from(PARTITIONS));
    assert_eq!(view.lost_nodes, ["n1"]);
}

#[tokio::test]
async fn a_process_that_was_paused_acknowledges_nothing_that_is_lost() {
    let server = Server::start().await;
    let mut rig = Rig::new(vec![server.address()]);
    rig.has_links = false;
    let child = Child::start("n1", &rig.folder("n1"), &server.address());
    child.until_written(50).await;
    rig.start("n2").await;
    for _ in 0..2 {
        child.pause();
        // All that the child had is taken over when its lease has run out.
        rig.until_all_serve().await;
        let writer = rig.write();
        rig.until_written(50).await;
        child.resume();
        rig.until_written(50).await;
        writer.stop().await;
        // Its next life gets the partitions back.
        rig.kill("n2").await;
        child.until_written(50).await;
        rig.start("n2").await;
    }
    rig.written.add(child.kill());
    rig.check().await;
}

#[tokio::test]
async fn a_node_that_joins_is_given_its_share() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let one = rig.start("n1").await;
    rig.until_all_serve().await;
    let writer = rig.write();
    rig.until_written(50).await;
    let two = rig.start("n2").await;
    rig.until_each_serves(4).await;
    rig.until_written(50).await;
    let three = rig.start("n3").await;
    rig.until_each_serves(2).await;
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    let (one, two) = (one.view().await, two.view().await);
    let three = three.view().await;
    assert!(one.counters.moves_out >= 5, "{:?}", one.counters);
    assert!(two.counters.moves_in >= 4, "{:?}", two.counters);
    assert_eq!(two.counters.takeovers + three.counters.takeovers, 0);
    let shares: Vec<_> = three.nodes.iter().map(|node| node.partitions).collect();
    assert_eq!(shares.iter().sum::<u32>(), PARTITIONS, "{shares:?}");
    assert!(
        three
            .nodes
            .iter()
            .all(|node| node.node.name == "n3" || node.is_linked)
    );
}

#[tokio::test]
async fn a_node_that_drains_gives_everything_away_without_losing_a_lease() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let one = rig.start("n1").await;
    rig.until_all_serve().await;
    let two = rig.start("n2").await;
    rig.until_each_serves(4).await;
    let writer = rig.write();
    rig.until_written(50).await;
    one.node.drain().await;
    assert!(one.host.served().is_empty());
    rig.until_all_serve().await;
    assert_eq!(two.host.served().len(), 8);
    // It is still part of the cluster, and owns nothing.
    let view = one.view().await;
    assert_eq!((view.nodes.len(), view.counters.lives), (2, 1));
    drop(one);
    rig.stop("n1").await;
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
    until("the node is gone", async || {
        two.view().await.nodes.len() == 1
    })
    .await;
    // What came came by moves: no key had to expire.
    assert_eq!(two.view().await.counters.takeovers, 0);
}

#[tokio::test]
async fn three_nodes_lose_nothing_while_they_stop_die_and_return() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    for name in ["n1", "n2", "n3"] {
        rig.start(name).await;
    }
    rig.until_each_serves(1).await;
    let writer = rig.write();
    for (at, name) in ["n2", "n1", "n3", "n2"].into_iter().enumerate() {
        rig.until_written(50).await;
        match at % 2 {
            0 => rig.stop(name).await,
            _ => rig.kill(name).await,
        }
        rig.until_all_serve().await;
        rig.until_written(50).await;
        rig.start(name).await;
        rig.until_each_serves(1).await;
    }
    rig.until_written(50).await;
    writer.stop().await;
    rig.check().await;
}

#[tokio::test]
async fn an_ask_waits_for_an_owner_and_goes_where_it_is() {
    use rideau_core::cluster::{AskRoute, DownReason};
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let one = rig.start("n1").await;
    // It is parked until the partition is served, or until the patience is over.
    until("an ask is served", async || {
        match one.node.route(0, None).await {
            AskRoute::Here { epoch } => {
                assert_eq!(
                    one.host.served().contains(&0),
                    one.node.serves(0) == Some(epoch)
                );
                true
            }
            AskRoute::Down(DownReason::NoOwner | DownReason::Lost) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
    let two = rig.start("n2").await;
    rig.until_each_serves(4).await;
    let mut hops = BTreeSet::new();
    for partition in 0..PARTITIONS {
        match two.node.route(partition, None).await {
            AskRoute::Hop { to, epoch } => {
                assert_eq!(to.name, "n1");
                let there = one.node.route_for_peer(partition, epoch).await;
                assert_eq!(there, AskRoute::Here { epoch });
                let other = one.node.route_for_peer(partition, epoch - 1).await;
                assert_eq!(other, AskRoute::NotMine { epoch });
                hops.insert(partition);
            }
            AskRoute::Here { .. } => (),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hops.len(), 4);
}
