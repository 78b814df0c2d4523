//! One small question to a child, to see whether it answers.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::Address;

/// A status stands in fewer bytes.
const STATUS_LEN_MAX: u64 = 64;

/// The status that the child at this address answers a `GET` with. It waits
/// for as long as the child takes.
pub async fn status(address: &Address, path: &str) -> io::Result<u16> {
    match address {
        Address::Socket(socket) => ask(UnixStream::connect(socket).await?, path).await,
        Address::Port(address) => ask(TcpStream::connect(address).await?, path).await,
        Address::Said(_) => Err(ErrorKind::Unsupported.into()),
    }
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> io::Result<u16> {
    let ask = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: rideau\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await?;
    let mut start = Vec::new();
    let mut answer = stream.take(STATUS_LEN_MAX);
    while !start.contains(&b'\n') && answer.read_buf(&mut start).await? > 0 {}
    parse(&start).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no HTTP"))
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
