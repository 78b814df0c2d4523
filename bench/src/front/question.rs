//! What the load asks for, in words that `wrk` and `h2load` are both told.

/// What is asked again and again, and over how many connections.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) connections: usize,
    pub(super) path: &'static str,
    /// Bytes that are sent along.
    pub(super) body: usize,
    /// How answers may be compressed.
    pub(super) coding: Option<&'static str>,
    pub(super) wire: Wire,
}

/// How a request comes to the front.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Wire {
    Plain,
    Tls,
    /// HTTP/2 within TLS; the others are HTTP/1.1.
    Http2,
}

impl Question {
    /// The least that can be asked.
    pub(super) const fn small(connections: usize) -> Self {
        Self::path(connections, "/")
    }

    pub(super) const fn path(connections: usize, path: &'static str) -> Self {
        Self {
            connections,
            path,
            body: 0,
            coding: None,
            wire: Wire::Plain,
        }
    }
}
