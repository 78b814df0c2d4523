//! One small question to a child, to see whether it answers.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::Address;

/// A head of an answer has fewer bytes.
const HEAD_LEN_MAX: u64 = 64 << 10;

/// A `GET` that the server asks a child for its own sake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// What is asked for.
    pub path: String,
    /// The host that it is for: some children answer to theirs alone.
    pub host: String,
    /// Why it is asked, for the child to know it by: `X-Rideau-Probe`.
    pub purpose: &'static str,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            path: "/".into(),
            host: "localhost".into(),
            purpose: "ready",
        }
    }
}

impl Probe {
    /// The status that the child at this address answers with. It waits for as long as the
    /// child takes, and for the whole head of the answer.
    ///
    /// # Errors
    ///
    /// If the child cannot be reached, or gives no answer that is HTTP.
    pub async fn status(&self, address: &Address) -> io::Result<u16> {
        match address {
            Address::Socket(socket) => self.ask(UnixStream::connect(socket).await?).await,
            Address::Port(address) => self.ask(TcpStream::connect(address).await?).await,
            Address::Said(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// The same on a connection that is open.
    ///
    /// # Errors
    ///
    /// If there is no answer that is HTTP.
    pub async fn ask(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<u16> {
        let Self {
            path,
            host,
            purpose,
        } = self;
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: rideau\r\n\
             X-Rideau-Probe: {purpose}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await?;
        let mut head = Vec::new();
        let mut answer = stream.take(HEAD_LEN_MAX);
        while !is_whole(&head) {
            if answer.read_buf(&mut head).await? == 0 {
                return Err(match head.is_empty() {
                    true => ErrorKind::UnexpectedEof.into(),
                    false => io::Error::new(ErrorKind::InvalidData, "no HTTP"),
                });
            }
        }
        parse(&head).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no HTTP"))
    }
}

/// Whether a head has come to its end: an empty line.
fn is_whole(head: &[u8]) -> bool {
    let has = |end: &[u8]| head.windows(end.len()).any(|part| part == end);
    has(b"\r\n\r\n") || has(b"\n\n")
}

/// The status in a line as `HTTP/1.1 200 OK`.
fn parse(start: &[u8]) -> Option<u16> {
    let version = start.strip_prefix(b"HTTP/1.")?;
    let digits = version.get(2..5)?;
    let status = str::from_utf8(digits).ok()?.parse().ok()?;
    (version[1] == b' ' && (100..1000).contains(&status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_status_is_read_from_the_first_line() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(parse(b"HTTP/1.0 503 \r\n"), Some(503));
        for text in ["", "HTTP/1.1", "HTTP/1.1 2", "HTTP/1.1 +20", "SSH-2.0 200"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
