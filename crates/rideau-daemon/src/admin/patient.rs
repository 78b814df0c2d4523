//! A connection that is given up when the other side takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail after a while without progress.
pub(super) struct Patient<S> {
    stream: S,
    within: Duration,
    /// Runs only while a write is pending.
    limit: Pin<Box<Sleep>>,
    is_pending: bool,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Self {
            stream,
            within,
            limit: Box::pin(tokio::time::sleep(within)),
            is_pending: false,
        }
    }

    /// Pass on what a write came to, and mind the time while it comes to nothing.
    fn mind<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_pending = false;
            return written;
        }
        if !self.is_pending {
            self.is_pending = true;
            self.limit.as_mut().reset(Instant::now() + self.within);
        }
        ready!(self.limit.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.mind(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.mind(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_reads_nothing_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut patient = Patient::new(ours, Duration::from_secs(30));
        let before = Instant::now();
        let written = patient.write_all(&[0; 64]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed(), Duration::from_secs(30));
    }
}
