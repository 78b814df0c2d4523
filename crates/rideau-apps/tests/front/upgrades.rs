//! Connections that become something else.

use std::time::Duration;

use rideau_config::FrontConfig;
use rideau_core::apps::Restart;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, within};

const ASK: &str = "GET /socket HTTP/1.1\r\nHost: app.example\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: echo\r\n\r\n";

/// An app that echoes once it has become something else; it says no elsewhere.
async fn echoing() -> Server {
    Server::start(|mut peer: Peer, _| async move {
        while let Some(request) = peer.request().await {
            if request.field("upgrade") != "echo" || request.first.contains("/no") {
                peer.send(ok(request.field("upgrade"))).await;
                continue;
            }
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                        Upgrade: echo\r\n\r\nhello";
            peer.send(head).await;
            while let Some(bytes) = peer.exactly(8).await {
                peer.send(&bytes).await;
            }
            return;
        }
    })
    .await
}

async fn turned(stage: &Stage) -> Peer {
    let mut client = stage.client().await;
    client.send(ASK).await;
    let head = client.head().await.expect("an answer");
    assert_eq!((head.status(), head.field("upgrade")), (101, "echo"));
    assert_eq!(client.exactly(5).await.expect("a word"), b"hello");
    client
}

#[tokio::test]
async fn a_thousand_messages_come_back_as_they_were() {
    within(async {
        let server = echoing().await;
        let stage = Stage::new(server.address).await;
        let mut client = turned(&stage).await;
        for number in 0..1000_u64 {
            client.send(number.to_be_bytes()).await;
            let back = client.exactly(8).await.expect("an echo");
            assert_eq!(back, number.to_be_bytes());
        }
        drop(client);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_may_decline_and_the_connection_goes_on() {
    within(async {
        let server = echoing().await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let no = ASK.replace("/socket", "/no");
        // What follows at once is a request, and is checked like one.
        client.send([no.as_str(), &get("/next")].concat()).await;
        let first = client.answer().await.expect("an answer");
        assert_eq!((first.status(), first.text()), (200, "echo".into()));
        assert_eq!(client.answer().await.expect("an answer").status(), 200);
        let plain = ASK.replace("Connection: keep-alive, Upgrade\r\n", "");
        assert_eq!(client.ask(plain).await.text(), "");
        client
            .send([no.as_str(), "GET / HTTP/1.1\r\n\r\n"].concat())
            .await;
        assert_eq!(client.answer().await.expect("an answer").status(), 200);
        assert_eq!(client.answer().await.expect("an answer").status(), 400);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_tunnel_that_is_not_used_ends() {
    within(async {
        let server = echoing().await;
        let mut config = app();
        config.http.stream_idle = Some(Duration::from_millis(100));
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = turned(&stage).await;
        assert!(client.rest().await.is_empty());
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_tunnel_ends_when_its_process_has_to_go_and_the_grace_is_over() {
    within(async {
        let server = echoing().await;
        let mut config = app();
        config.http.stream_grace = Duration::from_millis(100);
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = turned(&stage).await;
        client.send("12345678").await;
        assert_eq!(client.exactly(8).await.expect("an echo"), b"12345678");
        stage.apps.restart(&stage.app(), Restart::Rolling, "test");
        assert!(client.rest().await.is_empty());
        let mut next = turned(&stage).await;
        next.send("abcdefgh").await;
        assert_eq!(next.exactly(8).await.expect("an echo"), b"abcdefgh");
        drop(next);
        stage.end().await;
    })
    .await;
}
