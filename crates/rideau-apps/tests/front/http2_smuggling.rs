//! Requests of HTTP/2 that HTTP/1.1 would read in another way reach no app.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rideau_testing::http2::{
    BEGIN, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, first_frame, frame,
    literal_fields,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::Stage;
use super::wire::{Peer, Server, ok, within};

type Field<'a> = (&'a str, &'a str);

const USUAL: [Field<'_>; 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "app.example"),
    (":path", "/"),
];

/// Fields beside the usual ones.
const ADDED: [&[Field<'_>]; 24] = [
    &[("x", "a\r\nx-injected: 1")],
    &[("x", "a\ncontent-length: 5")],
    &[("x", "a\rb")],
    &[("x", "a\0b")],
    &[("x\r\ninjected", "1")],
    &[("x y", "1")],
    &[("x:y", "1")],
    &[("X", "1")],
    &[("", "1")],
    &[("connection", "close")],
    &[("keep-alive", "5")],
    &[("proxy-connection", "x")],
    &[("transfer-encoding", "chunked")],
    &[("upgrade", "websocket")],
    &[("te", "gzip")],
    &[("host", "other.example")],
    &[("host", "app.example"), ("host", "app.example")],
    &[("content-length", "4")],
    &[("content-length", "6")],
    &[("content-length", "+5")],
    &[("content-length", "5, 5")],
    &[("content-length", "5"), ("content-length", "6")],
    &[("x", "1"), (":path", "/")],
    &[(":status", "200")],
];

/// And others in the stead of those.
const INSTEAD: [Field<'_>; 11] = [
    (":method", "POST / HTTP/1.1\r\nHost: other"),
    (":method", ""),
    (":path", ""),
    (":path", "hello"),
    (":path", "http://other.example/"),
    (":path", "/ HTTP/1.1\r\nHost: other\r\n"),
    (":path", "/a b"),
    (":authority", ""),
    (":authority", "anna@app.example"),
    (":authority", "app.example, other.example"),
    (":authority", "app.example\r\nHost: other.example"),
];

/// What a request comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Status(u16),
    /// Its stream is reset, or the whole connection ends.
    Reset,
}

fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let bytes = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    literal_fields(bytes)
}

/// Send a request with a body and fields behind it, if there are any.
async fn ask(stage: &Stage, fields: &[Field<'_>], body: &str, behind: &[Field<'_>]) -> Told {
    let mut stream = TcpStream::connect(stage.address).await.expect("a front");
    let mut frames = BEGIN.to_vec();
    let last = if behind.is_empty() { END_STREAM } else { 0 };
    frames.extend(frame(HEADERS, END_HEADERS, 1, &block(fields)));
    frames.extend(frame(DATA, last, 1, body.as_bytes()));
    if !behind.is_empty() {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(behind)));
    }
    stream.write_all(&frames).await.expect("it listens");
    let mut told = Vec::new();
    loop {
        let mut rest = &told[..];
        while let Some(frame) = first_frame(rest) {
            match (frame.kind, frame.payload) {
                // A status that is usual is one byte.
                (HEADERS, [0x88, ..]) => return Told::Status(200),
                (HEADERS, [0x8c, ..]) => return Told::Status(400),
                (HEADERS, other) => panic!("another status: {}", other.escape_ascii()),
                (RST_STREAM | GOAWAY, _) => return Told::Reset,
                _ => rest = frame.rest,
            }
        }
        let len = stream.read_buf(&mut told).await.expect("it speaks");
        assert!(len > 0, "it ends without a word");
    }
}

#[tokio::test]
async fn what_http1_would_read_otherwise_is_refused() {
    within(async {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let server = Server::start(move |mut peer: Peer, _| {
            let count = Arc::clone(&counted);
            async move {
                while let Some(request) = peer.request().await {
                    assert_eq!(request.first, "POST / HTTP/1.1");
                    assert_eq!(request.field("content-length"), "5");
                    assert_eq!(request.text(), "hello");
                    count.fetch_add(1, Ordering::SeqCst);
                    peer.send(ok("hello")).await;
                }
            }
        })
        .await;
        let stage = Stage::new(server.address).await;
        for fields in ADDED {
            let fields = [&USUAL[..], fields].concat();
            let told = ask(&stage, &fields, "hello", &[]).await;
            assert_ne!(told, Told::Status(200), "{fields:?}");
        }
        for (name, value) in INSTEAD {
            let mut fields = USUAL;
            for field in &mut fields {
                if field.0 == name {
                    field.1 = value;
                }
            }
            let told = ask(&stage, &fields, "hello", &[]).await;
            assert_ne!(told, Told::Status(200), "{fields:?}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
        let sound: [&[Field<'_>]; 5] = [
            &[],
            &[("host", "App.Example")],
            &[("te", "trailers"), ("content-length", "5")],
            &[("content_length", "7"), ("transfer_encoding", "chunked")],
            &[("cookie", "a=b"), ("cookie", "c=d")],
        ];
        for (at, fields) in sound.into_iter().enumerate() {
            let fields = [&USUAL[..], fields].concat();
            // What is behind a body has no meaning for the request.
            let behind = [(":path", "/a"), ("content-length", "9"), ("host", "b")];
            let behind = &behind[..at % 2 * 3];
            let told = ask(&stage, &fields, "hello", behind).await;
            assert_eq!(told, Told::Status(200), "{fields:?}");
        }
        assert_eq!(count.load(Ordering::SeqCst), sound.len());
        stage.end().await;
    })
    .await;
}
