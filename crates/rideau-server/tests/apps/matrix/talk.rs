//! Clients of what goes on for as long as they like: events, and a WebSocket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::harness::{Harness, LONG};

/// A stream of events.
pub(super) struct Events(BufReader<TcpStream>);

/// A WebSocket that talks in short texts.
pub(super) struct WebSocket(BufReader<TcpStream>);

pub(super) fn connect(harness: &Harness) -> TcpStream {
    let stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Send a head, and read that of the answer.
fn begin(harness: &Harness, head: &str, status: &str) -> BufReader<TcpStream> {
    let mut stream = connect(harness);
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line.split(' ').nth(1), Some(status), "{line}");
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    reader
}

impl Events {
    pub(super) fn open(harness: &Harness) -> Self {
        // Without chunks, the lines are those of the events.
        let head = "GET /events HTTP/1.0\r\nHost: test\r\n\r\n";
        Self(begin(harness, head, "200"))
    }
}

impl Iterator for Events {
    type Item = String;

    /// The next one; none at the end.
    fn next(&mut self) -> Option<String> {
        let mut event = String::new();
        while !event.ends_with("\n\n") {
            match self.0.read_line(&mut event) {
                Ok(1..) => (),
                // It may be cut off where one event ends, and nowhere else.
                Ok(0) | Err(_) => {
                    assert_eq!(event, "", "half an event");
                    return None;
                }
            }
        }
        let data = event.strip_prefix("data: ").unwrap();
        Some(data.trim_end().to_owned())
    }
}

impl WebSocket {
    pub(super) fn open(harness: &Harness) -> Self {
        let head = "GET /talk HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        Self(begin(harness, head, "101"))
    }

    /// Send a text, and wait for the answer; none if the socket was closed.
    pub(super) fn ask(&mut self, text: &str) -> Option<String> {
        let length = 0x80 | u8::try_from(text.len()).unwrap();
        // A text in one frame, with a mask that changes nothing.
        let frame = [&[0x81, length, 0, 0, 0, 0], text.as_bytes()].concat();
        self.0.get_mut().write_all(&frame).ok()?;
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).ok()?;
            assert!(head[1] < 126, "a long frame");
            let mut said = vec![0; usize::from(head[1])];
            self.0.read_exact(&mut said).ok()?;
            match head[0] & 0xf {
                1 => return Some(String::from_utf8(said).unwrap()),
                8 => return None,
                // A ping or a pong.
                9 | 10 => (),
                other => panic!("a frame of kind {other}"),
            }
        }
    }
}
