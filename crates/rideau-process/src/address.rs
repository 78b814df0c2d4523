//! Where a child can be reached: what the holder of a member is given.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a child can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// At the path of a Unix socket.
    Socket(PathBuf),
    /// At a port of this machine.
    Port(SocketAddr),
    /// At whatever it said of itself.
    Said(String),
}

impl Address {
    /// Parses the address that a child printed, as far as possible.
    pub(super) fn of(text: &str) -> Self {
        if text.starts_with('/') {
            return Self::Socket(text.into());
        }
        match text.parse() {
            Ok(address) => Self::Port(address),
            Err(_) => Self::Said(text.to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Port(address) => address.fmt(f),
            Self::Said(text) => text.fmt(f),
        }
    }
}
