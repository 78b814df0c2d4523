//! Reads frames of one connection, and writes what is to be sent.

use std::io;

use rideau_resp::{BadReply, ReplyLimits, ReplyParser, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Room for one read.
const READ_LEN: usize = 32 << 10;
/// An empty buffer that is longer is given back.
const BUFFER_KEPT: usize = 256 << 10;

/// The halves of a connection, with TLS or without.
pub(super) type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// The reading half of a connection, and what was read and is no frame yet.
pub(super) struct FrameReader<R> {
    from: R,
    buffer: Vec<u8>,
    at: usize,
    parser: ReplyParser,
    received: u64,
}

/// The writing half of a connection, and what is being written.
///
/// A write that is given up can be gone on with: no frame is cut in the middle.
pub(super) struct FrameWriter<W> {
    to: W,
    buffer: Vec<u8>,
    at: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            at: 0,
            parser: ReplyParser::default(),
            received: 0,
        }
    }

    /// The next value, if all of it was read.
    pub(super) fn next(&mut self, limits: &ReplyLimits) -> Result<Option<Value>, BadReply> {
        self.parser.next(&self.buffer, &mut self.at, limits)
    }

    /// Read more. It may be given up: then nothing was read.
    ///
    /// # Errors
    ///
    /// Errors of the connection, and its end.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.forget_parsed();
        self.buffer.reserve(READ_LEN);
        let len = self.from.read_buf(&mut self.buffer).await?;
        self.count(len)
    }

    /// The same, until this many bytes were read in all.
    pub(super) async fn fill_up_to(&mut self, max: usize) -> io::Result<usize> {
        self.forget_parsed();
        let room = (max as u64).saturating_sub(self.received);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let mut bytes = [0; 1 << 10];
        let room = room.min(bytes.len());
        let len = self.from.read(&mut bytes[..room]).await?;
        self.buffer.extend_from_slice(&bytes[..len]);
        self.count(len)
    }

    /// How many bytes were read.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    fn forget_parsed(&mut self) {
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
    }

    fn count(&mut self, len: usize) -> io::Result<usize> {
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received += len as u64;
        Ok(len)
    }
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(super) const fn new(to: W) -> Self {
        Self {
            to,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// The buffer that is written next. It is empty after [`flush`](Self::flush).
    pub(super) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Write all of the buffer.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.buffer.get(self.at..).filter(|rest| !rest.is_empty()) {
            match self.to.write(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => self.at += len,
            }
        }
        self.to.flush().await?;
        self.at = 0;
        self.buffer.clear();
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Say that nothing follows.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }
}
