//! HTTP in front of applications.
//!
//! A request is let in by the gate, led to an app by the router, waits for a
//! place in one of its processes, and is forwarded on a connection that is kept
//! for the next. Which process that is, and when there are more of them, is up
//! to [`apps`](crate::apps).

mod admitted;
mod body;
mod body_buffer;
mod broken;
mod budget;
mod certificates;
mod conn;
mod error_log;
mod fast_path;
mod forward;
mod headers;
mod http1;
mod http1_client;
mod http2;
mod ids;
#[cfg(test)]
mod planted;
mod rate_watch;
mod refusals;
mod reply;
mod request;
mod retries;
mod router;
mod second_chance;
mod serve;
mod sticky;
mod upgrade;
mod upload;
mod upstream_conn;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

pub use self::certificates::{FrontCertificate, Tls};
pub use self::router::{Route, Router};
pub use self::serve::FrontListener;
use crate::apps::{App, Apps};
use budget::BufferBudget;
use ids::Ids;
use rideau_config::FrontConfig;
use sticky::Sticky;

/// The state that all requests share.
pub struct Front {
    apps: Apps,
    config: ArcSwap<FrontConfig>,
    table: ArcSwap<Table>,
    sticky: Sticky,
    ids: Ids,
    /// What bodies may take that wait.
    budget: Arc<BufferBudget>,
    phase: watch::Sender<Phase>,
    /// The same at a glance, for connections that are busy.
    is_closed: AtomicBool,
}

/// Which app a request is for.
#[derive(Default)]
struct Table {
    router: Router,
    /// In the order in which the router counts them.
    apps: Arc<Vec<Arc<App>>>,
}

/// How much is still to be served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// All clients that come.
    Open,
    /// Requests that are being answered.
    Finishing,
    /// Nothing.
    Cut,
}

impl Front {
    /// Lead requests to the apps that there are.
    pub fn new(apps: Apps, config: FrontConfig) -> Arc<Self> {
        let front = Self {
            apps,
            budget: BufferBudget::new(&config),
            config: ArcSwap::from_pointee(config),
            table: ArcSwap::default(),
            sticky: Sticky::new(),
            ids: Ids::new(),
            phase: watch::Sender::new(Phase::Open),
            is_closed: AtomicBool::new(false),
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

    /// The apps are others now, or have other hosts and paths.
    pub fn follow_apps(&self) {
        let apps = self.apps.all();
        let configs: Vec<_> = apps.iter().map(|app| app.config.load_full()).collect();
        let router = Router::new(configs.iter().map(|config| &**config));
        self.table.store(Arc::new(Table { router, apps }));
    }

    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// Let no client in any more, and finish what was begun.
    pub fn finish(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.phase.send_if_modified(|phase| {
            let is_new = *phase < Phase::Finishing;
            *phase = (*phase).max(Phase::Finishing);
            is_new
        });
    }

    /// End every connection at once.
    pub fn cut(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.phase.send_replace(Phase::Cut);
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}
