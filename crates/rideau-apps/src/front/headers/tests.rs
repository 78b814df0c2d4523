//! Fields on their way through, both ways.

use super::*;
use crate::http1::fields::Span;

fn conn(is_trusted: bool) -> ClientConn {
    let peer = "10.0.0.9:5000".parse().expect("an address");
    ClientConn::new(peer, 3000, true, is_trusted)
}

/// Fields as a client sends them, and where they are.
fn written(fields: &[(&str, &str)]) -> (Vec<u8>, Vec<Span>) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        let line = format!("{name}: {value}");
        let span = Span::new(bytes.len(), line.as_bytes(), name.len());
        spans.push(span.expect("it is short"));
        bytes.extend_from_slice(line.as_bytes());
    }
    (bytes, spans)
}

fn with<T>(fields: &[(&str, &str)], look: impl FnOnce(Fields<'_>) -> T) -> T {
    let (bytes, spans) = written(fields);
    look(Fields::new(&bytes, &spans))
}

/// What is written as fields, by names in small letters.
fn read(written: &[u8]) -> Vec<(String, String)> {
    let text = str::from_utf8(written).expect("text");
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect()
}

fn said<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let named = fields.iter().find(|(known, _)| known == name);
    named.map(|(_, value)| value.as_str())
}

fn passed(fields: &[(&str, &str)], is_trusted: bool) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let toward = Toward {
        conn: &conn(is_trusted),
        id: &Id::Theirs(b"id-1".as_slice().into()),
        came: Duration::from_secs(1_700_000_000),
        names_fields: true,
        host: None,
        prefix: None,
    };
    with(fields, |fields| to_process(&mut out, fields, &toward));
    read(&out)
}

const CLAIMED: [(&str, &str); 7] = [
    ("Host", "a.example"),
    ("X-Forwarded-For", "1.1.1.1"),
    ("X-Forwarded-Proto", "ftp"),
    ("X-Forwarded-Host", "evil"),
    ("X-Forwarded-Port", "1"),
    ("Forwarded", "for=1.1.1.1"),
    ("X-Real-IP", "1.1.1.1"),
];

#[test]
fn a_stranger_is_not_believed_about_the_client_it_asks_for() {
    let headers = passed(&CLAIMED, false);
    assert_eq!(said(&headers, "x-forwarded-for"), Some("10.0.0.9"));
    assert_eq!(said(&headers, "x-forwarded-proto"), Some("https"));
    assert_eq!(said(&headers, "x-forwarded-host"), Some("a.example"));
    assert_eq!(said(&headers, "x-forwarded-port"), Some("3000"));
    assert_eq!(said(&headers, "forwarded"), None);
    assert_eq!(said(&headers, "x-real-ip"), None);
    assert_eq!(said(&headers, "host"), Some("a.example"));
}

#[test]
fn the_headers_of_a_trusted_peer_are_added_to() {
    let headers = passed(&CLAIMED, true);
    assert_eq!(said(&headers, "x-forwarded-for"), Some("1.1.1.1, 10.0.0.9"));
    assert_eq!(said(&headers, "x-forwarded-proto"), Some("ftp"));
    assert_eq!(said(&headers, "x-forwarded-host"), Some("evil"));
    assert_eq!(said(&headers, "x-forwarded-port"), Some("1"));
}

#[test]
fn what_is_of_one_connection_only_goes_no_further() {
    let fields = [
        ("Connection", "close, X-Secret"),
        ("Connection", "keep-alive, host, content-length"),
        ("X-Secret", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Proxy-Connection", "close"),
        ("Proxy", "evil"),
        ("Host", "a.example"),
        ("Content-Length", "3"),
        ("Expect", "100-continue"),
    ];
    let headers = passed(&fields, false);
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    // How long it is is said anew.
    let expected = [
        "host",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-request-id",
        "x-request-start",
    ];
    assert_eq!(names, expected);
    let start = said(&headers, "x-request-start").expect("it is there");
    let micros: u64 = start
        .strip_prefix("t=")
        .expect("a mark")
        .parse()
        .expect("a number");
    assert!(micros > 1_600_000_000_000_000);
}

#[test]
fn our_own_names_and_their_disguises_are_dropped() {
    let fields = [
        ("X-Rideau-Cold", "1"),
        ("X_Rideau_Cold", "1"),
        ("x-rideau_error", "1"),
        ("X_Forwarded_For", "1.1.1.1"),
        ("Content_Length", "9"),
        ("my_own", "kept"),
    ];
    let headers = passed(&fields, true);
    assert_eq!(said(&headers, "my_own"), Some("kept"));
    assert!(!headers.iter().any(|(name, _)| name.contains("rideau")));
    assert_eq!(said(&headers, "x_forwarded_for"), None);
    assert_eq!(said(&headers, "content_length"), None);
}

#[test]
fn a_request_without_a_host_gets_one() {
    assert_eq!(said(&passed(&[], false), "host"), Some("localhost"));
}

#[test]
fn only_a_trusted_id_is_kept() {
    let id = |fields: &[(&str, &str)], is_trusted| {
        with(fields, |fields| {
            let made = || Id::Theirs(b"made".as_slice().into());
            id_of(fields, &conn(is_trusted), made).to_string()
        })
    };
    assert_eq!(id(&[("X-Request-Id", "theirs")], true), "theirs");
    assert_eq!(id(&[("X-Request-Id", "theirs")], false), "made");
    assert_eq!(id(&[("X-Request-Id", "a b")], true), "made");
    assert_eq!(id(&[], true), "made");
}

fn answered(fields: &[(&'static str, &'static str)]) -> Option<(Vec<u8>, Noted)> {
    let field = |&(name, value): &(&'static str, &'static str)| httparse::Header {
        name,
        value: value.as_bytes(),
    };
    let fields: Vec<_> = fields.iter().map(field).collect();
    let mut out = Vec::new();
    let noted = to_client(&mut out, &fields)?;
    Some((out, noted))
}

#[test]
fn an_answer_loses_what_was_for_us() {
    let fields = [
        ("Connection", "close, x-internal"),
        ("X-Internal", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "7"),
        ("Content-Type", "text/plain"),
        ("X-Request-Id", "theirs"),
    ];
    let (out, noted) = answered(&fields).expect("it makes sense");
    assert_eq!(out, b"Content-Type: text/plain\r\n");
    let expected = Noted {
        is_chunked: true,
        closes: true,
        ..Noted::default()
    };
    assert_eq!(noted, expected, "chunks count");
    let is_live = |name, value| answered(&[(name, value)]).is_some_and(|(_, it)| it.is_live);
    assert!(is_live("content-type", "Text/Event-Stream; charset=utf-8"));
    assert!(is_live("content-type", "application/grpc+proto"));
    assert!(is_live(
        "content-type",
        "multipart/x-mixed-replace; boundary=a"
    ));
    assert!(is_live("x-accel-buffering", "NO"));
    assert!(!is_live("content-type", "text/plain"));
}

#[test]
fn what_follows_an_answer_is_cleaned() {
    let said = b"Digest: abc\r\nContent-Length: 3\r\nno field\r\nb\x01: 1\r\nX-Rideau-A: 1\r\n\
        x:2\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(trailers(said), b"Digest: abc\r\nx: 2\r\n");
    assert!(trailers(b"").is_empty());
}

#[test]
fn an_answer_that_could_end_in_two_places_makes_no_sense() {
    let length = ("Content-Length", "7");
    assert!(answered(&[length, length]).is_some());
    assert!(answered(&[length, ("content-length", "8")]).is_none());
    assert!(answered(&[("Content-Length", "7x")]).is_none());
    assert!(answered(&[("Transfer-Encoding", "gzip, chunked")]).is_none());
    let chunked = ("Transfer-Encoding", "chunked");
    assert!(answered(&[chunked, chunked]).is_none());
}

#[test]
fn what_we_speak_ourselves_is_no_upgrade() {
    let wanted = |value| with(&[("Upgrade", value)], |fields| upgrade_of(fields).is_some());
    assert!(wanted("websocket"));
    assert!(!wanted("h2c"));
    assert!(with(&[], |fields| upgrade_of(fields).is_none()));
}
