//! What apps say, and what clients are told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rideau_config::{ErrorPages, FrontConfig};

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, post, within};

/// An app that answers its first request like this and the others well.
async fn saying(text: &'static str) -> (Server, Stage) {
    let server = Server::start(move |mut peer: Peer, number| async move {
        while peer.request().await.is_some() {
            if number == 0 {
                peer.send(text).await;
                return;
            }
            peer.send(ok("well")).await;
        }
    })
    .await;
    let stage = Stage::new(server.address).await;
    (server, stage)
}

#[tokio::test]
async fn what_is_no_answer_is_a_bad_gateway_and_the_next_is_well() {
    within(async {
        for text in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 abc OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        ] {
            let (_server, stage) = saying(text).await;
            let mut client = stage.client().await;
            let answer = client.ask(get("/")).await;
            assert_eq!(answer.status(), 502, "{text:?}");
            assert_eq!(answer.field("x-rideau-error"), "bad_answer", "{text:?}");
            let next = client.ask(get("/")).await;
            assert_eq!(
                (next.status(), next.text()),
                (200, "well".into()),
                "{text:?}"
            );
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_head_without_end_is_a_bad_gateway() {
    within(async {
        let server = Server::start(|mut peer: Peer, number| async move {
            while peer.request().await.is_some() {
                if number > 0 {
                    peer.send(ok("well")).await;
                    continue;
                }
                peer.send("HTTP/1.1 200 OK\r\n").await;
                for _ in 0..200 {
                    peer.send(format!("X-Long: {}\r\n", "x".repeat(8000))).await;
                }
                return;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let answer = client.ask(get("/")).await;
        assert_eq!(answer.status(), 502);
        assert_eq!(client.ask(get("/")).await.text(), "well");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_cut_is_seen_to_be_cut() {
    within(async {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
        ] {
            for concurrency in [1, 16] {
                let server = Server::start(move |mut peer: Peer, _| async move {
                    let _ = peer.request().await;
                    peer.send(text).await;
                })
                .await;
                let mut config = app();
                config.options.concurrency = Some(concurrency);
                let stage = Stage::of(config, server.address, FrontConfig::default()).await;
                let mut client = stage.client().await;
                client.send(get("/")).await;
                if let Some(head) = client.head().await {
                    if head.status() == 200 {
                        let rest = client.rest().await;
                        let rest = String::from_utf8_lossy(&rest);
                        assert!(!rest.ends_with("0\r\n\r\n"), "{text:?}: {rest:?}");
                        assert!(rest.len() < 100);
                    } else {
                        assert_eq!(head.status(), 502);
                    }
                }
                stage.end().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_too_many_is_nobodys() {
    within(async {
        let server = Server::start(|mut peer: Peer, number| async move {
            while peer.request().await.is_some() {
                let text = match number {
                    0 => [ok("one"), ok("evil")].concat(),
                    _ => ok("next"),
                };
                peer.send(text).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        assert_eq!(client.ask(get("/")).await.text(), "one");
        assert_eq!(client.ask(get("/")).await.text(), "next");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_closes_before_it_answers_is_asked_once_more_if_that_is_safe() {
    within(async {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let server = Server::start(move |mut peer: Peer, _| {
            let count = Arc::clone(&count);
            async move {
                let _ = peer.request().await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let answer = client.ask(get("/")).await;
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.field("x-rideau-error"), "app_closed");
        assert_eq!(seen.swap(0, Ordering::SeqCst), 2);
        let answer = client.ask(post("/", "once")).await;
        assert_eq!(answer.status(), 502);
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn headers_name_the_client_and_are_cleaned() {
    within(async {
        let server = Server::answering(|request| {
            let mut said: Vec<String> = request
                .fields
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            said.sort();
            let body = format!("{}\n{}", request.first, said.join("\n"));
            let len = body.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: keep-alive, x-own\r\n\
                 X-Own: 1\r\nKeep-Alive: timeout=5\r\nX-App: kept\r\n\r\n{body}"
            )
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let text = "GET http://other.example:81/a/b?c=d HTTP/1.1\r\nHost: app.example\r\n\
                    Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Forwarded-For: 1.2.3.4\r\n\
                    X-Rideau-Cold: 1\r\nX_Rideau_Cold: 1\r\nTE: trailers\r\nAccept: x\r\n\
                    X-Request-Id: forged\r\n\r\n";
        let answer = client.ask(text).await;
        let said = answer.text();
        assert!(
            said.starts_with("GET /a/b?c=d HTTP/1.1\naccept=x\n"),
            "{said}"
        );
        for line in [
            "host=other.example:81",
            "x-forwarded-for=127.0.0.1",
            "x-forwarded-proto=http",
            "x-forwarded-host=other.example:81",
        ] {
            assert!(said.contains(line), "{line} is missing: {said}");
        }
        for word in ["hop", "rideau", "te=", "1.2.3.4", "forged"] {
            assert!(!said.contains(word), "{word} is there: {said}");
        }
        let id = answer.field("x-request-id");
        assert!(said.contains(&format!("x-request-id={id}")), "{said}");
        assert_eq!(answer.field("x-app"), "kept");
        assert_eq!(answer.field("x-own"), "");
        assert_eq!(answer.field("keep-alive"), "");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn answers_without_a_body_keep_the_connection() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while let Some(request) = peer.request().await {
                let text = match request.first.as_str() {
                    "GET /204 HTTP/1.1" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                    "GET /304 HTTP/1.1" => {
                        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_owned()
                    }
                    "HEAD /head HTTP/1.1" => {
                        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_owned()
                    }
                    _ => ok("body"),
                };
                peer.send(text).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        assert_eq!(client.ask(get("/204")).await.status(), 204);
        assert_eq!(client.ask(get("/304")).await.status(), 304);
        client.send(get("/head").replace("GET", "HEAD")).await;
        let head = client.head().await.expect("an answer");
        assert_eq!((head.status(), head.field("content-length")), (200, "9"));
        assert_eq!(client.ask(get("/")).await.text(), "body");
        assert_eq!(server.connections(), 1);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_old_client_gets_an_answer_that_it_understands() {
    within(async {
        let server = Server::answering(|_| {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".into()
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        client.send("GET / HTTP/1.0\r\n\r\n").await;
        let text = String::from_utf8(client.rest().await).expect("text");
        assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nhello"), "{text}");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    within(async {
        for concurrency in [1, 16] {
            let (tell, mut told) = tokio::sync::mpsc::channel::<()>(1);
            let told = Arc::new(tokio::sync::Mutex::new(told_of(&mut told)));
            let server = Server::start(move |mut peer: Peer, _| {
                let told = Arc::clone(&told);
                async move {
                    let _ = peer.request().await;
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
                    peer.send(head).await;
                    let mut told = told.lock().await;
                    while told.recv().await.is_some() {
                        peer.send("data: event\n\n").await;
                    }
                }
            })
            .await;
            let mut config = app();
            config.options.concurrency = Some(concurrency);
            let stage = Stage::of(config, server.address, FrontConfig::default()).await;
            let mut client = stage.client().await;
            client.send(get("/events")).await;
            assert_eq!(client.head().await.expect("an answer").status(), 200);
            for _ in 0..10 {
                // The next is made only when the last has come.
                tell.send(()).await.expect("the app listens");
                let event = client.chunk().await.expect("an event");
                assert_eq!(event, b"data: event\n\n");
            }
            drop(client);
            stage.end().await;
        }
    })
    .await;
}

fn told_of<T>(receiver: &mut tokio::sync::mpsc::Receiver<T>) -> tokio::sync::mpsc::Receiver<T> {
    let (_, none) = tokio::sync::mpsc::channel(1);
    std::mem::replace(receiver, none)
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_place_back_and_the_app_sees_it() {
    within(async {
        let (left, mut seen) = tokio::sync::mpsc::channel(1);
        let server = Server::start(move |mut peer: Peer, _| {
            let left = left.clone();
            async move {
                let _ = peer.request().await;
                // No answer: the connection ends first.
                assert!(!peer.more().await);
                let _ = left.send(()).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        client.send(get("/")).await;
        while server.connections() == 0 {
            tokio::task::yield_now().await;
        }
        drop(client);
        seen.recv().await.expect("the app sees it");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_app_that_takes_too_long_is_given_up() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            let _ = peer.more().await;
        })
        .await;
        let mut config = app();
        config.http.request_timeout = Some(Duration::from_millis(100));
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = stage.client().await;
        let answer = client.ask(get("/")).await;
        assert_eq!(answer.status(), 504);
        assert_eq!(answer.field("x-rideau-error"), "request_timeout");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn no_client_is_told_more_than_needed_unless_for_developers() {
    within(async {
        let server = Server::answering(|_| ok("")).await;
        let mut config = app();
        config.hosts = vec!["app.example".into()];
        let front = FrontConfig {
            error_pages: ErrorPages::Detailed,
            ..FrontConfig::default()
        };
        let stage = Stage::of(config, server.address, front).await;
        let mut client = stage.client().await;
        let answer = client
            .ask("GET / HTTP/1.1\r\nHost: other\r\nAccept: text/html\r\n\r\n")
            .await;
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.field("x-rideau-error"), "no_such_app");
        assert_eq!(answer.field("content-type"), "text/html; charset=utf-8");
        assert!(answer.text().contains(answer.field("x-request-id")));
        let text = "CONNECT a.example:443 HTTP/1.1\r\nHost: app.example\r\n\r\n";
        let answer = stage.client().await.ask(text).await;
        assert_eq!(answer.status(), 405);
        let traced = "TRACE / HTTP/1.1\r\nHost: app.example\r\nCookie: secret\r\n\r\n";
        let answer = stage.client().await.ask(traced).await;
        assert_eq!(answer.status(), 405);
        assert!(!answer.text().contains("secret"));
        let of_nothing = "GET * HTTP/1.1\r\nHost: app.example\r\n\r\n";
        assert_eq!(stage.client().await.ask(of_nothing).await.status(), 400);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_said_before_the_answer_is_handed_on_and_not_taken_for_it() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while peer.request().await.is_some() {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
                peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                    .await;
                // The client has it before the app has an answer.
                tokio::time::sleep(Duration::from_millis(20)).await;
                peer.send(ok("hello")).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        for _ in 0..2 {
            client.send(get("/")).await;
            let early = client.head().await.expect("a head");
            assert_eq!((early.status(), early.field("link")), (103, "</a>"));
            let answer = client.answer().await.expect("an answer");
            assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
        }
        let mut old = stage.client().await;
        let answer = old.ask("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(answer.status(), 200, "an old client knows no early words");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn trailers_are_handed_on_to_clients_that_take_them() {
    within(async {
        let server = Server::answering(|_| {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\
             Digest: abc\r\nContent-Length: 9\r\n\r\n"
                .into()
        })
        .await;
        // Passed on as it comes, and taken from the app before the client takes it.
        for concurrency in [64, 1] {
            let mut config = app();
            config.options.concurrency = Some(concurrency);
            let stage = Stage::of(config, server.address, FrontConfig::default()).await;
            let ask =
                |te: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{te}Connection: close\r\n\r\n");
            let mut client = stage.client().await;
            client.send(ask("TE: trailers\r\n")).await;
            let text = String::from_utf8(client.rest().await).expect("text");
            assert!(
                text.ends_with("hello\r\n0\r\nDigest: abc\r\n\r\n"),
                "{text}"
            );
            let answer = stage.client().await.ask(ask("")).await;
            assert_eq!(answer.text(), "hello");
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_says_when_it_was_given_unless_the_app_did() {
    within(async {
        let (_server, stage) = saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let answer = stage.client().await.ask(get("/")).await;
        assert!(answer.field("date").ends_with(" GMT"), "{answer:?}");
        stage.end().await;
        let (_server, stage) =
            saying("HTTP/1.1 200 OK\r\nDate: yesterday\r\nContent-Length: 0\r\n\r\n").await;
        let answer = stage.client().await.ask(get("/")).await;
        assert_eq!(answer.field("date"), "yesterday");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_long_answer_arrives_whole_however_its_end_is_told() {
    within(async {
        let server = Server::answering(|request| {
            let body = "0123456789abcdef".repeat(40_000);
            if request.first.contains("/chunks") {
                let mut text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
                for part in body.as_bytes().chunks(7001) {
                    let part = std::str::from_utf8(part).expect("text");
                    text.push_str(&format!("{:x}\r\n{part}\r\n", part.len()));
                }
                text + "0\r\n\r\n"
            } else {
                ok(&body)
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        for path in ["/length", "/chunks", "/length", "/chunks"] {
            let answer = client.ask(get(path)).await;
            assert_eq!(answer.body.len(), 640_000, "{path}");
            assert!(answer.text() == "0123456789abcdef".repeat(40_000), "{path}");
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_path_that_leads_out_of_the_app_reaches_no_app() {
    within(async {
        let server = Server::answering(|request| ok(&request.first)).await;
        for strips in [true, false] {
            let mut config = app();
            config.paths = vec!["/sub".into()];
            config.strips_path = strips;
            let stage = Stage::of(config, server.address, FrontConfig::default()).await;
            for path in ["/sub/../x", "/sub/%2e%2e/x", "/sub/a/../../x"] {
                let answer = stage.client().await.ask(get(path)).await;
                assert_eq!(answer.status(), 400, "{path}");
            }
            let answer = stage.client().await.ask(get("/sub/a/../b")).await;
            let seen = if strips { "/a/../b" } else { "/sub/a/../b" };
            assert_eq!(answer.text(), format!("GET {seen} HTTP/1.1"));
            stage.end().await;
        }
    })
    .await;
}
