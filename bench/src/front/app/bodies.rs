//! Requests with a body, and answers that are longer than a word.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::sync::LazyLock;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A path that is answered in pieces, without a length.
pub(in crate::front) const CHUNKED: &str = "/chunked";
/// A path that is answered with rows as JSON.
pub(in crate::front) const JSON: &str = "/json";

/// Bytes of an answer in pieces, and of the one with rows.
const CHUNKED_LEN: usize = 256 << 10;
const JSON_LEN: usize = 64 << 10;

/// Bytes that are written, and read, at a time.
const CHUNK: usize = 16 << 10;
const READ_MAX: usize = 64 << 10;

/// What a path is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Page {
    Word,
    Chunked,
    Json,
}

impl Page {
    pub(super) fn of(head: &[u8]) -> Self {
        let path = head.split(|byte| *byte == b' ').nth(1);
        match path {
            Some(path) if path == CHUNKED.as_bytes() => Self::Chunked,
            Some(path) if path == JSON.as_bytes() => Self::Json,
            _ => Self::Word,
        }
    }
}

/// Takes what is left of a body, and forgets it.
pub(super) async fn skip<S: AsyncRead + Unpin>(stream: &mut S, mut left: usize) -> io::Result<()> {
    let mut room = vec![0; left.min(READ_MAX)];
    while left > 0 {
        let most = left.min(READ_MAX);
        match stream.read(&mut room[..most]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => left -= more,
        }
    }
    Ok(())
}

/// Writes each piece by itself, as an application does that makes one after the
/// other.
pub(super) async fn write_chunked<S: AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
          Transfer-Encoding: chunked\r\n\r\n";
    static PIECE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut piece = format!("{CHUNK:x}\r\n").into_bytes();
        piece.extend(letters(CHUNK));
        piece.extend(b"\r\n");
        piece
    });
    stream.write_all(HEAD).await?;
    for _ in 0..CHUNKED_LEN / CHUNK {
        stream.write_all(&PIECE).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// What all pieces say together.
pub(in crate::front) fn chunked() -> Vec<u8> {
    letters(CHUNKED_LEN).collect()
}

fn letters(len: usize) -> impl Iterator<Item = u8> {
    b"0123456789abcdef".iter().copied().cycle().take(len)
}

pub(super) async fn write_json<S: AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let rows = rows();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{rows}", rows.len()).into_bytes()
    });
    stream.write_all(&WHOLE).await
}

/// Rows as a database has them: the names come again, and the numbers do not.
pub(in crate::front) fn rows() -> String {
    const LAST: &str = "{\"id\":0}]";
    let mut rows = String::from("[");
    let mut number = 1_u64;
    while rows.len() < JSON_LEN {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (id, cents) = (number >> 40, (number >> 33) & 0xffff);
        let is_open = number >> 63 == 0;
        let row = write!(
            rows,
            "{{\"id\":{id},\"customer\":\"customer-{cents:x}\",\"open\":{is_open},\
             \"total\":{}.{:02},\"currency\":\"EUR\"}},",
            cents / 100,
            cents % 100,
        );
        row.expect("text has room");
    }
    // As long as it should be, and still JSON to its last row.
    let cut = rows[..JSON_LEN - LAST.len()].rfind('{').unwrap_or(1);
    rows.truncate(cut);
    let pad = " ".repeat(JSON_LEN - LAST.len() - cut);
    rows + &pad + LAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_is_answered() {
        assert_eq!(Page::of(b"GET /json HTTP/1.1\r\n\r\n"), Page::Json);
        assert_eq!(Page::of(b"GET /chunked HTTP/1.1\r\n\r\n"), Page::Chunked);
        assert_eq!(Page::of(b"POST / HTTP/1.1\r\n\r\n"), Page::Word);
    }

    #[test]
    fn rows_are_as_long_as_is_said_and_end() {
        let rows = rows();
        assert_eq!(rows.len(), JSON_LEN);
        assert!(rows.starts_with("[{\"id\":") && rows.ends_with("{\"id\":0}]"));
        assert_eq!(rows.matches('{').count(), rows.matches('}').count());
    }
}
