//! How much of a client is borne, and for how long.

use std::time::Duration;

use rideau_config::FrontConfig;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, within};

async fn bearing(front: FrontConfig) -> (Server, Stage) {
    let server = Server::answering(|_| ok("hello")).await;
    let stage = Stage::of(app(), server.address, front).await;
    (server, stage)
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    within(async {
        let (server, stage) = bearing(FrontConfig::default()).await;
        let long = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(70_000)
        );
        let many = format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(100)
        );
        for text in [long, many] {
            let answer = stage.client().await.ask(text).await;
            assert_eq!(answer.status(), 431);
            assert_eq!(answer.field("x-rideau-error"), "header_too_large");
        }
        let large = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(60_000)
        );
        let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(99));
        for text in [large, fields] {
            assert_eq!(stage.client().await.ask(text).await.status(), 200);
        }
        assert!(server.connections() > 0);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn more_fields_may_be_allowed() {
    within(async {
        let front = FrontConfig {
            headers_max: 300,
            header_max: 1 << 20,
            ..FrontConfig::default()
        };
        let (_server, stage) = bearing(front).await;
        let fields = format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(250)
        );
        assert_eq!(stage.client().await.ask(fields).await.status(), 200);
        let large = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(200_000)
        );
        assert_eq!(stage.client().await.ask(large).await.status(), 200);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_too_slow_to_ask_is_told_and_one_that_never_does_is_cut() {
    within(async {
        let front = FrontConfig {
            header_timeout: Duration::from_millis(100),
            idle_timeout: Duration::from_millis(300),
            ..FrontConfig::default()
        };
        let (_server, stage) = bearing(front).await;
        let mut slow = stage.client().await;
        let answer = slow.ask("GET / HTTP/1.1\r\nHost: a\r\n").await;
        assert_eq!(answer.status(), 408);
        assert_eq!(answer.field("x-rideau-error"), "header_timeout");
        let mut silent = stage.client().await;
        assert!(silent.rest().await.is_empty());
        let mut idle = stage.client().await;
        assert_eq!(idle.ask(get("/")).await.status(), 200);
        assert!(idle.rest().await.is_empty());
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_that_thinks_for_long_is_not_taken_for_an_idle_client() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while peer.request().await.is_some() {
                tokio::time::sleep(Duration::from_millis(500)).await;
                peer.send(ok("hello")).await;
            }
        })
        .await;
        let front = FrontConfig {
            idle_timeout: Duration::from_millis(100),
            ..FrontConfig::default()
        };
        let stage = Stage::of(app(), server.address, front).await;
        assert_eq!(stage.client().await.ask(get("/")).await.status(), 200);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn one_connection_too_many_is_turned_away() {
    within(async {
        let front = FrontConfig {
            connections_max: 2,
            ..FrontConfig::default()
        };
        let (_server, stage) = bearing(front).await;
        let (mut one, mut two) = (stage.client().await, stage.client().await);
        assert_eq!(one.ask(get("/")).await.status(), 200);
        assert_eq!(two.ask(get("/")).await.status(), 200);
        let answer = stage.client().await.answer().await.expect("an answer");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.field("x-rideau-error"), "connections_max");
        assert_eq!(answer.field("x-request-id").len(), 32);
        drop(one);
        loop {
            let mut next = stage.client().await;
            if next.ask(get("/")).await.status() == 200 {
                break;
            }
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_was_begun_is_finished_and_no_other_client_is_let_in() {
    within(async {
        let (tell, told) = tokio::sync::watch::channel(false);
        let server = Server::start(move |mut peer: Peer, _| {
            let mut told = told.clone();
            async move {
                while peer.request().await.is_some() {
                    let _ = told.wait_for(|told| *told).await;
                    peer.send(ok("finished")).await;
                }
            }
        })
        .await;
        let mut stage = Stage::new(server.address).await;
        let mut idle = stage.client().await;
        let mut busy = stage.client().await;
        busy.send(get("/")).await;
        while server.connections() == 0 {
            tokio::task::yield_now().await;
        }
        stage.front.finish();
        assert!(idle.rest().await.is_empty());
        while tokio::net::TcpStream::connect(stage.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tell.send_replace(true);
        let answer = busy.answer().await.expect("an answer");
        assert_eq!(
            (answer.text(), answer.field("connection")),
            ("finished".into(), "close")
        );
        (&mut stage.served).await.expect("it ends");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_takes_too_long_is_cut_at_last() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            let _ = peer.more().await;
        })
        .await;
        let front = FrontConfig {
            shutdown_timeout: Duration::from_millis(100),
            ..FrontConfig::default()
        };
        let mut stage = Stage::of(app(), server.address, front).await;
        let mut busy = stage.client().await;
        busy.send(get("/")).await;
        while server.connections() == 0 {
            tokio::task::yield_now().await;
        }
        stage.front.finish();
        assert!(busy.rest().await.is_empty());
        (&mut stage.served).await.expect("it ends");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_its_body_is_told_so() {
    within(async {
        let server = Server::answering(|_| ok("hello")).await;
        let front = FrontConfig {
            idle_timeout: Duration::from_millis(100),
            ..FrontConfig::default()
        };
        let stage = Stage::of(app(), server.address, front).await;
        let mut client = stage.client().await;
        let half = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf";
        let answer = client.ask(half).await;
        assert_eq!(answer.status(), 408);
        assert_eq!(answer.field("x-rideau-error"), "body_timeout");
        assert_eq!(answer.field("connection"), "close");
        stage.quiet().await;
        stage.end().await;
    })
    .await;
}
