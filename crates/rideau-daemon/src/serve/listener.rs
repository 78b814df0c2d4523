//! Listens, and brings every connection that comes to an I/O thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::bind;
use rideau_apps::inherited;
use rideau_apps::{IoThreads, ListenOption, PassedListener, Role};
use rideau_config::{DeadPeer, Listen};
use rideau_process::panics;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::admission::{Admitted, Coming, Crowded, Refused, admit, crowded, enter, serve};

use crate::net::tls;
use crate::net::tls_files::SharedAcceptor;
use crate::redis::peer::{Proof, is_operator};
use crate::state::attempts::Origin;
use crate::state::daemon::Daemon;
use crate::state::reserve;

/// A place where the server listens.
pub(crate) enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// The same, for clients of Redis Cluster: they are told where names of other nodes are.
    Straight(TcpListener),
    /// An address and a port, within TLS.
    Tls(TlsListener),
    /// A socket in the file system.
    Unix(UnixListener, String),
    /// The same, for the operator alone.
    Control(UnixListener, String),
}

/// Listens for clients that speak TLS.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: SharedAcceptor,
    /// How long a client has to get in.
    within: Duration,
    /// It is for clients of Redis Cluster.
    is_straight: bool,
}

impl Listener {
    /// One for clients that speak TLS, or only for those of Redis Cluster. A client that has
    /// not said by then which user it is, is cut.
    pub(crate) fn tls(
        listener: TcpListener,
        acceptor: SharedAcceptor,
        within: Duration,
        is_straight: bool,
    ) -> Self {
        Self::Tls(TlsListener {
            listener,
            acceptor,
            within,
            is_straight,
        })
    }

    /// Listen at this place.
    ///
    /// # Errors
    ///
    /// If another process does, or it may not be.
    pub(crate) async fn bind(listen: &Listen, mode: u32) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::Tcp(bind::tcp(*address, Role::Redis)?)),
            Listen::Unix(path) => {
                let listener = bind::unix_for(path, mode).await?;
                Ok(Self::Unix(listener, path.display().to_string()))
            }
        }
    }

    /// Listen for the operator.
    pub(super) fn control(listener: UnixListener, path: &Path) -> Self {
        Self::Control(listener, path.display().to_string())
    }

    /// Where it listens, the port chosen by the system included.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener)
            | Self::Straight(listener)
            | Self::Tls(TlsListener { listener, .. }) => listener
                .local_addr()
                .map_or_else(|_| "?".into(), |address| address.to_string()),
            Self::Unix(_, path) | Self::Control(_, path) => format!("unix:{path}"),
        }
    }

    /// The port, if there is one.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener)
            | Self::Straight(listener)
            | Self::Tls(TlsListener { listener, .. }) => {
                listener.local_addr().ok().map(|address| address.port())
            }
            Self::Unix(..) | Self::Control(..) => None,
        }
    }

    /// The socket, for another server on this machine; `asked` is the address that an option
    /// names.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub(super) fn socket(&self, asked: Option<SocketAddr>) -> io::Result<PassedListener> {
        let socket = match self {
            Self::Tcp(listener)
            | Self::Straight(listener)
            | Self::Tls(TlsListener { listener, .. }) => listener.as_fd(),
            Self::Unix(listener, _) | Self::Control(listener, _) => listener.as_fd(),
        };
        let role = Role::Redis;
        let asked = asked.map(|address| ListenOption { address, role });
        inherited::of_listener(socket, &self.address(), asked)
    }

    /// Whether a supervisor opened it, and keeps it open when the server ends.
    pub(super) fn is_inherited(&self) -> bool {
        inherited::is_one(&self.address())
    }

    /// Serve every connection that comes on these I/O threads, for ever.
    pub(crate) async fn serve(self, daemon: Arc<Daemon>, io_threads: Arc<IoThreads>) {
        match self {
            Self::Tcp(listener) => serve_tcp(&listener, false, daemon, &io_threads).await,
            Self::Straight(listener) => serve_tcp(&listener, true, daemon, &io_threads).await,
            Self::Tls(listener) => listener.serve(daemon, &io_threads).await,
            Self::Unix(listener, path) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let accept = || accept_unix(&daemon, &io_threads, stream, &path);
                        let _ = panics::contain(accept);
                    }
                    Err(error) => rest(&error).await,
                }
            },
            Self::Control(listener, path) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let accept = || accept_control(&daemon, &io_threads, stream, &path);
                        let _ = panics::contain(accept);
                    }
                    Err(error) => rest(&error).await,
                }
            },
        }
    }
}

/// Serve every connection that comes; `is_straight` are those of clients of Redis Cluster.
async fn serve_tcp(
    listener: &TcpListener,
    is_straight: bool,
    daemon: Arc<Daemon>,
    io_threads: &IoThreads,
) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let accept = || accept_tcp(&daemon, io_threads, stream, address, is_straight);
                let _ = panics::contain(accept);
            }
            Err(error) => rest(&error).await,
        }
    }
}

impl TlsListener {
    /// Serve every connection that comes. The files count for new connections as soon as they
    /// are read again.
    async fn serve(self, daemon: Arc<Daemon>, io_threads: &IoThreads) {
        let handshake = |address| Handshake {
            acceptor: self.acceptor.now(),
            address,
            within: self.within,
            is_straight: self.is_straight,
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let (daemon, handshake) = (Arc::clone(&daemon), handshake(address));
                    give_tcp(io_threads, stream, move |stream| {
                        accept_tls(daemon, stream, handshake)
                    });
                }
                Err(error) => rest(&error).await,
            }
        }
    }
}

/// What a client that has connected still has to do.
struct Handshake {
    acceptor: TlsAcceptor,
    address: SocketAddr,
    within: Duration,
    is_straight: bool,
}

/// Give a connection to an I/O thread, whose own runtime says when there is more.
fn give_tcp<F>(
    io_threads: &IoThreads,
    stream: TcpStream,
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    match stream.into_std() {
        Ok(stream) => io_threads.spawn(|| async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => not_given(&error),
            }
        }),
        Err(error) => not_given(&error),
    }
}

/// The same for a connection within the system.
fn give_unix<F>(
    io_threads: &IoThreads,
    stream: UnixStream,
    serve: impl FnOnce(UnixStream) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    match stream.into_std() {
        Ok(stream) => io_threads.spawn(|| async move {
            match UnixStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => not_given(&error),
            }
        }),
        Err(error) => not_given(&error),
    }
}

fn not_given(error: &io::Error) {
    tracing::warn!("cannot serve a connection: {error}");
}

/// Out of files, most likely: the connections that are there go on, and those that come
/// wait in the system's queue.
async fn rest(error: &io::Error) {
    tracing::warn!("cannot accept a connection: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn accept_tcp(
    daemon: &Arc<Daemon>,
    io_threads: &IoThreads,
    stream: TcpStream,
    address: SocketAddr,
    is_straight: bool,
) {
    let local = prepare(&stream, daemon);
    let coming = Coming {
        address: address.to_string(),
        local,
        origin: Origin::of(address.ip()),
        proof: Proof::None,
        place: None,
        is_straight,
        is_tls: false,
    };
    let admitted = admit(daemon, coming);
    let daemon = Arc::clone(daemon);
    give_tcp(io_threads, stream, |stream| serve(stream, daemon, admitted));
}

/// Have the system send at once, and notice which clients are gone. Says where it came to.
fn prepare(stream: &TcpStream, daemon: &Daemon) -> String {
    let _ = stream.set_nodelay(true);
    watch(stream, daemon.config.load().server.dead_peer);
    stream
        .local_addr()
        .map_or_else(|_| String::new(), |local| local.to_string())
}

/// A client with a certificate is the user that it names.
async fn accept_tls(daemon: Arc<Daemon>, stream: TcpStream, handshake: Handshake) {
    let Handshake {
        acceptor,
        address,
        within,
        is_straight,
    } = handshake;
    let local = prepare(&stream, &daemon);
    let origin = Origin::of(address.ip());
    // A handshake is work, so it counts as a connection that has not logged in. Beyond
    // the limit of its address it has a place of the reserve: it may be a health check,
    // and without the handshake it cannot be told why it has to go.
    let (place, reserved) = match enter(&daemon, origin) {
        Ok(place) => (place, None),
        Err(Crowded) => match daemon.reserve.take() {
            Some(reserved) => (None, Some(reserved)),
            None => return drop(crowded(&daemon, origin)),
        },
    };
    let within = match reserved {
        Some(_) => within.min(reserve::WITHIN),
        None => within,
    };
    let shaken = tokio::time::timeout(within, acceptor.accept(stream)).await;
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        _ if reserved.is_some() => return drop(crowded(&daemon, origin)),
        Ok(Err(error)) => return tracing::info!(%address, "no TLS: {error}"),
        Err(_) => return tracing::info!(%address, "no TLS within {within:?}"),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let name = certificates.and_then(|all| tls::common_name(all.first()?));
    let proof = name.map_or(Proof::None, Proof::Certificate);
    let coming = Coming {
        address: address.to_string(),
        local,
        origin,
        proof,
        place,
        is_straight,
        is_tls: true,
    };
    let admitted = admit(&daemon, coming);
    drop(reserved);
    serve(stream, daemon, admitted).await;
}

/// Notice a peer that went without a word, a cable that was pulled.
fn watch(stream: &TcpStream, dead_peer: DeadPeer) {
    let DeadPeer {
        idle,
        every,
        probes,
    } = dead_peer;
    let keepalive = TcpKeepalive::new()
        .with_time(idle)
        .with_interval(every)
        .with_retries(probes);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(idle + every * probes));
}

fn accept_unix(daemon: &Arc<Daemon>, io_threads: &IoThreads, stream: UnixStream, path: &str) {
    let (uid, address) = peer(&stream, path);
    let proof = uid.map_or(Proof::None, Proof::Uid);
    let admitted = admit(daemon, Coming::by_unix(uid, address, path, proof));
    let daemon = Arc::clone(daemon);
    give_unix(io_threads, stream, |stream| serve(stream, daemon, admitted));
}

/// The mode of the socket keeps others out. If an operator opens it to them all the
/// same, they are told.
fn accept_control(daemon: &Arc<Daemon>, io_threads: &IoThreads, stream: UnixStream, path: &str) {
    #[cfg(test)]
    tests::panic_once(path);
    let (uid, address) = peer(&stream, path);
    let admitted = match uid {
        Some(uid) if is_operator(uid) => admit(
            daemon,
            Coming::by_unix(Some(uid), address, path, Proof::Control),
        ),
        _ => Admitted(Err(Refused::NotOperator)),
    };
    let daemon = Arc::clone(daemon);
    give_unix(io_threads, stream, |stream| serve(stream, daemon, admitted));
}

/// The account at the other end of a Unix socket, and how it is shown.
fn peer(stream: &UnixStream, path: &str) -> (Option<u32>, String) {
    let peer = stream.peer_cred().ok();
    let pid = peer.and_then(|peer| peer.pid()).unwrap_or(0);
    let address = format!("unix:{path} pid={pid}").replace(' ', ",");
    (peer.map(|peer| peer.uid()), address)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use rideau_config::Config;

    /// The first that comes to a place of this name meets a panic.
    const PLANTED: &str = "planted.sock";

    pub(super) fn panic_once(path: &str) {
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        let is_it = path.ends_with(PLANTED) && !IS_DONE.swap(true, Ordering::Relaxed);
        assert!(!is_it, "planted");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_costs_one_connection_of_the_operator() {
        let folder = std::env::temp_dir().join(format!("rideau-accept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(PLANTED);
        let config = Config::parse("", "test.toml", &|_| None).unwrap();
        let daemon = Daemon::new(config, crate::redis::commands::NAMES).unwrap();
        let listener = Listener::control(UnixListener::bind(&path).unwrap(), &path);
        let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
        tokio::spawn(listener.serve(daemon, io_threads));
        let mut said = Vec::new();
        for _ in 0..2 {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            // The first may be gone before it has said anything.
            let _ = stream.write_all(b"PING\r\nQUIT\r\n").await;
            said.clear();
            let _ = stream.read_to_end(&mut said).await;
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(said, b"+PONG\r\n+OK\r\n");
    }
}
