//! Requests that got no answer, or not all of one, in the log: each with the name
//! that its client was told.
//!
//! Where all requests fail, not all of them are worth a line, and none is worth
//! waiting for the log: each app has a few lines a second.

use hyper::Method;

use super::conn::ClientConn;
use super::ids::Id;
use super::request::{Begun, ProxyRequest};
use crate::apps::App;
use crate::http1::date;

/// The outcome of a request whose client left before its answer.
const CLIENT_GONE: (u16, &str) = (499, "client_gone");

/// What became of one whose client did not take its answer.
const CLIENT_SLOW: &str = "client_slow";

impl Begun {
    /// Its client went away before it had all of an answer.
    #[cold]
    pub(super) fn is_gone(&self, conn: &ClientConn) {
        let (status, word) = CLIENT_GONE;
        self.note_broken(status, word);
        if let Ok(proxy_request) = &self.proxy_request {
            proxy_request.app.counts.refused(word);
            proxy_request.complain(self, conn, status, word);
        }
    }

    /// Its client took its answer too slowly.
    #[cold]
    pub(super) fn is_slow(&self, conn: &ClientConn) {
        self.note_broken(CLIENT_GONE.0, CLIENT_SLOW);
        if let Ok(proxy_request) = &self.proxy_request {
            proxy_request.app.counts.refused(CLIENT_SLOW);
            proxy_request.complain(self, conn, 0, CLIENT_SLOW);
        }
    }

    /// The app did not say all of its answer.
    #[cold]
    pub(super) fn is_cut(&self, conn: &ClientConn, word: &'static str) {
        self.note_broken(502, word);
        if let Ok(proxy_request) = &self.proxy_request {
            proxy_request.complain(self, conn, 0, word);
        }
    }

    /// A rule of the front refused it.
    #[cold]
    pub(super) fn is_refused(&self, conn: &ClientConn, status: u16, word: &'static str) {
        if let Some(refused) = &self.refused {
            refused.app.counts.refused(word);
            let what = (&refused.method, &*refused.path);
            complain(
                &refused.app,
                what,
                (&self.id, &*conn.peer_text),
                (status, word),
            );
        }
    }

    fn note_broken(&self, status: u16, word: &'static str) {
        if let Some(entry) = &self.log {
            entry.broke(status, word);
        }
    }
}

impl ProxyRequest {
    /// Write a line about it, if there is room for one.
    #[cold]
    pub(super) fn complain(&self, begun: &Begun, conn: &ClientConn, status: u16, error: &str) {
        let what = (&self.method, self.path());
        complain(
            &self.app,
            what,
            (&begun.id, &*conn.peer_text),
            (status, error),
        );
    }
}

/// Write a line about a request for an app, by its method and path, its id and client, and by
/// what became of it, if there is room for one.
fn complain(
    app: &App,
    (method, path): (&Method, &[u8]),
    (request, client): (&Id, &str),
    (status, error): (u16, &str),
) {
    if let Some(left_out) = app.log_rate.admit(date::now()) {
        let (app, path) = (&*app.name, String::from_utf8_lossy(path));
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
