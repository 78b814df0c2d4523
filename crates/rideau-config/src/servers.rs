//! Servers that others start: where they are, and when one is down.

mod place;
mod tls;

use std::time::Duration;

use rideau_core::apps::ServerRules;

pub use place::ServerPlace;
pub use tls::ServerTls;
pub(super) use tls::{TLS_SAMPLE, TlsTable};

/// Where servers are, and when one is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamServers {
    /// The servers.
    pub places: Vec<ServerPlace>,
    /// How often names are looked up again.
    pub lookup_every: Duration,
    /// How they are spoken to within TLS, if they are.
    pub tls: Option<ServerTls>,
    /// How long a server has to take a connection.
    pub connect_timeout: Duration,
    /// When a server is down, and when it is looked at.
    pub rules: ServerRules,
}

impl Default for UpstreamServers {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            lookup_every: Duration::from_secs(10),
            tls: None,
            connect_timeout: Duration::from_secs(2),
            rules: ServerRules::default(),
        }
    }
}
