//! Opens the places where clients come, or takes those of the server before this one.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rideau_apps::{FrontListener, IoThreads, PassedListener, Role, Tls, bind};
use rideau_config::{Config, FrontListen, Listen, Server};
use rustix::io::Errno;

use super::HANDSHAKE_MAX;
use super::cluster::StraightListeners;
use super::listener::Listener;
use super::unheard::unheard;
use crate::admin::AdminListener;
use crate::net::tls_files::SharedAcceptor;
use crate::state::daemon::Daemon;
use crate::state::files::Files;

/// Listen for clients that speak the Redis protocol. Says where that is.
pub(super) async fn listen_redis(
    server: &Server,
    acceptor: Option<&SharedAcceptor>,
    straight: StraightListeners,
) -> io::Result<RedisListeners> {
    let mut all = RedisListeners::default();
    for listen in &server.listen {
        let listener = match Listener::bind(listen, server.socket_mode).await {
            Ok(listener) => listener,
            Err(error) if is_left_out(server, listen, &error) => {
                tracing::info!("this machine has no IPv6: the server does not listen at {listen}");
                continue;
            }
            Err(error) => return Err(unheard(listen, "server.listen or --listen", &error)),
        };
        let asked = match listen {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        };
        all.add("", listener, asked)?;
    }
    if let Some(acceptor) = acceptor {
        for address in &server.tls_listen {
            let listener = bind::tcp(*address, Role::Redis)
                .map_err(|error| unheard(address, "server.tls_listen", &error))?;
            let listener = Listener::tls(listener, acceptor.clone(), HANDSHAKE_MAX, false);
            all.add("tls:", listener, Some(*address))?;
        }
    }
    if let Some(listener) = straight.plain {
        all.add("straight:", Listener::Straight(listener), None)?;
    }
    if let Some((listener, acceptor)) = straight.tls.zip(acceptor) {
        let listener = Listener::tls(listener, acceptor.clone(), HANDSHAKE_MAX, true);
        all.add("straight-tls:", listener, None)?;
    }
    Ok(all)
}

/// Where clients come that speak the Redis protocol.
#[derive(Default)]
pub(super) struct RedisListeners {
    pub(super) all: Vec<Listener>,
    /// As they are shown.
    pub(super) addresses: Vec<String>,
    /// The same sockets, for another server on this machine.
    pub(super) sockets: Vec<PassedListener>,
}

impl RedisListeners {
    fn add(&mut self, kind: &str, listener: Listener, asked: Option<SocketAddr>) -> io::Result<()> {
        self.addresses.push(format!("{kind}{}", listener.address()));
        self.sockets.push(listener.socket(asked)?);
        self.all.push(listener);
        Ok(())
    }
}

/// Whether it is no fault that the server cannot listen there: many machines have no
/// IPv6, and what is at the same port of 127.0.0.1 serves the same clients.
fn is_left_out(server: &Server, listen: &Listen, error: &io::Error) -> bool {
    let Listen::Tcp(address) = listen else {
        return false;
    };
    let of_v4 = Listen::Tcp((Ipv4Addr::LOCALHOST, address.port()).into());
    let is_missing = error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    is_missing && address.ip() == Ipv6Addr::LOCALHOST && server.listen.contains(&of_v4)
}

/// The page with the operator's token in its address.
pub(super) fn link(daemon: &Daemon, config: &Config, page: Option<&String>) -> Option<String> {
    let token = daemon.operator.token()?;
    let page = page.filter(|_| config.users.is_empty())?;
    Some(format!("{page}/?token={token}"))
}

/// Listen for clients that want applications. Says where that is.
pub(super) async fn listen_front(
    config: &Config,
    files: &Files,
    tls: Option<Tls>,
    io_threads: Arc<IoThreads>,
) -> io::Result<(FrontListener, Vec<String>)> {
    let mut front = FrontListener::default();
    front.use_io_threads(io_threads);
    front.limit(files.share(config).front);
    let mut places = Vec::new();
    for place in &config.front.listen {
        let bound = listen_for_apps(&mut front, place, config.server.socket_mode).await;
        places.extend(bound.map_err(|error| unheard(place, "front.listen", &error))?);
    }
    if let Some(tls) = tls {
        for address in &config.front.tls_listen {
            let bound = front.listen(*address, Some(tls.clone())).await;
            let bound = bound.map_err(|error| unheard(address, "front.tls_listen", &error))?;
            places.push(format!("https://{bound}"));
        }
    }
    Ok((front, places))
}

/// Listen at one place of the front; several sockets may have the same name. Says where they are.
async fn listen_for_apps(
    front: &mut FrontListener,
    place: &FrontListen,
    mode: u32,
) -> io::Result<Vec<String>> {
    match place {
        FrontListen::At(Listen::Tcp(address)) => {
            let bound = front.listen(*address, None).await?;
            Ok(vec![format!("http://{bound}")])
        }
        FrontListen::At(Listen::Unix(path)) => {
            front.listen_unix(path, mode).await?;
            Ok(vec![format!("unix:{}", path.display())])
        }
        FrontListen::Passed(name) => {
            let bound = front.listen_passed(name)?.into_iter();
            Ok(bound
                .map(|place| match place.starts_with("unix:") {
                    true => place,
                    false => format!("http://{place}"),
                })
                .collect())
        }
    }
}

/// Listen for HTTP where the config says. Says where that is.
pub(super) async fn listen_http(
    server: &Server,
    tls: Option<SharedAcceptor>,
) -> io::Result<(AdminListener, Vec<String>)> {
    let mut admin = AdminListener::default();
    let mut places = Vec::new();
    let secure = server.tls_admin.filter(|_| tls.is_some());
    for (key, address, tls) in [
        ("server.admin or --admin", server.admin, None),
        ("server.tls_admin", secure, tls),
    ] {
        let Some(address) = address else {
            continue;
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bound = admin.listen(address, tls).await;
        let bound = bound.map_err(|error| unheard(address, key, &error))?;
        places.push(format!("{scheme}://{bound}"));
    }
    Ok((admin, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_second_loopback_may_be_missing() {
        let missing = [
            io::Error::from(io::ErrorKind::AddrNotAvailable),
            io::Error::from(Errno::AFNOSUPPORT),
        ];
        let at = |places: &[&str]| Server {
            listen: places
                .iter()
                .map(|place| Listen::Tcp(place.parse().unwrap()))
                .collect(),
            ..Server::default()
        };
        let both = at(&["127.0.0.1:1", "[::1]:1"]);
        for error in &missing {
            assert!(is_left_out(&both, &both.listen[1], error), "{error}");
            assert!(!is_left_out(&both, &both.listen[0], error), "{error}");
            for places in [&["[::1]:1"][..], &["127.0.0.1:2", "[::1]:1"]] {
                let server = at(places);
                let last = server.listen.last().unwrap();
                assert!(!is_left_out(&server, last, error), "{places:?}");
            }
        }
        let taken = io::Error::from(io::ErrorKind::AddrInUse);
        assert!(!is_left_out(&both, &both.listen[1], &taken));
    }
}
