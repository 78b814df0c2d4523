//! HTTP/2, agreed on within TLS or begun with.

use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rideau_apps::{FrontCertificate, Tls};
use rideau_config::{AppListen, FrontConfig};
use rideau_testing::http2::BEGIN;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, find, ok, within};

/// A body that was there from the start.
pub(crate) struct Whole(pub(crate) Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

async fn text(mut body: Incoming) -> String {
    let mut all = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(part) = frame.expect("a whole answer").into_data() {
            all.extend_from_slice(&part);
        }
    }
    String::from_utf8(all).expect("text")
}

pub(crate) async fn speaking<S>(stream: S) -> http2::SendRequest<Whole>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let shaken = http2::handshake(TokioExecutor::new(), io).await;
    let (sender, connection) = shaken.expect("HTTP/2 is spoken");
    tokio::spawn(connection);
    sender
}

async fn describing() -> Server {
    Server::answering(|request| {
        let (host, how) = (request.field("host"), request.field("x-forwarded-proto"));
        let sent = String::from_utf8_lossy(&request.body);
        ok(&format!("{} {host} {how} {sent}", request.first))
    })
    .await
}

async fn check(mut sender: http2::SendRequest<Whole>, how: &str) {
    let asks = (0..50).map(|number| {
        let uri = format!("http://app.example/{number}");
        let body = (number % 2 == 1).then(|| Bytes::from(format!("body {number}")));
        let method = if number % 2 == 1 { "POST" } else { "GET" };
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(Whole(body)).expect("a request");
        let asked = sender.send_request(request);
        async move {
            let answer = asked.await.expect("an answer");
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.headers()["x-request-id"].len(), 32);
            (number, method, text(answer.into_body()).await)
        }
    });
    for (number, method, text) in futures_util::future::join_all(asks.collect::<Vec<_>>()).await {
        let body = if number % 2 == 1 {
            format!("body {number}")
        } else {
            String::new()
        };
        let expected = format!("{method} /{number} HTTP/1.1 app.example {how} {body}");
        assert_eq!(text, expected);
    }
}

#[tokio::test]
async fn a_client_that_begins_with_it_is_understood() {
    within(async {
        let server = describing().await;
        let stage = Stage::new(server.address).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        check(speaking(stream).await, "http").await;
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn within_tls_it_is_agreed_on() {
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};

    within(async {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("one");
        let certificate = made.cert.der().clone();
        let key = made.signing_key.serialize_der().try_into().expect("a key");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a certificate");
        let certificate_of_all = FrontCertificate {
            names: vec!["localhost".into()],
            is_default: false,
            asks_clients: false,
            config: Arc::new(config),
        };
        let server = describing().await;
        let mut config = app();
        config.run.listen = AppListen::Fixed(server.address);
        let tls = Tls::new(vec![certificate_of_all]);
        let stage = Stage::with(vec![config], FrontConfig::default(), Some(tls)).await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        for protocol in ["h2", "http/1.1"] {
            let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.into()];
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let stream = TcpStream::connect(stage.address).await.expect("a front");
            let name = ServerName::try_from("localhost").expect("a name");
            let mut stream = connector.connect(name, stream).await.expect("TLS");
            let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            assert_eq!(agreed.as_deref(), Some(protocol.as_bytes()));
            if protocol == "h2" {
                check(speaking(stream).await, "https").await;
                continue;
            }
            let text = "GET /1 HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n";
            stream.write_all(text.as_bytes()).await.expect("it listens");
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer).await;
            read.expect("an end that was said");
            assert!(find(&answer, b"GET /1 HTTP/1.1 app.example https ").is_some());
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_said_before_the_answer_is_heard_before_it() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            while peer.request().await.is_some() {
                peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                    .await;
                // The client has it before the app has an answer.
                tokio::time::sleep(Duration::from_millis(20)).await;
                peer.send(ok("hello")).await;
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        let (mut sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::post("http://app.example/").header("expect", "100-continue");
        let (mut answer, mut upload) = sender
            .send_request(request.body(()).expect("a request"), false)
            .expect("a stream");
        let mut heard = Vec::new();
        for _ in 0..2 {
            let early = std::future::poll_fn(|context| answer.poll_informational(context));
            let early = early.await.expect("more is said").expect("it is there");
            let link = early.headers().get("link").cloned();
            heard.push((early.status().as_u16(), link));
            if heard.len() == 1 {
                upload.send_data("body".into(), true).expect("it listens");
            }
        }
        let link = hyper::header::HeaderValue::from_static("</a>");
        assert_eq!(heard, [(100, None), (103, Some(link))]);
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().contains_key("date"));
        let body = answer.into_body().data().await.expect("a body");
        assert_eq!(body.expect("all of it"), "hello");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_request_for_a_head_is_sent_no_body_and_long_ones_arrive_whole() {
    within(async {
        let server = Server::answering(|request| match request.first.contains("/long") {
            true => ok(&"x".repeat(4 << 20)),
            false => ok(""),
        })
        .await;
        let mut config = app();
        config.hosts = vec!["app.example".into()];
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        let mut sender = speaking(stream).await;
        let refused = Request::head("http://other.example/").body(Whole(None));
        let refused = sender.send_request(refused.expect("a request")).await;
        let refused = refused.expect("an answer");
        assert_eq!(refused.status(), 404);
        assert_eq!(text(refused.into_body()).await, "");
        let asks = (0..8).map(|_| {
            let long = Request::get("http://app.example/long").body(Whole(None));
            let asked = sender.send_request(long.expect("a request"));
            async { text(asked.await.expect("an answer").into_body()).await }
        });
        for body in futures_util::future::join_all(asks.collect::<Vec<_>>()).await {
            assert_eq!(body.len(), 4 << 20);
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn cookies_in_several_fields_are_one_field_for_the_app() {
    within(async {
        let server = Server::answering(|request| ok(request.field("cookie"))).await;
        let stage = Stage::new(server.address).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        let mut sender = speaking(stream).await;
        let request = Request::get("http://app.example/")
            .header("cookie", "a=1")
            .header("x-between", "x")
            .header("cookie", "b=2; c=3")
            .body(Whole(None));
        let answer = sender.send_request(request.expect("a request")).await;
        let answer = answer.expect("an answer");
        assert_eq!(text(answer.into_body()).await, "a=1; b=2; c=3");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_head_has_no_more_fields_than_it_may() {
    within(async {
        let server = Server::answering(|_| ok("hello")).await;
        let front = FrontConfig {
            headers_max: 20,
            ..FrontConfig::default()
        };
        let stage = Stage::of(app(), server.address, front).await;
        let stream = TcpStream::connect(stage.address).await.expect("a front");
        let mut sender = speaking(stream).await;
        for (fields, status) in [(19, 200), (20, 431)] {
            let mut request = Request::get("http://app.example/");
            for number in 0..fields {
                request = request.header(format!("x-{number}"), "1");
            }
            let asked = sender.send_request(request.body(Whole(None)).expect("a request"));
            assert_eq!(asked.await.expect("an answer").status(), status);
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_control_frames_ends_the_connection() {
    within(async {
        let server = Server::answering(|_| ok("hello")).await;
        let stage = Stage::new(server.address).await;
        let floods: [(&str, &[u8]); 3] = [
            ("SETTINGS", b"\0\0\0\x04\0\0\0\0\0"),
            ("PING", b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            ("PRIORITY", b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\0"),
        ];
        for (name, frame) in floods {
            let stream = TcpStream::connect(stage.address).await.expect("a front");
            let (mut read, mut write) = stream.into_split();
            let sent = tokio::spawn(async move {
                write.write_all(BEGIN).await.expect("it listens");
                let many = frame.repeat(100);
                // Without an end, as far as the client goes.
                while write.write_all(&many).await.is_ok() {}
            });
            // The end may be a reset, as not all is read that was sent.
            let _ = read.read_to_end(&mut Vec::new()).await;
            sent.await.unwrap_or_else(|_| panic!("{name} never ends"));
        }
        stage.end().await;
    })
    .await;
}
