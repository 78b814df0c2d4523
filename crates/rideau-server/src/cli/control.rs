//! How the commands that control a server reach it: over its control socket, where
//! this account has one, and else as all others do.

use rideau_daemon::control;

use super::Manner;
use crate::wire::{Server, Wire, WireFault};

/// Connect to the server that is meant. A user who has named none and finds none at
/// the usual port gets the only one that this account can control.
pub(super) async fn connect(manner: &Manner, name: &str) -> Result<Wire, WireFault> {
    let server = &manner.server;
    let socket = server.open_port().and_then(control::find);
    if let Some(socket) = socket
        // A killed server leaves its socket behind.
        && let Ok(wire) = Wire::connect(&Server::at_socket(socket), name).await
    {
        return Ok(wire);
    }
    match Wire::connect(server, name).await {
        Err(WireFault::Unreachable { server: at, error }) if server.is_usual() => {
            let mut others = Vec::new();
            for socket in control::find_all() {
                let other = Server::at_socket(socket);
                if let Ok(wire) = Wire::connect(&other, name).await {
                    others.push((other, wire));
                }
            }
            match others.len() {
                0 => Err(WireFault::Unreachable { server: at, error }),
                1 => Ok(others.remove(0).1),
                _ => {
                    let servers = others.into_iter().map(|(server, _)| server);
                    Err(WireFault::Several(servers.collect()))
                }
            }
        }
        connected => connected,
    }
}
