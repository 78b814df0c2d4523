//! How a connection came in, and whether it has logged in since.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rideau_config::User;

use crate::state::attempts::Origin;
use crate::state::daemon::Daemon;
use crate::state::logins::LoginPlace;
use crate::state::quota::{Counted, Over, Quota};

/// How a connection came in.
#[derive(Clone)]
pub(super) struct Entrance {
    /// Only this machine can come this way; then a browser that was told another
    /// name for it was misled.
    pub(super) is_local: bool,
    /// It is within TLS.
    pub(super) is_tls: bool,
    /// The user that its certificate names, which was verified.
    pub(super) certificate: Option<String>,
    /// Where it comes from.
    pub(super) address: Arc<str>,
    /// The same, as far as limits go.
    pub(super) origin: Origin,
    /// Whether it has logged in.
    pub(super) login: Arc<Login>,
}

/// Whether a connection has logged in: one of its requests was let in.
#[derive(Default)]
pub(super) struct Login {
    is_over: AtomicBool,
    /// It is one of the connections of its user.
    counted: Mutex<Option<Counted>>,
    place: Mutex<Option<Arc<LoginPlace>>>,
}

impl Entrance {
    /// A connection from there.
    pub(super) fn new(address: SocketAddr, is_local: bool) -> Self {
        Self {
            is_local,
            is_tls: false,
            certificate: None,
            address: address.to_string().into(),
            origin: Origin::of(address.ip()),
            login: Arc::default(),
        }
    }

    /// Count it among those that have not logged in, where that is needed. Says no if
    /// there are too many of its address.
    pub(super) fn enter(&self, daemon: &Daemon, most: usize) -> bool {
        let config = daemon.config.load();
        if config.users.is_empty() {
            self.login.end();
            return true;
        }
        let most = most.min(config.limits.before_login_max);
        let place = daemon.logins.enter(self.origin, most);
        let is_in = place.is_some();
        *self.login.place.lock() = place;
        is_in
    }
}

impl Entrance {
    /// Count it as a connection of the user who makes its requests.
    pub(super) fn count(&self, daemon: &Daemon, user: Option<&Arc<User>>) -> Result<(), Over> {
        let Some(user) = user.filter(|user| !daemon.operator.is(user)) else {
            return Ok(());
        };
        let usage = daemon.quotas.of(&user.name);
        let mut counted = self.login.counted.lock();
        if !counted.as_ref().is_some_and(|one| one.is_of(&usage)) {
            let limits = &daemon.config.load().limits;
            *counted = Some(usage.take(Quota::Http, Some(user), limits)?);
        }
        Ok(())
    }
}

impl Login {
    /// A request of it was let in.
    pub(super) fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            *self.place.lock() = None;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Its place among those that have not logged in, as long as it has one.
    pub(super) fn place(&self) -> Option<Arc<LoginPlace>> {
        self.place.lock().clone()
    }
}
