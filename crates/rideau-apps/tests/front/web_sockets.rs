//! WebSockets of clients that speak HTTP/2: a stream of it is a connection of its own.

use std::future::poll_fn;

use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, SendStream};
use hyper::body::Bytes;
use hyper::{Method, Request};
use rideau_config::FrontConfig;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::net::TcpStream;

use super::stage::{Stage, app};
use super::wire::{Message, Peer, Server, ok, within};

/// What an app makes of a key.
fn accept_of(key: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    // 20 bytes are 26 groups of six bits and a rest of four.
    let bit = |at: usize| {
        proof
            .as_ref()
            .get(at / 8)
            .map_or(0, |byte| byte >> (7 - at % 8) & 1)
    };
    let group = |at: usize| (0..6).fold(0, |sum, next| sum << 1 | bit(at * 6 + next));
    let letters = (0..27).map(|at| char::from(LETTERS[usize::from(group(at))]));
    letters.chain(['=']).collect()
}

/// The answer of an app to a handshake.
fn agreed(request: &Message) -> String {
    assert_eq!(request.field("connection"), "upgrade");
    assert_eq!(request.field("upgrade"), "websocket");
    let accept = accept_of(request.field("sec-websocket-key"));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: {}\r\n\r\n",
        request.field("sec-websocket-protocol")
    )
}

/// An app that sends back what it gets, or answers as the path says.
async fn echoing() -> Server {
    Server::start(|mut peer: Peer, _| async move {
        while let Some(request) = peer.request().await {
            let (said, agreed) = (request.first.clone(), agreed(&request));
            let path = said.split(' ').nth(1).unwrap_or_default();
            match path {
                "/no" => {
                    peer.send("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
                        .await
                }
                "/yes" => peer.send(ok("yes")).await,
                "/other" => peer.send(agreed.replace("WebSocket\r\n", "talk\r\n")).await,
                "/unproved" => peer.send(agreed.replace("Accept: ", "Accept: x")).await,
                _ => {
                    assert_eq!(said, "GET /chat?a=b HTTP/1.1");
                    assert_eq!(request.field("host"), "app.example");
                    assert_eq!(request.field("origin"), "https://app.example");
                    assert_eq!(request.field("sec-websocket-version"), "13");
                    peer.send(agreed).await;
                    while peer.more().await {
                        let bytes = peer.take();
                        peer.send(bytes).await;
                    }
                    return;
                }
            }
        }
    })
    .await
}

async fn client(stage: &Stage) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(stage.address).await.expect("a front");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut sender = sender.ready().await.expect("it goes on");
    while !sender.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
        sender = sender.ready().await.expect("it goes on");
    }
    sender
}

fn ask(
    sender: &mut SendRequest<Bytes>,
    protocol: &'static str,
    path: &str,
) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://app.example{path}"))
        .header("origin", "https://app.example")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        // That of HTTP/1, which is of no use here.
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .extension(Protocol::from_static(protocol))
        .body(());
    let request = request.expect("a request");
    sender.send_request(request, false).expect("a stream")
}

#[tokio::test]
async fn what_is_said_comes_back_and_the_end_is_told() {
    within(async {
        let server = echoing().await;
        let stage = Stage::new(server.address).await;
        let mut sender = client(&stage).await;
        let (answer, mut said) = ask(&mut sender, "websocket", "/chat?a=b");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let fields = answer.headers().clone();
        assert_eq!(fields["sec-websocket-protocol"], "chat");
        for name in ["connection", "upgrade", "sec-websocket-accept"] {
            assert_eq!(fields.get(name), None, "{name}");
        }
        let mut heard = answer.into_body();
        for len in [1, 100, 20_000, 300_000] {
            let bytes = Bytes::from(vec![7; len]);
            said.send_data(bytes.clone(), false).expect("it listens");
            let mut back = Vec::new();
            while back.len() < len {
                let part = heard.data().await.expect("more").expect("it goes on");
                heard
                    .flow_control()
                    .release_capacity(part.len())
                    .expect("so much came");
                back.extend_from_slice(&part);
            }
            assert_eq!(back, bytes);
        }
        // It is a stream, which takes no place.
        let shown = stage.apps.shown(&stage.app()).expect("it is there");
        assert_eq!(
            (shown.stats.streams, shown.stats.processes[0].sessions),
            (1, 0)
        );
        said.send_data(Bytes::new(), true).expect("it listens");
        // The app has ended, too.
        while let Some(last) = heard.data().await {
            assert_eq!(last.expect("an end that was said"), "");
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn several_are_on_one_connection_beside_requests_and_end_apart() {
    within(async {
        let server = echoing().await;
        let stage = Stage::new(server.address).await;
        let mut sender = client(&stage).await;
        let mut open = Vec::new();
        for number in 0..20_u8 {
            let (answer, mut said) = ask(&mut sender, "websocket", "/chat?a=b");
            let heard = answer.await.expect("an answer").into_body();
            said.send_data(vec![number].into(), false)
                .expect("it listens");
            open.push((said, heard));
        }
        for (number, (said, heard)) in open.iter_mut().enumerate() {
            let back = heard.data().await.expect("more").expect("it goes on");
            assert_eq!(back, vec![u8::try_from(number).expect("a few")]);
            if number % 2 == 0 {
                said.send_reset(Reason::CANCEL);
            }
        }
        let left = || {
            stage
                .apps
                .shown(&stage.app())
                .expect("it is there")
                .stats
                .streams
        };
        while left() > 10 {
            tokio::task::yield_now().await;
        }
        let (said, heard) = &mut open[1];
        said.send_data("still".into(), false).expect("it listens");
        assert_eq!(
            heard.data().await.expect("more").expect("it goes on"),
            "still"
        );
        // The client leaves without a word.
        drop((open, sender));
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_told_and_is_not_taken_for_a_yes() {
    within(async {
        let server = echoing().await;
        let stage = Stage::of(app(), server.address, FrontConfig::default()).await;
        let mut sender = client(&stage).await;
        for (protocol, path, status, word) in [
            ("websocket", "/no", 403, None),
            ("websocket", "/yes", 502, Some("bad_answer")),
            ("websocket", "/other", 502, Some("bad_answer")),
            ("websocket", "/unproved", 502, Some("bad_answer")),
            ("connect-udp", "/chat?a=b", 501, Some("unknown_protocol")),
        ] {
            let (answer, _said) = ask(&mut sender, protocol, path);
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status(), status, "{path}");
            let told = answer.headers().get("x-rideau-error");
            let told = told.map(|word| word.to_str().expect("a word"));
            assert_eq!(told, word, "{path}");
            if status == 403 {
                let body = answer.into_body().data().await.expect("a body");
                assert_eq!(body.expect("all of it"), "no");
            }
        }
        let plain = Request::connect("app.example:443")
            .body(())
            .expect("a request");
        let (answer, _said) = sender.send_request(plain, false).expect("a stream");
        assert_eq!(answer.await.expect("an answer").status(), 405);
        // The client changed its mind while the app thought.
        let (answer, mut said) = ask(&mut sender, "websocket", "/no");
        said.send_reset(Reason::CANCEL);
        drop(answer);
        poll_fn(|context| sender.poll_ready(context))
            .await
            .expect("it goes on");
        stage.end().await;
    })
    .await;
}
