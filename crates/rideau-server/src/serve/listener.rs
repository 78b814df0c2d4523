//! Listens, and brings whoever comes to a lane.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::{renewed, reserve};
use crate::attempts::Origin;
use crate::bind;
use crate::client::{Client, Replies};
use crate::clients::ClientCard;
use crate::config::{DeadPeer, Listen, User};
use crate::connection;
use crate::daemon::Daemon;
use crate::held_back::HeldBack;
use crate::holdings::Card;
use crate::lanes::Lanes;
use crate::login::{self, Proof};
use crate::logins::LoginPlace;
use crate::outbox::Outbox;
use crate::panics;
use crate::quota::{Counted, Quota};
use crate::resp::Protocol;
use crate::timing::Batch;
use crate::tls;
use crate::watch::Watch;

/// A place where the server listens.
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// An address and a port, within TLS, and how long a client has to get in.
    Tls(TcpListener, TlsAcceptor, Duration),
    /// A socket in the file system.
    Unix(UnixListener, String),
    /// The same, for the operator alone.
    Control(UnixListener, String),
}

impl Listener {
    /// Listen at this address, within TLS. A client that has not said by then
    /// who it is, is cut.
    ///
    /// # Errors
    ///
    /// If somebody else does, or it may not be.
    pub async fn bind_tls(
        address: SocketAddr,
        acceptor: TlsAcceptor,
        within: Duration,
    ) -> io::Result<Self> {
        Ok(Self::Tls(bind::tcp(address)?, acceptor, within))
    }

    /// Listen at this place.
    ///
    /// # Errors
    ///
    /// If somebody else does, or it may not be.
    pub async fn bind(listen: &Listen, mode: u32) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::Tcp(bind::tcp(*address)?)),
            Listen::Unix(path) => bind_unix(path, mode).await,
        }
    }

    /// Listen for the operator.
    pub(super) fn control(listener: UnixListener, path: &Path) -> Self {
        Self::Control(listener, path.display().to_string())
    }

    /// Where it listens, the port chosen by the system included.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, ..) => listener
                .local_addr()
                .map_or_else(|_| "?".into(), |address| address.to_string()),
            Self::Unix(_, path) | Self::Control(_, path) => format!("unix:{path}"),
        }
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, ..) => {
                listener.local_addr().ok().map(|address| address.port())
            }
            Self::Unix(..) | Self::Control(..) => None,
        }
    }

    /// Serve whoever comes on these lanes, for ever.
    pub async fn serve(self, daemon: Arc<Daemon>, lanes: Arc<Lanes>) {
        match self {
            Self::Tcp(listener) => loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let accept = || accept_tcp(&daemon, &lanes, stream, address);
                        let _ = panics::contain(accept);
                    }
                    Err(error) => rest(&error).await,
                }
            },
            Self::Tls(listener, acceptor, within) => {
                serve_tls(&listener, acceptor, within, daemon, &lanes).await;
            }
            Self::Unix(listener, path) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let accept = || accept_unix(&daemon, &lanes, stream, &path);
                        let _ = panics::contain(accept);
                    }
                    Err(error) => rest(&error).await,
                }
            },
            Self::Control(listener, path) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let accept = || accept_control(&daemon, &lanes, stream, &path);
                        let _ = panics::contain(accept);
                    }
                    Err(error) => rest(&error).await,
                }
            },
        }
    }
}

/// Serve whoever comes within TLS. The files count for new connections as soon
/// as they are read again.
async fn serve_tls(
    listener: &TcpListener,
    mut acceptor: TlsAcceptor,
    within: Duration,
    daemon: Arc<Daemon>,
    lanes: &Lanes,
) {
    let mut generation = daemon.settings.generation();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if generation != daemon.settings.generation() {
                    generation = daemon.settings.generation();
                    let new = panics::contain(|| renewed(&daemon)).unwrap_or(None);
                    acceptor = new.unwrap_or(acceptor);
                }
                let (daemon, acceptor) = (Arc::clone(&daemon), acceptor.clone());
                give_tcp(lanes, stream, move |stream| {
                    accept_tls(daemon, acceptor, stream, address, within)
                });
            }
            Err(error) => rest(&error).await,
        }
    }
}

/// Give a connection to a lane, whose own runtime says when there is more.
fn give_tcp<F>(
    lanes: &Lanes,
    stream: TcpStream,
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    match stream.into_std() {
        Ok(stream) => lanes.spawn(|| async move {
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
    lanes: &Lanes,
    stream: UnixStream,
    serve: impl FnOnce(UnixStream) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    match stream.into_std() {
        Ok(stream) => lanes.spawn(|| async move {
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

/// Out of files, most likely: whoever is there goes on, and those who come wait
/// in the system's queue.
async fn rest(error: &io::Error) {
    tracing::warn!("cannot accept a connection: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    use std::os::unix::fs::PermissionsExt;
    // A socket that nobody answers at was left by one that was killed.
    if path.exists() && UnixStream::connect(path).await.is_err() {
        fs::remove_file(path)?;
    }
    let listener = bind::unix(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(Listener::Unix(listener, path.display().to_string()))
}

fn accept_tcp(daemon: &Arc<Daemon>, lanes: &Lanes, stream: TcpStream, address: SocketAddr) {
    let local = prepare(&stream, daemon);
    let coming = Coming {
        address: address.to_string(),
        local,
        origin: Origin::of(address.ip()),
        proof: Proof::None,
        place: None,
    };
    let admitted = admit(daemon, coming);
    let daemon = Arc::clone(daemon);
    give_tcp(lanes, stream, |stream| serve(stream, daemon, admitted));
}

/// Have the system send at once, and notice who is gone. Says where it came to.
fn prepare(stream: &TcpStream, daemon: &Daemon) -> String {
    let _ = stream.set_nodelay(true);
    watch(stream, daemon.config.load().server.dead_peer);
    stream
        .local_addr()
        .map_or_else(|_| String::new(), |local| local.to_string())
}

/// Whoever has a certificate is the user that it names.
async fn accept_tls(
    daemon: Arc<Daemon>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    within: Duration,
) {
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

fn accept_unix(daemon: &Arc<Daemon>, lanes: &Lanes, stream: UnixStream, path: &str) {
    let (uid, address) = peer(&stream, path);
    let proof = uid.map_or(Proof::None, Proof::Uid);
    let admitted = admit(daemon, Coming::by_unix(uid, address, path, proof));
    let daemon = Arc::clone(daemon);
    give_unix(lanes, stream, |stream| serve(stream, daemon, admitted));
}

/// A connection that wants to come in.
struct Coming {
    address: String,
    local: String,
    origin: Origin,
    proof: Proof,
    /// It is counted among those that have not logged in.
    place: Option<Arc<LoginPlace>>,
}

impl Coming {
    fn by_unix(uid: Option<u32>, address: String, path: &str, proof: Proof) -> Self {
        Self {
            address,
            local: path.into(),
            origin: uid.map_or(Origin::Unknown, Origin::User),
            proof,
            place: None,
        }
    }
}

/// Why a connection does not come in.
enum Refused {
    /// There are too many. It may still ask how we are.
    Full(String),
    /// Nobody comes in any more.
    Stopping,
    /// It is somebody else's socket.
    NotOperator,
}

/// The mode of the socket keeps others out. If somebody opens it to them all the
/// same, they are told.
fn accept_control(daemon: &Arc<Daemon>, lanes: &Lanes, stream: UnixStream, path: &str) {
    #[cfg(test)]
    tests::panic_once(path);
    let (uid, address) = peer(&stream, path);
    let admitted = match uid {
        Some(uid) if login::is_operator(uid) => admit(
            daemon,
            Coming::by_unix(Some(uid), address, path, Proof::Control),
        ),
        _ => Admitted(Err(Refused::NotOperator)),
    };
    let daemon = Arc::clone(daemon);
    give_unix(lanes, stream, |stream| serve(stream, daemon, admitted));
}

/// Whose account is at the other end of a Unix socket, and how it is shown.
fn peer(stream: &UnixStream, path: &str) -> (Option<u32>, String) {
    let peer = stream.peer_cred().ok();
    let pid = peer.and_then(|peer| peer.pid()).unwrap_or(0);
    let address = format!("unix:{path} pid={pid}").replace(' ', ",");
    (peer.map(|peer| peer.uid()), address)
}

/// Let a connection in, or say why not. What it is goes from hand to hand, and a
/// future keeps room for each of them.
fn admit(daemon: &Arc<Daemon>, mut coming: Coming) -> Admitted {
    if daemon.clients.len() >= daemon.files.connections() {
        daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        let why = daemon.files.full(&daemon.config.load());
        return Admitted(Err(Refused::Full(format!("-BUSY {why}.\r\n"))));
    }
    if daemon.is_draining() {
        daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        return Admitted(Err(Refused::Stopping));
    }
    // Read before the user: a change that comes meanwhile is followed later.
    let generation = daemon.settings.generation();
    let user = coming.proof.user(daemon);
    let usage = daemon.quotas.of(login::name_of(user.as_ref()));
    let limits = &daemon.config.load().limits;
    let counted = match usage.take(Quota::Connections, user.as_deref(), limits) {
        Ok(counted) => counted,
        Err(over) => {
            daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            return Admitted(Err(Refused::Full(format!("-BUSY {over}.\r\n"))));
        }
    };
    match &user {
        Some(user) => {
            coming.place = None;
            let how = coming.proof.how();
            daemon.logins.succeeded(&user.name, &coming.address, how);
        }
        None if coming.place.is_none() => match enter(daemon, coming.origin) {
            Ok(place) => coming.place = place,
            Err(Crowded) => {
                let why = crowded(daemon, coming.origin);
                return Admitted(Err(Refused::Full(why)));
            }
        },
        None => (),
    }
    daemon.counts.connections.fetch_add(1, Ordering::Relaxed);
    Admitted(Ok(Some(Box::new(welcome(
        daemon, coming, user, counted, generation,
    )))))
}

/// Its address has as many connections that have not logged in as it may have.
struct Crowded;

/// Count a connection that has yet to log in, where that is needed.
fn enter(daemon: &Daemon, origin: Origin) -> Result<Option<Arc<LoginPlace>>, Crowded> {
    let config = daemon.config.load();
    if config.users.is_empty() {
        return Ok(None);
    }
    let place = daemon.logins.enter(origin, config.limits.before_login_max);
    place.map(Some).ok_or(Crowded)
}

/// Count a connection that is turned away because its address has too many, and say so.
fn crowded(daemon: &Daemon, origin: Origin) -> String {
    daemon.counts.logins_crowded.fetch_add(1, Ordering::Relaxed);
    daemon.logins.crowded(origin);
    let most = daemon.config.load().limits.before_login_max;
    format!(
        "-BUSY {most} connections from {origin} have not logged in, as many as \
         limits.before_login_max allows: log in with those, or raise the limit.\r\n"
    )
}

/// A connection that was let in, until it is served, or why it was not. If it
/// never comes to a lane, it is forgotten.
struct Admitted(Result<Option<Box<Client>>, Refused>);

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Ok(Some(client)) = &mut self.0 {
            client.forget();
        }
    }
}

/// Serve a connection, or turn it away.
async fn serve<S>(stream: S, daemon: Arc<Daemon>, mut admitted: Admitted)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let told: &[u8] = match &mut admitted.0 {
        Ok(client) => {
            drop(daemon);
            if let Some(client) = client.take() {
                connection::serve(stream, client).await;
            }
            return;
        }
        Err(Refused::Full(why)) => {
            let place = daemon.reserve.take();
            // Apart, so that those that are let in keep no room for it.
            return Box::pin(reserve::turn_away(stream, why, place)).await;
        }
        Err(Refused::Stopping) => {
            b"-READONLY the server is stopping: connect to another, or come back later.\r\n"
        }
        Err(Refused::NotOperator) => {
            b"-NOPERM this socket is for root and the account of the server.\r\n"
        }
    };
    let told = Box::pin(tell_last(stream, told));
    let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
}

/// Say this, and read on until the client has seen it: a connection that is closed
/// while its client sends is reset.
async fn tell_last<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, told: &[u8]) {
    let last = async {
        stream.write_all(told).await?;
        stream.shutdown().await?;
        let mut rest = [0; 512];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = last.await;
}

fn welcome(
    daemon: &Arc<Daemon>,
    coming: Coming,
    user: Option<Arc<User>>,
    connection: Counted,
    generation: u64,
) -> Client {
    let Coming {
        address,
        local,
        origin,
        proof,
        place,
    } = coming;
    let config = daemon.config.load();
    let id = daemon.clients.next_id();
    let name = login::name_of(user.as_ref());
    let usage = daemon.quotas.of(name);
    let card = Arc::new(Card {
        name: Mutex::new(format!("conn-{id}")),
        user: name.into(),
        session: None,
        connection: Some(id),
    });
    let holder = daemon.holdings.open(Arc::clone(&card));
    let card = Arc::new(ClientCard {
        id,
        address,
        local,
        card: Mutex::new(card),
        holder: Mutex::new(holder),
        outbox: Arc::new(Outbox::new(config.limits.output_max as usize)),
        since: Instant::now(),
        heard_ms: AtomicU64::new(0),
        library: Mutex::default(),
        last: AtomicUsize::new(usize::MAX),
        session: Mutex::new(None),
        is_waiting: AtomicBool::new(false),
        is_listening: AtomicBool::new(false),
        foreign_releases: AtomicU64::new(0),
        commands: AtomicU64::new(0),
    });
    daemon.clients.add(&card);
    Client {
        daemon: Arc::clone(daemon),
        card,
        user,
        usage,
        connection: Some(connection),
        holder,
        session: None,
        protocol: Protocol::Resp2,
        out: Vec::new(),
        held_back: HeldBack::default(),
        watch: Watch::default(),
        proof,
        origin,
        place,
        password: None,
        is_proven: true,
        generation,
        config: daemon.config.load_full(),
        rules: Arc::clone(&daemon.places.load().rules),
        pool: Weak::new(),
        broker: Weak::new(),
        waker: Waker::noop().clone(),
        now: daemon.holdings.now(),
        batch: Batch::default(),
        heartbeat: None,
        ending: None,
        replies: Replies::On,
        retry_after: None,
        full: None,
        transaction: None,
        is_in_exec: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

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
        let daemon = Daemon::new(config).unwrap();
        let listener = Listener::control(UnixListener::bind(&path).unwrap(), &path);
        let lanes = Arc::new(Lanes::start(Some(1)).unwrap());
        tokio::spawn(listener.serve(daemon, lanes));
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
