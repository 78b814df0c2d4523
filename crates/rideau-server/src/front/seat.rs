//! One client's connection: who it is, and what all its requests share.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use hyper::header::HeaderValue;

use super::gate::Trouble;

/// One client's connection.
pub(super) struct Seat {
    pub(super) peer: SocketAddr,
    /// The address of the peer, as processes are told it.
    pub(super) peer_text: HeaderValue,
    /// Who the peer says it speaks for is believed.
    pub(super) is_trusted: bool,
    pub(super) is_tls: bool,
    /// The port it came to, in words.
    pub(super) port: HeaderValue,
    refused: OnceLock<Trouble>,
    turn: AtomicU8,
    /// Requests that are being answered.
    in_flight: AtomicUsize,
}

/// What a connection turns into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Turn {
    /// More requests follow.
    Plain,
    /// It is not known yet.
    Undecided,
    /// Something that is no HTTP.
    Tunnel,
}

impl Seat {
    pub(super) fn new(peer: SocketAddr, local_port: u16, is_tls: bool, is_trusted: bool) -> Self {
        let text = |text: String| HeaderValue::try_from(text).expect("addresses are plain text");
        Self {
            peer,
            peer_text: text(peer.ip().to_canonical().to_string()),
            is_trusted,
            is_tls,
            port: text(local_port.to_string()),
            refused: OnceLock::new(),
            turn: AtomicU8::new(Turn::Plain as u8),
            in_flight: AtomicUsize::new(0),
        }
    }

    pub(super) fn refuse(&self, trouble: Trouble) {
        let _ = self.refused.set(trouble);
    }

    /// Why its last request was not let in.
    pub(super) fn refused(&self) -> Option<Trouble> {
        self.refused.get().copied()
    }

    pub(super) fn turn(&self, turn: Turn) {
        self.turn.store(turn as u8, Ordering::Release);
    }

    pub(super) fn decision(&self) -> Turn {
        match self.turn.load(Ordering::Acquire) {
            0 => Turn::Plain,
            1 => Turn::Undecided,
            _ => Turn::Tunnel,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.decision() == Turn::Tunnel
    }

    pub(super) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
