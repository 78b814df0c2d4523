//! Opens the sockets that the server listens at, or takes those that it was passed.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};

use crate::inherited;

/// This many connections may wait to be accepted; the system may allow fewer
/// (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// Listen at this address.
pub fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    if let Some(listener) = inherited::tcp(address) {
        return TcpListener::from_std(listener);
    }
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that starts again does not wait for the last connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listen at this path.
pub fn unix(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}
