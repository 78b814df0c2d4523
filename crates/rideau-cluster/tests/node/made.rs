//! What a cluster was made with, names and folders, and an etcd that is not what it was.

use rideau::store::etcd::{Txn, TxnOp};
use rideau_cluster::NodeError;
use rideau_core::cluster::Partitions;

use crate::rig::Rig;
use crate::server::{Server, until};

#[tokio::test]
async fn a_node_that_does_not_fit_the_cluster_says_why() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let one = rig.start("n1").await;
    let two = rig.start("n2").await;
    assert_eq!(one.node.made(), two.node.made());
    assert_eq!(one.node.secret(), two.node.secret());
    assert_ne!(one.node.secret(), &[0; 32]);

    let mut options = rig.options("n3");
    options.partitions = Partitions::new(16, 0).unwrap();
    let error = rig.try_start(options).await.err().unwrap().to_string();
    assert!(
        error.contains("8 partitions") && error.contains("16"),
        "{error}"
    );

    let taken = rig.try_start(rig.options("n1")).await.err().unwrap();
    assert!(matches!(taken, NodeError::FolderTaken(_)), "{taken}");

    let newer = Txn::new().then(TxnOp::put("/rideau/test/meta/made", "7 8 0 1 more"));
    server.client().await.txn(newer).await.unwrap();
    let error = rig.try_start(rig.options("n4")).await.err().unwrap();
    assert!(matches!(error, NodeError::Format { .. }), "{error}");
    assert!(error.to_string().contains("format 7"), "{error}");
}

#[tokio::test]
async fn the_second_node_with_a_name_gives_up() {
    let server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let mut options = rig.options("n1");
    options.about.peers = "10.0.0.11:7435".to_owned();
    let one = rig.try_start(options.clone()).await.unwrap();
    rig.nodes.lock().insert("n1".to_owned(), one.clone());
    rig.until_all_serve().await;
    options.folder = rig.folder("other");
    let other = rig.try_start(options).await.unwrap();
    until("it gives up", async || other.end.resigned.lock().is_some()).await;
    let said = other.end.resigned.lock().clone().unwrap();
    assert!(
        said.contains("n1") && said.contains("10.0.0.11:7435"),
        "{said}"
    );
    rig.until_all_serve().await;
    assert_eq!(one.view().await.counters.lives, 1);
}

#[tokio::test]
async fn a_restored_etcd_is_noticed_by_a_node_that_runs_and_by_one_that_starts() {
    let mut server = Server::start().await;
    let rig = Rig::new(vec![server.address()]);
    let node = rig.start("n1").await;
    rig.until_all_serve().await;
    server.kill();
    let backup = server.back_up();
    server.start_again().await;
    rig.until_all_serve().await;
    let writer = rig.write();
    rig.until_written(100).await;
    writer.stop().await;
    server.kill();
    server.restore(&backup);
    server.start_again().await;
    until("the node gives up", async || {
        node.end.resigned.lock().is_some()
    })
    .await;
    let said = node.end.resigned.lock().clone().unwrap();
    assert!(said.contains("restored"), "{said}");
    assert_eq!(rig.served().len(), 0);
    drop(node);
    rig.kill("n1").await;

    // What the folder remembers is enough, too, as long as the revision is below it.
    let other = Server::start().await;
    let mut options = rig.options("n1");
    options.etcd.endpoints = vec![other.address()];
    let error = rig.try_start(options).await.err().unwrap();
    assert!(matches!(error, NodeError::Restored { .. }), "{error}");
}
