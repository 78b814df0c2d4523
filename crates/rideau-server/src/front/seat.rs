//! One client's connection: who it is, and what all its requests share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One client's connection.
pub(super) struct Seat {
    pub(super) peer: SocketAddr,
    /// The address of the peer, as processes are told it.
    pub(super) peer_text: String,
    /// Who the peer says it speaks for is believed.
    pub(super) is_trusted: bool,
    pub(super) is_tls: bool,
    /// The port it came to, in words.
    pub(super) port: String,
    /// Requests that are being answered, where there may be several.
    in_flight: AtomicUsize,
}

impl Seat {
    pub(super) fn new(peer: SocketAddr, local_port: u16, is_tls: bool, is_trusted: bool) -> Self {
        Self {
            peer,
            peer_text: peer.ip().to_canonical().to_string(),
            is_trusted,
            is_tls,
            port: local_port.to_string(),
            in_flight: AtomicUsize::new(0),
        }
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
