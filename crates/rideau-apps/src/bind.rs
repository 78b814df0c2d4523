//! Opens the sockets that the server listens at, or takes those that it was passed.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket, UnixStream};

use crate::inherited::{self, Role};

/// This many connections may wait to be accepted; the system may allow fewer
/// (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// Listen at this address, for clients of this kind.
pub fn tcp(address: SocketAddr, role: Role) -> io::Result<TcpListener> {
    if let Some(listener) = inherited::tcp(address, role) {
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

/// Listen at this path for those who may write to a file of this mode. A socket that was
/// passed has the mode that the supervisor gave it.
pub async fn unix_for(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if let Some(listener) = inherited::unix(path) {
        return UnixListener::from_std(listener);
    }
    if is_left(path).await {
        fs::remove_file(path)?;
    }
    let listener = unix(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

/// Whether this is a socket at which no process answers: one that was killed left it.
async fn is_left(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    let is_socket = found.is_ok_and(|found| found.file_type().is_socket());
    let connected = UnixStream::connect(path).await;
    let is_refused = connected.is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused);
    is_socket && is_refused
}
