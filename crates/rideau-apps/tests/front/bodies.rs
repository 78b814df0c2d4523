//! Bodies: long ones, slow ones, and those that are too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rideau_config::FrontConfig;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, post, within};

/// An app that says how many bytes it got, and their sum.
async fn summing() -> Server {
    Server::answering(|request| {
        let sum: u64 = request.body.iter().map(|byte| u64::from(*byte)).sum();
        let how = request.field("transfer-encoding");
        ok(&format!("{} {sum} {how}", request.body.len()))
    })
    .await
}

async fn stage(server: &Server, concurrency: usize, body_max: u64) -> Stage {
    let mut config = app();
    config.options.concurrency = concurrency;
    config.http.body_max = body_max;
    Stage::of(config, server.address, FrontConfig::default()).await
}

fn long() -> (Vec<u8>, u64) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
    (bytes, sum)
}

#[tokio::test]
async fn what_is_sent_arrives_whether_it_is_read_before_or_passed_on() {
    within(async {
        let server = summing().await;
        let (bytes, sum) = long();
        for concurrency in [1, 16] {
            let stage = stage(&server, concurrency, 1 << 30).await;
            let mut client = stage.client().await;
            let head = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            client.send(head).await;
            client.send(&bytes).await;
            let answer = client.answer().await.expect("an answer");
            assert_eq!(answer.text(), format!("{} {sum} ", bytes.len()));

            client
                .send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            for part in bytes.chunks(50_000) {
                client.send(format!("{:x}\r\n", part.len())).await;
                client.send(part).await;
                client.send("\r\n").await;
            }
            client.send("0\r\n\r\n").await;
            let answer = client.answer().await.expect("an answer");
            let how = if concurrency == 1 { "" } else { "chunked" };
            assert_eq!(answer.text(), format!("{} {sum} {how}", bytes.len()));
            assert_eq!(client.ask(post("/", "abc")).await.text(), "3 294 ");
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_too_long_is_refused_however_that_is_found_out() {
    within(async {
        let server = summing().await;
        for concurrency in [1, 16] {
            let stage = stage(&server, concurrency, 1000).await;
            let answer = stage.client().await.ask(post("/", &"x".repeat(1001))).await;
            assert_eq!(answer.status(), 413);
            assert_eq!(answer.field("x-rideau-error"), "body_too_large");
            let mut client = stage.client().await;
            let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            client.send(text).await;
            for _ in 0..20 {
                client.send(format!("64\r\n{}\r\n", "x".repeat(100))).await;
            }
            let answer = client.answer().await.expect("an answer");
            assert_eq!(answer.status(), 413, "{concurrency}");
            let answer = stage.client().await.ask(post("/", &"x".repeat(1000))).await;
            assert_eq!(answer.status(), 200);
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_upload_holds_no_place_where_places_are_few() {
    within(async {
        let server = summing().await;
        let stage = stage(&server, 1, 1 << 20).await;
        let mut slow = stage.client().await;
        let whole = post("/", &"x".repeat(1000));
        let (one, two) = whole.split_at(500);
        slow.send(one).await;
        // The app has served another one meanwhile, and saw nothing of the first.
        assert_eq!(
            stage.client().await.ask(post("/", "abc")).await.text(),
            "3 294 "
        );
        assert_eq!(server.connections(), 1);
        slow.send(two).await;
        assert_eq!(slow.answer().await.expect("an answer").status(), 200);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_slow_download_gives_its_place_back_when_the_app_is_done() {
    within(async {
        let (bytes, _) = long();
        let many: Vec<u8> = bytes.iter().copied().cycle().take(12_000_000).collect();
        let many = Arc::new(many);
        let sent = Arc::clone(&many);
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let server = Server::start(move |mut peer: Peer, _| {
            let (bytes, done) = (Arc::clone(&sent), Arc::clone(&count));
            async move {
                while peer.request().await.is_some() {
                    let len = bytes.len();
                    peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n"))
                        .await;
                    peer.send(&*bytes).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let stage = stage(&server, 1, 1 << 20).await;
        let mut slow = stage.client().await;
        slow.send(get("/")).await;
        // It has taken nothing, and the app is free.
        while done.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        stage.quiet().await;
        let answer = slow.answer().await.expect("an answer");
        assert!(answer.body == *many);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_not_sent_more_than_fits() {
    within(async {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = Server::start(move |mut peer: Peer, _| {
            let sent = Arc::clone(&count);
            async move {
                let _ = peer.request().await;
                peer.send("HTTP/1.1 200 OK\r\n\r\n").await;
                let part = vec![7; 100_000];
                for _ in 0..1000 {
                    peer.send(&part).await;
                    sent.fetch_add(part.len(), Ordering::SeqCst);
                }
            }
        })
        .await;
        let stage = stage(&server, 16, 1 << 20).await;
        let mut slow = stage.client().await;
        slow.send(get("/")).await;
        let mut before = usize::MAX;
        while before != sent.load(Ordering::SeqCst) || before == 0 {
            before = sent.load(Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        assert!(before < 50_000_000, "{before} bytes were read in vain");
        drop(slow);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_upload_is_passed_on() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while peer.head().await.is_some() {
                peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
                    .await;
            }
        })
        .await;
        let stage = stage(&server, 16, 1 << 30).await;
        let mut client = stage.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc")
            .await;
        let answer = client.answer().await.expect("an answer");
        assert_eq!((answer.status(), answer.text()), (403, "no".into()));
        drop(client);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_asks_whether_to_go_on_is_told_so() {
    within(async {
        let server = summing().await;
        for concurrency in [1, 16] {
            let stage = stage(&server, concurrency, 1 << 20).await;
            let mut client = stage.client().await;
            let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\
                        Expect: 100-continue\r\n\r\n";
            client.send(text).await;
            let head = client.head().await.expect("a word");
            assert_eq!(head.status(), 100);
            client.send("abc").await;
            assert_eq!(client.answer().await.expect("an answer").text(), "3 294 ");
            stage.end().await;
        }
    })
    .await;
}
