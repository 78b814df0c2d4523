//! Requests that could be read in two ways reach no app.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::Stage;
use super::wire::{Message, Peer, Server, get, ok, within};

/// An app that counts, and a front before it.
async fn counted() -> (Server, Stage, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let server = Server::start(move |mut peer: Peer, _| {
        let count = Arc::clone(&counted);
        async move {
            while peer.head().await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                peer.send(ok("hello")).await;
            }
        }
    })
    .await;
    let stage = Stage::new(server.address).await;
    (server, stage, count)
}

/// The first answer, and whether the connection ends with it.
async fn first(stage: &Stage, bytes: &[u8]) -> Message {
    let mut client = stage.client().await;
    let answer = client.ask(bytes).await;
    assert!(client.rest().await.is_empty(), "something follows");
    answer
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_answered_by_us() {
    within(async {
        let (_server, stage, count) = counted().await;
        let heads = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: identity, chunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Content-Length : 5\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5,5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5 5\r\n",
            "X: a\r\n folded\r\n",
            "X: a\r\n\tContent-Length: 5\r\n",
            "X: a\nContent-Length: 5\r\n",
            "X: a\rContent-Length: 5\r\n",
            "X: a\0b\r\n",
            "X a: b\r\n",
            "no colon\r\n",
            "Host: second.example\r\n",
        ];
        for head in heads {
            let text = format!("POST / HTTP/1.1\r\nHost: app.example\r\n{head}\r\n0\r\n\r\n");
            let answer = first(&stage, text.as_bytes()).await;
            assert_eq!(answer.status(), 400, "{head:?}");
            assert_eq!(answer.field("x-rideau-error"), "bad_request", "{head:?}");
            assert_eq!(answer.field("x-request-id").len(), 32, "{head:?}");
        }
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \r\n\r\n",
            "GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
            "GET /\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "\u{16}\u{3}\u{1} nonsense\r\n\r\n",
        ] {
            let mut client = stage.client().await;
            let answer = client.ask(text).await;
            assert_eq!(answer.status(), 400, "{text:?}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_chunk_that_is_none_stops_the_request_before_the_app() {
    within(async {
        let (_server, stage, count) = counted().await;
        for body in [
            "x\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "-5\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "fffffffffffffffff\r\n",
            "\r\n",
        ] {
            let text = format!(
                "POST / HTTP/1.1\r\nHost: app.example\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
            );
            let mut client = stage.client().await;
            let answer = client.ask(text).await;
            assert_eq!(answer.status(), 400, "{body:?}");
            assert!(client.rest().await.is_empty());
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_hides_behind_a_body_is_a_request_of_its_own() {
    within(async {
        let (_server, stage, count) = counted().await;
        let mut client = stage.client().await;
        let hidden = get("/hidden");
        let text = format!(
            "GET /first HTTP/1.1\r\nHost: app.example\r\nContent-Length: 0\r\n\r\n{hidden}GET / \
             HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n{hidden}"
        );
        client.send(text).await;
        let statuses = [
            client.answer().await.expect("an answer").status(),
            client.answer().await.expect("an answer").status(),
            client.answer().await.expect("an answer").status(),
        ];
        assert_eq!(statuses, [200, 200, 400]);
        assert!(client.rest().await.is_empty());
        assert_eq!(count.load(Ordering::SeqCst), 2);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_head_may_come_in_any_pieces() {
    within(async {
        let (_server, stage, count) = counted().await;
        let mut client = stage.client().await;
        for byte in get("/slow").into_bytes() {
            client.send([byte]).await;
        }
        assert_eq!(client.answer().await.expect("an answer").status(), 200);
        let twice = [get("/a"), get("/b")].concat();
        let (one, two) = twice.split_at(twice.len() - 20);
        client.send(one).await;
        assert_eq!(client.answer().await.expect("an answer").status(), 200);
        client.send(two).await;
        assert_eq!(client.answer().await.expect("an answer").status(), 200);
        assert_eq!(count.load(Ordering::SeqCst), 3);
        stage.end().await;
    })
    .await;
}
