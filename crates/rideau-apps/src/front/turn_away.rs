//! What a connection is told that is not served.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ids::Id;
use crate::http1::stream::Stream;

/// The answer to a connection that is not served.
pub(super) struct TurnAway {
    status: &'static str,
    word: &'static str,
    body: &'static str,
}

pub(super) const FULL: TurnAway = TurnAway {
    status: "503 Service Unavailable",
    word: "connections_max",
    body: "The server has no room for another connection. Please try again soon.\n",
};
pub(super) const CLIENT_FULL: TurnAway = TurnAway {
    status: "429 Too Many Requests",
    word: "client_connections_max",
    body: "Your address has too many connections. Please try again soon.\n",
};
pub(super) const NO_PROXY_HEADER: TurnAway = TurnAway {
    status: "400 Bad Request",
    word: "proxy_protocol",
    body: "A peer in `front.trust` has to begin with a PROXY header here, version 1 or 2, as \
           `front.proxy_protocol` is on.\n",
};

impl TurnAway {
    /// Say so, and let the client read that before the end.
    pub(super) async fn tell(&self, mut stream: Stream, id: Id) {
        let Self { status, word, body } = self;
        let retry = match status.starts_with("400") {
            true => "",
            false => "Retry-After: 1\r\n",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{retry}\
             X-Rideau-Error: {word}\r\nX-Request-Id: {id}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let told = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await?;
            let mut rest = [0; 1024];
            while stream.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
    }
}
