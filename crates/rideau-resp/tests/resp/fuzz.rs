//! Bytes by chance, and good bytes with mistakes in them: nothing panics,
//! hangs, keeps more than it may, or depends on where the bytes were cut.
//!
//! `RIDEAU_SOAK` makes it run eight times as long.

use redis_protocol::resp2::decode::decode;
use rideau_core::Rng;
use rideau_resp::{Protocol, Reply, ReplyLimits, RequestLimits, RequestParser};

use super::cases;
use super::chance::{self, below, one};
use super::peer::{Client, Server};
use super::pieces;
use super::requests::words_of;

const CASES: u64 = 200_000;

/// What the protocol is made of.
const PARTS: &[&[u8]] = &[
    b"*",
    b"$",
    b"+",
    b"-",
    b":",
    b"_",
    b"#",
    b",",
    b"(",
    b"!",
    b"=",
    b"%",
    b"~",
    b">",
    b"|",
    b"\r\n",
    b"\r",
    b"\n",
    b"0",
    b"1",
    b"-1",
    b"9",
    b"2147483648",
    b"9223372036854775807",
    b"*1\r\n",
    b"*3\r\n",
    b"$0\r\n",
    b"$4\r\nPING\r\n",
    b"$20\r\n",
    b"txt:",
    b"t",
    b"inf",
    b"\"",
    b"'",
    b"\\x",
    b" ",
    b"\0",
    b"\x16",
    b"GET / HTTP/1.1",
    b"POST",
    b"Host:",
    b"\xff",
];

#[test]
fn no_request_does_harm() {
    let (mut taken, mut faults) = (0, 0);
    for seed in 0..cases(CASES) {
        let mut rng = Rng::new(seed);
        let limits = RequestLimits {
            frame_max: 1 + below(&mut rng, 120),
            arguments_max: 1 + below(&mut rng, 5),
            bulk_max: below(&mut rng, 30),
            inline_max: below(&mut rng, 60),
        };
        let bytes = match below(&mut rng, 4) {
            0 => noise(&mut rng),
            1 => parts(&mut rng),
            _ => {
                let count = 1 + below(&mut rng, 3);
                let requests = (0..count).map(|_| request(&mut rng));
                let mut bytes = requests.collect::<Vec<_>>().concat();
                damage(&mut bytes, &mut rng);
                bytes
            }
        };
        let whole = Server::of([&bytes[..]], &limits);
        let cut = Server::of(pieces::random(&bytes, &mut rng), &limits);
        assert_eq!(whole.requests, cut.requests, "seed {seed}: {bytes:?}");
        assert_eq!(whole.fault, cut.fault, "seed {seed}: {bytes:?}");
        if whole.fault.is_none() {
            assert_eq!(whole.buffer, cut.buffer, "seed {seed}: {bytes:?}");
        }
        agree(&bytes, &limits, seed);
        taken += usize::from(!whole.requests.is_empty());
        faults += usize::from(whole.fault.is_some());
    }
    check_both_were_tried(taken, faults);
}

#[test]
fn no_reply_does_harm() {
    let (mut taken, mut faults) = (0, 0);
    for seed in 0..cases(CASES) {
        let mut rng = Rng::new(seed);
        let limits = ReplyLimits {
            frame_max: 1 + below(&mut rng, 150),
            bulk_max: below(&mut rng, 40),
            elements_max: below(&mut rng, 12),
            depth_max: below(&mut rng, 4),
        };
        let bytes = match below(&mut rng, 4) {
            0 => noise(&mut rng),
            1 => parts(&mut rng),
            _ => {
                let mut bytes = Vec::new();
                let protocol = one(&mut rng, &[Protocol::Resp2, Protocol::Resp3]);
                let reply = chance::reply(&mut rng, 3);
                chance::write(&reply, &mut Reply::new(&mut bytes, protocol));
                damage(&mut bytes, &mut rng);
                bytes
            }
        };
        let whole = Client::of([&bytes[..]], &limits);
        let cut = Client::of(pieces::random(&bytes, &mut rng), &limits);
        // Not by `==`: what is not a number does not equal itself.
        let (one, other) = (&whole.replies, &cut.replies);
        assert_eq!(
            format!("{one:?}"),
            format!("{other:?}"),
            "seed {seed}: {bytes:?}"
        );
        assert_eq!(whole.fault, cut.fault, "seed {seed}: {bytes:?}");
        taken += usize::from(!whole.replies.is_empty());
        faults += usize::from(whole.fault.is_some());
    }
    check_both_were_tried(taken, faults);
}

/// A caller that breaks its promise and shows other bytes gets nonsense, not a
/// panic.
#[test]
fn a_buffer_that_changes_does_no_harm() {
    for seed in 0..cases(CASES / 10) {
        let mut rng = Rng::new(seed);
        let limits = RequestLimits::default();
        let mut parser = RequestParser::default();
        for _ in 0..4 {
            let bytes = request(&mut rng);
            let shown = &bytes[..below(&mut rng, bytes.len() + 1)];
            let mut at = below(&mut rng, shown.len() + 9);
            if let Ok(Some(request)) = parser.next(shown, &mut at, &limits) {
                assert_eq!(request.words().len(), request.len());
            }
        }
    }
}

/// Chance that draws only good bytes, or only bad ones, shows nothing.
fn check_both_were_tried(taken: usize, faults: usize) {
    let few = cases(CASES) as usize / 10;
    assert!(
        taken > few && faults > few,
        "{taken} taken, {faults} faults"
    );
}

/// Whatever array we take, another parser takes as well, and finds the same.
fn agree(bytes: &[u8], limits: &RequestLimits, seed: u64) {
    let (mut parser, mut at) = (RequestParser::default(), 0);
    loop {
        let before = at;
        let Ok(Some(request)) = parser.next(bytes, &mut at, limits) else {
            return;
        };
        // What is skipped before it belongs to the request here and not there.
        if bytes[before] == b'*'
            && !bytes[before + 1..].starts_with(b"0")
            && bytes[before + 1] != b'-'
        {
            let (frame, len) = decode(&bytes[before..]).unwrap().unwrap();
            let words = Vec::from_iter(request.words().map(<[u8]>::to_vec));
            assert_eq!(words_of(frame), words, "seed {seed}: {bytes:?}");
            assert_eq!(before + len, at, "seed {seed}: {bytes:?}");
        }
    }
}

fn request(rng: &mut Rng) -> Vec<u8> {
    let words = chance::words(rng);
    match below(rng, 3) {
        0 => chance::line(&words, rng),
        _ => chance::array(&words),
    }
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    (0..below(rng, 100)).map(|_| rng.draw() as u8).collect()
}

fn parts(rng: &mut Rng) -> Vec<u8> {
    let parts = (0..below(rng, 20)).map(|_| one(rng, PARTS));
    parts.collect::<Vec<_>>().concat()
}

/// Make some mistakes, or none.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..below(rng, 4) {
        let at = below(rng, bytes.len() + 1);
        match below(rng, 5) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = rng.draw() as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => drop(bytes.splice(at..at, one(rng, PARTS).iter().copied())),
        }
    }
}
