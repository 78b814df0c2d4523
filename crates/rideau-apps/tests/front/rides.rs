//! Requests that find a place and an open connection at once, and what becomes of
//! them then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::stage::Stage;
use super::wire::{Peer, Server, get, ok, post, within};

/// An app whose first connection answers one request well, and the next like this
/// before it ends. Others answer well. Counts requests.
async fn second(text: &'static str) -> (Server, Stage, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let server = Server::start(move |mut peer: Peer, number| {
        let count = Arc::clone(&count);
        async move {
            let mut on_this = 0;
            while peer.request().await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                on_this += 1;
                if number == 0 && on_this == 2 {
                    peer.send(text).await;
                    return;
                }
                peer.send(ok("well")).await;
            }
        }
    })
    .await;
    let stage = Stage::new(server.address).await;
    (server, stage, seen)
}

#[tokio::test]
async fn one_whose_connection_ends_is_asked_once_more_if_that_is_safe() {
    within(async {
        let empty_post = "POST / HTTP/1.1\r\nHost: app.example\r\n\r\n";
        for (request, status, sent) in [
            (get("/"), 200, 2),
            (post("/", ""), 502, 1),
            (empty_post.into(), 502, 1),
        ] {
            // Nothing is said, or not all of a head.
            for text in ["", "HTTP/1.1 200 OK\r\nContent-"] {
                let (_server, stage, seen) = second(text).await;
                let mut client = stage.client().await;
                assert_eq!(client.ask(get("/")).await.text(), "well");
                let answer = client.ask(&request).await;
                assert_eq!(answer.status(), status, "{request:?} {text:?}");
                assert_eq!(
                    seen.load(Ordering::SeqCst),
                    1 + sent,
                    "{request:?} {text:?}"
                );
                if status == 502 {
                    assert_eq!(answer.field("x-rideau-error"), "app_closed");
                }
                assert_eq!(client.ask(get("/")).await.text(), "well");
                stage.end().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn one_that_gets_no_answer_but_something_else_is_not_asked_again() {
    within(async {
        for text in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        ] {
            let (_server, stage, seen) = second(text).await;
            let mut client = stage.client().await;
            assert_eq!(client.ask(get("/")).await.text(), "well");
            let answer = client.ask(get("/")).await;
            assert_eq!(answer.status(), 502, "{text:?}");
            assert_eq!(answer.field("x-rideau-error"), "bad_answer", "{text:?}");
            assert_eq!(seen.load(Ordering::SeqCst), 2, "{text:?}");
            assert_eq!(client.ask(get("/")).await.text(), "well");
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn answers_come_through_whatever_their_form() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    within(async {
        let long = "x".repeat(100_000);
        let forms = [
            (ok("short"), "short".into()),
            (ok(""), String::new()),
            (ok(&long), long.clone()),
            (
                format!("{CHUNKED}2\r\nin\r\n5\r\nparts\r\n0\r\n\r\n"),
                "inparts".into(),
            ),
            (
                format!(
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{}",
                    ok("late")
                ),
                "late".into(),
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n".into(), String::new()),
            (
                "HTTP/1.1 200 OK\r\n\r\nto the end".into(),
                "to the end".into(),
            ),
        ];
        for (form, expected) in forms {
            let first = Arc::new(AtomicUsize::new(0));
            let server = {
                let form = form.clone();
                Server::start(move |mut peer: Peer, _| {
                    let (form, first) = (form.clone(), Arc::clone(&first));
                    async move {
                        while peer.request().await.is_some() {
                            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                                peer.send(ok("first")).await;
                                continue;
                            }
                            // In two parts, as far as the system lets us.
                            let (start, end) = form.split_at(form.len() - 1);
                            peer.send(start).await;
                            tokio::time::sleep(Duration::from_millis(5)).await;
                            peer.send(end).await;
                            if form.ends_with("end") {
                                return;
                            }
                        }
                    }
                })
                .await
            };
            let stage = Stage::new(server.address).await;
            let mut client = stage.client().await;
            assert_eq!(client.ask(get("/")).await.text(), "first");
            client.send(get("/")).await;
            if form.contains(" 103 ") {
                assert_eq!(client.head().await.expect("a hint").status(), 103);
            }
            let answer = client.answer().await.expect("an answer");
            assert_eq!(answer.text(), expected, "{form:.60?}");
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_meanwhile_gives_its_place_back_and_the_app_sees_it() {
    within(async {
        let (left, mut seen) = tokio::sync::mpsc::channel(1);
        let server = Server::start(move |mut peer: Peer, _| {
            let left = left.clone();
            async move {
                let _ = peer.request().await;
                peer.send(ok("first")).await;
                let _ = peer.request().await;
                let _ = left.send("asked").await;
                // No answer: the connection ends first.
                assert!(!peer.more().await);
                let _ = left.send("left").await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        assert_eq!(client.ask(get("/")).await.text(), "first");
        client.send(get("/")).await;
        assert_eq!(seen.recv().await, Some("asked"));
        drop(client);
        assert_eq!(seen.recv().await, Some("left"));
        assert_eq!(server.connections(), 1);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn requests_that_came_together_are_answered_in_turn() {
    within(async {
        let server = Server::answering(|request| ok(&request.first)).await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let all: String = (0..100).map(|number| get(&format!("/{number}"))).collect();
        client.send(all).await;
        for number in 0..100 {
            let answer = client.answer().await.expect("an answer");
            assert_eq!(answer.text(), format!("GET /{number} HTTP/1.1"));
        }
        stage.end().await;
    })
    .await;
}
