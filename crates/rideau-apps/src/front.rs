//! HTTP in front of applications.
//!
//! A request is let in by the gate, led to an app by the router, waits for a
//! place in one of its processes, and is forwarded on a connection that is kept
//! for the next. Which process that is, and when there are more of them, is up
//! to [`apps`](crate::apps).

mod accept_encoding;
mod access_log;
mod body;
mod body_buffer;
mod broken;
mod budget;
mod certificates;
mod client;
mod compress;
mod conn;
mod disk;
mod encoder;
mod error_log;
mod error_page;
mod fast_path;
mod file_reply;
mod forward;
mod frames;
mod headers;
mod host;
mod http1;
mod http1_client;
mod http2;
mod https;
mod ids;
mod listener;
mod location;
mod media_type;
mod open_conn;
#[cfg(test)]
mod planted;
mod proxy_protocol;
mod rate_limit;
mod rate_watch;
mod refusals;
mod reply;
mod request;
mod retries;
mod router;
mod rules;
mod second_chance;
mod serve;
mod static_files;
mod sticky;
mod turn_away;
mod upgrade;
mod upload;
mod upstream_conn;
mod web_socket;

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

pub use self::certificates::{FrontCertificate, Tls};
pub use self::listener::FrontListener;
pub use self::sticky::StickyKey;
use crate::apps::{App, Apps};
use access_log::{LogWriter, QUEUE_MAX};
use budget::BufferBudget;
use client::ClientCounts;
use disk::Disk;
use https::SecurePlace;
use ids::Ids;
use rideau_config::FrontConfig;
use router::Router;
use rules::FrontRules;
use sticky::Sticky;

/// This many connections at a time are told that they are too many.
const TURNED_AWAY_MAX: usize = 256;
/// Answers that are compressed at a time while they are sent, a quarter of them for one client.
/// Others are sent as they are.
const ENCODERS_MAX: u64 = 128;

/// The state that all requests share.
pub struct Front {
    apps: Apps,
    config: ArcSwap<FrontConfig>,
    table: ArcSwap<Table>,
    sticky: Sticky,
    ids: Ids,
    /// What bodies may take that wait.
    budget: Arc<BufferBudget>,
    /// Where files are read.
    disk: Disk,
    /// How many answers may be compressed at a time while they are sent.
    encoders: Arc<BufferBudget>,
    /// What writes the log of requests.
    log: Arc<LogWriter>,
    /// Connections of each client.
    clients: Arc<ClientCounts>,
    clients_turned_away: AtomicU64,
    /// Room for connections that are told that they are too many.
    turned_away: Arc<Semaphore>,
    /// Where TLS is spoken.
    secure: OnceLock<SecurePlace>,
    /// One table is made at a time.
    making: Mutex<()>,
    phase: watch::Sender<Phase>,
    accepting: watch::Sender<Accepting>,
    /// The same at a glance, for connections that are busy.
    is_closed: AtomicBool,
    is_leaving: AtomicBool,
}

/// Which app a request is for.
#[derive(Default)]
struct Table {
    router: Router,
    /// In the order in which the router counts them.
    apps: Arc<Vec<Arc<App>>>,
    /// None if the config asks for none.
    rules: Option<Box<FrontRules>>,
}

/// Numbers of a front.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontStats {
    /// Connections that were turned away as too many of their client.
    pub clients_turned_away: u64,
    /// Lines of the log of requests that wait to be written,
    pub log_waiting: usize,
    /// how many may,
    pub log_waiting_max: usize,
    /// and how many were lost.
    pub log_lost: u64,
}

/// How much is still to be served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// All clients that come.
    Open,
    /// Those that are there, each until its next answer.
    Leaving,
    /// Requests that are being answered.
    Finishing,
    /// Nothing.
    Cut,
}

/// Whether connections are taken from the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accepting {
    Yes,
    /// They wait there.
    No,
}

impl Front {
    /// Lead requests to the apps that there are.
    pub fn new(apps: Apps, config: FrontConfig) -> Arc<Self> {
        Self::with_key(apps, config, StickyKey::new())
    }

    /// The same; cookies that were made with this key count.
    pub fn with_key(apps: Apps, config: FrontConfig, key: StickyKey) -> Arc<Self> {
        let front = Self {
            apps,
            budget: BufferBudget::new(&config),
            disk: Disk::new(),
            encoders: BufferBudget::of_count(ENCODERS_MAX),
            config: ArcSwap::from_pointee(config),
            table: ArcSwap::default(),
            sticky: Sticky::new(key),
            ids: Ids::new(),
            log: Arc::default(),
            clients: Arc::default(),
            clients_turned_away: AtomicU64::new(0),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            secure: OnceLock::new(),
            making: Mutex::new(()),
            phase: watch::Sender::new(Phase::Open),
            accepting: watch::Sender::new(Accepting::Yes),
            is_closed: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        };
        front.follow_apps();
        Arc::new(front)
    }

    /// From now on as this config says; where it listens stays as it is.
    pub fn follow(&self, config: FrontConfig) {
        self.budget.follow(&config);
        self.config.store(Arc::new(config));
        self.follow_apps();
    }

    /// The apps are others now, or have other hosts and paths; or files that the config names
    /// may have changed.
    pub fn follow_apps(&self) {
        let _making = self.making.lock();
        let apps = self.apps.all();
        let configs: Vec<_> = apps.iter().map(|app| app.config.load_full()).collect();
        let config = self.config.load();
        let all: Vec<_> = configs.iter().map(|config| &**config).collect();
        let router = Router::new(&all, &config.routes);
        let rules = FrontRules::new(
            &config,
            configs.iter().map(|config| &**config),
            self.secure.get(),
            &self.log,
            self.table.load().rules.as_deref(),
        );
        let rules = rules.map(Box::new);
        self.table.store(Arc::new(Table {
            router,
            apps,
            rules,
        }));
    }

    /// TLS is spoken there.
    fn set_secure(&self, place: SecurePlace) {
        if self.secure.set(place).is_ok() {
            self.follow_apps();
        }
    }

    /// Open the files of the log of requests anew: they may have been moved away.
    pub fn reopen_logs(&self) {
        self.log.reopen();
    }

    /// Wait until what was logged is written, but not for longer than this.
    pub fn flush_logs(&self, within: Duration) {
        self.log.flush(within);
    }

    /// Its numbers.
    pub fn stats(&self) -> FrontStats {
        FrontStats {
            clients_turned_away: self.clients_turned_away.load(Ordering::Relaxed),
            log_waiting: self.log.waiting(),
            log_waiting_max: QUEUE_MAX,
            log_lost: self.log.lost(),
        }
    }

    /// Connections without a request stay.
    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// A connection that was answered may ask again.
    fn is_staying(&self) -> bool {
        !self.is_leaving.load(Ordering::Relaxed)
    }

    /// The key of its cookies.
    pub fn sticky_key(&self) -> &StickyKey {
        self.sticky.key()
    }

    /// Let clients wait in the system's queues, or take them from there again.
    pub fn accept(&self, accepts: bool) {
        let accepting = if accepts {
            Accepting::Yes
        } else {
            Accepting::No
        };
        self.accepting.send_replace(accepting);
    }

    /// Let no client in any more. Those that are there are served, and told with their next
    /// answer that the connection ends with it.
    pub fn leave(&self) {
        self.pass_to(Phase::Leaving);
    }

    /// Let no client in any more, and finish what was begun.
    pub fn finish(&self) {
        self.pass_to(Phase::Finishing);
    }

    fn pass_to(&self, next: Phase) {
        let is_closed = next > Phase::Leaving;
        self.is_leaving.store(true, Ordering::Relaxed);
        self.is_closed.fetch_or(is_closed, Ordering::Relaxed);
        self.phase.send_if_modified(|phase| {
            let is_new = *phase < next;
            *phase = (*phase).max(next);
            is_new
        });
    }

    /// End every connection at once.
    pub fn cut(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.is_closed.store(true, Ordering::Relaxed);
        self.phase.send_replace(Phase::Cut);
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}
