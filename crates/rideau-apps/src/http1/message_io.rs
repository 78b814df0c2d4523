//! Messages of HTTP/1 as bytes: what a peer sent and was not looked at yet, and
//! what it is still to be sent.

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use hyper::body::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::chunks::Chunks;
use super::stream::Stream;
use super::thread_buffer;

/// Bytes that are read at a time where a body is expected.
const BODY_PART: usize = 32 * 1024;
/// Longer parts are sent from where they are, not copied.
const COPY_MAX: usize = 4 * 1024;
/// Bytes that may wait to be sent before no more are taken.
const OUT_MAX: usize = 64 * 1024;

/// A connection with a peer. While nothing is under way it has no room for it.
pub(crate) struct MessageIo {
    stream: Stream,
    /// Bytes that came, of which this much was parsed.
    held: Vec<u8>,
    at: usize,
    /// Bytes to send, of which this much was sent, and the part after them.
    out: Vec<u8>,
    sent: usize,
    tail: Bytes,
    /// The trailers of the last chunked body.
    trailers: Vec<u8>,
}

/// The rest of a body.
pub(crate) enum Rest {
    Nothing,
    /// This many bytes.
    Length(u64),
    Chunks(Chunks),
    /// All until the peer closes.
    ToEnd,
}

impl MessageIo {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            held: Vec::new(),
            at: 0,
            out: Vec::new(),
            sent: 0,
            tail: Bytes::new(),
            trailers: Vec::new(),
        }
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What came and was not looked at.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.held[self.at..]
    }

    /// So much of it was looked at.
    pub(crate) fn consume(&mut self, len: usize) {
        self.at += len;
        if self.at == self.held.len() {
            self.at = 0;
            thread_buffer::give(std::mem::take(&mut self.held));
        }
    }

    /// Wait for more; says how much came, none if it was the end.
    pub(crate) fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_fill(context, thread_buffer::LEN)
    }

    /// Nothing came that is known of. No task is woken if something does.
    pub(crate) fn is_silent(&mut self) -> bool {
        if let Stream::Tls(_) = self.stream {
            // What came may be of TLS alone.
            let mut context = Context::from_waker(Waker::noop());
            return self.poll_more(&mut context).is_pending();
        }
        if !self.stream.may_be_readable() {
            return true;
        }
        self.make_room(thread_buffer::LEN);
        let came = self.stream.try_read(&mut self.held);
        self.leave_room();
        matches!(came, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn poll_fill(&mut self, context: &mut Context<'_>, part: usize) -> Poll<io::Result<usize>> {
        loop {
            // A connection that waits has no room.
            ready!(self.stream.poll_readable(context))?;
            self.make_room(part);
            let came = match &mut self.stream {
                Stream::Tls(stream) => pin!(stream.read_buf(&mut self.held)).poll(context),
                stream => match stream.try_read(&mut self.held) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.leave_room();
                        continue;
                    }
                    came => Poll::Ready(came),
                },
            };
            self.leave_room();
            return came;
        }
    }

    /// Have room for so much more, or half as much if that is there.
    fn make_room(&mut self, len: usize) {
        if self.held.capacity() == 0 && len <= thread_buffer::LEN {
            self.held = thread_buffer::take();
        }
        if self.held.capacity() - self.held.len() < len / 2 {
            self.held.drain(..self.at);
            self.at = 0;
            self.held.reserve(len);
        }
    }

    /// Nothing may have come after all.
    fn leave_room(&mut self) {
        if self.held.is_empty() {
            thread_buffer::give(std::mem::take(&mut self.held));
        }
    }

    /// The next part of a body; none after its end.
    pub(crate) fn poll_part(
        &mut self,
        rest: &mut Rest,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(part) = self.take_part(rest)? {
                return Poll::Ready(Ok(Some(part)));
            }
            if matches!(rest, Rest::Nothing) {
                return Poll::Ready(Ok(None));
            }
            if ready!(self.poll_fill(context, BODY_PART))? == 0 {
                if !matches!(rest, Rest::ToEnd) {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                *rest = Rest::Nothing;
            }
        }
    }

    /// The part of the body that came already.
    fn take_part(&mut self, rest: &mut Rest) -> io::Result<Option<Bytes>> {
        while self.at < self.held.len() {
            let unread = &self.held[self.at..];
            let (used, data, is_over) = match rest {
                Rest::Nothing => return Ok(None),
                Rest::ToEnd => (unread.len(), unread, false),
                Rest::Length(left) => {
                    let len = usize::try_from(*left).map_or(unread.len(), |n| n.min(unread.len()));
                    *left -= len as u64;
                    (len, &unread[..len], *left == 0)
                }
                Rest::Chunks(chunks) => match chunks.next(unread) {
                    Some(found) => (found.used, found.data, found.is_over),
                    None => return Err(io::ErrorKind::InvalidData.into()),
                },
            };
            if is_over && let Rest::Chunks(chunks) = std::mem::replace(rest, Rest::Nothing) {
                self.trailers = chunks.into_trailers();
            }
            if data.is_empty() {
                self.consume(used);
                continue;
            }
            if data.len() == self.held.len() && data.len() > COPY_MAX {
                // All there is, and not worth a copy.
                return Ok(Some(std::mem::take(&mut self.held).into()));
            }
            let part = Bytes::copy_from_slice(data);
            self.consume(used);
            return Ok(Some(part));
        }
        Ok(None)
    }

    /// The trailers of a chunked body, as bytes.
    pub(crate) fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    /// All of a body is here that is still to come, and can be poured.
    pub(crate) fn has_all(&self, rest: &Rest) -> bool {
        match rest {
            Rest::Nothing => true,
            Rest::Length(left) => *left <= self.unread().len().min(COPY_MAX) as u64,
            Rest::Chunks(_) | Rest::ToEnd => false,
        }
    }

    /// Hand on what came of a body, as far as it is of a known length. Says
    /// whether that was all of it.
    pub(crate) fn pour(&mut self, rest: &mut Rest, into: &mut Self) -> bool {
        let Rest::Length(left) = rest else {
            return matches!(rest, Rest::Nothing);
        };
        let unread = &self.held[self.at..];
        let len = usize::try_from(*left).map_or(unread.len(), |n| n.min(unread.len()));
        if len <= COPY_MAX {
            into.out.extend_from_slice(&unread[..len]);
            *left -= len as u64;
            if *left == 0 {
                *rest = Rest::Nothing;
            }
            self.consume(len);
        }
        matches!(rest, Rest::Nothing)
    }

    /// Where what is to be sent is written to, if nothing long waits before it.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        if !self.tail.is_empty() {
            self.out.extend_from_slice(&self.tail);
            self.tail = Bytes::new();
        }
        if self.out.capacity() == 0 {
            self.out = thread_buffer::take();
        }
        &mut self.out
    }

    /// Send this, of which only as much is kept as the peer does not take at once;
    /// says how much was sent. What is wrong with the connection is told to the
    /// caller that sends the rest.
    pub(crate) fn send_first(&mut self, bytes: &[u8]) -> usize {
        let sent = match self.is_flushed() {
            true => self.stream.try_send(bytes).unwrap_or(0),
            false => 0,
        };
        if sent < bytes.len() {
            self.out().extend_from_slice(&bytes[sent..]);
        }
        sent
    }

    /// Send this as well.
    pub(crate) fn push(&mut self, part: Bytes) {
        if part.len() <= COPY_MAX || !self.tail.is_empty() {
            self.out().extend_from_slice(&part);
        } else {
            self.tail = part;
        }
    }

    /// More may be pushed.
    pub(crate) fn has_room(&self) -> bool {
        self.tail.is_empty() && self.out.len() < OUT_MAX
    }

    /// Bytes that were not given to the stream yet.
    pub(crate) fn to_send(&self) -> usize {
        self.out.len() - self.sent + self.tail.len()
    }

    /// Nothing waits to be sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_given() && !self.stream.holds_back()
    }

    /// Everything was given to the stream, which may hold some of it back.
    fn is_given(&self) -> bool {
        self.out.is_empty() && self.tail.is_empty()
    }

    /// Send what waits to be sent, if it is short and the peer takes it at once;
    /// says whether that was all. No task is woken if the peer takes more, and what
    /// is wrong with the connection is told to the caller that waits for that.
    pub(crate) fn send_now(&mut self) -> bool {
        let out = &self.out[self.sent..];
        if out.is_empty() || !self.tail.is_empty() {
            return false;
        }
        // What is within TLS may wait there, and is not sent so.
        if let Ok(len) = self.stream.try_send(out) {
            self.forget(len);
        }
        self.is_flushed()
    }

    /// Send what waits to be sent; says how much was.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let waiting = self.out.len() - self.sent;
        if self.send_now() {
            return Poll::Ready(Ok(waiting));
        }
        let mut all = waiting - (self.out.len() - self.sent);
        while !self.is_given() {
            let (stream, out) = (Pin::new(&mut self.stream), &self.out[self.sent..]);
            let written = match (out.is_empty(), self.tail.is_empty()) {
                (false, true) => stream.poll_write(context, out),
                (true, false) => stream.poll_write(context, &self.tail),
                _ => {
                    let both = [IoSlice::new(out), IoSlice::new(&self.tail)];
                    stream.poll_write_vectored(context, &both)
                }
            };
            let len = match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(len)) => len,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if all > 0 => return Poll::Ready(Ok(all)),
                Poll::Pending => return Poll::Pending,
            };
            all += len;
            self.forget(len);
        }
        // What is within TLS may wait there.
        if matches!(self.stream, Stream::Tls(_)) {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        }
        Poll::Ready(Ok(all))
    }

    /// So much was sent.
    fn forget(&mut self, len: usize) {
        let of_out = len.min(self.out.len() - self.sent);
        self.sent += of_out;
        self.tail.advance(len - of_out);
        if self.sent == self.out.len() {
            self.sent = 0;
            thread_buffer::give(std::mem::take(&mut self.out));
        }
    }

    /// Say that nothing more will be sent.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// For a caller that knows what the peers speak, which is no HTTP any more.
impl AsyncRead for MessageIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unread = self.unread();
        if unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let len = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MessageIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        while !self.is_flushed() {
            ready!(self.poll_send(context))?;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            ready!(self.poll_send(context))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
