//! How many control frames a client sends: frames that ask for nothing and cost us work.
//!
//! Every PING and every SETTINGS frame has to be answered, a PRIORITY frame has to be read,
//! and none of them is part of a request. A client needs a few of them. One that sends them
//! without end is told so, and its connection is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use h2::Reason;
use h2::server::Connection;
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The largest burst.
const BURST: u32 = 500;
/// The lasting rate a second.
const RATE: f64 = 50.0;
/// The length of the client's preface, before any frame.
const PREFACE: usize = 24;
const HEADER: usize = 9;

/// A stream that counts the control frames in what it reads.
pub(super) struct ControlFrames<S> {
    stream: S,
    /// Bytes until the next header of a frame begins.
    skip: usize,
    /// The part of that header that has come.
    header: [u8; HEADER],
    filled: usize,
    /// How many more may come.
    left: f64,
    counted: Instant,
    too_many: TooMany,
}

/// Whether a client has sent too many.
#[derive(Clone, Default)]
pub(super) struct TooMany(Arc<AtomicBool>);

impl TooMany {
    /// End the connection if so.
    pub(super) fn end<S>(&self, connection: &mut Connection<S, Bytes>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.0.swap(false, Ordering::Relaxed) {
            tracing::debug!("a client sent too many control frames of HTTP/2");
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }
}

impl<S> ControlFrames<S> {
    pub(super) fn new(stream: S) -> (Self, TooMany) {
        let too_many = TooMany::default();
        let counting = Self {
            stream,
            skip: PREFACE,
            header: [0; HEADER],
            filled: 0,
            left: f64::from(BURST),
            counted: Instant::now(),
            too_many: too_many.clone(),
        };
        (counting, too_many)
    }

    /// Count the frames that begin in these bytes.
    fn count(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            bytes = &bytes[skipped..];
            self.skip -= skipped;
            let copied = (HEADER - self.filled).min(bytes.len());
            let (part, rest) = bytes.split_at(copied);
            self.header[self.filled..self.filled + copied].copy_from_slice(part);
            self.filled += copied;
            bytes = rest;
            if self.filled == HEADER {
                self.filled = 0;
                let [a, b, c, kind, ..] = self.header;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.add(kind);
            }
        }
    }

    fn add(&mut self, kind: u8) {
        const PRIORITY: u8 = 2;
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        if !matches!(kind, PRIORITY | SETTINGS | PING) {
            return;
        }
        let now = Instant::now();
        let gained = (now - self.counted).as_secs_f64() * RATE;
        self.counted = now;
        self.left = (self.left + gained).min(f64::from(BURST)) - 1.0;
        if self.left < 0.0 {
            self.too_many.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ControlFrames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.count(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ControlFrames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, len: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(len).unwrap().to_be_bytes();
        let mut frame = vec![a, b, c, kind, 0, 0, 0, 0, 0];
        frame.resize(HEADER + len, 6);
        frame
    }

    fn is_too_many(bytes: &[u8], step: usize) -> bool {
        let (mut frames, too_many) = ControlFrames::new(());
        frames.count(&[0; PREFACE]);
        bytes.chunks(step).for_each(|part| frames.count(part));
        too_many.0.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_counted_however_they_are_cut() {
        let burst = BURST as usize;
        for step in [1, 2, 5, 8, 9, 10, 17, 4_096] {
            for kind in [2, 4, 6] {
                assert!(!is_too_many(&frame(kind, 8).repeat(burst), step));
                assert!(is_too_many(&frame(kind, 8).repeat(burst + 1), step));
            }
            // What is within a frame is no frame, and data asks for nothing.
            assert!(!is_too_many(&frame(0, 300).repeat(burst * 3), step));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_a_second_are_no_flood() {
        let (mut frames, too_many) = ControlFrames::new(());
        frames.count(&[0; PREFACE]);
        for _ in 0..10_000 {
            frames.count(&frame(6, 8));
            tokio::time::advance(std::time::Duration::from_millis(25)).await;
        }
        assert!(!too_many.0.load(Ordering::Relaxed));
    }
}
