//! One client's connection: where it is from, and what all its requests share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::certificates::ShownCertificate;
use crate::http1::fields::put;

/// One client's connection.
pub(super) struct ClientConn {
    pub(super) peer: SocketAddr,
    /// The address of the peer, as processes are told it.
    pub(super) peer_text: String,
    /// The peer's `X-Forwarded-*` fields are trusted.
    pub(super) is_trusted: bool,
    pub(super) is_tls: bool,
    /// The certificate that it was let in with, within TLS.
    pub(super) shown: Option<ShownCertificate>,
    /// Tells it to stay within TLS.
    pub(super) hsts: Option<Box<str>>,
    /// The port it came to, in words.
    pub(super) port: String,
    /// The forwarded fields for an untrusted peer, as bytes.
    pub(super) told: Vec<u8>,
    /// Requests that are being answered, where there may be several.
    in_flight: AtomicUsize,
}

impl ClientConn {
    pub(super) fn new(peer: SocketAddr, local_port: u16, is_tls: bool, is_trusted: bool) -> Self {
        let mut conn = Self {
            peer,
            peer_text: peer.ip().to_canonical().to_string(),
            is_trusted,
            is_tls,
            shown: None,
            hsts: None,
            port: local_port.to_string(),
            told: Vec::new(),
            in_flight: AtomicUsize::new(0),
        };
        put(&mut conn.told, "X-Forwarded-For", &conn.peer_text);
        let scheme = conn.scheme();
        put(&mut conn.told, "X-Forwarded-Proto", scheme);
        put(&mut conn.told, "X-Forwarded-Port", &conn.port);
        conn
    }

    /// How it came.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    pub(super) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
