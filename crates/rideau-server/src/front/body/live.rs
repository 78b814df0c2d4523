//! What a process sends, handed on as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use rideau_core::apps::Ended;

use super::Broken;
use crate::apps::Session;
use crate::front::connections::Line;

/// What a process sends, and the place that it takes meanwhile.
///
/// The place is given back as soon as the process has said all, and the
/// connection is kept if it is any good; if this is dropped before, the client
/// has left, and the connection is closed.
pub(in crate::front) struct Live {
    incoming: Incoming,
    /// None when the process has said all that it will.
    using: Option<Using>,
    is_broken: bool,
}

/// A process that is being used.
struct Using {
    line: Box<Line>,
    session: Session,
}

impl Live {
    pub(in crate::front) fn new(incoming: Incoming, line: Box<Line>, session: Session) -> Self {
        let mut live = Self {
            incoming,
            using: Some(Using { line, session }),
            is_broken: false,
        };
        if live.incoming.is_end_stream() {
            live.finish();
        }
        live
    }

    /// The process has said all that there was to say.
    pub(super) fn is_over(&self) -> bool {
        self.using.is_none() && !self.is_broken
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(using) = &mut self.using else {
            let broken = Broken("the app broke its answer off");
            return Poll::Ready(self.is_broken.then_some(Err(broken)));
        };
        // All that comes comes by the line, so nobody else need be woken.
        let mut nobody = Context::from_waker(Waker::noop());
        let incoming = &mut self.incoming;
        let frame = match Pin::new(&mut *incoming).poll_frame(&mut nobody) {
            Poll::Pending => {
                let _ = using.line.poll(context);
                Pin::new(incoming).poll_frame(&mut nobody)
            }
            frame => frame,
        };
        match frame {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!("an app broke its answer off: {error}");
                if let Some(using) = self.using.take() {
                    using.session.end(Ended::Broken);
                }
                self.is_broken = true;
                Poll::Ready(Some(Err(Broken("the app broke its answer off"))))
            }
        }
    }

    fn finish(&mut self) {
        if let Some(using) = self.using.take() {
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
