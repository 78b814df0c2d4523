//! Connections to apps that are used again, and those that are not.

use std::time::Duration;

use rideau_config::FrontConfig;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, post, within};

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
        // How patient the app is cannot be known before that has run out once.
        assert_eq!(client.ask(get("/")).await.status(), 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
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
async fn a_connection_that_is_not_used_is_closed() {
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

#[tokio::test]
async fn requests_that_come_at_once_are_answered_in_their_order() {
    within(async {
        let server = Server::answering(|request| ok(&request.first)).await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let body = "x".repeat(3000);
        let all: String = (0..50)
            .map(|number| match number % 2 {
                0 => get(&format!("/{number}")),
                _ => post(&format!("/{number}"), &body),
            })
            .collect();
        client.send(all).await;
        for number in 0..50 {
            let answer = client.answer().await.expect("an answer");
            let word = format!("/{number} ");
            assert!(answer.text().contains(&word), "{}", answer.text());
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_old_client_may_ask_again_if_it_says_so() {
    within(async {
        let server = Server::answering(|_| ok("hello")).await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        for _ in 0..3 {
            let answer = client
                .ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                .await;
            assert_eq!(answer.text(), "hello");
            assert_eq!(answer.field("connection"), "keep-alive");
        }
        let answer = client.ask("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(answer.field("connection"), "close");
        assert!(client.rest().await.is_empty());
        stage.end().await;
    })
    .await;
}
