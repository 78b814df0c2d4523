//! The server from its first breath to its last.
//!
//! Its [listeners](Listener) bring every connection that comes to an I/O thread, which serves it.

mod admission;
mod cluster;
mod drain;
mod give_back;
pub(crate) mod leak_check;
mod listener;
pub(crate) mod sd_notify;
mod store_watch;
mod values;

use std::fmt;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau_apps::IoThreads;
use rideau_apps::bind;
use rideau_apps::inherited;
use rideau_apps::{FrontListener, Tls};
use rideau_config::{Config, FrontListen, Listen, Opening, Server};
use rideau_process::panics;
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use self::cluster::{Joining, StartConfig, StraightListeners};
pub use self::cluster::{accept_restored, move_to_etcd};
pub(crate) use self::drain::drain;
pub(crate) use self::listener::Listener;
use crate::admin::AdminListener;
use crate::net::control::ControlFiles;
use crate::net::tls_files::{SharedAcceptor, TlsFiles};
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::versions::Source;

/// A client has this long to say within TLS which user it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The last lines of the log of requests are written within this.
const LOG_FLUSH_MAX: Duration = Duration::from_secs(2);
/// How often it is looked how far fences have come.
const EPOCHS: Duration = Duration::from_secs(10);
/// How often sessions are looked at whose time may be up.
const SESSIONS: Duration = Duration::from_millis(20);

/// End the sessions whose time is up, for ever.
pub(crate) async fn keep_sessions(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(SESSIONS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if daemon.sessions.is_empty() {
            continue;
        }
        for (row, why) in daemon.sessions.expired(Instant::now()) {
            let count = daemon.end_holder_in_slices(row.holder, why).await;
            let name = row.card.name.lock().clone();
            let how = match why {
                EndReason::Quit => "ended with its last connection",
                EndReason::Expired => "expired",
                _ => "lost its last connection",
            };
            let leases = rideau_config::human::count(count, "lease");
            let text = format!("{name} {how} and gave {leases} back");
            daemon.events.add("session", &name, text, None);
        }
    }
}

/// Write down how far fences have come, for ever.
async fn keep_epochs(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(EPOCHS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let daemon = Arc::clone(&daemon);
        let follow = move || {
            // Every fence was asked for with a command, and not every command gets one.
            let given = daemon.timings.count("LOCK");
            daemon.epochs.follow(given, &daemon.config.load());
        };
        let _ = panics::away(follow).await;
    }
}

/// Where a server that is ready can be reached.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Every address, those for applications last.
    pub addresses: Vec<String>,
    /// How many are for applications.
    pub applications: usize,
    /// The operator's files, if there is a place for them.
    pub control: Option<ControlPaths>,
    /// The page, as a link whose token tells who comes there; none where no client can
    /// come, or users say who they are.
    pub page: Option<String>,
}

/// The operator's files.
#[derive(Clone, Debug)]
pub struct ControlPaths {
    /// The socket.
    pub socket: PathBuf,
    /// The token.
    pub token: PathBuf,
}

/// Serve what a config says until an operator asks us to stop.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run(config: Config, ready: impl FnOnce(&Ready)) -> io::Result<()> {
    let source = Source::of(&config);
    run_from(config, source, ready).await
}

/// As [`run`], with the text of the config and the file that has it, which is read
/// again when an operator asks for it.
///
/// # Errors
///
/// If it cannot listen, or an option breaks a rule.
pub async fn run_from(
    config: Config,
    source: Source,
    ready: impl FnOnce(&Ready),
) -> io::Result<()> {
    let joining = match &config.cluster {
        Some(cluster) => Some(Joining::open(&config, cluster, &source.text).await?),
        None => None,
    };
    let cluster = joining.as_ref().map(|joining| Arc::clone(&joining.cluster));
    let names = crate::redis::commands::NAMES;
    let start = StartConfig::new(config, source, cluster.as_deref())?;
    let daemon = Daemon::after_others(start.config, start.source, names, cluster);
    let daemon = daemon.map_err(io::Error::other)?;
    if let Some((shared, file)) = start.shared {
        daemon.begin_shared(shared, file);
    }
    run_joining(daemon, joining, ready).await
}

/// As [`run`], for a server that has been made already.
///
/// # Errors
///
/// If it cannot listen.
pub async fn run_daemon(daemon: Arc<Daemon>, ready: impl FnOnce(&Ready)) -> io::Result<()> {
    run_joining(daemon, None, ready).await
}

/// The same, and join a cluster.
async fn run_joining(
    daemon: Arc<Daemon>,
    mut joining: Option<Joining>,
    ready: impl FnOnce(&Ready),
) -> io::Result<()> {
    // Before any client is served: a signal that comes before would end the program.
    let mut stop = StopAsked::listen()?;
    let hangup = signal(SignalKind::hangup())?;
    let reopen = signal(SignalKind::user_defined1())?;
    let config = daemon.config.load_full();
    let server = &config.server;
    let io_threads = Arc::new(IoThreads::start(server.threads)?);
    let tls = TlsFiles::read(&config)?;
    let straight = joining.as_mut().map(|it| mem::take(&mut it.straight));
    let straight = straight.unwrap_or_default();
    let (listeners, mut addresses) = listen_redis(server, tls.server.as_ref(), straight).await?;
    let (admin, places) = listen_http(server, tls.server.clone()).await?;
    let page = link(&daemon, &config, places.first());
    addresses.extend(places);
    // Applications run on this machine: a front on every core would wait behind them.
    let front_threads = match server.threads {
        Some(_) => Arc::clone(&io_threads),
        None => Arc::new(IoThreads::start_beside_others()?),
    };
    let (front, places) = listen_front(
        &daemon,
        &config,
        tls.front.clone(),
        Arc::clone(&front_threads),
    )
    .await?;
    let port = listeners.iter().find_map(Listener::port);
    let port = port.or_else(|| places.iter().find_map(|place| port_of(place)));
    let applications = places.len();
    addresses.extend(places);
    // Before any client is served, so that each can be told where it is.
    let control = listen_control(&daemon, &io_threads, port);
    let kept_open = serve_redis(listeners, &daemon, &io_threads);
    tokio::spawn(admin.serve(Arc::clone(&daemon)));
    daemon.apps.begin(&config);
    daemon.front.follow_apps();
    let front = tokio::spawn(front.serve(Arc::clone(&daemon.front)));
    let resigned = joining.map(|joining| joining.begin(&daemon));
    give_back::keep_small(&[&io_threads, &front_threads]);
    begin_upkeep(&daemon, &io_threads, tls);
    tokio::spawn(reload_on(hangup, Arc::clone(&daemon)));
    tokio::spawn(reopen_on(reopen, Arc::clone(&daemon)));
    warn(&daemon, &config);
    ready(&Ready {
        addresses,
        applications,
        control: control.as_ref().map(ControlPaths::of),
        page,
    });
    sd_notify::tell("READY=1");
    let failed = tokio::select! {
        () = stop.asked() => None,
        failed = store_watch::watch(&daemon) => {
            Some(format!("the store failed, and store.on_failure ends the server: {failed}"))
        }
        why = cluster::resigned(resigned) => Some(why),
    };
    sd_notify::tell("STOPPING=1");
    // A client that connects from now on waits for the server that comes next.
    for listener in kept_open {
        listener.abort();
        let _ = listener.await;
    }
    let (finished, ()) = tokio::join!(finish(&daemon, front), drain(&daemon));
    front_threads.finish().await;
    io_threads.finish().await;
    daemon.front.flush_logs(LOG_FLUSH_MAX);
    drop(control);
    match failed {
        Some(why) => Err(io::Error::other(why)),
        None => finished,
    }
}

impl ControlPaths {
    fn of(files: &ControlFiles) -> Self {
        Self {
            socket: files.socket.clone(),
            token: files.token.clone(),
        }
    }
}

/// Begin what goes on beside the clients for as long as the server runs.
fn begin_upkeep(daemon: &Arc<Daemon>, io_threads: &IoThreads, tls: TlsFiles) {
    for_ever("the end of sessions", daemon, keep_sessions);
    for runtime in io_threads.runtimes() {
        let daemon = Arc::clone(daemon);
        runtime.spawn(async move {
            let notifier = || daemon.values.ranges.commit_notifier();
            panics::keep("the notifier of committed values", notifier).await;
        });
    }
    for_ever("the leak check", daemon, leak_check::keep);
    for_ever("the epochs of fences", daemon, keep_epochs);
    for_ever("the files of TLS", daemon, move |daemon| {
        tls.clone().keep(daemon)
    });
}

/// Serve the Redis protocol. Returns the tasks of the sockets that a supervisor keeps open.
fn serve_redis(
    listeners: Vec<Listener>,
    daemon: &Arc<Daemon>,
    io_threads: &Arc<IoThreads>,
) -> Vec<JoinHandle<()>> {
    let mut kept_open = Vec::new();
    for listener in listeners {
        let is_inherited = listener.is_inherited();
        let serving = tokio::spawn(listener.serve(Arc::clone(daemon), Arc::clone(io_threads)));
        if is_inherited {
            kept_open.push(serving);
        }
    }
    kept_open
}

/// Log what an operator should know of this start.
fn warn(daemon: &Daemon, config: &Config) {
    daemon.values.warn_of_quarantine();
    tell_what_is_open(daemon, config);
    for unused in inherited::give_up_unused() {
        tracing::warn!("{unused}");
    }
    if let Some(shortage) = daemon.files.shortage(config) {
        tracing::warn!("{shortage}");
    }
}

/// Listen for clients that speak the Redis protocol. Says where that is.
async fn listen_redis(
    server: &Server,
    acceptor: Option<&SharedAcceptor>,
    straight: StraightListeners,
) -> io::Result<(Vec<Listener>, Vec<String>)> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for listen in &server.listen {
        let listener = match Listener::bind(listen, server.socket_mode).await {
            Ok(listener) => listener,
            Err(error) if is_left_out(server, listen, &error) => {
                tracing::info!("this machine has no IPv6: the server does not listen at {listen}");
                continue;
            }
            Err(error) => return Err(unheard(listen, "server.listen or --listen", &error)),
        };
        addresses.push(listener.address());
        listeners.push(listener);
    }
    if let Some(acceptor) = acceptor {
        for address in &server.tls_listen {
            let listener = bind::tcp(*address)
                .map_err(|error| unheard(address, "server.tls_listen", &error))?;
            let listener = Listener::tls(listener, acceptor.clone(), HANDSHAKE_MAX, false);
            addresses.push(format!("tls:{}", listener.address()));
            listeners.push(listener);
        }
    }
    if let Some(listener) = straight.plain {
        let listener = Listener::Straight(listener);
        addresses.push(format!("straight:{}", listener.address()));
        listeners.push(listener);
    }
    if let Some((listener, acceptor)) = straight.tls.zip(acceptor) {
        let listener = Listener::tls(listener, acceptor.clone(), HANDSHAKE_MAX, true);
        addresses.push(format!("straight-tls:{}", listener.address()));
        listeners.push(listener);
    }
    Ok((listeners, addresses))
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

/// Say what is open to whom.
fn tell_what_is_open(daemon: &Daemon, config: &Config) {
    for open in daemon.values.open_to_others() {
        tracing::warn!("{open}");
    }
    for Opening { text, is_risky } in rideau_config::openings(config, geteuid().is_root()) {
        match is_risky {
            true => tracing::warn!("{text}"),
            false => tracing::info!("{text}"),
        }
    }
}

/// Listen for the operator at a socket named by this port. Without one the server
/// is controlled by users of its config alone.
fn listen_control(
    daemon: &Arc<Daemon>,
    io_threads: &Arc<IoThreads>,
    port: Option<u16>,
) -> Option<ControlFiles> {
    // A server that listens nowhere has no name but its process.
    let label = port.map_or_else(
        || format!("p{}", std::process::id()),
        |port| port.to_string(),
    );
    match ControlFiles::open(&label, daemon.operator.token()) {
        Ok((listener, files)) => {
            daemon.operator.set_file(&files.token);
            let listener = Listener::control(listener, &files.socket);
            tokio::spawn(listener.serve(Arc::clone(daemon), Arc::clone(io_threads)));
            Some(files)
        }
        Err(error) => {
            tracing::warn!("the control socket cannot be made: {error}");
            None
        }
    }
}

/// The page with the operator's token in its address.
fn link(daemon: &Daemon, config: &Config, page: Option<&String>) -> Option<String> {
    let token = daemon.operator.token()?;
    let page = page.filter(|_| config.users.is_empty())?;
    Some(format!("{page}/?token={token}"))
}

fn port_of(place: &str) -> Option<u16> {
    place.rsplit(':').next()?.parse().ok()
}

/// Do this for as long as the server runs, also after a panic.
fn for_ever<F>(
    name: &'static str,
    daemon: &Arc<Daemon>,
    task: impl Fn(Arc<Daemon>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let daemon = Arc::clone(daemon);
    tokio::spawn(async move { panics::keep(name, || task(Arc::clone(&daemon))).await });
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

/// Why no client can be heard there, and what to do about it.
fn unheard(place: impl fmt::Display, key: &str, error: &io::Error) -> io::Error {
    let passed = port_of(&place.to_string()).and_then(inherited::unused_at);
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse if passed.is_some() => {
            "the socket that was passed to the server has another address: choose that one with"
        }
        io::ErrorKind::AddrInUse => {
            "another program uses this address: stop it, or choose another \
            address with"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: choose another with",
        io::ErrorKind::PermissionDenied => {
            "the server lacks the permission: give it, or choose \
            another address with"
        }
        _ => "choose another address with",
    };
    let passed = passed.map_or_else(String::new, |passed| format!(" ({passed})"));
    let text = format!("cannot listen at {place}: {error}; {advice} {key}{passed}");
    io::Error::new(error.kind(), text)
}

/// Listen for clients that want applications. Says where that is.
async fn listen_front(
    daemon: &Arc<Daemon>,
    config: &Config,
    tls: Option<Tls>,
    io_threads: Arc<IoThreads>,
) -> io::Result<(FrontListener, Vec<String>)> {
    let mut front = FrontListener::default();
    front.use_io_threads(io_threads);
    front.limit(daemon.files.share(config).front);
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
async fn listen_http(
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

/// Read the file again whenever a signal asks for it, for ever. What is wrong
/// with it is an event.
async fn reload_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        sd_notify::tell(&sd_notify::reloading());
        // On a node of a cluster it may wait for etcd.
        let reloading = Arc::clone(&daemon);
        match panics::away(move || reloading.reload("SIGHUP")).await {
            Ok(Ok(_)) => (),
            Ok(Err(why)) => tracing::warn!("SIGHUP changed nothing: {why}"),
            Err(panicked) => tracing::error!("SIGHUP ended with an {panicked}"),
        }
        sd_notify::tell("READY=1");
    }
}

/// Open the files of the log of requests anew whenever a signal asks for it, for ever.
async fn reopen_on(mut signal: Signal, daemon: Arc<Daemon>) {
    while signal.recv().await.is_some() {
        daemon.front.reopen_logs();
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
