//! Connections to apps that are used again, and those that are not.

use std::time::Duration;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, post, within};
use rideau_server::config::FrontConfig;

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    within(async {
        let server = Server::answering(|_| ok("hello")).await;
        let stage = Stage::new(server.address).await;
        for _ in 0..5 {
            let mut client = stage.client().await;
            for _ in 0..10 {
                assert_eq!(client.ask(get("/")).await.text(), "hello");
            }
        }
        assert_eq!(server.connections(), 1);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_that_closes_idle_connections_costs_no_request() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let idle = Duration::from_millis(40);
            while let Ok(Some(_)) = tokio::time::timeout(idle, peer.request()).await {
                peer.send(ok("hello")).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        for round in 0..200_u64 {
            let request = match round % 3 {
                0 => post("/", "once"),
                _ => get("/"),
            };
            assert_eq!(client.ask(request).await.status(), 200);
            // Gaps about as long as the app's patience.
            tokio::time::sleep(Duration::from_micros(round * 7919 % 80_000)).await;
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_that_closes_after_each_answer_is_well_served() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
                .await;
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        for round in 1..20 {
            assert_eq!(client.ask(get("/")).await.text(), "hello");
            assert_eq!(server.connections(), round);
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_nobody_uses_is_closed() {
    within(async {
        let (ended, mut seen) = tokio::sync::mpsc::channel(1);
        let server = Server::start(move |mut peer: Peer, _| {
            let ended = ended.clone();
            async move {
                while peer.request().await.is_some() {
                    peer.send(ok("hello")).await;
                }
                let _ = ended.send(()).await;
            }
        })
        .await;
        let mut config = app();
        config.http.keep_alive = Duration::from_millis(50);
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = stage.client().await;
        client.ask(get("/")).await;
        seen.recv().await.expect("it is closed");
        client.ask(get("/")).await;
        assert_eq!(server.connections(), 2);
        stage.end().await;
    })
    .await;
}
