//! What only one server can have open: the store, what relies on it, and the clients that do.
//!
//! It is closed when a newer server takes over, and opened again if that one fails; the
//! applications and their front go on meanwhile.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::{IoThreads, PassedListener, inherited};
use rideau_process::panics;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{AbortHandle, JoinHandle};

use super::cluster::StraightListeners;
use super::drain;
use super::listener::Listener;
use super::listening::{self, RedisListeners};
use crate::admin::AdminListener;
use crate::net::control::ControlFiles;
use crate::net::tls_files::TlsFiles;
use crate::net::{acme, alarm_posts};
use crate::state::daemon::Daemon;
use crate::view::alarms;

/// Members have so long to end beside a newer server, beyond their own time.
const MEMBERS_WITHIN: Duration = Duration::from_secs(5);

/// Its clients can connect, and are not served yet.
pub(super) struct StoreListeners {
    redis: RedisListeners,
    admin: AdminListener,
    /// As they are shown, those of HTTP last.
    pub(super) addresses: Vec<String>,
    /// The first of HTTP.
    pub(super) page: Option<String>,
}

/// What only one server can have open, open.
pub(super) struct StoreSide {
    pub(super) daemon: Arc<Daemon>,
    /// The operator's files, if there is a place for them.
    pub(super) control: Option<ControlFiles>,
    /// Tasks of sockets that a supervisor keeps open.
    kept_open: Vec<JoinHandle<()>>,
    /// Everything else.
    tasks: Vec<AbortHandle>,
    sockets: Vec<PassedListener>,
}

/// The programs of a side that was closed, which take their time.
pub(super) struct EndingMembers {
    daemon: Arc<Daemon>,
    closing: JoinHandle<()>,
}

impl StoreListeners {
    /// Listen where the config of a server says.
    pub(super) async fn bind(
        daemon: &Daemon,
        tls: &TlsFiles,
        straight: StraightListeners,
    ) -> io::Result<Self> {
        let config = daemon.config.load_full();
        let server = &config.server;
        let redis = listening::listen_redis(server, tls.server.as_ref(), straight).await?;
        let (admin, places) = listening::listen_http(server, tls.server.clone()).await?;
        let addresses = redis.addresses.iter().chain(&places).cloned().collect();
        Ok(Self {
            redis,
            admin,
            addresses,
            page: places.into_iter().next(),
        })
    }

    /// Serve clients from now on. `port` names the server if nothing else does.
    pub(super) fn serve(
        self,
        daemon: &Arc<Daemon>,
        io_threads: &Arc<IoThreads>,
        tls: &TlsFiles,
        port: Option<u16>,
    ) -> io::Result<StoreSide> {
        let port = self.redis.all.iter().find_map(Listener::port).or(port);
        let mut side = StoreSide {
            daemon: Arc::clone(daemon),
            control: None,
            kept_open: Vec::new(),
            tasks: Vec::new(),
            sockets: self.redis.sockets,
        };
        side.sockets.extend(self.admin.sockets()?);
        // Before any client is served, so that each can be told where it is.
        side.listen_control(io_threads, port);
        for listener in self.redis.all {
            let is_inherited = listener.is_inherited();
            let serving = tokio::spawn(listener.serve(Arc::clone(daemon), Arc::clone(io_threads)));
            side.tasks.push(serving.abort_handle());
            if is_inherited {
                side.kept_open.push(serving);
            }
        }
        let serving = tokio::spawn(self.admin.serve(Arc::clone(daemon)));
        side.tasks.push(serving.abort_handle());
        side.begin_upkeep(io_threads, tls.clone());
        Ok(side)
    }
}

impl StoreSide {
    /// Open it anew, for a server whose newer one has failed.
    ///
    /// # Errors
    ///
    /// If something of it cannot be opened.
    pub(super) async fn open_again(
        daemon: Arc<Daemon>,
        sockets: Vec<PassedListener>,
        io_threads: &Arc<IoThreads>,
        tls: &TlsFiles,
        port: Option<u16>,
    ) -> io::Result<Self> {
        sockets.into_iter().try_for_each(inherited::add)?;
        let listeners = StoreListeners::bind(&daemon, tls, StraightListeners::default()).await?;
        listeners.serve(&daemon, io_threads, tls, port)
    }

    /// Listen for the operator at a socket named by this port. Without one the server
    /// is controlled by users of its config alone.
    fn listen_control(&mut self, io_threads: &Arc<IoThreads>, port: Option<u16>) {
        // A server that listens nowhere has no name but its process.
        let label = port.map_or_else(
            || format!("p{}", std::process::id()),
            |port| port.to_string(),
        );
        let daemon = &self.daemon;
        match ControlFiles::open(&label, daemon.operator.token()) {
            Ok((listener, files)) => {
                daemon.operator.set_file(&files.token);
                let listener = Listener::control(listener, &files.socket);
                self.sockets.extend(listener.socket(None));
                let serving = listener.serve(Arc::clone(daemon), Arc::clone(io_threads));
                self.tasks.push(tokio::spawn(serving).abort_handle());
                self.control = Some(files);
            }
            Err(error) => tracing::warn!("the control socket cannot be made: {error}"),
        }
    }

    /// Begin what goes on beside the clients for as long as they are served.
    fn begin_upkeep(&mut self, io_threads: &IoThreads, tls: TlsFiles) {
        self.for_ever("the end of sessions", super::keep_sessions);
        for runtime in io_threads.runtimes() {
            let daemon = Arc::clone(&self.daemon);
            let notifying = runtime.spawn(async move {
                let notifier = || daemon.values.ranges.commit_notifier();
                panics::keep("the notifier of committed values", notifier).await;
            });
            self.tasks.push(notifying.abort_handle());
        }
        self.for_ever("the leak check", super::leak_check::keep);
        self.for_ever("the alarms", alarms::keep);
        self.for_ever("messages of alarms", alarm_posts::keep);
        self.for_ever("the epochs of fences", super::keep_epochs);
        let files = tls.clone();
        self.for_ever("the files of TLS", move |daemon| files.clone().keep(daemon));
        self.for_ever("orders of certificates", move |daemon| {
            acme::keep(tls.clone(), daemon)
        });
        self.on(SignalKind::hangup(), super::reload_on);
        self.on(SignalKind::user_defined1(), super::reopen_on);
        self.on(SignalKind::user_defined2(), super::upgrade_on);
    }

    /// Do this whenever a signal comes.
    fn on<F>(&mut self, kind: SignalKind, task: impl FnOnce(Signal, Arc<Daemon>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match signal(kind) {
            Ok(signal) => {
                let listening = tokio::spawn(task(signal, Arc::clone(&self.daemon)));
                self.tasks.push(listening.abort_handle());
            }
            Err(error) => tracing::warn!("a signal is not heard: {error}"),
        }
    }

    /// Do this for as long as clients are served, also after a panic.
    fn for_ever<F>(
        &mut self,
        name: &'static str,
        task: impl Fn(Arc<Daemon>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let daemon = Arc::clone(&self.daemon);
        let keeping =
            tokio::spawn(async move { panics::keep(name, || task(Arc::clone(&daemon))).await });
        self.tasks.push(keeping.abort_handle());
    }

    /// Its sockets, for another server on this machine.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub(super) fn sockets(&self) -> io::Result<Vec<PassedListener>> {
        self.sockets.iter().map(PassedListener::again).collect()
    }

    /// Where a supervisor keeps a socket, clients that connect from now on wait for the server
    /// that comes next.
    pub(super) async fn stop_listening(&mut self) {
        self.sockets.clear();
        for listener in self.kept_open.drain(..) {
            listener.abort();
            let _ = listener.await;
        }
    }

    /// Close it at once: whatever clients hold ends, and those that connect from now on wait.
    /// Members that are processes end by and by.
    pub(super) async fn close(self) -> (Vec<PassedListener>, EndingMembers) {
        let Self {
            daemon,
            control,
            kept_open: _,
            tasks,
            sockets,
        } = self;
        tasks.iter().for_each(AbortHandle::abort);
        if let Some(control) = control {
            control.pass_on();
        }
        let closing = drain::end_at_once(&daemon).await;
        (sockets, EndingMembers { daemon, closing })
    }
}

impl EndingMembers {
    /// The token of the operator.
    pub(super) fn token(&self) -> Option<String> {
        self.daemon.operator.token().map(str::to_owned)
    }

    /// Wait for the last of them.
    pub(super) async fn ended(self) {
        let catalog = self.daemon.catalog.load_full();
        let stops = catalog.pools.values();
        let stops = stops.map(|place| place.pool.options().stop_timeout);
        let within = stops.max().unwrap_or_default() + MEMBERS_WITHIN;
        let _ = tokio::time::timeout(within, self.closing).await;
        let left = catalog.run_dirs.emptied(MEMBERS_WITHIN).await;
        if left > 0 {
            tracing::warn!(left, "processes are killed");
        }
    }
}
