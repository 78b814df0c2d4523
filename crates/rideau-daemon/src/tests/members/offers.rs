//! Pools that lend what clients bring, and groups of them.

use std::collections::BTreeSet;

use crate::tests::members::harness::{Server, until};
use crate::tests::members::peer::{Answer, Peer};

const POOLS: &str = "
[pool.left]
group = \"both\"
[pool.right]
group = \"both\"
[pool.list]
member = { list = [\"x\"] }
";

async fn offer(peer: &mut Peer, pool: &str, value: &str) {
    let offered = peer.ask(&format!("POOL.OFFER {pool} {value}")).await;
    assert!(matches!(offered, Answer::Text(_)), "{offered:?}");
}

fn idle(server: &Server, pool: &str) -> usize {
    let catalog = server.daemon.catalog.load();
    catalog.pools[pool].pool.stats().members.idle
}

#[tokio::test]
async fn what_a_client_brings_is_lent_until_the_client_goes() {
    let server = Server::start(POOLS).await;
    let mut worker = server.peer().await;
    offer(&mut worker, "left", "at-7").await;

    let mut peer = server.peer().await;
    let taken = peer.take("left").await;
    assert_eq!(taken.value, "at-7");
    peer.release(&taken).await;
    assert_eq!(peer.take("left").await.value, "at-7");

    drop(worker);
    let mut other = server.peer().await;
    other.send("TAKE left WAIT 30000").await;
    drop(peer);
    let mut worker = server.peer().await;
    offer(&mut worker, "left", "at-8").await;
    assert_eq!(other.taken().await.value, "at-8");
    server.stop().await;
}

#[tokio::test]
async fn an_idle_offer_goes_with_its_client_and_no_take_gets_it() {
    let server = Server::start(POOLS).await;
    let mut worker = server.peer().await;
    offer(&mut worker, "left", "at-7").await;
    until("the offer is there", || idle(&server, "left") == 1).await;
    drop(worker);
    until("the offer is gone", || idle(&server, "left") == 0).await;
    let mut peer = server.peer().await;
    let no = peer.ask("TAKE left WAIT 20").await.words();
    assert_eq!(no[0], "timeout", "{no:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_group_lends_what_was_brought_to_any_of_its_pools() {
    let server = Server::start(POOLS).await;
    let mut worker = server.peer().await;
    offer(&mut worker, "left", "l").await;
    offer(&mut worker, "right", "r").await;
    until("both offers are there", || {
        idle(&server, "left") == 1 && idle(&server, "right") == 1
    })
    .await;
    let mut peer = server.peer().await;
    let mut values = BTreeSet::new();
    values.insert(peer.take("@both").await.value);
    values.insert(peer.take("@both").await.value);
    assert_eq!(values, BTreeSet::from(["l".to_owned(), "r".to_owned()]));
    server.stop().await;
}

#[tokio::test]
async fn a_pool_with_a_list_takes_no_offers() {
    let server = Server::start(POOLS).await;
    let mut peer = server.peer().await;
    let Answer::Error(error) = peer.ask("POOL.OFFER list y").await else {
        panic!("it took one");
    };
    assert!(error.starts_with("WRONGTYPE pool list "), "{error}");
    assert_eq!(peer.ask("HELD").await, Answer::List(Vec::new()));
    server.stop().await;
}
