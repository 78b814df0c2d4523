//! Requests that got no answer, or not all of one, in the log: each with the name
//! that its client was told.
//!
//! Where all requests fail, not all of them are worth a line, and none is worth
//! waiting for the log: each app has a few lines a second.

use super::conn::ClientConn;
use super::request::{Begun, ProxyRequest};
use crate::http1::date;

/// The outcome of a request whose client left before its answer.
const CLIENT_GONE: (u16, &str) = (499, "client_gone");

/// What became of one whose client did not take its answer.
const CLIENT_SLOW: &str = "client_slow";

impl Begun {
    /// Its client went away before it had all of an answer.
    #[cold]
    pub(super) fn is_gone(&self, conn: &ClientConn) {
        if let Ok(proxy_request) = &self.proxy_request {
            let (status, word) = CLIENT_GONE;
            proxy_request.app.counts.refused(word);
            proxy_request.complain(self, conn, status, word);
        }
    }

    /// Its client took its answer too slowly.
    #[cold]
    pub(super) fn is_slow(&self, conn: &ClientConn) {
        if let Ok(proxy_request) = &self.proxy_request {
            proxy_request.app.counts.refused(CLIENT_SLOW);
            proxy_request.complain(self, conn, 0, CLIENT_SLOW);
        }
    }

    /// The app did not say all of its answer.
    #[cold]
    pub(super) fn is_cut(&self, conn: &ClientConn, word: &str) {
        if let Ok(proxy_request) = &self.proxy_request {
            proxy_request.complain(self, conn, 0, word);
        }
    }
}

impl ProxyRequest {
    /// Write a line about it, if there is room for one.
    #[cold]
    pub(super) fn complain(&self, begun: &Begun, conn: &ClientConn, status: u16, error: &str) {
        let Some(left_out) = self.app.log_rate.admit(date::now()) else {
            return;
        };
        let (app, request, client) = (&*self.app.name, &begun.id, &*conn.peer_text);
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
