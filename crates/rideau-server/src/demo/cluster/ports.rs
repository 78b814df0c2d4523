//! Ports of this machine that the processes of the demo can have.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Ports of this machine that no process uses. All at once, or the system might give the
/// same twice.
pub(super) fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// Whether a port of this machine is free.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
