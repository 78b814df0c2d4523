//! A client as the side that sends requests and takes answers, and our patience
//! with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::time::{Instant, Sleep};

use super::headers;
use super::rate_watch::UNSENT_MAX;
use super::reply::HttpReply;
use super::upstream_conn::{is_bare, put_chunk, put_last_chunk};
use crate::http1::chunks::Chunks;
use crate::http1::date;
use crate::http1::fields::put;
use crate::http1::head::{Framing, Head, HeadLimits, Trouble};
use crate::http1::message_io::{MessageIo, Rest};
use crate::http1::stream::Stream;

/// A client that still sends when we have said our last is listened to for so long.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes of the next requests that are read while one is answered.
const AHEAD_MAX: usize = 16 * 1024;
/// What is left of a body that was not wanted is read up to here, so that the
/// connection can go on,
const SKIP_MAX: u64 = 1024 * 1024;
/// if it comes within this.
const SKIP_WITHIN: Duration = Duration::from_secs(2);

/// How patient we are with a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// A head that began is complete.
    pub(super) head: Duration,
    /// Something happens.
    pub(super) idle: Duration,
}

/// A client.
pub(super) struct Client {
    wire: MessageIo,
    limits: HeadLimits,
    patience: Patience,
    head: Head,
    /// The rest of the body.
    rest: Rest,
    /// How much of it was dropped.
    skipped: u64,
    /// It waits to be told that it may send that.
    expects: bool,
    /// The answer to the request has begun.
    is_answered: bool,
    /// Bytes of its body that were written.
    body_len: u64,
    closing: Closing,
    /// We have said our last.
    is_ended: bool,
    /// The system tells how fast it takes what is sent.
    is_watched: bool,
    /// When we began to wait for what we wait for.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The timer was set by the wait for a head, and wakes its task.
    is_set: bool,
}

/// Whether the connection closes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    /// More requests may follow.
    Not,
    /// It ends after this answer.
    After,
    /// It ends, and what was sent may be taken for less than all.
    Broken,
    /// It is of no use any more.
    Now,
}

/// The result of reading a request.
pub(super) enum Came {
    /// A head of this many bytes.
    Head(usize),
    /// Something that is none.
    Trouble(Trouble),
    /// Nothing, and nothing will.
    Over,
}

/// The properties of a request that its answer depends on.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// It asks for a head alone.
    pub(super) wants_head: bool,
    /// The client speaks a version that knows chunks.
    pub(super) is_recent: bool,
    /// The client would send more requests.
    pub(super) keeps: bool,
    /// It takes what follows a body in chunks.
    pub(super) takes_trailers: bool,
}

/// How the end of a body is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// By its length, or there is none.
    Known,
    Chunks,
    /// By the end of the connection.
    Close,
}

impl Manner {
    /// For an answer to a malformed request: the connection closes after it.
    pub(super) const LAST: Self = Self {
        wants_head: false,
        is_recent: true,
        keeps: false,
        takes_trailers: false,
    };

    /// Whether an answer with this status has a body.
    pub(super) fn has_body(self, status: StatusCode) -> bool {
        !self.wants_head && !is_bare(status)
    }
}

impl Client {
    pub(super) fn new(stream: Stream, limits: HeadLimits, patience: Patience) -> Self {
        Self {
            wire: MessageIo::new(stream),
            limits,
            patience,
            head: Head::default(),
            rest: Rest::Nothing,
            skipped: 0,
            expects: false,
            is_answered: false,
            body_len: 0,
            closing: Closing::Not,
            is_ended: false,
            is_watched: false,
            since: None,
            timer: None,
            is_set: false,
        }
    }

    pub(super) fn wire(&mut self) -> &mut MessageIo {
        &mut self.wire
    }

    pub(super) fn into_wire(self) -> MessageIo {
        self.wire
    }

    /// The head that came, and its bytes.
    pub(super) fn head(&self) -> (&Head, &[u8]) {
        (&self.head, self.wire.unread())
    }

    /// Wait for the head of a request.
    pub(super) fn poll_head(&mut self, is_open: bool, context: &mut Context<'_>) -> Poll<Came> {
        if !matches!(self.rest, Rest::Nothing) && !ready!(self.poll_rest(context)) {
            return Poll::Ready(Came::Over);
        }
        loop {
            let is_idle = self.wire.unread().is_empty();
            if !is_idle {
                match self.head.pass(self.wire.unread(), &self.limits) {
                    Ok(Some(len)) => {
                        self.is_answered = false;
                        self.body_len = 0;
                        self.since = None;
                        return Poll::Ready(Came::Head(len));
                    }
                    Ok(None) => (),
                    Err(trouble) => {
                        self.rest = Rest::ToEnd;
                        return Poll::Ready(Came::Trouble(trouble));
                    }
                }
            } else if !is_open {
                return Poll::Ready(Came::Over);
            }
            match self.wire.poll_more(context) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.close();
                    return Poll::Ready(Came::Over);
                }
                Poll::Ready(Ok(_)) if is_idle => self.since = None,
                Poll::Ready(Ok(_)) => (),
                Poll::Pending => {
                    let within = match is_idle {
                        true => self.patience.idle,
                        false => self.patience.head,
                    };
                    ready!(self.poll_patience_again(within, context));
                    self.rest = Rest::ToEnd;
                    // A client that began to ask is told; one that did not is not there.
                    return Poll::Ready(match is_idle {
                        true => Came::Over,
                        false => Came::Trouble(Trouble::Slow),
                    });
                }
            }
        }
    }

    /// The head was understood; says whether a body follows it.
    pub(super) fn take_head(&mut self, len: usize) -> bool {
        self.rest = match self.head.framing() {
            Framing::Nothing => Rest::Nothing,
            Framing::Length(len) => Rest::Length(len),
            Framing::Chunks => Rest::Chunks(Chunks::default()),
        };
        let has_body = !matches!(self.rest, Rest::Nothing);
        self.expects = has_body && self.head.expects();
        self.skipped = 0;
        self.head.reset();
        self.wire.consume(len);
        has_body
    }

    /// It waits to be told that it may send its body.
    pub(super) const fn expects(&self) -> bool {
        self.expects
    }

    /// The next part of the body; none after its end.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.expects {
            self.expects = false;
            // A client that sends anyway need not be told.
            if self.wire.unread().is_empty() {
                let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
                self.wire.out().extend_from_slice(go_on);
            }
        }
        if !self.wire.is_flushed() {
            let _ = self.wire.poll_send(context)?;
        }
        match self.wire.poll_part(&mut self.rest, context) {
            Poll::Ready(part) => {
                self.since = None;
                Poll::Ready(part)
            }
            Poll::Pending => {
                ready!(self.poll_patience(self.patience.idle, context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Ready when the client has left while it should wait.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The task that reads the body sees it as well.
        if !matches!(self.rest, Rest::Nothing) {
            return Poll::Pending;
        }
        while self.wire.unread().len() < AHEAD_MAX {
            if let Ok(1..) = ready!(self.wire.poll_more(context)) {
                continue;
            }
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// The same, and send what is written meanwhile.
    pub(super) fn poll_away(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.wire.is_flushed()
            && let Poll::Ready(Err(_)) = self.poll_send(context)
        {
            return Poll::Ready(());
        }
        self.poll_gone(context)
    }

    /// Write the head of an answer; says how the end of its body will be told.
    pub(super) fn put_head(&mut self, reply: &HttpReply, manner: Manner, keeps: bool) -> BodyEnd {
        self.is_answered = true;
        self.body_len = 0;
        let out = self.wire.out();
        out.reserve(reply.fields.len() + 256);
        // An old client may take no other version than its own.
        let version: &[u8] = if manner.is_recent {
            b"HTTP/1.1 "
        } else {
            b"HTTP/1.0 "
        };
        out.extend_from_slice(version);
        out.extend_from_slice(reply.status.as_str().as_bytes());
        out.push(b' ');
        let reason = reply.status.canonical_reason().unwrap_or_default();
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&reply.fields);
        if let Some(date) = reply.date {
            date::put(out, date);
        }
        let end = match reply.length {
            Some(len) if reply.status != StatusCode::NO_CONTENT => {
                headers::put_length(out, len);
                BodyEnd::Known
            }
            _ if is_bare(reply.status) || reply.status.is_informational() => BodyEnd::Known,
            _ if manner.is_recent => {
                put(out, "Transfer-Encoding", "chunked");
                BodyEnd::Chunks
            }
            _ => BodyEnd::Close,
        };
        if !keeps || end == BodyEnd::Close {
            put(out, "Connection", "close");
        } else if !manner.is_recent {
            put(out, "Connection", "keep-alive");
        }
        out.extend_from_slice(b"\r\n");
        end
    }

    /// Write the last answer of a connection, unless one has begun already.
    pub(super) fn fail(&mut self, mut reply: HttpReply) {
        if self.is_answered {
            return self.close_broken();
        }
        self.put_head(&reply, Manner::LAST, false);
        reply.body.pour(&mut self.wire, reply.at);
        self.close_after();
    }

    /// Write the head of an answer after which all is different.
    pub(super) fn put_turned(&mut self, reply: &HttpReply) {
        let manner = Manner {
            wants_head: false,
            is_recent: true,
            keeps: true,
            takes_trailers: false,
        };
        self.put_head(reply, manner, true);
    }

    /// What was written since this many bytes were to be sent is of the body.
    pub(super) fn count_body(&mut self, before: usize) {
        self.body_len += self.wire.to_send().saturating_sub(before) as u64;
    }

    /// Bytes of the body of the answer that were sent.
    pub(super) fn body_sent(&self) -> u64 {
        self.body_len.saturating_sub(self.wire.to_send() as u64)
    }

    /// Write a part of the body of an answer.
    pub(super) fn put_part(&mut self, part: Bytes, end: BodyEnd) {
        self.body_len += part.len() as u64;
        match end {
            BodyEnd::Chunks => put_chunk(&mut self.wire, part),
            BodyEnd::Known | BodyEnd::Close => self.wire.push(part),
        }
    }

    pub(super) fn put_end(&mut self, end: BodyEnd, trailers: &[u8]) {
        if end == BodyEnd::Chunks {
            put_last_chunk(&mut self.wire, trailers);
        }
    }

    /// Write what a process says before its answer.
    pub(super) fn put_early(&mut self, fields: &[u8]) {
        let out = self.wire.out();
        out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
        out.extend_from_slice(fields);
        out.extend_from_slice(b"\r\n");
    }

    /// Send what is written, and mind the time while nothing is taken.
    /// Says how many bytes were sent.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.wire.poll_send(context) {
            Poll::Ready(sent) => {
                self.since = None;
                Poll::Ready(sent)
            }
            Poll::Pending => {
                ready!(self.poll_patience(self.patience.idle, context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// An answer was sent: the next request is waited for since then.
    pub(super) fn answered(&mut self, at: Option<std::time::Instant>) {
        self.since = at.map(Instant::from_std);
    }

    /// Whether another request can follow, behind what is left of a body.
    pub(super) fn goes_on(&self) -> bool {
        // A client that was never told to send its body may or may not do so.
        self.closing == Closing::Not && !self.expects
    }

    /// Drop the rest of a body that was not wanted, as far as it is short and comes soon;
    /// says whether it did.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while !matches!(self.rest, Rest::Nothing) {
            match self.wire.poll_part(&mut self.rest, context) {
                Poll::Ready(Ok(Some(part))) => {
                    let len = part.len() as u64;
                    match self.skipped.checked_add(len).filter(|all| *all <= SKIP_MAX) {
                        Some(skipped) => self.skipped = skipped,
                        None => return Poll::Ready(false),
                    }
                }
                Poll::Ready(Ok(None)) => (),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return self.poll_patience(SKIP_WITHIN, context).map(|()| false),
            }
        }
        self.since = None;
        Poll::Ready(true)
    }

    /// No other request follows.
    pub(super) fn close_after(&mut self) {
        self.closing = self.closing.max(Closing::After);
    }

    /// Close so that the client sees that the answer is incomplete.
    pub(super) fn close_broken(&mut self) {
        self.closing = self.closing.max(Closing::Broken);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.closing >= Closing::Broken
    }

    /// Nothing can be sent any more.
    pub(super) fn close(&mut self) {
        self.closing = Closing::Now;
    }

    /// It may not take at once what is sent from now on: what it takes is to be seen.
    pub(super) fn watch_taking(&mut self) {
        if !self.is_watched {
            self.is_watched = true;
            self.wire.stream().limit_unsent(UNSENT_MAX);
        }
    }

    /// Nothing more is sent to it, not even what was written.
    pub(super) fn reset(&mut self) {
        self.wire.stream().reset_at_end();
        self.close();
    }

    /// Say that we have said our last. A client that is still sending would not
    /// hear it if we were gone at once: take what it sends for a while.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.closing >= Closing::Broken {
            return Poll::Ready(());
        }
        if !self.is_ended {
            let ended = ready!(self.wire.poll_shutdown(context));
            if ended.is_err() || matches!(self.rest, Rest::Nothing) {
                return Poll::Ready(());
            }
            self.is_ended = true;
            self.since = None;
        }
        loop {
            match self.wire.poll_more(context) {
                Poll::Ready(Ok(1..)) => self.wire.consume(self.wire.unread().len()),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_patience(LINGER, context),
            }
        }
    }

    /// The same for a caller that waits for one head after the other, always in one task:
    /// a timer that this task set and that did not run out needs no second look.
    fn poll_patience_again(&mut self, within: Duration, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(Instant::now) + within;
        let runs = |timer: &Pin<Box<Sleep>>| timer.deadline() <= until && !timer.is_elapsed();
        if self.is_set && self.timer.as_ref().is_some_and(runs) {
            return Poll::Pending;
        }
        let waited = self.poll_patience(within, context);
        self.is_set = waited.is_pending();
        waited
    }

    /// Ready when we have waited for so long for what we wait for.
    fn poll_patience(&mut self, within: Duration, context: &mut Context<'_>) -> Poll<()> {
        self.is_set = false;
        let until = *self.since.get_or_insert_with(Instant::now) + within;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            // One that runs out too early is set again only then, which is seldom.
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}
