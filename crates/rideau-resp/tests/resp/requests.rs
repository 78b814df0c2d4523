//! Requests: our parser against `redis-protocol` and against what was typed.

use std::slice::from_ref;

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use rideau_core::Rng;
use rideau_resp::{Fault, RequestLimits};

use super::cases;
use super::chance::{self, below};
use super::peer::{Server, Words};
use super::pieces;

#[test]
fn an_array_is_what_another_parser_says_at_every_cut() {
    let limits = RequestLimits::default();
    for seed in 0..cases(400) {
        let mut rng = Rng::new(seed);
        let words = chance::words(&mut rng);
        let bytes = chance::array(&words);
        for [first, second] in pieces::halves(&bytes) {
            let mut server = Server::of([first], &limits);
            let expected = Vec::from_iter(theirs(first));
            assert_eq!(server.requests, expected, "seed {seed}, {first:?}");
            server.receive(second, &limits);
            assert_eq!(
                server.requests,
                theirs_all(&bytes),
                "seed {seed}, {first:?}"
            );
            assert_eq!(server.requests, from_ref(&words), "seed {seed}");
            assert!(server.buffer.is_empty() && server.fault.is_none());
        }
    }
}

#[test]
fn a_pipeline_is_the_same_in_all_pieces() {
    let limits = RequestLimits::default();
    for seed in 0..cases(400) {
        let mut rng = Rng::new(seed);
        let (bytes, expected) = pipeline(&mut rng);
        let whole = Server::of([&bytes[..]], &limits);
        assert_eq!(whole.requests, expected, "seed {seed}: {bytes:?}");
        let pieces = pieces::random(&bytes, &mut rng);
        for server in [
            Server::of(pieces::single(&bytes), &limits),
            Server::of(pieces, &limits),
        ] {
            assert_eq!(server.requests, expected, "seed {seed}: {bytes:?}");
            assert_eq!(server.fault, None, "seed {seed}: {bytes:?}");
            assert!(server.buffer.is_empty(), "seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn a_pipeline_of_arrays_is_what_another_parser_says() {
    let limits = RequestLimits::default();
    for seed in 0..cases(1000) {
        let mut rng = Rng::new(seed);
        let requests = Vec::from_iter((0..9).map(|_| chance::words(&mut rng)));
        let bytes = Vec::from_iter(requests.iter().flat_map(|words| chance::array(words)));
        let server = Server::of(pieces::random(&bytes, &mut rng), &limits);
        assert_eq!(server.requests, theirs_all(&bytes), "seed {seed}");
        assert_eq!(server.requests, requests, "seed {seed}");
    }
}

#[test]
fn what_is_typed_is_split_at_every_cut() {
    let limits = RequestLimits::default();
    for seed in 0..cases(400) {
        let mut rng = Rng::new(seed);
        let words = typeable(&mut rng);
        let bytes = chance::line(&words, &mut rng);
        for pieces in pieces::halves(&bytes) {
            let server = Server::of(pieces, &limits);
            assert_eq!(server.fault, None, "seed {seed}: {bytes:?}");
            assert_eq!(server.requests, from_ref(&words), "seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn blank_lines_and_empty_arrays_are_skipped_and_not_kept() {
    let limits = RequestLimits::default();
    let mut server = Server::default();
    for blank in ["\r\n", "\n", " \t \r\n", "*0\r\n", "*-1\r\n", "*-7\r\n"] {
        for byte in pieces::single(blank.as_bytes()) {
            server.receive(byte, &limits);
        }
        assert!(server.buffer.is_empty(), "{blank:?} is kept");
    }
    server.receive(b"*0\r\n\r\nPING\r\n*0\r\n", &limits);
    assert_eq!(server.answers(), "PING\n");
    assert!(server.buffer.is_empty());
}

#[test]
fn a_request_at_each_limit_passes_and_one_above_does_not() {
    let words = |count: usize, len: usize| vec![vec![b'x'; len]; count];
    let (fits, words_too_many) = (words(4, 10), words(5, 1));
    let limits = RequestLimits {
        arguments_max: 4,
        bulk_max: 10,
        frame_max: chance::array(&fits).len(),
        inline_max: 43,
    };
    let read = |bytes: &[u8]| {
        let whole = Server::of([bytes], &limits);
        let single = Server::of(pieces::single(bytes), &limits);
        assert_eq!(whole.requests, single.requests);
        assert_eq!(whole.fault, single.fault);
        whole.fault.map_or(Ok(whole.requests.len()), Err)
    };
    assert_eq!(read(&chance::array(&fits)), Ok(1));
    let line = [&fits.join(&b' ')[..], b"\n"].concat();
    assert_eq!((line.len(), read(&line)), (44, Ok(1)));

    let arguments = Err(Fault::Arguments { max: 4 });
    assert_eq!(read(&chance::array(&words_too_many)), arguments);
    assert_eq!(read(b"a b c d e\n"), arguments);
    let bulk = Err(Fault::Bulk { len: 11, max: 10 });
    assert_eq!(read(&chance::array(&words(1, 11))), bulk);
    let inline = Err(Fault::Inline { max: 43 });
    assert_eq!(read(&[b" ", &line[..]].concat()), inline);
    assert_eq!(read(&[b'x'; 44]), inline);
    let limits = RequestLimits {
        frame_max: limits.frame_max - 1,
        ..limits
    };
    let server = Server::of([&chance::array(&fits)[..]], &limits);
    let max = limits.frame_max;
    assert_eq!(server.fault, Some(Fault::Frame { max }));
}

#[test]
fn a_client_that_sends_byte_by_byte_costs_no_more_than_the_bytes() {
    const LEN: usize = 4 << 20;
    let limits = RequestLimits {
        frame_max: 2 * LEN,
        bulk_max: LEN,
        inline_max: 2 * LEN,
        arguments_max: LEN,
    };
    let long = chance::array(&[b"ECHO".to_vec(), vec![b'x'; LEN]]);
    let many = chance::array(&vec![b"x".to_vec(); LEN / 8]);
    let line = [&vec![b'x'; LEN][..], b"\n"].concat();
    for bytes in [long, many, line] {
        let server = Server::of(pieces::single_within_a_minute(&bytes), &limits);
        assert_eq!(server.requests.len(), 1);
    }
}

#[test]
fn the_parser_says_how_much_it_waits_for() {
    let limits = RequestLimits::default();
    let mut parser = rideau_resp::RequestParser::default();
    assert_eq!(parser.wants(), 1);
    let head = b"*1\r\n$1000\r\nxyz";
    assert!(parser.next(head, &mut 0, &limits).unwrap().is_none());
    assert_eq!(parser.wants(), "*1\r\n$1000\r\n".len() + 1000 + 2);
}

/// Requests of all forms with what is skipped between them, and their words.
fn pipeline(rng: &mut Rng) -> (Vec<u8>, Vec<Words>) {
    let (mut bytes, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..below(rng, 8) {
        match below(rng, 4) {
            0 => {
                bytes.extend_from_slice(chance::one(rng, &["\r\n", "*0\r\n", "*-1\r\n"]).as_bytes())
            }
            1 => {
                let words = typeable(rng);
                bytes.extend_from_slice(&chance::line(&words, rng));
                requests.push(words);
            }
            _ => {
                let words = chance::words(rng);
                bytes.extend_from_slice(&chance::array(&words));
                requests.push(words);
            }
        }
    }
    (bytes, requests)
}

/// Words that cannot be mistaken for HTTP.
fn typeable(rng: &mut Rng) -> Words {
    let mut words = chance::words(rng);
    words[0] = b"ECHO".to_vec();
    words
}

/// The words of the first request, as `redis-protocol` finds them.
fn theirs(bytes: &[u8]) -> Option<Words> {
    let (frame, len) = decode(bytes).unwrap()?;
    assert!(len <= bytes.len());
    Some(words_of(frame))
}

/// The same for all requests.
fn theirs_all(mut bytes: &[u8]) -> Vec<Words> {
    let mut requests = Vec::new();
    while let Some((frame, len)) = decode(bytes).unwrap() {
        requests.push(words_of(frame));
        bytes = &bytes[len..];
    }
    requests
}

/// The words of a request that `redis-protocol` has read.
pub(crate) fn words_of(frame: OwnedFrame) -> Words {
    let OwnedFrame::Array(frames) = frame else {
        panic!("no array: {frame:?}");
    };
    let words = frames.into_iter().map(|frame| match frame {
        OwnedFrame::BulkString(word) => word,
        frame => panic!("no bulk string: {frame:?}"),
    });
    words.collect()
}
