//! An answer that is streamed from its process.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use rideau_core::apps::Ended;

use super::Allowance;
use crate::apps::Session;
use crate::front::broken::{Broken, CUT, Part, SLOW};
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
}

impl Live {
    /// An answer that begins now.
    pub(in crate::front) fn new(
        mut line: Box<UpstreamConn>,
        session: Session,
        allowance: Option<Allowance>,
        now: Instant,
    ) -> Self {
        line.use_for(session);
        let mut live = Self {
            line: Some(line),
            broken: None,
            trailers: Vec::new(),
            allowance,
        };
        live.finish_if_answered(|| now);
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
        match ready!(said) {
            Ok(part) => {
                self.finish_if_answered(Instant::now);
                Poll::Ready(part.map(Ok))
            }
            Err(error) => {
                tracing::debug!("an app ended its answer too early: {error}");
                self.break_off(Ended::Broken, CUT)
            }
        }
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
            session.process().app.counts.refused(broken.word());
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
