//! A client that knows nothing but the protocol, written for these tests alone:
//! what the server gets wrong it does not get wrong in the same way.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::server::PATIENCE;

/// A reply, or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Int(i64),
    Error(String),
    Null,
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Push(Vec<Self>),
}

/// One connection. Pushes that come between replies are kept in `pushes`.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    pub(crate) pushes: Vec<Value>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            // A crowd of these is in one process.
            reader: BufReader::with_capacity(512, stream),
            pushes: Vec::new(),
        })
    }

    /// Send the words of a line, and read the reply.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.read()
    }

    /// Send words that may have spaces or no letters at all.
    pub(crate) fn ask_words(&mut self, words: &[&[u8]]) -> Value {
        self.write(&request(words));
        self.read()
    }

    /// Send the words of a line.
    pub(crate) fn send(&mut self, line: &str) {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.write(&request(&words));
    }

    /// Send bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).unwrap();
    }

    /// Whether the other side has read all that was written, as the kernel says.
    pub(crate) fn is_read(&self) -> bool {
        let stream = self.reader.get_ref();
        let ports = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
        let hex = |port: u16| format!(":{port:04X}");
        let (there, here) = (hex(ports.0.port()), hex(ports.1.port()));
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // Of each end: its address, that of the other, its state and its queues.
        table.lines().skip(1).all(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is = |one: &str, other: &str| words[1].ends_with(one) && words[2].ends_with(other);
            !(is(&there, &here) || is(&here, &there)) || words[4] == "00000000:00000000"
        })
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// The next reply.
    pub(crate) fn read(&mut self) -> Value {
        self.try_read().unwrap()
    }

    /// The next reply, or why there is none.
    pub(crate) fn try_read(&mut self) -> io::Result<Value> {
        loop {
            match self.value()? {
                push @ Value::Push(_) => self.pushes.push(push),
                value => return Ok(value),
            }
        }
    }

    /// The next push, sent before or yet to come.
    pub(crate) fn push(&mut self) -> Value {
        if !self.pushes.is_empty() {
            return self.pushes.remove(0);
        }
        let value = self.value().unwrap();
        assert!(matches!(value, Value::Push(_)), "no push but {value}");
        value
    }

    /// Whether the server closes the connection, after what it says before.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.reader.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Whether the server has nothing to say for a moment.
    pub(crate) fn is_silent(&mut self) -> bool {
        let stream = self.reader.get_ref();
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let silent = self.reader.fill_buf().is_err_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            )
        });
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }

    /// Give up after this long to wait for a reply.
    pub(crate) fn set_read_timeout(&self, wait: Duration) {
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(wait)).unwrap();
    }

    /// Give up after this many milliseconds to write.
    pub(crate) fn set_write_timeout(&self, milliseconds: u64) {
        let limit = Duration::from_millis(milliseconds);
        self.reader
            .get_ref()
            .set_write_timeout(Some(limit))
            .unwrap();
    }

    /// Go away with a reset, as a machine does that was restarted.
    pub(crate) fn reset(self) {
        let socket = SockRef::from(self.reader.get_ref());
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Say that no more will be sent, and go on reading.
    pub(crate) fn finish(&self) {
        self.reader.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    fn value(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let broken = || io::Error::other(format!("no reply: {line:?}"));
        let number = || rest.parse::<i64>().map_err(|_| broken());
        Ok(match kind {
            "+" => Value::Text(rest.into()),
            "-" => Value::Error(rest.into()),
            ":" => Value::Int(number()?),
            "_" => Value::Null,
            "$" | "=" => match usize::try_from(number()?) {
                Ok(len) => {
                    let text = self.bytes(len)?;
                    // A verbatim text says first what it is: `txt:`.
                    let skipped = if kind == "=" { 4 } else { 0 };
                    Value::Text(text[skipped..].into())
                }
                Err(_) => Value::Null,
            },
            "*" if rest == "-1" => Value::Null,
            "*" => Value::List(self.values(number()?)?),
            ">" => Value::Push(self.values(number()?)?),
            "%" => {
                let count = number()?;
                let pair = |_| Ok((self.value()?, self.value()?));
                Value::Map((0..count).map(pair).collect::<io::Result<_>>()?)
            }
            _ => return Err(broken()),
        })
    }

    fn values(&mut self, count: i64) -> io::Result<Vec<Value>> {
        (0..count).map(|_| self.value()).collect()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) if !line.is_empty() => Ok(line.into()),
            _ if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::other(format!("no whole line: {line:?}"))),
        }
    }

    fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes)?;
        assert!(bytes.ends_with(b"\r\n"));
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// A command as clients send it.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

impl Value {
    /// A text, or an error, or all of it as it is shown.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Self::Error(text) => text.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("no number but {other}"),
        }
    }

    /// The parts of a list or a push.
    pub(crate) fn parts(&self) -> &[Self] {
        match self {
            Self::List(parts) | Self::Push(parts) => parts,
            other => panic!("no list but {other}"),
        }
    }

    pub(crate) fn at(&self, place: usize) -> &Self {
        let parts = self.parts();
        let part = parts.get(place);
        part.unwrap_or_else(|| panic!("nothing at {place} of {self}"))
    }

    /// What a map, or a list that stands for one, has under a name.
    pub(crate) fn field(&self, name: &str) -> &Self {
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| key.text() == name),
            other => {
                let parts = other.parts();
                let at = parts.iter().step_by(2).position(|key| key.text() == name);
                return &parts[at.unwrap_or_else(|| panic!("no {name} in {self}")) * 2 + 1];
            }
        };
        &found.unwrap_or_else(|| panic!("no {name} in {self}")).1
    }

    /// The first word of an answer, or of an error.
    pub(crate) fn word(&self) -> String {
        let text = match self {
            Self::List(parts) | Self::Push(parts) if !parts.is_empty() => parts[0].text(),
            other => other.text(),
        };
        text.split(' ').next().unwrap_or_default().into()
    }

    /// The ticket of a yes.
    pub(crate) fn ticket(&self) -> String {
        let word = self.word();
        let is_yes = matches!(word.as_str(), "go" | "await" | "rideau:go");
        assert!(is_yes, "no ticket in {self}");
        self.at(1).text()
    }

    /// That it is an error which begins so.
    #[track_caller]
    pub(crate) fn is_error(&self, start: &str) {
        let Self::Error(text) = self else {
            panic!("no error but {self}");
        };
        assert!(text.starts_with(start), "{start:?} does not begin {text:?}");
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", String::from_utf8_lossy(text)),
            Self::Int(number) => write!(f, "{number}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Null => f.write_str("null"),
            Self::List(parts) | Self::Push(parts) => {
                let is_push = matches!(self, Self::Push(_));
                f.write_str(if is_push { ">[" } else { "[" })?;
                for (at, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if at == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (key, value) in pairs {
                    write!(f, " {key}={value}")?;
                }
                f.write_str(" }")
            }
        }
    }
}
