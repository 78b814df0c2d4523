//! An answer that is streamed from its process.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use rideau_core::apps::Ended;

use super::Allowance;
use super::stream_timer::StreamTimer;
use crate::apps::Session;
use crate::front::broken::{Broken, CUT, Part, SLOW, STREAM_OVER};
use crate::front::upstream_conn::UpstreamConn;
use crate::http1::message_io::MessageIo;

/// An answer that is being streamed, and the place in the process that it takes.
///
/// The place is given back as soon as the process has said all, and the
/// connection is kept if it is any good; if this is dropped before, the client
/// has left, and the connection is closed.
pub(in crate::front) struct Live {
    /// None when the process has said all that it will.
    line: Option<Box<UpstreamConn>>,
    broken: Option<Broken>,
    trailers: Vec<u8>,
    /// How long the process may still take, if it may not take as long as it likes.
    allowance: Option<Allowance>,
    kind: AnswerKind,
    /// Most answers have come before one is needed.
    timer: Option<Box<StreamTimer>>,
}

/// What is known of an answer as it begins.
#[derive(Clone, Copy)]
pub(in crate::front) struct AnswerKind {
    /// When its request had its place.
    pub(in crate::front) granted: Instant,
    /// It says how long it is.
    pub(in crate::front) has_length: bool,
    /// Its type says that it is a stream.
    pub(in crate::front) is_stream: bool,
}

impl Live {
    /// An answer that begins now.
    pub(in crate::front) fn new(
        mut line: Box<UpstreamConn>,
        session: Session,
        allowance: Option<Allowance>,
        kind: AnswerKind,
        now: Instant,
    ) -> Self {
        line.use_for(session);
        let mut live = Self {
            line: Some(line),
            broken: None,
            trailers: Vec::new(),
            allowance,
            kind,
            timer: None,
        };
        live.finish_if_answered(|| now);
        if kind.is_stream
            && let Some(session) = live.line.as_ref().and_then(|line| line.session())
        {
            let mut timer = StreamTimer::new(kind.granted, kind.has_length);
            timer.begin_stream(session);
            live.timer = Some(Box::new(timer));
        }
        live
    }

    /// The process has said all that there was to say.
    pub(super) fn is_over(&self) -> bool {
        self.line.is_none() && self.broken.is_none()
    }

    /// Why the process will not say all.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Something follows what the process said.
    pub(super) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let Some(line) = &mut self.line else {
            return Poll::Ready(self.broken.map(Err));
        };
        let said = line.poll_part(context);
        if self.allowance.is_some() && self.takes_too_long(said.is_ready(), context) {
            return self.break_off(Ended::TimedOut, SLOW);
        }
        if said.is_pending() {
            ready!(self.poll_stream(context));
            return self.break_off(Ended::Answered, STREAM_OVER);
        }
        match ready!(said) {
            Ok(part) => {
                if let Some(timer) = &mut self.timer {
                    timer.moves();
                }
                self.finish_if_answered(Instant::now);
                Poll::Ready(part.map(Ok))
            }
            Err(error) => {
                tracing::debug!("an app ended its answer too early: {error}");
                self.break_off(Ended::Broken, CUT)
            }
        }
    }

    /// Nothing comes though more could be taken: ready when it is a stream that has to end.
    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(session) = self.line.as_ref().and_then(|line| line.session()) else {
            return Poll::Pending;
        };
        let AnswerKind {
            granted,
            has_length,
            ..
        } = self.kind;
        let make = || Box::new(StreamTimer::new(granted, has_length));
        let timer = self.timer.get_or_insert_with(make);
        timer.poll_wait(session, context)
    }

    /// Whether the process took longer than it may, and is not done yet.
    fn takes_too_long(&mut self, has_said: bool, context: &mut Context<'_>) -> bool {
        let (Some(allowance), Some(line)) = (&mut self.allowance, &self.line) else {
            return false;
        };
        match has_said {
            true => allowance.stop() && !line.is_answered(),
            // It may be waiting for what the client has not sent yet.
            false if line.awaits_client() => {
                allowance.stop();
                false
            }
            false => allowance.poll_wait(context).is_ready(),
        }
    }

    /// There will be no more of it, and the client can tell.
    fn break_off(&mut self, how: Ended, broken: Broken) -> Poll<Part> {
        if let Some(session) = self.line.take().and_then(|mut line| line.take_session()) {
            if how != Ended::Answered {
                session.process().app.counts.refused(broken.word());
            }
            session.end(how);
        }
        self.broken = Some(broken);
        Poll::Ready(Some(Err(broken)))
    }

    /// Hand on what came already. Says whether that was all.
    pub(super) fn pour(&mut self, into: &mut MessageIo, now: Instant) -> bool {
        if let Some(line) = &mut self.line {
            line.pour(into);
            self.finish_if_answered(|| now);
        }
        self.is_over()
    }

    fn finish_if_answered(&mut self, now: impl FnOnce() -> Instant) {
        let answered = self.line.take_if(|line| line.is_answered());
        if let Some(mut line) = answered {
            self.trailers = line.take_trailers();
            if let Some(session) = line.take_session() {
                let now = now();
                if let Some(wire) = line.into_idle() {
                    session.process().connections.give_back(wire, now);
                }
                session.end(Ended::Answered);
            }
        }
    }

    fn end(&mut self, how: Ended) {
        let session = self.line.take().and_then(|mut line| line.take_session());
        if let Some(session) = session {
            session.end(how);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end(Ended::Left);
    }
}
