//! Pools that lend the values of a list.

use crate::tests::members::harness::Server;

const LICENCES: &str = "[pool.licences]\nmember = { list = [\"a\", \"b\"] }";

#[tokio::test]
async fn values_come_and_go_while_others_are_held() {
    let server = Server::start(LICENCES).await;
    let mut peer = server.peer().await;
    let held = [peer.take("licences").await, peer.take("licences").await];
    let mut values = held.clone().map(|taken| taken.value);
    values.sort();
    assert_eq!(values, ["a", "b"]);

    // A waiting take gets what is added, and a value that left goes when it
    // comes back.
    let mut other = server.peer().await;
    other.send("TAKE licences WAIT 30000").await;
    server.change("[pool.licences]\nmember = { list = [\"b\", \"c\"] }");
    let (gone, kept) = match &held[0].value[..] {
        "a" => (&held[0], &held[1]),
        _ => (&held[1], &held[0]),
    };
    peer.release(gone).await;
    assert_eq!(other.taken().await.value, "c");
    assert_eq!(peer.ask("TAKE licences WAIT 0").await.words()[0], "timeout");
    peer.release(kept).await;
    assert_eq!(peer.take("licences").await.value, "b");
    server.stop().await;
}

#[tokio::test]
async fn a_value_that_left_while_it_was_idle_is_lent_no_more() {
    let server = Server::start(LICENCES).await;
    let mut peer = server.peer().await;
    let held = [peer.take("licences").await, peer.take("licences").await];
    for taken in &held {
        peer.release(taken).await;
    }
    server.change("[pool.licences]\nmember = { list = [\"c\"] }");
    for _ in 0..3 {
        let taken = peer.take("licences").await;
        assert_eq!(taken.value, "c");
        peer.release(&taken).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_value_that_comes_back_to_the_list_has_one_holder() {
    let server = Server::start("[pool.one]\nmember = { list = [\"a\"] }").await;
    let mut peer = server.peer().await;
    let taken = peer.take("one").await;
    server.change("[pool.one]\nmember = { list = [\"b\"] }");
    server.change("[pool.one]\nmember = { list = [\"a\"] }");
    let mut other = server.peer().await;
    assert_eq!(other.ask("TAKE one WAIT 0").await.words()[0], "timeout");
    peer.release(&taken).await;
    assert_eq!(other.take("one").await.value, "a");
    server.stop().await;
}
