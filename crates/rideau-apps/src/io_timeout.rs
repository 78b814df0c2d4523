//! A connection that fails when the other side takes or sends nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes, and reads if that is wanted, fail after a while without progress.
pub struct IoTimeout<S> {
    stream: S,
    within: Duration,
    /// When something moved last.
    moved: Instant,
    /// Runs only while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
    reads: Option<ReadLimit>,
}

struct ReadLimit {
    /// The other side has reason to be silent: it waits for us.
    is_busy: Box<dyn Fn() -> bool + Send>,
    timer: Pin<Box<Sleep>>,
}

impl<S> IoTimeout<S> {
    /// Writes fail that make no progress within this.
    pub fn writes(stream: S, within: Duration) -> Self {
        Self {
            stream,
            within,
            moved: Instant::now(),
            stalled: None,
            reads: None,
        }
    }

    /// The same for reads, unless the other side waits for us.
    pub fn both(stream: S, within: Duration, is_busy: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            reads: Some(ReadLimit {
                is_busy: Box::new(is_busy),
                timer: Box::pin(tokio::time::sleep(within)),
            }),
            ..Self::writes(stream, within)
        }
    }

    /// Nothing came; ready when that was so for too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(reads) = &mut self.reads else {
            return Poll::Pending;
        };
        loop {
            ready!(reads.timer.as_mut().poll(context));
            let now = Instant::now();
            let until = match (reads.is_busy)() {
                true => now + self.within,
                false => self.moved + self.within,
            };
            if until <= now {
                return Poll::Ready(());
            }
            reads.timer.as_mut().reset(until);
        }
    }

    /// Pass on what a write came to, and fail when it comes to nothing for too long.
    fn poll_progress<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.moved = Instant::now();
            self.stalled = None;
            return written;
        }
        let within = self.within;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IoTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.moved = Instant::now();
            return read;
        }
        ready!(self.poll_idle(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IoTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_progress(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.poll_progress(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            Poll::Ready(_) => {
                self.stalled = None;
                flushed
            }
            Poll::Pending => self.poll_progress(context, flushed),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn one_that_reads_nothing_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut stream = IoTimeout::writes(ours, WITHIN);
        let before = Instant::now();
        let written = stream.write_all(&[0; 64]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed(), WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_nothing_is_given_up_unless_it_waits_for_us() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let is_busy = Arc::new(AtomicBool::new(true));
        let looked = Arc::clone(&is_busy);
        let mut stream = IoTimeout::both(ours, WITHIN, move || looked.load(Ordering::Relaxed));
        let before = Instant::now();
        let mut bytes = [0; 8];
        let read = tokio::time::timeout(WITHIN * 3, stream.read(&mut bytes)).await;
        assert!(read.is_err(), "it has reason to be silent");
        is_busy.store(false, Ordering::Relaxed);
        let read = stream.read(&mut bytes).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() <= WITHIN * 5);
    }
}
