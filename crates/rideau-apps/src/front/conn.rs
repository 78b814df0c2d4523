//! One client's connection: where it is from, and what all its requests share.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use rideau_config::FrontConfig;
use tokio::net::TcpStream;

use super::certificates::ShownCertificate;
use crate::http1::fields::put;

/// The port of HTTP, for connections that came to none.
const HTTP: u16 = 80;

/// Where a connection is from, and the port it came to.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) port: u16,
    /// It came to a socket in the file system, which only trusted programs may use.
    is_unix: bool,
}

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

impl Ends {
    pub(super) fn of_tcp(stream: &TcpStream, peer: SocketAddr) -> Self {
        let port = stream.local_addr().map_or(0, |local| local.port());
        Self {
            peer,
            port,
            is_unix: false,
        }
    }

    /// A program of this machine.
    pub(super) fn of_unix() -> Self {
        Self {
            peer: (Ipv4Addr::LOCALHOST, 0).into(),
            port: HTTP,
            is_unix: true,
        }
    }

    /// A client for which a believed peer speaks, and where that client went.
    pub(super) const fn spoken_for(peer: SocketAddr, to: SocketAddr) -> Self {
        Self {
            peer,
            port: to.port(),
            is_unix: false,
        }
    }

    /// Whether the peer is believed if it speaks for others.
    pub(super) fn is_trusted(&self, config: &FrontConfig) -> bool {
        let address = self.peer.ip();
        self.is_unix || config.trust.iter().any(|network| network.has(address))
    }
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
