//! Requests that got no answer, or not all of one, in the log: each with the name
//! that its client was told.
//!
//! Where all requests fail, not all of them are worth a line, and none is worth
//! waiting for the log: each app has a few lines a second.

use super::errand::{Begun, Errand};
use super::seat::Seat;
use crate::http1::date;

/// What became of a request whose client did not wait for its answer.
const CLIENT_GONE: (u16, &str) = (499, "client_gone");

impl Begun {
    /// Its client went away before it had all of an answer.
    #[cold]
    pub(super) fn is_gone(&self, seat: &Seat) {
        if let Ok(errand) = &self.errand {
            let (status, word) = CLIENT_GONE;
            errand.app.counts.refused(word);
            errand.complain(self, seat, status, word);
        }
    }

    /// The app did not say all of its answer.
    #[cold]
    pub(super) fn is_cut(&self, seat: &Seat, word: &str) {
        if let Ok(errand) = &self.errand {
            errand.complain(self, seat, 0, word);
        }
    }
}

impl Errand {
    /// Write a line about it, if there is room for one.
    #[cold]
    pub(super) fn complain(&self, begun: &Begun, seat: &Seat, status: u16, error: &str) {
        let Some(left_out) = self.app.log_rate.admit(date::now()) else {
            return;
        };
        let (app, request, client) = (&*self.app.name, &begun.id, &*seat.peer_text);
        let (method, path) = (&self.method, String::from_utf8_lossy(self.path()));
        if left_out > 0 {
            tracing::warn!(app, left_out, "more requests failed than are logged");
        }
        match status {
            0 => tracing::warn!(app, %request, client, error, "{method} {path}: cut off"),
            500.. => tracing::warn!(app, %request, client, status, error, "{method} {path}"),
            _ => tracing::info!(app, %request, client, status, error, "{method} {path}"),
        }
    }
}
