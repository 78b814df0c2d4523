//! A client that speaks HTTP/2, and our patience with it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::front::seat::Seat;
use crate::http1::stream::Stream;

/// A stream that fails when nothing moves on it for too long. Who waits for an
/// answer may be silent.
pub(super) struct Patient {
    stream: Stream,
    seat: Arc<Seat>,
    idle: Duration,
    /// When something moved last.
    moved: Instant,
    timer: Pin<Box<Sleep>>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(super) fn new(stream: Stream, seat: Arc<Seat>, idle: Duration) -> Self {
        Self {
            stream,
            seat,
            idle,
            moved: Instant::now(),
            timer: Box::pin(tokio::time::sleep(idle)),
            stalled: None,
        }
    }

    /// Nothing came; ready when we waited long enough.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            let until = match self.seat.is_busy() {
                true => now + self.idle,
                false => self.moved + self.idle,
            };
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
    }

    /// Pass on what a write came to, and mind the time while it comes to nothing.
    fn mind<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.moved = Instant::now();
            self.stalled = None;
            return written;
        }
        let idle = self.idle;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let patient = self.get_mut();
        let read = Pin::new(&mut patient.stream).poll_read(context, buffer);
        if read.is_ready() {
            patient.moved = Instant::now();
            return read;
        }
        ready!(patient.poll_idle(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.mind(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.mind(context, written)
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
