//! How long things may take, and which side is to blame if they take longer.

use std::time::Duration;

use rideau_config::{AppConfig, FrontConfig};
use rideau_core::apps::Leaving;
use tokio::net::TcpStream;

use super::http2::{Whole, speaking};
use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, within};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// An app whose answers take this long at most.
fn limited(concurrency: usize, within: Duration) -> AppConfig {
    let mut config = app();
    config.options.concurrency = Some(concurrency);
    config.http.request_timeout = Some(within);
    config
}

async fn staged(config: AppConfig, server: &Server) -> Stage {
    Stage::of(config, server.address, FrontConfig::default()).await
}

/// How often the front answered so, or broke an answer off.
fn count(stage: &Stage, word: &str) -> u64 {
    let app = stage.app();
    let mut counts = app.counts.refusals();
    let found = counts.find(|(known, _)| *known == word);
    found.expect("a word that is counted").1
}

async fn until_counted(stage: &Stage, word: &str) {
    while count(stage, word) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An app that says a little now and then, and never all.
async fn trickling(head: &'static str) -> Server {
    Server::start(move |mut peer: Peer, _| async move {
        let _ = peer.request().await;
        peer.send(head).await;
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            peer.send("1\r\nx\r\n").await;
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_that_trickles_for_ever_is_broken_off() {
    within(async {
        // Passed on as it comes, and taken from the app before the client takes it.
        for concurrency in [64, 1] {
            for head in [
                CHUNKED,
                "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
            ] {
                let server = trickling(head).await;
                let config = limited(concurrency, Duration::from_millis(200));
                let stage = staged(config, &server).await;
                let mut client = stage.client().await;
                client.send(get("/")).await;
                let answer = client.head().await.expect("the app began to answer");
                assert_eq!(answer.status(), 200);
                let rest = client.rest().await;
                assert!(!rest.is_empty() && !rest.ends_with(b"0\r\n\r\n"));
                assert_eq!(count(&stage, "request_timeout"), 1);
                stage.quiet().await;
                let shown = stage.apps.shown(&stage.app()).expect("it is there");
                // A process that serves one at a time hangs; others may have
                // one slow request.
                let hung = shown.stats.left[Leaving::Hung.index()];
                assert_eq!(hung, u64::from(concurrency == 1));
                stage.end().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_over_http2_that_trickles_for_ever_is_broken_off() {
    within(async {
        let server = trickling(CHUNKED).await;
        let stage = staged(limited(64, Duration::from_millis(200)), &server).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        let mut sender = speaking(stream).await;
        let request = hyper::Request::get("http://app.example/").body(Whole(None));
        let answer = sender.send_request(request.expect("a request")).await;
        let mut body = answer.expect("the app began to answer").into_body();
        let broken = loop {
            use hyper::body::Body;
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
            match frame.await.expect("no end as if it were all") {
                Ok(_) => (),
                Err(broken) => break broken,
            }
        };
        assert!(
            !broken.is_incomplete_message(),
            "the stream alone is reset: {broken}"
        );
        assert_eq!(count(&stage, "request_timeout"), 1);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_events_goes_on_while_a_client_listens() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while peer.request().await.is_some() {
                peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                    .await;
                peer.send("Transfer-Encoding: chunked\r\n\r\n").await;
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    peer.send("9\r\ndata: 1\n\n\r\n").await;
                }
                peer.send("0\r\n\r\n").await;
            }
        })
        .await;
        let stage = staged(limited(1, Duration::from_millis(100)), &server).await;
        let answer = stage.client().await.ask(get("/")).await;
        assert_eq!(answer.text(), "data: 1\n\n".repeat(20));
        assert_eq!(count(&stage, "request_timeout"), 0);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_is_not_blamed_for_a_client_that_takes_its_time() {
    within(async {
        let server = Server::answering(|request| match request.body.len() {
            0 => ok(&"x".repeat(32 << 20)),
            len => ok(&len.to_string()),
        })
        .await;
        let limit = Duration::from_secs(1);
        let stage = staged(limited(64, limit), &server).await;
        let mut slow = stage.client().await;
        slow.send(get("/")).await;
        let mut uploads = stage.client().await;
        let head = "POST / HTTP/1.1\r\nHost: app.example\r\nContent-Length: 6\r\n\r\nabc";
        uploads.send(head).await;
        tokio::time::sleep(2 * limit).await;
        let answer = slow.answer().await.expect("all of it");
        assert_eq!(answer.body.len(), 32 << 20);
        let answer = uploads.ask("def").await;
        assert_eq!((answer.status(), answer.text().as_str()), (200, "6"));
        assert_eq!(count(&stage, "request_timeout"), 0);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_an_answer_is_counted() {
    within(async {
        for concurrency in [64, 1] {
            let server = trickling(CHUNKED).await;
            let mut config = app();
            config.options.concurrency = Some(concurrency);
            let stage = staged(config, &server).await;
            let mut client = stage.client().await;
            client.send(get("/")).await;
            client.head().await.expect("the app began to answer");
            assert_eq!(count(&stage, "client_gone"), 0);
            drop(client);
            until_counted(&stage, "client_gone").await;
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_over_http2_is_counted() {
    within(async {
        let hanging = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            let _ = peer.more().await;
        })
        .await;
        let trickling = trickling(CHUNKED).await;
        for server in [hanging, trickling] {
            let stage = Stage::new(server.address).await;
            let stream = TcpStream::connect(stage.address).await.expect("a front");
            let mut sender = speaking(stream).await;
            let request = hyper::Request::get("http://app.example/").body(Whole(None));
            let asked = sender.send_request(request.expect("a request"));
            let answer = tokio::time::timeout(Duration::from_millis(300), asked).await;
            drop((answer, sender));
            until_counted(&stage, "client_gone").await;
            assert_eq!(count(&stage, "client_gone"), 1);
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_app_that_breaks_its_answer_off_is_counted() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            peer.send(CHUNKED).await;
            peer.send("1\r\nx\r\n").await;
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        client.send(get("/")).await;
        assert!(client.answer().await.is_none(), "it must not seem whole");
        assert_eq!(count(&stage, "answer_broken"), 1);
        assert_eq!(count(&stage, "client_gone"), 0);
        stage.end().await;
    })
    .await;
}
