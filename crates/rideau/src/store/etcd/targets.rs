//! The endpoints of a client: which one is used, its connection, and the token.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::error::{EtcdDoubt, EtcdError, EtcdRefusal};
use super::messages::StatusResponse;
use super::options::{EtcdLogin, EtcdOptions};
use super::version::{Fitness, fitness};

/// All endpoints. One is used until it fails, then the next one.
pub(super) struct Targets {
    all: Vec<Target>,
    /// Counts up. What is left of a division by the number of endpoints is the one in use.
    current: AtomicUsize,
    login: Option<EtcdLogin>,
    token: Mutex<Token>,
    /// The cluster that the first endpoint belongs to, or 0 as long as none has told.
    cluster: AtomicU64,
}

struct Target {
    name: String,
    endpoint: Endpoint,
    link: Mutex<Link>,
}

/// The connection of an endpoint, which connects again by itself when it was closed.
struct Link {
    channel: Channel,
    /// Which connection of this endpoint it is.
    serial: u64,
    /// The endpoint has told its version since it failed last.
    is_checked: bool,
}

/// What a request goes over.
#[derive(Clone)]
pub(super) struct EtcdRoute {
    pub(super) name: String,
    pub(super) channel: Channel,
    pub(super) token: Option<MetadataValue<Ascii>>,
    /// Whether the endpoint has told its version.
    pub(super) is_checked: bool,
    turn: usize,
    serial: u64,
}

/// What proves the user to etcd.
#[derive(Clone)]
pub(super) enum Token {
    /// A login has to bring it.
    Needed,
    /// There is no login, or etcd asks for none.
    Unneeded,
    Held(MetadataValue<Ascii>),
}

impl Targets {
    /// Must be called in a runtime: a task of it serves each connection.
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let targets = options.targets()?.into_iter();
        let all = targets.map(|(name, endpoint)| Target {
            name,
            link: Mutex::new(Link {
                channel: endpoint.connect_lazy(),
                serial: 0,
                is_checked: false,
            }),
            endpoint,
        });
        Ok(Self {
            all: all.collect(),
            current: AtomicUsize::new(0),
            login: options.login.clone(),
            token: Mutex::new(first_token(options.login.as_ref())),
            cluster: AtomicU64::new(0),
        })
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn login(&self) -> Option<&EtcdLogin> {
        self.login.as_ref()
    }

    pub(super) fn token(&self) -> Token {
        self.token.lock().clone()
    }

    pub(super) fn set_token(&self, token: Token) {
        *self.token.lock() = token;
    }

    /// The way to the endpoint in use, without a token.
    pub(super) fn route(&self) -> EtcdRoute {
        let turn = self.current.load(Ordering::Relaxed);
        let target = self.target(turn);
        let link = target.link.lock();
        EtcdRoute {
            name: target.name.clone(),
            channel: link.channel.clone(),
            token: None,
            is_checked: link.is_checked,
            turn,
            serial: link.serial,
        }
    }

    /// Takes an endpoint into use if what it says of itself is good enough.
    pub(super) fn admit(
        &self,
        route: &EtcdRoute,
        status: &StatusResponse,
    ) -> Result<(), EtcdError> {
        let no = |reason, said| Err(EtcdError::refused(reason, "Status", &route.name, said));
        match fitness(&status.version) {
            Fitness::Supported => (),
            Fitness::Doubtful => tracing::warn!(
                endpoint = route.name,
                version = status.version,
                "this version of etcd has known faults; upgrade it"
            ),
            Fitness::Unfit => {
                let said = format!("version {:?} is not fit for this", status.version);
                return no(EtcdRefusal::Version, said);
            }
        }
        let cluster = status.header.as_ref().map_or(0, |header| header.cluster_id);
        let first = self
            .cluster
            .compare_exchange(0, cluster, Ordering::Relaxed, Ordering::Relaxed)
            .unwrap_or_else(|first| first);
        if first != 0 && first != cluster {
            let said = format!("it is of cluster {cluster:x}, and the first was of {first:x}");
            return no(EtcdRefusal::OtherCluster, said);
        }
        let mut link = self.target(route.turn).link.lock();
        if link.serial == route.serial {
            link.is_checked = true;
        }
        Ok(())
    }

    /// Notes how a request over a route failed, and goes on to the next endpoint unless
    /// etcd itself refused.
    pub(super) fn leave(&self, route: &EtcdRoute, error: &EtcdError) {
        let (is_bad, is_stuck) = match error {
            EtcdError::Refused { reason, .. } => match reason {
                EtcdRefusal::Auth => {
                    self.set_token(first_token(self.login.as_ref()));
                    (false, false)
                }
                EtcdRefusal::Unreachable | EtcdRefusal::Version | EtcdRefusal::OtherCluster => {
                    (true, false)
                }
                _ => (false, false),
            },
            EtcdError::Unknown { reason, .. } => match reason {
                EtcdDoubt::NoSpace => (false, false),
                EtcdDoubt::Unavailable => (true, false),
                EtcdDoubt::Silent | EtcdDoubt::Broken | EtcdDoubt::Unclear => (true, true),
            },
        };
        if !is_bad {
            return;
        }
        // Another request may have gone on already.
        let _ = self.current.compare_exchange(
            route.turn,
            route.turn.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let target = self.target(route.turn);
        let mut link = target.link.lock();
        if link.serial != route.serial {
            return;
        }
        link.is_checked = false;
        if is_stuck {
            // Streams that still work keep the old connection.
            link.channel = target.endpoint.connect_lazy();
            link.serial += 1;
        }
    }

    fn target(&self, turn: usize) -> &Target {
        &self.all[turn % self.all.len()]
    }
}

const fn first_token(login: Option<&EtcdLogin>) -> Token {
    match login {
        Some(_) => Token::Needed,
        None => Token::Unneeded,
    }
}
