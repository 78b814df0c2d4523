//! Listens, and serves whoever comes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::admin::AdminListener;
use crate::client::{Client, Replies};
use crate::clients::ClientCard;
use crate::config::{Config, DeadPeer, Listen, Server};
use crate::connection;
use crate::daemon::Daemon;
use crate::front::{FrontListener, Tls};
use crate::held_back::HeldBack;
use crate::holdings::{Card, Why};
use crate::lanes::Lanes;
use crate::login::Proof;
use crate::outbox::Outbox;
use crate::resp::Protocol;
use crate::settings::Source;
use crate::supervisor;
use crate::timing::Batch;
use crate::tls;
use crate::watch::Watch;
use crate::watcher;

/// So long a client has to say within TLS who it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether the files of TLS were read again.
const RENEW: Duration = Duration::from_secs(1);
/// How often sessions are looked at whose time may be up.
const SESSIONS: Duration = Duration::from_millis(20);

/// A place where the server listens.
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// An address and a port, within TLS, and how long a client has to get in.
    Tls(TcpListener, TlsAcceptor, Duration),
    /// A socket in the file system.
    Unix(UnixListener, String),
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
        Ok(Self::Tls(
            TcpListener::bind(address).await?,
            acceptor,
            within,
        ))
    }

    /// Listen at this place.
    ///
    /// # Errors
    ///
    /// If somebody else does, or it may not be.
    pub async fn bind(listen: &Listen, mode: u32) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => bind_unix(path, mode).await,
        }
    }

    /// Where it listens, the port chosen by the system included.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, ..) => listener
                .local_addr()
                .map_or_else(|_| "?".into(), |address| address.to_string()),
            Self::Unix(_, path) => format!("unix:{path}"),
        }
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, ..) => {
                listener.local_addr().ok().map(|address| address.port())
            }
            Self::Unix(..) => None,
        }
    }

    /// Serve whoever comes, for ever.
    pub async fn serve(self, daemon: Arc<Daemon>) {
        match self {
            Self::Tcp(listener) => loop {
                match listener.accept().await {
                    Ok((stream, address)) => accept_tcp(&daemon, stream, address),
                    Err(error) => rest(&error).await,
                }
            },
            Self::Tls(listener, acceptor, within) => {
                serve_tls(&listener, acceptor, within, daemon).await;
            }
            Self::Unix(listener, path) => loop {
                match listener.accept().await {
                    Ok((stream, _)) => accept_unix(&daemon, stream, &path),
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
) {
    let mut generation = daemon.settings.generation();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if generation != daemon.settings.generation() {
                    generation = daemon.settings.generation();
                    acceptor = renewed(&daemon).unwrap_or(acceptor);
                }
                let daemon = Arc::clone(&daemon);
                tokio::spawn(accept_tls(
                    daemon,
                    acceptor.clone(),
                    stream,
                    address,
                    within,
                ));
            }
            Err(error) => rest(&error).await,
        }
    }
}

/// What the files of TLS say now; none if they cannot be used.
pub(crate) fn renewed(daemon: &Daemon) -> Option<TlsAcceptor> {
    let config = daemon.config.load();
    match tls::acceptor(config.tls.as_ref()?) {
        Ok(acceptor) => Some(acceptor),
        Err(error) => {
            let text = format!("the files of TLS cannot be used, the old ones go on: {error}");
            daemon.events.add("config", "tls", text, None);
            None
        }
    }
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
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(Listener::Unix(listener, path.display().to_string()))
}

fn accept_tcp(daemon: &Arc<Daemon>, stream: TcpStream, address: SocketAddr) {
    let _ = stream.set_nodelay(true);
    watch(&stream, daemon.config.load().server.dead_peer);
    let local = stream
        .local_addr()
        .map_or_else(|_| String::new(), |local| local.to_string());
    begin(daemon, stream, address.to_string(), local, None);
}

/// Whoever has a certificate is the user that it names.
async fn accept_tls(
    daemon: Arc<Daemon>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    within: Duration,
) {
    let _ = stream.set_nodelay(true);
    watch(&stream, daemon.config.load().server.dead_peer);
    let local = stream
        .local_addr()
        .map_or_else(|_| String::new(), |local| local.to_string());
    let shaken = tokio::time::timeout(within, acceptor.accept(stream)).await;
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::info!(%address, "no TLS: {error}"),
        Err(_) => return tracing::info!(%address, "no TLS within {within:?}"),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let name = certificates.and_then(|all| tls::common_name(all.first()?));
    let proof = name.map_or(Proof::None, Proof::Certificate);
    begin_as(&daemon, stream, address.to_string(), local, proof);
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

fn accept_unix(daemon: &Arc<Daemon>, stream: UnixStream, path: &str) {
    let peer = stream.peer_cred().ok();
    let uid = peer.map(|peer| peer.uid());
    let pid = peer.and_then(|peer| peer.pid()).unwrap_or(0);
    let address = format!("unix:{path} pid={pid}").replace(' ', ",");
    begin(daemon, stream, address, path.into(), uid);
}

/// Serve a connection, or turn it away.
pub fn begin<S>(daemon: &Arc<Daemon>, stream: S, address: String, local: String, uid: Option<u32>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let proof = uid.map_or(Proof::None, Proof::Uid);
    begin_as(daemon, stream, address, local, proof);
}

fn begin_as<S>(daemon: &Arc<Daemon>, mut stream: S, address: String, local: String, proof: Proof)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let most = daemon.config.load().limits.connections_max;
    let is_full = daemon.clients.len() >= most;
    if is_full || daemon.is_draining() {
        daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        let text = if is_full {
            format!(
                "-BUSY there are {most} connections, as many as limits.connections_max allows: \
                 come back later, or raise the limit.\r\n"
            )
        } else {
            "-READONLY the server is stopping: connect to another, or come back later.\r\n".into()
        };
        tokio::spawn(async move {
            let write = stream.write_all(text.as_bytes());
            let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
        });
        return;
    }
    daemon.counts.connections.fetch_add(1, Ordering::Relaxed);
    let client = welcome(daemon, address, local, proof);
    tokio::spawn(connection::serve(stream, client));
}

fn welcome(daemon: &Arc<Daemon>, address: String, local: String, proof: Proof) -> Client {
    let generation = daemon.settings.generation();
    let config = daemon.config.load();
    let id = daemon.clients.next_id();
    let user = proof.user(daemon);
    let name = user.as_ref().map_or("default", |user| user.name.as_str());
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
        is_resp3: AtomicBool::new(false),
        foreign_releases: AtomicU64::new(0),
        commands: AtomicU64::new(0),
    });
    daemon.clients.add(&card);
    Client {
        daemon: Arc::clone(daemon),
        card,
        user,
        holder,
        session: None,
        protocol: Protocol::Resp2,
        out: Vec::new(),
        held_back: HeldBack::default(),
        watch: Watch::default(),
        proof,
        is_proven: true,
        generation,
        config: daemon.config.load_full(),
        rules: Arc::clone(&daemon.places.load().rules),
        now: daemon.holdings.now(),
        batch: Batch::default(),
        heartbeat: None,
        ending: None,
        replies: Replies::On,
        retry_after: None,
    }
}

/// End the sessions whose time is up, for ever.
pub async fn keep_sessions(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(SESSIONS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if daemon.sessions.is_empty() {
            continue;
        }
        for (row, why) in daemon.sessions.expired(Instant::now()) {
            let count = daemon.end_holder(row.holder, why);
            let name = row.card.name.lock().clone();
            let how = match why {
                Why::Quit => "ended with its last connection",
                Why::Expired => "expired",
                _ => "lost its last connection",
            };
            let text = format!("{name} {how} and gave {count} leases back");
            daemon.events.add("session", &name, text, None);
        }
    }
}

/// Stop: serve nobody new, let holders finish, and take the rest back.
pub async fn drain(daemon: &Arc<Daemon>) {
    daemon.draining.store(true, Ordering::Release);
    let within = daemon.config.load().server.drain;
    let text = format!("the server stops: holders have {within:.1?} to finish");
    daemon.events.add("server", "drain", text, None);
    let end = Instant::now() + within;
    let is_alone = || daemon.clients.is_empty() && daemon.sessions.is_empty();
    while !is_alone() && Instant::now() < end {
        let is_idle = daemon.holdings.all().is_empty();
        if is_idle && daemon.counts.waiting.load(Ordering::Relaxed) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for card in daemon.clients.all() {
        card.outbox.kill();
    }
    let limit = Instant::now() + Duration::from_secs(1);
    while !daemon.clients.is_empty() && Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let places = daemon.places.load_full();
    let stop = Duration::from_secs(1);
    let pools = places.pools.values().map(|place| place.pool.close(stop));
    futures_util::future::join_all(pools).await;
    // A pool that a change left behind may have had some, too.
    let left = places.workshop.emptied(stop).await;
    if left > 0 {
        tracing::warn!(left, "processes are killed");
    }
    // Connections are over, so nothing is answered that would not be kept.
    let daemon = Arc::clone(daemon);
    let _ = tokio::task::spawn_blocking(move || daemon.values.close()).await;
}

/// Serve what a config says until somebody asks us to stop.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run(config: Config, ready: impl FnOnce(&[String])) -> io::Result<()> {
    let source = Source::of(&config);
    run_from(config, source, ready).await
}

/// As [`run`], with the text of the config and the file that has it, which is
/// read again when somebody asks for it.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run_from(
    config: Config,
    source: Source,
    ready: impl FnOnce(&[String]),
) -> io::Result<()> {
    let daemon = Daemon::with(config, source).map_err(io::Error::other)?;
    run_daemon(daemon, ready).await
}

/// As [`run`], for a server that somebody has made already.
///
/// # Errors
///
/// If it cannot listen.
pub async fn run_daemon(daemon: Arc<Daemon>, ready: impl FnOnce(&[String])) -> io::Result<()> {
    let config = daemon.config.load_full();
    let (server, tls) = (&config.server, &config.tls);
    let mut addresses = Vec::new();
    for listen in &server.listen {
        let listener = Listener::bind(listen, server.socket_mode).await;
        let listener = listener.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen at {listen}: {error}"))
        })?;
        addresses.push(listener.address());
        tokio::spawn(listener.serve(Arc::clone(&daemon)));
    }
    let acceptor = tls.as_ref().map(tls::acceptor).transpose()?;
    if let Some(acceptor) = &acceptor {
        for address in &server.tls_listen {
            let listener = Listener::bind_tls(*address, acceptor.clone(), HANDSHAKE_MAX).await?;
            addresses.push(format!("tls:{}", listener.address()));
            tokio::spawn(listener.serve(Arc::clone(&daemon)));
        }
    }
    let (admin, places) = listen_http(server, acceptor.clone()).await?;
    addresses.extend(places);
    tokio::spawn(admin.serve(Arc::clone(&daemon)));
    let (front, places) = listen_front(&daemon, &config, acceptor).await?;
    addresses.extend(places);
    daemon.apps.begin(&config);
    daemon.front.follow_apps();
    let front = tokio::spawn(front.serve(Arc::clone(&daemon.front)));
    tokio::spawn(keep_sessions(Arc::clone(&daemon)));
    tokio::spawn(daemon.values.ranges.ferry());
    tokio::spawn(watcher::keep(Arc::clone(&daemon)));
    let hangup = signal(SignalKind::hangup())?;
    tokio::spawn(reload_on(hangup, Arc::clone(&daemon)));
    // Whoever hears that we are ready may ask us to stop at once.
    let mut stop = StopAsked::listen()?;
    ready(&addresses);
    supervisor::tell("READY=1");
    stop.asked().await;
    supervisor::tell("STOPPING=1");
    let (finished, ()) = tokio::join!(finish(&daemon, front), drain(&daemon));
    finished
}

/// Stop the front and the applications: what is served is finished.
async fn finish(daemon: &Daemon, front: JoinHandle<()>) -> io::Result<()> {
    let within = daemon.config.load().front.shutdown_timeout;
    let end = tokio::time::Instant::now() + within;
    daemon.front.finish();
    let served = front.await;
    let left = end.saturating_duration_since(tokio::time::Instant::now());
    daemon.apps.close(left).await;
    served.map_err(io::Error::other)
}

/// Listen for those who want applications. Says where that is.
async fn listen_front(
    daemon: &Arc<Daemon>,
    config: &Config,
    acceptor: Option<TlsAcceptor>,
) -> io::Result<(FrontListener, Vec<String>)> {
    let mut front = FrontListener::default();
    front.use_lanes(Arc::new(Lanes::start(None)?));
    let mut places = Vec::new();
    for address in &config.front.listen {
        let bound = front.listen(*address, None).await.map_err(|error| {
            let text = format!("cannot listen at {address} (front.listen): {error}");
            io::Error::new(error.kind(), text)
        })?;
        places.push(format!("http://{bound}"));
    }
    if let Some(acceptor) = acceptor {
        let tls = Tls::new(&acceptor);
        for address in &config.front.tls_listen {
            let bound = front.listen(*address, Some(tls.clone())).await;
            let bound = bound.map_err(|error| {
                let text = format!("cannot listen at {address} (front.tls_listen): {error}");
                io::Error::new(error.kind(), text)
            })?;
            places.push(format!("https://{bound}"));
        }
        tokio::spawn(renew(tls, Arc::clone(daemon)));
    }
    Ok((front, places))
}

/// Have the front use the files of TLS as they are now, whenever the config was
/// read.
async fn renew(tls: Tls, daemon: Arc<Daemon>) {
    let mut generation = daemon.settings.generation();
    let mut ticks = tokio::time::interval(RENEW);
    loop {
        ticks.tick().await;
        if generation != daemon.settings.generation() {
            generation = daemon.settings.generation();
            renewed(&daemon).inspect(|acceptor| tls.renew(acceptor));
        }
    }
}

/// Listen for HTTP where the config says. Says where that is.
async fn listen_http(
    server: &Server,
    tls: Option<TlsAcceptor>,
) -> io::Result<(AdminListener, Vec<String>)> {
    let mut admin = AdminListener::default();
    let mut places = Vec::new();
    let secure = server.tls_admin.filter(|_| tls.is_some());
    for (key, address, tls) in [("admin", server.admin, None), ("tls_admin", secure, tls)] {
        let Some(address) = address else {
            continue;
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bound = admin.listen(address, tls).await.map_err(|error| {
            let text = format!("cannot listen at {address} (server.{key}): {error}");
            io::Error::new(error.kind(), text)
        })?;
        places.push(format!("{scheme}://{bound}"));
    }
    Ok((admin, places))
}

/// Read the file again whenever a signal asks for it, for ever. What is wrong
/// with it is an event.
async fn reload_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        supervisor::tell(&supervisor::reloading());
        if let Err(why) = daemon.reload("SIGHUP") {
            tracing::warn!("SIGHUP changed nothing: {why}");
        }
        supervisor::tell("READY=1");
    }
}

/// The signals that ask us to stop.
struct StopAsked {
    term: Signal,
    interrupt: Signal,
}

impl StopAsked {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}
