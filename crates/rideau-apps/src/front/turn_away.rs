//! What a connection is told that is not served.

use super::ids::Id;
use crate::http1::stream::Stream;
use crate::last_answer::answer_and_close;

/// The answer to a connection that is not served.
pub(super) struct TurnAway {
    status: &'static str,
    word: &'static str,
    body: &'static str,
    /// When to try again, as a field.
    retry: &'static str,
}

const SOON: &str = "Retry-After: 1\r\n";

pub(super) const FULL: TurnAway = TurnAway {
    status: "503 Service Unavailable",
    word: "connections_max",
    body: "The server has no room for another connection. Please try again soon.\n",
    retry: SOON,
};
pub(super) const CLIENT_FULL: TurnAway = TurnAway {
    status: "429 Too Many Requests",
    word: "client_connections_max",
    body: "Your address has too many connections. Please try again soon.\n",
    retry: SOON,
};
pub(super) const NO_PROXY_HEADER: TurnAway = TurnAway {
    status: "400 Bad Request",
    word: "proxy_protocol",
    body: "A trusted peer has to begin with a PROXY header here, version 1 or 2, as \
           `front.proxy_protocol` is on.\n",
    retry: "",
};

impl TurnAway {
    /// Say so.
    pub(super) async fn tell(&self, stream: Stream, id: Id) {
        let Self {
            status,
            word,
            body,
            retry,
        } = self;
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{retry}\
             X-Rideau-Error: {word}\r\nX-Request-Id: {id}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        answer_and_close(stream, answer.as_bytes()).await;
    }
}
