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
    using: Option<Using>,
    is_broken: bool,
    trailers: Vec<u8>,
}

/// A process that is being used.
struct Using {
    line: Box<Line>,
    session: Session,
}

impl Live {
    pub(in crate::front) fn new(line: Box<Line>, session: Session) -> Self {
        let mut live = Self {
            using: Some(Using { line, session }),
            is_broken: false,
            trailers: Vec::new(),
        };
        live.finish_if_answered();
        live
    }

    /// The process has said all that there was to say.
    pub(super) fn is_over(&self) -> bool {
        self.using.is_none() && !self.is_broken
    }

    /// Something follows what the process said.
    pub(super) fn has_trailers(&self) -> bool {
        !self.trailers.is_empty()
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let Some(using) = &mut self.using else {
            let broken = Broken("the app broke its answer off");
            return Poll::Ready(self.is_broken.then_some(Err(broken)));
        };
        match ready!(using.line.poll_part(context)) {
            Ok(part) => {
                self.finish_if_answered();
                Poll::Ready(part.map(Ok))
            }
            Err(error) => {
                tracing::debug!("an app broke its answer off: {error}");
                if let Some(using) = self.using.take() {
                    using.session.end(Ended::Broken);
                }
                self.is_broken = true;
                Poll::Ready(Some(Err(Broken("the app broke its answer off"))))
            }
        }
    }

    /// Hand on what came already. Says whether that was all.
    pub(super) fn pour(&mut self, into: &mut Wire) -> bool {
        if let Some(using) = &mut self.using {
            using.line.pour(into);
            self.finish_if_answered();
        }
        self.is_over()
    }

    fn finish_if_answered(&mut self) {
        let answered = self.using.take_if(|using| using.line.is_answered());
        if let Some(mut using) = answered {
            self.trailers = using.line.take_trailers();
            using.session.process().connections.give_back(using.line);
            using.session.end(Ended::Answered);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(using) = self.using.take() {
            using.session.end(Ended::Left);
        }
    }
}
