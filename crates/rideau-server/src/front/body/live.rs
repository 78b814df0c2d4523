//! What a process sends, handed on as it comes.

use std::task::{Context, Poll, ready};

use rideau_core::apps::Ended;

use super::{Broken, Part};
use crate::apps::Session;
use crate::front::connections::Line;
use crate::front::wire::Wire;

/// What a process sends, and the place that it takes meanwhile.
///
/// The place is given back as soon as the process has said all, and the
/// connection is kept if it is any good; if this is dropped before, the client
/// has left, and the connection is closed.
pub(in crate::front) struct Live {
    /// None when the process has said all that it will.
    line: Option<Box<Line>>,
    is_broken: bool,
    trailers: Vec<u8>,
}

impl Live {
    pub(in crate::front) fn new(mut line: Box<Line>, session: Session) -> Self {
        line.use_for(session);
        let mut live = Self {
            line: Some(line),
            is_broken: false,
            trailers: Vec::new(),
        };
        live.finish_if_answered();
        live
    }

    /// The process has said all that there was to say.
    pub(super) fn is_over(&self) -> bool {
        self.line.is_none() && !self.is_broken
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
            let broken = Broken("the app broke its answer off");
            return Poll::Ready(self.is_broken.then_some(Err(broken)));
        };
        match ready!(line.poll_part(context)) {
            Ok(part) => {
                self.finish_if_answered();
                Poll::Ready(part.map(Ok))
            }
            Err(error) => {
                tracing::debug!("an app broke its answer off: {error}");
                self.end(Ended::Broken);
                self.is_broken = true;
                Poll::Ready(Some(Err(Broken("the app broke its answer off"))))
            }
        }
    }

    /// Hand on what came already. Says whether that was all.
    pub(super) fn pour(&mut self, into: &mut Wire) -> bool {
        if let Some(line) = &mut self.line {
            line.pour(into);
            self.finish_if_answered();
        }
        self.is_over()
    }

    fn finish_if_answered(&mut self) {
        let answered = self.line.take_if(|line| line.is_answered());
        if let Some(mut line) = answered {
            self.trailers = line.take_trailers();
            if let Some(session) = line.take_session() {
                session.process().connections.give_back(line);
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
