//! How many frames a client sends that are no part of a request, and cost us work.
//!
//! Every PING and every SETTINGS frame has to be answered, a stream that is reset was
//! begun for nothing, and a frame without content has to be read all the same. A client
//! needs some of them: with what it is sent, it may reset streams and open windows as
//! often as that makes sense. One that sends them without end is told so, and its
//! connection is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::Reason;
use h2::server::Connection;
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The largest burst.
const BURST: u32 = 500;
/// The lasting rate a second.
const RATE: f64 = 50.0;
/// How many a client may send for each DATA frame that it is sent: it opens the window of
/// the stream and that of the connection, and measures the connection with a PING.
const PER_DATA: f64 = 3.0;
/// And for each answer that came to its end.
const PER_ANSWER: f64 = 1.0;
/// A client that is told to go is cut off after this long.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The length of the client's preface, before any frame.
const PREFACE: usize = 24;
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// No frame of that stream follows, if it is DATA or HEADERS.
const END_STREAM: u8 = 1;

/// A stream that counts the control frames in what it reads.
pub(super) struct ControlFrames<S> {
    stream: S,
    read: FrameHeaders,
    written: FrameHeaders,
    /// How many more may come.
    left: f64,
    counted: Instant,
    too_many: TooMany,
}

/// The headers of the frames in a sequence of bytes that comes in parts.
struct FrameHeaders {
    /// Bytes until the next header begins.
    skip: usize,
    /// The part of that header that has come.
    header: [u8; HEADER],
    filled: usize,
}

/// What the header of a frame says.
#[derive(Clone, Copy)]
struct FrameHeader {
    len: usize,
    kind: u8,
    flags: u8,
}

/// Whether a client has sent too many.
#[derive(Clone, Default)]
pub(super) struct TooMany(Arc<AtomicBool>);

/// A connection whose client has sent too many is closed.
pub(super) struct FloodGuard {
    too_many: TooMany,
    /// Runs while the client is told so.
    leaving: Option<Pin<Box<Sleep>>>,
}

impl FloodGuard {
    /// Tell a client so that has sent too many. Ready when it has had the time to hear that.
    pub(super) fn poll_end<S>(
        &mut self,
        connection: &mut Connection<S, Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.leaving.is_none() && self.too_many.0.load(Ordering::Relaxed) {
            tracing::debug!("a client sent too many control frames of HTTP/2");
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            self.leaving = Some(Box::pin(tokio::time::sleep(LAST_WORDS)));
            // The connection has something to say.
            context.waker().wake_by_ref();
        }
        match &mut self.leaving {
            Some(leaving) => leaving.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<S> ControlFrames<S> {
    pub(super) fn new(stream: S) -> (Self, FloodGuard) {
        let too_many = TooMany::default();
        let counting = Self {
            stream,
            read: FrameHeaders::after(PREFACE),
            written: FrameHeaders::after(0),
            left: f64::from(BURST),
            counted: Instant::now(),
            too_many: too_many.clone(),
        };
        let guard = FloodGuard {
            too_many,
            leaving: None,
        };
        (counting, guard)
    }

    /// Count the frames that begin in what was read.
    fn count_read(&mut self, bytes: &[u8]) {
        let mut count = 0;
        self.read
            .each(bytes, |frame| count += u32::from(frame.is_control()));
        if count == 0 {
            return;
        }
        let now = Instant::now();
        let gained = (now - self.counted).as_secs_f64() * RATE;
        self.counted = now;
        self.left = (self.left + gained).min(f64::from(BURST)) - f64::from(count);
        if self.left < 0.0 {
            self.too_many.0.store(true, Ordering::Relaxed);
        }
    }

    /// What is sent gives the client reason to send some.
    fn count_written(&mut self, bytes: &[u8]) {
        let mut earned = 0.0;
        self.written.each(bytes, |frame| earned += frame.earns());
        self.left = (self.left + earned).min(f64::from(BURST));
    }
}

impl FrameHeaders {
    const fn after(skip: usize) -> Self {
        Self {
            skip,
            header: [0; HEADER],
            filled: 0,
        }
    }

    /// The headers that end in these bytes.
    fn each(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameHeader)) {
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
                let [a, b, c, kind, flags, ..] = self.header;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                found(FrameHeader {
                    len: self.skip,
                    kind,
                    flags,
                });
            }
        }
    }
}

impl FrameHeader {
    /// It is no part of a request, or an empty one.
    const fn is_control(self) -> bool {
        match self.kind {
            HEADERS => false,
            // The last of a body may well be empty.
            DATA => self.len == 0 && self.flags & END_STREAM == 0,
            CONTINUATION => self.len == 0,
            _ => true,
        }
    }

    /// How many control frames its receiver may send for it.
    fn earns(self) -> f64 {
        let ends = matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0;
        let data = if self.kind == DATA { PER_DATA } else { 0.0 };
        data + if ends { PER_ANSWER } else { 0.0 }
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
        self.count_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ControlFrames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.count_written(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes))?;
        let mut rest = written;
        for part in bytes {
            let len = part.len().min(rest);
            self.count_written(&part[..len]);
            rest -= len;
        }
        Poll::Ready(Ok(written))
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

    const RST_STREAM: u8 = 3;

    fn flagged(kind: u8, flags: u8, len: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(len).unwrap().to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 0];
        frame.resize(HEADER + len, 6);
        frame
    }

    fn frame(kind: u8, len: usize) -> Vec<u8> {
        flagged(kind, 0, len)
    }

    fn counting() -> ControlFrames<()> {
        let (mut frames, _) = ControlFrames::new(());
        frames.count_read(&[0; PREFACE]);
        frames
    }

    fn is_too_many(bytes: &[u8], step: usize) -> bool {
        let mut frames = counting();
        bytes.chunks(step).for_each(|part| frames.count_read(part));
        frames.too_many.0.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_counted_however_they_are_cut() {
        let burst = BURST as usize;
        for step in [1, 2, 5, 8, 9, 10, 17, 4_096] {
            for kind in 2..=8 {
                assert!(!is_too_many(&frame(kind, 8).repeat(burst), step));
                assert!(is_too_many(&frame(kind, 8).repeat(burst + 1), step));
            }
            // What is within a frame is no frame, and data and fields ask for nothing.
            assert!(!is_too_many(&frame(DATA, 300).repeat(burst * 3), step));
            assert!(!is_too_many(&frame(HEADERS, 30).repeat(burst * 3), step));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn parts_without_content_count_but_for_the_last() {
        let many = BURST as usize + 1;
        assert!(is_too_many(&frame(DATA, 0).repeat(many), 99));
        assert!(is_too_many(&frame(CONTINUATION, 0).repeat(many), 99));
        assert!(!is_too_many(&frame(CONTINUATION, 1).repeat(many), 99));
        assert!(!is_too_many(&flagged(DATA, END_STREAM, 0).repeat(many), 99));
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_a_second_are_no_flood() {
        let mut frames = counting();
        for _ in 0..10_000 {
            frames.count_read(&frame(6, 8));
            tokio::time::advance(Duration::from_millis(25)).await;
        }
        assert!(!frames.too_many.0.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_ask_for_more_of_what_it_is_sent() {
        const WINDOW_UPDATE: u8 = 8;
        let mut frames = counting();
        let is_flood = |frames: &ControlFrames<()>| frames.too_many.0.load(Ordering::Relaxed);
        for _ in 0..10_000 {
            frames.count_written(&frame(DATA, 4_000));
            frames.count_read(&frame(WINDOW_UPDATE, 4).repeat(2));
        }
        for _ in 0..10_000 {
            frames.count_written(&flagged(HEADERS, END_STREAM, 30));
            frames.count_read(&frame(RST_STREAM, 4));
        }
        assert!(!is_flood(&frames));
        // What is sent is no store for a flood later.
        frames.count_read(&frame(RST_STREAM, 4).repeat(BURST as usize + 1));
        assert!(is_flood(&frames));
    }
}
