//! Lets only sound requests in, and only patient clients wait.
//!
//! It stands between a socket and hyper. Heads of requests are handed on when
//! they are complete and were checked, so that what is wrong with one is
//! answered by us, and what a client and a process might read differently
//! comes no further. Bodies pass as they come.

mod chunks;
mod head;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use self::chunks::Chunks;
use self::head::{Framing, Head};
pub(super) use self::head::{Limits, Trouble};
use super::seat::{Seat, Turn};

/// What stands in for a request that is answered by us alone.
const REFUSED: &[u8] =
    b"GET / HTTP/1.1\r\nhost: refused\r\nx-rideau-refused: 1\r\nconnection: close\r\n\r\n";

/// Who still sends when we have said our last is listened to for so long.
const LINGER: Duration = Duration::from_secs(1);

/// How patient we are with a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// A head that began is complete.
    pub(super) head: Duration,
    /// Something happens.
    pub(super) idle: Duration,
}

/// A stream of requests that are sound.
pub(super) struct Gate<S> {
    stream: S,
    seat: Arc<Seat>,
    limits: Limits,
    patience: Patience,
    phase: Phase,
    /// Bytes that were read and not checked as a whole.
    held: Vec<u8>,
    /// Bytes that may be read.
    free: Vec<u8>,
    /// When something moved last, and when the head began that is not complete.
    moved: Instant,
    began: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Pin<Box<Sleep>>>,
}

enum Phase {
    Head(Head),
    /// So many bytes of a body follow.
    Length(u64),
    Chunks(Chunks),
    /// What follows is what the answer makes of it.
    Upgrading,
    /// Everything passes.
    Open,
    /// The rest is of no interest.
    Refused,
    /// A body makes no sense.
    Broken,
}

impl<S> Gate<S> {
    pub(super) fn new(stream: S, seat: Arc<Seat>, limits: Limits, patience: Patience) -> Self {
        let now = Instant::now();
        Self {
            stream,
            seat,
            limits,
            patience,
            phase: Phase::Head(Head::default()),
            held: Vec::new(),
            free: Vec::new(),
            moved: now,
            began: now,
            timer: None,
            stalled: None,
            lingering: None,
        }
    }

    /// One that minds nothing but the time: HTTP/2 has its own rules.
    pub(super) fn open(stream: S, seat: Arc<Seat>, patience: Patience) -> Self {
        let limits = Limits::default();
        let mut gate = Self::new(stream, seat, limits, patience);
        gate.phase = Phase::Open;
        gate
    }

    /// Go over bytes that follow those before; says how many may pass. The rest
    /// is a head that is not complete, or of no interest.
    fn check(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            match &mut self.phase {
                Phase::Open => return bytes.len(),
                Phase::Upgrading | Phase::Refused | Phase::Broken => return passed,
                Phase::Length(left) => {
                    let len = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= len as u64;
                    passed += len;
                    if *left == 0 {
                        self.phase = Phase::Head(Head::default());
                    }
                }
                Phase::Chunks(chunks) => match chunks.pass(rest) {
                    Ok((len, is_over)) => {
                        passed += len;
                        if is_over {
                            self.phase = Phase::Head(Head::default());
                        }
                    }
                    Err(len) => {
                        self.phase = Phase::Broken;
                        return passed + len;
                    }
                },
                Phase::Head(head) => match head.pass(rest, &self.limits) {
                    Ok(None) => return passed,
                    Ok(Some(len)) => {
                        let framing = head.framing();
                        passed += len;
                        self.begin(framing);
                    }
                    Err(trouble) => {
                        self.refuse(trouble);
                        return passed;
                    }
                },
            }
        }
        passed
    }

    fn begin(&mut self, framing: Framing) {
        self.phase = match framing {
            Framing::Nothing => Phase::Head(Head::default()),
            Framing::Length(len) => Phase::Length(len),
            Framing::Chunks => Phase::Chunks(Chunks::default()),
            Framing::Upgrade => {
                self.seat.turn(Turn::Undecided);
                Phase::Upgrading
            }
        };
    }

    fn refuse(&mut self, trouble: Trouble) {
        self.seat.refuse(trouble);
        self.phase = Phase::Refused;
        self.free.extend_from_slice(REFUSED);
    }

    /// Hand out what is free; whether there was any.
    fn hand_out(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let len = self.free.len().min(buffer.remaining());
        if len == 0 {
            return false;
        }
        buffer.put_slice(&self.free[..len]);
        self.free.drain(..len);
        true
    }

    /// Look at what was read into a buffer after its first bytes, and leave
    /// there what may pass.
    fn look(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        self.moved = Instant::now();
        if self.held.is_empty() {
            let passed = self.check(&buffer.filled()[before..]);
            let rest = &buffer.filled()[before + passed..];
            if !rest.is_empty() {
                self.keep(rest.to_vec());
            }
            buffer.set_filled(before + passed);
        } else {
            self.held.extend_from_slice(&buffer.filled()[before..]);
            buffer.set_filled(before);
            self.look_again();
        }
    }

    /// Look at what is held, with what came since.
    fn look_again(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        // What a refusal says comes after what passed before it.
        let free = self.free.len();
        let passed = self.check(&held);
        let rest = held.split_off(passed);
        self.free.splice(free..free, held);
        if !rest.is_empty() {
            self.keep(rest);
        }
    }

    fn keep(&mut self, rest: Vec<u8>) {
        if matches!(self.phase, Phase::Refused | Phase::Broken) {
            return;
        }
        if self.held.is_empty() {
            self.began = self.moved;
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(self.began + self.patience.head);
            }
        }
        self.held = rest;
    }

    /// When patience ends, as far as can be said now.
    fn deadline(&self, now: Instant) -> Instant {
        match &self.phase {
            Phase::Head(_) if !self.held.is_empty() => self.began + self.patience.head,
            _ if self.seat.is_busy() => now + self.patience.idle,
            _ => self.moved + self.patience.idle,
        }
    }

    /// Nothing came; ready when we waited long enough.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.timer {
                Some(timer) => ready!(timer.as_mut().poll(context)),
                None => {
                    let until = self.deadline(Instant::now());
                    self.timer = Some(Box::pin(tokio::time::sleep_until(until)));
                    continue;
                }
            }
            let now = Instant::now();
            let until = self.deadline(now);
            if until <= now {
                return Poll::Ready(());
            }
            self.timer = Some(Box::pin(tokio::time::sleep_until(until)));
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
        let idle = self.patience.idle;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// An upgrade was decided upon.
    fn decide(&mut self) {
        match self.seat.decision() {
            Turn::Undecided => return,
            Turn::Tunnel => self.phase = Phase::Open,
            Turn::Plain => self.phase = Phase::Head(Head::default()),
        }
        self.look_again();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        loop {
            if matches!(gate.phase, Phase::Upgrading) {
                gate.decide();
                // Whoever decides reads again.
                if gate.held.len() > gate.limits.bytes_max {
                    return Poll::Pending;
                }
            }
            if gate.hand_out(buffer) {
                return Poll::Ready(Ok(()));
            }
            if matches!(gate.phase, Phase::Broken) {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let before = buffer.filled().len();
            match Pin::new(&mut gate.stream).poll_read(context, buffer) {
                Poll::Ready(Ok(())) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(gate.poll_patience(context));
                    // Who began to ask is told; who did not is not there.
                    if matches!(gate.phase, Phase::Head(_)) && !gate.held.is_empty() {
                        gate.held.clear();
                        gate.refuse(Trouble::Slow);
                        continue;
                    }
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            if buffer.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            gate.look(buffer, before);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Gate<S> {
    /// A client that is still sending would lose our last words if we were gone
    /// at once: take what it sends for a while.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.phase, Phase::Head(_) | Phase::Upgrading | Phase::Open) {
            return Poll::Ready(());
        }
        let lingering = self
            .lingering
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if lingering.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut rest = [0; 4096];
        loop {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut self.stream).poll_read(context, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => (),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gate<S> {
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
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}
