//! Clients of HTTP/2 that send frames without end, as nothing but an attack does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::http2::{
    BEGIN, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, first_frame, frame,
};

use crate::harness::{Harness, LONG, folder};

/// `GET http://test/`, as its fields are compressed.
const GET: &[u8] = b"\x82\x86\x84\x01\x04test";
/// A field that is to be remembered: its name is `x`, and this many bytes of a value follow.
const REMEMBERED: (&[u8], usize) = (b"\x40\x01x\x7f\xa1\x1e", 4_000);
/// The field that was remembered last.
const AGAIN: u8 = 0xbe;

/// The frames of a flood: those before it, and what is sent then in the given round, again
/// and again.
struct Flood {
    name: &'static str,
    first: Vec<u8>,
    round: fn(u32) -> Vec<u8>,
}

/// The stream of a round.
const fn stream_of(round: u32) -> u32 {
    3 + 2 * round
}

/// A request whose fields are remembered ones, this often.
fn repeated(stream: u32, times: usize) -> Vec<u8> {
    let block = [GET, &vec![AGAIN; times]].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

fn floods() -> Vec<Flood> {
    let flood = |name, first, round| Flood { name, first, round };
    let begun = frame(HEADERS, END_HEADERS, 1, GET);
    let unended = frame(HEADERS, END_STREAM, 1, GET);
    let remembering = [GET, REMEMBERED.0, &[b'v'; REMEMBERED.1]].concat();
    let remembering = frame(HEADERS, END_STREAM | END_HEADERS, 1, &remembering);
    vec![
        flood("SETTINGS", vec![], |_| frame(SETTINGS, 0, 0, b"")),
        flood("PING", vec![], |_| frame(PING, 0, 0, &[7; 8])),
        flood("PRIORITY", vec![], |round| {
            frame(PRIORITY, 0, stream_of(round), &[0; 5])
        }),
        flood("WINDOW_UPDATE", vec![], |_| {
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])
        }),
        flood("frames of no known kind", vec![], |_| {
            frame(0xbb, 0, 0, b"?")
        }),
        flood("GOAWAY", vec![], |_| frame(GOAWAY, 0, 0, &[0; 8])),
        flood("empty DATA", begun, |_| frame(DATA, 0, 1, b"")),
        flood("empty CONTINUATION", unended.clone(), |_| {
            frame(CONTINUATION, 0, 1, b"")
        }),
        flood("CONTINUATION", unended, |_| {
            // A field that is not remembered.
            frame(CONTINUATION, 0, 1, &b"\0\x01a\x01b".repeat(3_000))
        }),
        flood("RST_STREAM", vec![], |round| {
            let stream = stream_of(round);
            let asked = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
            [asked, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        flood("streams that we have to reset", vec![], |round| {
            let stream = stream_of(round);
            let asked = frame(HEADERS, END_HEADERS, stream, GET);
            [asked, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
        }),
        flood("streams that are not ended", vec![], |round| {
            frame(HEADERS, END_HEADERS, stream_of(round), GET)
        }),
        flood("fields far too long", remembering.clone(), |round| {
            repeated(stream_of(round), 16_000)
        }),
        flood("fields too long", remembering, |round| {
            repeated(stream_of(round), 50)
        }),
    ]
}

/// Send it until the connection ends; what it was told is returned, and how long it took.
fn send(front: SocketAddr, flood: &Flood) -> (Vec<u8>, Duration) {
    let mut stream = TcpStream::connect(front).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(BEGIN).unwrap();
    stream.write_all(&flood.first).unwrap();
    let mut read = stream.try_clone().unwrap();
    let heard = thread::spawn(move || {
        let mut told = Vec::new();
        // The end may be a reset, as not all is read that was sent.
        let _ = read.read_to_end(&mut told);
        let _ = read.shutdown(Shutdown::Both);
        told
    });
    let since = Instant::now();
    let mut rounds = 0..(1 << 30);
    loop {
        let many: Vec<_> = rounds.by_ref().take(64).flat_map(flood.round).collect();
        match stream.write_all(&many) {
            Ok(()) => (),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("{} never ends", flood.name)
            }
            Err(_) => break,
        }
        assert!(since.elapsed() < LONG, "{} never ends", flood.name);
    }
    let took = since.elapsed();
    (heard.join().unwrap(), took)
}

/// The error that a connection was ended with, if it was heard.
fn goaway(mut told: &[u8]) -> Option<u32> {
    while let Some(frame) = first_frame(told) {
        if frame.kind == GOAWAY {
            let code = frame.payload.get(4..8)?;
            return Some(u32::from_be_bytes(code.try_into().unwrap()));
        }
        told = frame.rest;
    }
    None
}

#[test]
fn a_flood_of_frames_ends_its_connection_and_others_are_served() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nmin = 1\nmax = 1\n");
    assert_eq!(harness.get("/").status, 200);
    let before = harness.memory();
    for flood in floods() {
        let front = harness.front;
        let mut served = 0;
        let (told, took) = thread::scope(|scope| {
            let flood = &flood;
            let sent = scope.spawn(move || send(front, flood));
            while served == 0 || !sent.is_finished() {
                assert_eq!(harness.get("/").status, 200);
                served += 1;
            }
            sent.join().unwrap()
        });
        let (name, code) = (flood.name, goaway(&told));
        eprintln!("{name}: {code:x?} after {took:?}; {served} others were served");
        // It is PROTOCOL_ERROR, COMPRESSION_ERROR or ENHANCE_YOUR_CALM, if it could be heard;
        // and NO_ERROR for one that said by itself that it leaves.
        let is_known = code.is_none_or(|code| [0, 1, 9, 11].contains(&code));
        assert!(is_known, "{name}: {code:x?}");
    }
    let grown = harness.memory().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more");
    assert_eq!(harness.get("/").status, 200);
    harness.end();
}
