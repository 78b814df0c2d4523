//! Replies: what is written is read again, by us and by `redis-protocol`.

use std::slice::from_ref;

use redis_protocol::resp2::decode::decode as decode2;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::decode::complete::decode as decode3;
use redis_protocol::resp3::types::OwnedFrame as Frame3;
use rideau_core::Rng;
use rideau_resp::{BadNumber, BadReply, Protocol, Reply, ReplyLimits, Value};

use super::cases;
use super::chance;
use super::peer::Client;
use super::pieces;

#[test]
fn the_third_version_keeps_every_reply_at_every_cut() {
    let limits = ReplyLimits::default();
    for seed in 0..cases(1000) {
        let reply = chance::reply(&mut Rng::new(seed), 3);
        let bytes = written(&reply, Protocol::Resp3);
        let (frame, len) = decode3(&bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len(), "seed {seed}: {bytes:?}");
        let expected = shown(&reply);
        assert_eq!(shown3(&frame), expected, "seed {seed}: {bytes:?}");

        for [first, second] in pieces::halves(&bytes) {
            let mut client = Client::of([first], &limits);
            let complete = second.is_empty();
            assert_eq!(client.replies.len(), usize::from(complete), "seed {seed}");
            client.receive(second, &limits);
            assert_eq!(client.fault, None, "seed {seed}: {bytes:?}");
            assert_eq!(shown(&client.replies[0]), expected, "seed {seed}");
            assert!(client.buffer.is_empty());
        }
    }
}

#[test]
fn the_second_version_is_read_as_another_parser_reads_it() {
    let limits = ReplyLimits::default();
    for seed in 0..cases(1000) {
        let reply = chance::reply(&mut Rng::new(seed), 3);
        let bytes = written(&reply, Protocol::Resp2);
        let (frame, len) = decode2(&bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len(), "seed {seed}: {bytes:?}");
        for pieces in pieces::halves(&bytes) {
            let client = Client::of(pieces, &limits);
            assert_eq!(client.replies.len(), 1, "seed {seed}: {bytes:?}");
            assert_eq!(shown(&client.replies[0]), shown2(&frame), "seed {seed}");
        }
    }
}

#[test]
fn many_replies_are_the_same_in_all_pieces() {
    let limits = ReplyLimits::default();
    for seed in 0..cases(1000) {
        let mut rng = Rng::new(seed);
        let replies = Vec::from_iter((0..5).map(|_| chance::reply(&mut rng, 4)));
        let written = replies.iter().map(|reply| written(reply, Protocol::Resp3));
        let bytes = written.collect::<Vec<_>>().concat();
        let pieces = pieces::random(&bytes, &mut rng);
        for client in [
            Client::of([&bytes[..]], &limits),
            Client::of(pieces::single(&bytes), &limits),
            Client::of(pieces, &limits),
        ] {
            let read = Vec::from_iter(client.replies.iter().map(shown));
            let expected = Vec::from_iter(replies.iter().map(shown));
            assert_eq!(read, expected, "seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn what_we_never_write_is_read_too() {
    for (bytes, reply) in [
        ("*-1\r\n", Value::Null),
        ("!5\r\nERR x\r\n", Value::Error("ERR x".to_owned())),
        ("(-123456789012345678901234567890\r\n", {
            Value::Big("-123456789012345678901234567890".to_owned())
        }),
        ("=5\r\nmkd:x\r\n", {
            let (format, text) = (*b"mkd", b"x".to_vec());
            Value::Verbatim { format, text }
        }),
        (
            "|1\r\n+ttl\r\n:3\r\n+OK\r\n",
            Value::Simple("OK".to_owned()),
        ),
        ("*2\r\n|0\r\n:1\r\n|1\r\n*0\r\n%0\r\n:2\r\n", {
            Value::Array(vec![Value::Integer(1), Value::Integer(2)])
        }),
        (",1e3\r\n", Value::Double(1000.0)),
        ("%1\r\n*1\r\n_\r\n~0\r\n", {
            let key = Value::Array(vec![Value::Null]);
            Value::Map(vec![(key, Value::Set(Vec::new()))])
        }),
    ] {
        for pieces in pieces::halves(bytes.as_bytes()) {
            let client = Client::of(pieces, &ReplyLimits::default());
            assert_eq!(client.replies, from_ref(&reply), "{bytes:?}");
        }
    }
}

#[test]
fn a_reply_that_is_none_is_refused_at_every_cut() {
    use BadReply::*;
    let limits = ReplyLimits {
        frame_max: 60,
        bulk_max: 20,
        elements_max: 6,
        depth_max: 3,
    };
    for (bytes, fault) in [
        ("hello\r\n", Kind(b'h')),
        ("\r\n", Kind(b'\r')),
        (":\r\n", Number(BadNumber::Empty)),
        (":1.5\r\n", Number(BadNumber::Byte(b'.'))),
        (":9223372036854775808\r\n", Number(BadNumber::Huge)),
        ("$x", Number(BadNumber::Byte(b'x'))),
        ("$-2\r\n", Number(BadNumber::Negative)),
        ("=-1\r\n", Number(BadNumber::Negative)),
        ("%-1\r\n", Number(BadNumber::Negative)),
        ("$?\r\n", Number(BadNumber::Byte(b'?'))),
        ("*1\rx", Number(BadNumber::Ending(b'x'))),
        ("#x\r\n", Line(b'#')),
        ("_x\r\n", Line(b'_')),
        (",abc\r\n", Line(b',')),
        ("(12a\r\n", Line(b'(')),
        ("(-\r\n", Line(b'(')),
        ("=3\r\ntxt\r\n", Line(b'=')),
        ("+a\rb", Ending),
        ("$1\r\nabc", Ending),
        ("$21\r\n", Bulk),
        ("+123456789012345678901", Bulk),
        ("$99999999999999999\r\n", Bulk),
        ("*7\r\n", Elements),
        ("%4\r\n", Elements),
        ("*4\r\n*3\r\n", Elements),
        ("*9223372036854775807\r\n", Elements),
        ("%9223372036854775807\r\n", Elements),
        ("*1\r\n*1\r\n*1\r\n*1\r\n", Depth),
        (
            "*4\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n+abc",
            Frame,
        ),
        (
            "*4\r\n$20\r\n12345678901234567890\r\n$20\r\n12345678901234567890\r\n$3\r\n",
            Frame,
        ),
    ] {
        for pieces in pieces::halves(bytes.as_bytes()) {
            let client = Client::of(pieces, &limits);
            assert_eq!(client.fault, Some(fault), "{bytes:?} as {pieces:?}");
            assert_eq!(client.replies, [], "{bytes:?}");
        }
        assert!(!fault.to_string().is_empty());
    }
}

#[test]
fn limits_are_counted_anew_for_each_reply() {
    let limits = ReplyLimits {
        frame_max: 12,
        bulk_max: 5,
        elements_max: 2,
        depth_max: 1,
    };
    let bytes = "*2\r\n:1\r\n:2\r\n+hello\r\n*0\r\n".repeat(3);
    let client = Client::of(pieces::single(bytes.as_bytes()), &limits);
    assert_eq!((client.replies.len(), client.fault), (9, None));
}

#[test]
fn a_server_that_sends_byte_by_byte_costs_no_more_than_the_bytes() {
    const LEN: usize = 4 << 20;
    let limits = ReplyLimits::default();
    let text = [format!("${LEN}\r\n").as_bytes(), &vec![b'x'; LEN], b"\r\n"].concat();
    let line = [b"+", &vec![b'x'; LEN][..], b"\r\n"].concat();
    let mut list = format!("*{}\r\n", LEN / 8).into_bytes();
    list.extend(b":1\r\n".repeat(LEN / 8));
    for bytes in [text, line, list] {
        let client = Client::of(pieces::single_within_a_minute(&bytes), &limits);
        assert_eq!(client.replies.len(), 1);
    }
}

fn written(reply: &Value, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    chance::write(reply, &mut Reply::new(&mut out, protocol));
    out
}

/// A reply in a form in which all parsers' replies can be compared.
fn shown(reply: &Value) -> String {
    let list = |values: &[Value]| Vec::from_iter(values.iter().map(shown));
    match reply {
        Value::Null => "null".to_owned(),
        Value::Simple(text) => format!("simple {text:?}"),
        Value::Error(text) => format!("error {text:?}"),
        Value::Integer(number) => format!("integer {number}"),
        Value::Double(number) => format!("double {number:?}"),
        Value::Big(digits) => format!("big {digits}"),
        Value::Boolean(yes) => format!("boolean {yes}"),
        Value::Bulk(bytes) => format!("bulk {bytes:?}"),
        Value::Verbatim { text, .. } => format!("verbatim {text:?}"),
        Value::Array(values) => format!("array {:?}", list(values)),
        Value::Push(values) => format!("push {:?}", list(values)),
        Value::Set(values) => format!("set {:?}", sorted(list(values))),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| shown(key) + &shown(value));
            format!("map {:?}", sorted(pairs.collect()))
        }
    }
}

fn shown2(frame: &Frame2) -> String {
    match frame {
        Frame2::Null => "null".to_owned(),
        Frame2::SimpleString(text) => format!("simple {:?}", utf8(text)),
        Frame2::Error(text) => format!("error {text:?}"),
        Frame2::Integer(number) => format!("integer {number}"),
        Frame2::BulkString(bytes) => format!("bulk {bytes:?}"),
        Frame2::Array(frames) => {
            format!("array {:?}", Vec::from_iter(frames.iter().map(shown2)))
        }
    }
}

fn shown3(frame: &Frame3) -> String {
    let list = |frames: &[Frame3]| Vec::from_iter(frames.iter().map(shown3));
    match frame {
        Frame3::Null => "null".to_owned(),
        Frame3::SimpleString { data, .. } => format!("simple {:?}", utf8(data)),
        Frame3::SimpleError { data, .. } => format!("error {data:?}"),
        Frame3::Number { data, .. } => format!("integer {data}"),
        Frame3::Double { data, .. } => format!("double {data:?}"),
        Frame3::Boolean { data, .. } => format!("boolean {data}"),
        Frame3::BlobString { data, .. } => format!("bulk {data:?}"),
        Frame3::VerbatimString { data, .. } => format!("verbatim {data:?}"),
        Frame3::Array { data, .. } => format!("array {:?}", list(data)),
        Frame3::Push { data, .. } => format!("push {:?}", list(data)),
        Frame3::Set { data, .. } => {
            format!("set {:?}", sorted(data.iter().map(shown3).collect()))
        }
        Frame3::Map { data, .. } => {
            let pairs = data.iter().map(|(key, value)| shown3(key) + &shown3(value));
            format!("map {:?}", sorted(pairs.collect()))
        }
        other => panic!("unexpected {other:?}"),
    }
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
