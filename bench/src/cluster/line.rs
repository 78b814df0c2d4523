//! One connection that says one thing after the other, outside of what is measured in windows.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::talk::frame;

/// A connection.
pub(super) struct Line {
    reader: BufReader<TcpStream>,
}

/// What a server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Text(String),
    Error(String),
    List(Vec<Self>),
    Nothing,
}

impl Answer {
    /// The text of an element.
    pub(super) fn at(&self, at: usize) -> &str {
        match self {
            Self::List(parts) => match parts.get(at) {
                Some(Self::Text(text)) => text,
                _ => "",
            },
            _ => "",
        }
    }
}

impl Line {
    pub(super) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket can be set");
        Self {
            reader: BufReader::new(stream),
        }
    }

    /// Ask one thing.
    pub(super) fn ask(&mut self, words: &[&str]) -> Answer {
        self.send(&frame(words));
        self.hear()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("it reads");
    }

    /// The next answer.
    pub(super) fn hear(&mut self) -> Answer {
        let mut line = String::new();
        let len = self.reader.read_line(&mut line).expect("it answers");
        assert!(len > 0, "a server closed the connection");
        let (kind, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<i64>().expect("a number of elements");
        match kind {
            "-" => Answer::Error(rest.into()),
            "$" => match usize::try_from(count()) {
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.reader.read_exact(&mut bytes).expect("it answers");
                    bytes.truncate(len);
                    Answer::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Answer::Nothing,
            },
            "*" => match count() {
                0.. => Answer::List((0..count()).map(|_| self.hear()).collect()),
                _ => Answer::Nothing,
            },
            _ => Answer::Text(rest.into()),
        }
    }

    /// What a node says of the cluster.
    pub(super) fn info(&mut self) -> BTreeMap<String, String> {
        let Answer::Text(text) = self.ask(&["INFO", "cluster"]) else {
            return BTreeMap::new();
        };
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let pairs = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        pairs.collect()
    }
}
