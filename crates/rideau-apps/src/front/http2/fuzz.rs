//! Requests of HTTP/2 by chance: of each a process gets one request of HTTP/1.1 at most,
//! for the host that it was for, without a field that says where it ends.
//!
//! An input has a field in each line, and a part of the body in each line that begins with
//! `DATA`. The byte 1 stands for the end of a line within a field.

use std::cell::Cell;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};
use hyper::body::Bytes;
use hyper::http::request::Parts;
use rideau_core::Rng;
use rideau_testing::fuzz::{self, Tried, below, is_once_in, one};
use rideau_testing::http2::{
    BEGIN, DATA, END_HEADERS, END_STREAM, HEADERS, PING, first_frame, frame, literal_fields,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;

use super::mapped::MappedHead;
use crate::front::conn::ClientConn;
use crate::front::headers::Toward;
use crate::front::ids::Id;
use crate::front::request::put_head;
use crate::http1::fields::Fields;
use crate::http1::head::{Framing, Head, HeadLimits};

const USUAL: u64 = 10_000;
/// Fields that a request may have, and that the front adds.
const FIELDS_MAX: usize = 12;
const ADDED_MAX: usize = 10;

const METHODS: &[&[u8]] = &[
    b":method: GET",
    b":method: POST",
    b":method: CONNECT",
    b":method: OPTIONS",
    b":method: GET / HTTP/1.1\r\x01X: ",
    b":method: ",
];

const PATHS: &[&[u8]] = &[
    b":path: /",
    b":path: /a?b=c",
    b":path: *",
    b":path: ",
    b":path: a",
    b":path: http://evil/",
    b":path: / HTTP/1.1\r\x01Host: evil\r\x01X:",
    b":path: //evil/a",
    b":path: /\xc3\xa9#b",
];

const AUTHORITIES: &[&[u8]] = &[
    b":authority: a.example",
    b":authority: [::1]:80",
    b":authority: evil@a.example",
    b":authority: a.example, evil",
    b":authority: a.example\r\x01Host: evil",
    b":authority: ",
];

const FIELDS: &[&[u8]] = &[
    b"host: a.example",
    b"host: A.Example",
    b"host: evil",
    b"content-length: 5",
    b"content-length: 0",
    b"content-length: 6",
    b"content-length: +5",
    b"content-length: 5, 5",
    b"content_length: 5",
    b"transfer-encoding: chunked",
    b"transfer_encoding: chunked",
    b"connection: close",
    b"connection: content-length",
    b"keep-alive: 5",
    b"proxy-connection: x",
    b"upgrade: websocket",
    b"te: trailers",
    b"te: gzip",
    b"expect: 100-continue",
    b"cookie: a=b",
    b"cookie: c=d; e=f",
    b"cookie: ",
    b":protocol: websocket",
    b":protocol: connect-udp",
    b":scheme: https",
    b":path: /twice",
    b":status: 200",
    b":unknown: 1",
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    b"sec-websocket-version: 13",
    b"x-forwarded-for: 1.1.1.1",
    b"x-forwarded-host: evil",
    b"x-request-id: \xff",
    b"x-rideau-cold: 1",
    b"X-Large: 1",
    b"x y: 1",
    b"x:y: 1",
    b"x: \xc3\xa9",
    b"x: ",
    b": x",
    b"x: a\x01content-length: 5",
    b"x: a\r\x01\r\x01GET /hidden HTTP/1.1\r\x01",
    b"x: a\0b",
    b"x\r\x01content-length: 5",
];

const BODIES: &[&[u8]] = &[
    b"",
    b"DATA hello\n",
    b"DATA he\nDATA llo\n",
    b"DATA \n",
    b"DATA 0\r\x01\r\x01GET /hidden HTTP/1.1\r\x01\n",
];

const PARTS: &[&[u8]] = &[
    b"\r",
    b"\x01",
    b"\r\x01",
    b"\0",
    b"\n",
    b": ",
    b":",
    b" ",
    b"\t",
    b"\x7f",
    b"\xff",
    b"host: evil\n",
    b"content-length: 5\n",
    b"DATA x\n",
    b"A",
    b"_",
];

/// A name and a value.
type Field = (Vec<u8>, Vec<u8>);

/// A request that got through the library.
struct Arrived {
    parts: Parts,
    /// Its body; none if that made no sense.
    body: Option<Vec<u8>>,
}

#[test]
fn a_request_of_http2_is_one_request_of_http1() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let (good, bad) = (Cell::new(0_u32), Cell::new(0_u32));
    fuzz::run("front-http2", USUAL, request, |input| {
        let count = match check(&runtime, input)? {
            true => &good,
            false => &bad,
        };
        count.set(count.get() + 1);
        Ok(())
    });
    let (good, bad) = (good.get(), bad.get());
    assert!(good > bad / 20 && bad > good / 20, "{good} good, {bad} bad");
}

fn request(rng: &mut Rng) -> Vec<u8> {
    let mut lines = Vec::new();
    // Most have what a request needs, as it should be.
    for of in [METHODS, PATHS, AUTHORITIES] {
        match below(rng, 10) {
            0 => (),
            1 => lines.push(one(rng, of)),
            _ => lines.push(of[below(rng, 2)]),
        }
    }
    lines.push(b":scheme: http");
    for _ in 0..below(rng, 4) {
        lines.push(one(rng, FIELDS));
    }
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(one(rng, BODIES));
    if is_once_in(rng, 3) {
        fuzz::damage(&mut bytes, rng, PARTS);
    }
    bytes
}

/// The fields of an input, and the parts of its body.
fn read(input: &[u8]) -> (Vec<Field>, Vec<Vec<u8>>) {
    let (mut fields, mut body) = (Vec::new(), Vec::new());
    for line in input.split(|byte| *byte == b'\n') {
        let ends = |byte: &u8| if *byte == 1 { b'\n' } else { *byte };
        let line: Vec<_> = line.iter().map(ends).collect();
        if let Some(part) = line.strip_prefix(b"DATA ") {
            body.push(part.to_vec());
        } else if let Some(at) = memchr::memmem::find(&line, b": ") {
            fields.push((line[..at].to_vec(), line[at + 2..].to_vec()));
        }
    }
    (fields, body)
}

/// Check a request. Says whether it is one that a process gets.
fn check(runtime: &Runtime, input: &[u8]) -> Result<bool, String> {
    let (fields, body) = read(input);
    let Some(arrived) = runtime.block_on(arrive(&fields, &body)) else {
        return Ok(false);
    };
    let Ok(head) = MappedHead::new(&arrived.parts, FIELDS_MAX) else {
        return Ok(false);
    };
    let heard = head.heard();
    let said = |name: &str| {
        let mut named = fields.iter().filter(|(known, _)| known == name.as_bytes());
        named.next().map(|(_, value)| &**value)
    };
    let host = said(":authority")
        .or_else(|| said("host"))
        .unwrap_or_default();
    if let Some(found) = &arrived.body {
        if *found != body.concat() {
            return Err(format!("its body is {}", found.escape_ascii()));
        }
        let is_other = |len| len != found.len() as u64;
        if heard.length.is_some_and(is_other) {
            return Err(format!("it says {:?} of {}", heard.length, found.len()));
        }
    }
    for is_trusted in [false, true] {
        let peer = ([10, 0, 0, 9], 5000).into();
        let toward = Toward {
            conn: &ClientConn::new(peer, 3000, true, is_trusted),
            id: &Id::Theirs(b"id-1".as_slice().into()),
            came: Duration::from_secs(1_700_000_000),
            names_fields: heard.names_fields,
            host: None,
            prefix: None,
        };
        let mut sent = Vec::new();
        put_head(&mut sent, &heard, heard.target, &toward);
        is_one(&sent, heard.length == Some(0), host, said(":path"), &fields)
            .map_err(|why| format!("{why}: {}", sent.escape_ascii()))?;
    }
    Ok(true)
}

/// What a server makes of a request on a connection of its own.
async fn arrive(fields: &[Field], body: &[Vec<u8>]) -> Option<Arrived> {
    let (mut client, server) = duplex(1 << 16);
    let block = literal_fields(fields.iter().map(|(name, value)| (&**name, &**value)));
    let ends = |is_last| if is_last { END_STREAM } else { 0 };
    let mut frames = BEGIN.to_vec();
    frames.extend(frame(
        HEADERS,
        END_HEADERS | ends(body.is_empty()),
        1,
        &block,
    ));
    for (at, part) in body.iter().enumerate() {
        frames.extend(frame(DATA, ends(at + 1 == body.len()), 1, part));
    }
    // What comes before it was looked at when it is answered.
    frames.extend(frame(PING, 0, 0, b"is over?"));
    client.write_all(&frames).await.ok()?;
    let mut builder = h2::server::Builder::new();
    let shaken = builder
        .enable_connect_protocol()
        .handshake::<_, Bytes>(server);
    let mut connection = shaken.await.ok()?;
    let accepted = tokio::select! {
        biased;
        accepted = connection.accept() => accepted,
        () = until_ping(&mut client) => None,
    };
    let (request, _respond) = accepted?.ok()?;
    let (parts, mut incoming) = request.into_parts();
    let read = async {
        let mut body = Vec::new();
        while let Some(part) = incoming.data().await {
            let part = part.ok()?;
            let released = incoming.flow_control().release_capacity(part.len());
            released.ok()?;
            body.extend_from_slice(&part);
        }
        Some(body)
    };
    let body = tokio::select! {
        body = read => body,
        _ = connection.accept() => None,
    };
    Some(Arrived { parts, body })
}

/// Wait for the answer to a PING, or for the end.
async fn until_ping(client: &mut DuplexStream) {
    let mut told = Vec::new();
    loop {
        let mut rest = &told[..];
        while let Some(frame) = first_frame(rest) {
            if frame.kind == PING {
                return;
            }
            rest = frame.rest;
        }
        if !matches!(client.read_buf(&mut told).await, Ok(1..)) {
            return;
        }
    }
}

/// A process reads one request in it, and no length but that of an empty body.
fn is_one(
    sent: &[u8],
    is_empty: bool,
    host: &[u8],
    path: Option<&[u8]>,
    fields: &[Field],
) -> Tried {
    let mut head = Head::default();
    let limits = HeadLimits {
        bytes_max: sent.len(),
        fields_max: FIELDS_MAX + ADDED_MAX,
    };
    if head.pass(sent, &limits) != Ok(Some(sent.len())) {
        return Err("it is no head".into());
    }
    if head.framing() != Framing::Nothing || head.length().is_some_and(|len| len > 0) {
        return Err("it says that a body follows".into());
    }
    let found = head.fields(sent);
    if !found.all("host").eq([host]) {
        return Err(format!("it is not for {}", host.escape_ascii()));
    }
    let target = head.target(sent);
    if Some(target) != path.filter(|path| !path.contains(&b'#')) && target != b"/" {
        let is_cut = path.is_some_and(|path| path.starts_with(target));
        if !is_cut {
            return Err("it has another path".into());
        }
    }
    let mut room = [EMPTY_HEADER; FIELDS_MAX + ADDED_MAX];
    let mut other = httparse::Request::new(&mut room);
    match other.parse(sent) {
        Ok(Status::Complete(len)) if len == sent.len() => (),
        // Some targets are not taken by all.
        Err(httparse::Error::Token) if !target.is_ascii() => (),
        other => return Err(format!("another finds {other:?}")),
    }
    are_known(found, is_empty, fields)
}

/// Every field was said by the client, or is ours, and none is of the connection.
fn are_known(found: Fields<'_>, is_empty: bool, fields: &[Field]) -> Tried {
    const OURS: [&[u8]; 7] = [
        b"host",
        b"X-Forwarded-For",
        b"X-Forwarded-Proto",
        b"X-Forwarded-Host",
        b"X-Forwarded-Port",
        b"X-Request-Id",
        b"X-Request-Start",
    ];
    const OF_CONNECTION: [&str; 8] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "transfer_encoding",
        "content_length",
        "te",
        "upgrade",
    ];
    for (name, value) in found.iter() {
        let text = name.escape_ascii();
        if OF_CONNECTION
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        {
            return Err(format!("it has {text}"));
        }
        let is_said = fields
            .iter()
            .any(|(known, said)| known == name && said.trim_ascii() == value);
        let is_made = match name {
            b"Content-Length" => is_empty,
            b"cookie" | b"sec-websocket-key" => found.all(&text.to_string()).count() == 1,
            _ => OURS.contains(&name),
        };
        if !is_said && !is_made {
            return Err(format!("it has {text}, which was not said"));
        }
    }
    Ok(())
}
