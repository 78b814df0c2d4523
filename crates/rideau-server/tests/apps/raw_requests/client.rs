//! A client that sends bytes, and tells answers apart.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A server that has said nothing for so long waits for its client.
const QUIET: Duration = Duration::from_millis(250);
/// What must come comes sooner.
const SOON: Duration = Duration::from_secs(20);

/// Where a server is.
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What a client was answered, and what became of its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// The statuses; `raw` for what does not begin as an answer does.
    pub(super) statuses: Vec<String>,
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The next request is answered.
    Kept,
    Closed,
    /// More is waited for.
    Waits,
}

/// What came of an answer.
enum Answered {
    /// Its status.
    Whole(String),
    /// The answer to [`AFTER`].
    After,
    Over,
    Nothing,
}

/// What is asked to see whether a connection goes on, and whether all was written down.
const AFTER: &[u8] = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n";

pub(super) struct Client {
    stream: Stream,
    held: Vec<u8>,
    /// The next answer has no body.
    is_for_head: bool,
}

/// A connection; both kinds are files.
struct Stream {
    file: File,
    patience: Box<dyn Fn(Duration)>,
}

impl Stream {
    fn new(place: &Place) -> Self {
        match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let file = File::from(OwnedFd::from(stream.try_clone().unwrap()));
                let patience = move |time| stream.set_read_timeout(Some(time)).unwrap();
                Self {
                    file,
                    patience: Box::new(patience),
                }
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                let file = File::from(OwnedFd::from(stream.try_clone().unwrap()));
                let patience = move |time| stream.set_read_timeout(Some(time)).unwrap();
                Self {
                    file,
                    patience: Box::new(patience),
                }
            }
        }
    }
}

impl Client {
    pub(super) fn new(place: &Place, is_for_head: bool) -> Self {
        Self {
            stream: Stream::new(place),
            held: Vec::new(),
            is_for_head,
        }
    }

    /// Send these bytes, as far as they are taken.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.file.write_all(bytes);
    }

    /// Wait until something comes.
    pub(super) fn await_answer(&mut self) {
        (self.stream.patience)(SOON);
        self.more();
    }

    /// All that comes, and how it ends. It is told how many answers there should be and how
    /// that should be, so as not to wait for what does not come.
    pub(super) fn outcome(&mut self, wanted: Option<&Outcome>) -> Outcome {
        let mut statuses = Vec::new();
        let count = wanted.map(|wanted| wanted.statuses.len());
        (self.stream.patience)(if count.is_some() { SOON } else { QUIET });
        while count.is_none_or(|count| statuses.len() < count) {
            match self.answer() {
                Answered::Whole(status) => statuses.push(status),
                _ => break,
            }
        }
        if wanted.is_some_and(|wanted| wanted.ending == Ending::Waits) {
            (self.stream.patience)(QUIET);
        } else {
            self.send(AFTER);
        }
        loop {
            let ending = match self.answer() {
                Answered::Whole(status) => {
                    statuses.push(status);
                    continue;
                }
                Answered::After => Ending::Kept,
                Answered::Over => Ending::Closed,
                Answered::Nothing => Ending::Waits,
            };
            return Outcome { statuses, ending };
        }
    }

    /// The next answer.
    fn answer(&mut self) -> Answered {
        let end = loop {
            if let Some(end) = self.held.windows(4).position(|end| end == b"\r\n\r\n") {
                break end + 4;
            }
            match self.more() {
                Some(true) => (),
                Some(false) if self.held.is_empty() => return Answered::Over,
                Some(false) => {
                    self.held.clear();
                    return Answered::Whole("raw".into());
                }
                None => return Answered::Nothing,
            }
        };
        if !self.held.starts_with(b"HTTP/1.") {
            self.held.clear();
            return Answered::Whole("raw".into());
        }
        let head = String::from_utf8_lossy(&self.held[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.held.drain(..end);
        let is_bare = status.starts_with('1') || ["204", "304"].contains(&&*status);
        if is_bare || std::mem::take(&mut self.is_for_head) {
            return Answered::Whole(status);
        }
        let said = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let is_whole = match (said("transfer-encoding"), said("content-length")) {
            (Some(_), _) => self.skip_chunks(),
            (None, Some(len)) => {
                let len = len.parse().unwrap();
                let is_whole = self.fill(len);
                if self.held.starts_with(b"seen /after") {
                    self.held.drain(..len);
                    return Answered::After;
                }
                is_whole && self.skip(len)
            }
            (None, None) => {
                while self.more() == Some(true) {}
                self.held.clear();
                true
            }
        };
        Answered::Whole(if is_whole { status } else { status + "-cut" })
    }

    /// Wait for this many bytes; whether they come.
    fn fill(&mut self, len: usize) -> bool {
        while self.held.len() < len {
            if self.more() != Some(true) {
                return false;
            }
        }
        true
    }

    /// Take this many bytes; whether there are as many.
    fn skip(&mut self, len: usize) -> bool {
        let is_there = self.fill(len);
        if is_there {
            self.held.drain(..len);
        }
        is_there
    }

    fn skip_chunks(&mut self) -> bool {
        loop {
            let Some(end) = self.held.windows(2).position(|end| end == b"\r\n") else {
                match self.more() {
                    Some(true) => continue,
                    _ => return false,
                }
            };
            let digits = String::from_utf8_lossy(&self.held[..end]).into_owned();
            let size = usize::from_str_radix(digits.trim(), 16).unwrap();
            if !self.skip(end + 2 + size + 2) {
                return false;
            }
            if size == 0 {
                return true;
            }
        }
    }

    /// More bytes: whether there were some before the end; none if they do not come.
    fn more(&mut self) -> Option<bool> {
        let mut part = [0; 16 * 1024];
        match self.stream.file.read(&mut part) {
            Ok(0) => Some(false),
            Ok(len) => {
                self.held.extend_from_slice(&part[..len]);
                Some(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // What came before it was read.
            Err(_) => Some(false),
        }
    }
}
