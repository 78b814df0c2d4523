//! A request that found a place and an open connection at once, as most do.
//!
//! It is sent before anything is waited for, and its answer mostly comes as a
//! whole. So there is little to keep in mind meanwhile: a place and a connection.
//! What many connections keep in mind has to fit near the processor. A request that
//! does not find it so goes the longer way of [`forward`](super::forward), from as
//! far as it has come.

use std::time::Instant;

use rideau_core::apps::Ended;

use super::forward::{Start, Visit};
use super::request::ProxyRequest;
use super::upload::Upload;
use super::upstream_conn::{Lost, UpstreamConn};
use crate::apps::{Asking, Session};
use crate::http1::message_io::MessageIo;

/// A request that was sent, and waits for its answer.
pub(super) struct FastPath {
    pub(super) line: Box<UpstreamConn>,
    pub(super) session: Session,
    /// Since when it has its place.
    pub(super) began: Instant,
}

impl ProxyRequest {
    /// Send a request without a body, if that can be done at once.
    ///
    /// # Errors
    ///
    /// If it cannot, how far it has come.
    pub(super) fn fast_path<'a>(&'a self, visit: &Visit<'a>) -> Result<FastPath, Box<Start<'a>>> {
        if self.config.http.request_timeout.is_some() || self.by_rules.room.is_some() {
            // The longer way minds the time, and the line of a waiting room.
            return Err(Box::new(Start::New));
        }
        let session = match visit.front.apps.begin_ask(&self.app, &self.wanted(None)) {
            Asking::Granted(session) => self.listed(visit, session),
            Asking::Waits(waiting) => return Err(Box::new(Start::Waits(waiting))),
            Asking::Refused(refused) => return Err(Box::new(Start::Refused(refused))),
        };
        let began = session.began(self.came.0);
        let Some(mut line) = self.reuse(&session.process().connections, &Upload::Empty) else {
            return Err(Box::new(Start::Placed(session, began)));
        };
        line.begin(self.asked(visit.early).head, Upload::Empty);
        Ok(FastPath {
            line,
            session,
            began,
        })
    }
}

impl FastPath {
    /// The next step for a request whose connection was closed.
    pub(super) fn lost<'a>(self, lost: Lost) -> Start<'a> {
        Start::Lost(self.session, self.began, lost)
    }

    /// Hand the rest of an answer on that is all here. The process is free from now on.
    pub(super) fn finish(mut self, into: &mut MessageIo, now: Instant) {
        self.line.pour(into);
        if let Some(wire) = self.line.into_idle() {
            self.session.process().connections.give_back(wire, now);
        }
        self.session.end(Ended::Answered);
    }
}
