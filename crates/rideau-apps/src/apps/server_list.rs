//! What is known of the servers of an upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_config::{Http, ServerPlace, UpstreamServers};
use rideau_core::apps::ProcessId;
use rideau_process::Address;
use tokio::sync::Notify;

use crate::client_tls::TlsIdentity;
use crate::upstream::TlsTowardServers;

/// The servers of an upstream.
#[derive(Default)]
pub(crate) struct AppServers {
    pub(super) known: Mutex<KnownServers>,
    pub(super) changed: Notify,
    pub(super) down: Notify,
}

/// What is known of them.
#[derive(Default)]
pub(super) struct KnownServers {
    /// Those that the machine has.
    pub(super) servers: Vec<(UpstreamServer, ProcessId)>,
    /// The last addresses of each name.
    pub(super) addresses: BTreeMap<ServerPlace, Vec<SocketAddr>>,
    /// Names whose last lookup failed.
    pub(super) lost: BTreeSet<ServerPlace>,
    pub(super) tls: Option<Arc<TlsTowardServers>>,
}

/// A server, and how it is spoken to. If any of it is another, it is another server.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct UpstreamServer {
    pub(super) place: ServerPlace,
    pub(super) address: Address,
    pub(super) manner: ServerManner,
}

/// How servers are spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerManner {
    /// The name within TLS, and how that is spoken, if it is.
    pub(super) tls: Option<(TlsIdentity, Option<String>)>,
    pub(super) connect_within: Duration,
    pub(super) keep_alive: Duration,
}

impl AppServers {
    /// The config says something else, or the upstream is gone.
    pub(super) fn config_changed(&self) {
        self.changed.notify_one();
    }

    /// A server is down: if it has a name, that may have another address.
    pub(super) fn one_is_down(&self) {
        self.down.notify_one();
    }
}

impl KnownServers {
    pub(super) fn addresses_of(&self, place: &ServerPlace) -> Vec<Address> {
        match place {
            ServerPlace::Address(address) => vec![Address::Port(*address)],
            ServerPlace::Socket(path) => vec![Address::Socket(path.clone())],
            ServerPlace::Name { .. } => {
                let found = self.addresses.get(place).into_iter().flatten();
                found.map(|address| Address::Port(*address)).collect()
            }
        }
    }
}

impl ServerManner {
    pub(super) fn new(spec: &UpstreamServers, http: &Http) -> Self {
        let tls = spec.tls.as_ref().map(|tls| {
            let identity = TlsIdentity {
                ca: tls.ca.clone(),
                own: tls.cert.clone().zip(tls.key.clone()),
            };
            (identity, tls.name.clone())
        });
        Self {
            tls,
            connect_within: spec.connect_timeout,
            keep_alive: http.keep_alive,
        }
    }
}
